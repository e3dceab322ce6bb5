package polylimit

/*
#cgo noescape polylimit_go_headers
#cgo nocallback polylimit_go_headers
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// Outcome is the decision of a policy about a request.
type Outcome struct {
	// Policy is as in the request; it may be empty when the limiter has one policy.
	Policy   string
	Decision Decision
}

// HeaderField is one field of a response: a name in lower case, and a value of printable ASCII.
type HeaderField struct {
	Name, Value string
}

// Headers are the fields of the response to a request, in a fixed order. The settings are words in any order, separated by spaces; those
// that are left out are "ietf" and "seconds": "ietf" (ratelimit-policy and ratelimit), "legacy" (x-ratelimit-limit, -remaining, -reset),
// "both" or "none"; whether x-ratelimit-reset is in "seconds" from now, or since the "epoch"; and other names for fields, such as
// "x-ratelimit-limit=x-limit", where an empty name turns its field off. Retry-after is sent in any case.
func (l *Limiter) Headers(settings string, outcomes ...Outcome) ([]HeaderField, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	text, err := l.headerText(settings, outcomes)
	if err != nil {
		return nil, err
	}
	return headerFields(text), nil
}

// headerFields are the fields of lines "name: value".
func headerFields(text string) []HeaderField {
	fields := make([]HeaderField, 0, strings.Count(text, "\n"))
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, isField := strings.Cut(line, ": "); isField {
			fields = append(fields, HeaderField{name, value})
		}
	}
	return fields
}

// headerText has a line for each field.
func (l *Limiter) headerText(settings string, outcomes []Outcome) (string, error) {
	nowUs := C.uint64_t(time.Now().UnixMicro())
	if len(outcomes) == 1 && !hasNUL(outcomes[0].Policy, settings) {
		own := scratches.Get().(*scratch)
		defer scratches.Put(own)
		outcomes[0].Decision.toC(&own.decision)
		policy := outcomes[0].Policy
		status := C.polylimit_go_headers(l.limiter, textStart(policy), C.size_t(len(policy)), &own.decision,
			textStart(settings), C.size_t(len(settings)), nowUs, own.start(), C.size_t(len(own.buffer)), &own.length,
			&own.failure[0], C.size_t(len(own.failure)))
		if text, isDone, err := own.text(status); isDone {
			return text, err
		}
	}
	headers, _, err := optionalTexts(settings, "")
	defer free(headers)
	if err != nil {
		return "", err
	}
	plain, err := newOutcomes(outcomes)
	defer plain.free()
	if err != nil {
		return "", err
	}
	return rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_headers_render(l.limiter, plain.start(), C.size_t(len(plain.outcomes)), headers, nowUs,
			buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
}

func hasNUL(texts ...string) bool {
	for _, text := range texts {
		if strings.IndexByte(text, 0) >= 0 {
			return true
		}
	}
	return false
}

// Problem is the response to a denied request.
type Problem struct {
	// Status is 429, or 503 when the denial is due to an outage of the store. That of a guard may be another one.
	Status int
	// ContentType is the content type of Body.
	ContentType string
	// Body is a problem document (RFC 9457), or a line of text.
	Body string
	// Fields are content-type and vary, if a guard has made the problem.
	Fields []HeaderField
}

// Problem makes the response to a denied request of this cost; nil when no outcome is a denial.
func (l *Limiter) Problem(cost int64, json bool, outcomes ...Outcome) (*Problem, error) {
	if cost < 0 {
		return nil, negativeCost(cost)
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	plain, err := newOutcomes(outcomes)
	defer plain.free()
	if err != nil {
		return nil, err
	}
	var asJSON, status C.uint32_t
	if json {
		asJSON = 1
	}
	body, err := rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_problem_render(l.limiter, plain.start(), C.size_t(len(plain.outcomes)),
			C.uint64_t(cost), asJSON, &status, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
	if err != nil || status == 0 {
		return nil, err
	}
	return &Problem{Status: int(status), ContentType: C.GoString(C.polylimit_problem_content_type(asJSON)), Body: body}, nil
}

// PrefersText says whether a client that sent this Accept field prefers text to a problem document (RFC 9110, section 12.5.1).
func PrefersText(accept string) bool {
	cAccept := foreignText(accept)
	defer free(cAccept)
	return C.polylimit_problem_json_for(cAccept) == 0
}

// outcomesInC are outcomes for C; their decisions are in pinned memory of Go.
type outcomesInC struct {
	outcomes  []C.polylimit_outcome
	decisions []C.polylimit_decision
	pinner    runtime.Pinner
}

func newOutcomes(outcomes []Outcome) (*outcomesInC, error) {
	plain := &outcomesInC{
		outcomes:  make([]C.polylimit_outcome, 0, len(outcomes)),
		decisions: make([]C.polylimit_decision, len(outcomes)),
	}
	for at := range outcomes {
		policy, _, err := optionalTexts(outcomes[at].Policy, "")
		if err != nil {
			return plain, err
		}
		outcomes[at].Decision.toC(&plain.decisions[at])
		plain.outcomes = append(plain.outcomes, C.polylimit_outcome{policy: policy, decision: &plain.decisions[at]})
	}
	if len(outcomes) > 0 {
		plain.pinner.Pin(&plain.decisions[0])
	}
	return plain, nil
}

func (o *outcomesInC) start() *C.polylimit_outcome { return unsafe.SliceData(o.outcomes) }

func (o *outcomesInC) free() {
	o.pinner.Unpin()
	for _, outcome := range o.outcomes {
		free((*C.char)(unsafe.Pointer(outcome.policy)))
	}
}

// optionalTexts copies two texts for C; an empty one becomes NULL.
func optionalTexts(first, second string) (*C.char, *C.char, error) {
	var texts [2]*C.char
	for at, text := range []string{first, second} {
		if text == "" {
			continue
		}
		var err error
		if texts[at], err = cText(text, "a text"); err != nil {
			return texts[0], texts[1], err
		}
	}
	return texts[0], texts[1], nil
}
