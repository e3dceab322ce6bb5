package polylimit

/*
#cgo noescape polylimit_go_matching
#cgo nocallback polylimit_go_matching
#cgo noescape polylimit_go_decide
#cgo nocallback polylimit_go_decide
#include "shim.h"
*/
import "C"

import (
	"context"
	"strings"
	"time"
	"unsafe"
)

// RequestAttributes is what a program says about a request, so that the configuration finds the limits of it. What is empty is absent.
type RequestAttributes struct {
	// Method is the method, such as GET.
	Method string
	// Path is the path as the router sees it, with its escapes and every prefix that was stripped. Scheme and authority before it and a
	// query after it are ignored.
	Path string
	// RouterPaths is how the router reads paths, where it does not compare them byte by byte.
	RouterPaths RouterPaths
	// Peer is the other end of the socket: an address, with or without a port, or any other text.
	Peer string
	// Headers are the lines of the headers as names and values, in the order in which they came. Names are in any case.
	Headers [][2]string
	// Attributes are what the program knows of the request, such as "user", "plan" or "route": the pattern that the router has matched,
	// such as "/v1/users/{id}".
	Attributes map[string]string
}

// RouterPaths is how a router reads paths: a sum of its properties. The table paths of a document wins over it.
type RouterPaths uint32

const (
	// PathsIgnoreCase: the router ignores the case of letters, so that "/LOGIN" is "/login".
	PathsIgnoreCase = RouterPaths(C.POLYLIMIT_PATHS_IGNORE_CASE)
	// PathsDropParameters: the router drops what follows a ";" in each segment, as in "/login;jsessionid=1".
	PathsDropParameters = RouterPaths(C.POLYLIMIT_PATHS_DROP_PARAMETERS)
	// PathsDropSuffix: the router accepts a format after the path, as in "/login.json".
	PathsDropSuffix = RouterPaths(C.POLYLIMIT_PATHS_DROP_SUFFIX)
	// PathsEveryReading: how the router treats dot segments and escaped slashes is not known: a request counts under the rules for each
	// way to read its path. A middleware always does so.
	PathsEveryReading = RouterPaths(C.POLYLIMIT_PATHS_EVERY_READING)
)

// PolicyMatch is a policy that the configuration's rules apply to a request.
type PolicyMatch struct {
	// Policy is the policy's name, and Key the key under it.
	Policy, Key string
	// Cost is the units that the request spends.
	Cost uint64
	// Headroom is the percent of each quota's capacity that is left for others.
	Headroom int
}

// PolicyDecision is the decision of one policy on a request.
type PolicyDecision struct {
	PolicyMatch
	// Decision is the policy's decision. A request that is denied may have decisions that admit it: what they spent was given back.
	Decision Decision
	// Reservation is the id of the reservation that was made, which Limiter.Commit or Limiter.Cancel ends; empty where units were spent.
	Reservation string
}

// RequestDecision is the decision on a request by the configuration's lists, rules and policies.
type RequestDecision struct {
	// Allowed is whether the request may proceed.
	Allowed bool
	// Cause is why it was denied, or admitted without the store, as in Decision; empty for none.
	Cause string
	// Status is the HTTP status of a denial: 400 for a missing key, 403 for a deny list, otherwise 429. 0 when allowed.
	Status int
	// RetryAfter is the time until the request would be admitted: the longest over the denials; 0 when allowed, Never when never.
	RetryAfter time.Duration
	// Decisions are those of the policies, in the order of the rules; none when a list or a missing key decides.
	Decisions []PolicyDecision
}

// plainAttributes are the texts of a request, one after the other, with their lengths; after the third is how the router reads paths.
type plainAttributes struct {
	texts               strings.Builder
	lengths             []C.size_t
	headers, attributes C.size_t
}

func (p *plainAttributes) add(text string) {
	p.texts.WriteString(text)
	p.lengths = append(p.lengths, C.size_t(len(text)))
}

func (r *RequestAttributes) plain() *plainAttributes {
	count := 4 + 2*(len(r.Headers)+len(r.Attributes))
	plain := &plainAttributes{
		lengths:    make([]C.size_t, 0, count),
		headers:    C.size_t(len(r.Headers)),
		attributes: C.size_t(len(r.Attributes)),
	}
	plain.add(r.Method)
	plain.add(r.Path)
	plain.add(r.Peer)
	plain.lengths = append(plain.lengths, C.size_t(r.RouterPaths))
	for _, header := range r.Headers {
		plain.add(header[0])
		plain.add(header[1])
	}
	for name, value := range r.Attributes {
		plain.add(name)
		plain.add(value)
	}
	return plain
}

// Matching is the policies that the configuration's rules apply to a request. It asks no store and spends nothing. It fails with
// ErrInvalidArgument for a limiter without a configuration, and when an attribute that gives a cost holds none.
func (a Admin) Matching(request RequestAttributes) ([]PolicyMatch, error) {
	l := a.limiter
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	plain := request.plain()
	var matches *C.polylimit_matches
	var failure message
	if err := failure.err(C.polylimit_go_matching(l.limiter, textStart(plain.texts.String()), &plain.lengths[0], plain.headers,
		plain.attributes, &matches, &failure[0], C.size_t(len(failure)))); err != nil {
		return nil, err
	}
	defer C.polylimit_matches_free(matches)
	found := make([]PolicyMatch, C.polylimit_matches_count(matches))
	for at := range found {
		var match C.polylimit_match
		match.size = C.uint32_t(unsafe.Sizeof(match))
		if err := failure.err(C.polylimit_matches_at(matches, C.size_t(at), &match, &failure[0], C.size_t(len(failure)))); err != nil {
			return nil, err
		}
		found[at] = PolicyMatch{
			Policy:   C.GoString(match.policy),
			Key:      C.GoStringN((*C.char)(match.key), C.int(match.key_length)),
			Cost:     uint64(match.cost),
			Headroom: int(match.headroom),
		}
	}
	return found, nil
}

// Decide decides about a request by the configuration: its lists, its rules and their policies. All policies admit it, or nothing is
// spent. Policies with a quota of concurrent reservations reserve by ReserveID, ReserveTTL and ReserveRemember. The request does not wait
// in line: it fails with ErrInvalidArgument for a ReserveTimeout, and as Admin.Matching does.
func (l *Limiter) Decide(ctx context.Context, request RequestAttributes, options ...ReserveOption) (RequestDecision, error) {
	var settings reserveSettings
	for _, option := range options {
		option(&settings)
	}
	terms, err := settings.toC()
	if err != nil {
		return RequestDecision{}, err
	}
	if err := l.enter(); err != nil {
		return RequestDecision{}, err
	}
	defer l.leave()
	if err := ctx.Err(); err != nil {
		return RequestDecision{}, err
	}
	// NULL is a random id. The library refuses an id of no bytes, which points at the NUL.
	var id *C.char
	if settings.hasID {
		id = textStart(settings.id + "\x00")
	}
	plain := request.plain()
	var decision *C.polylimit_request_decision
	var result C.polylimit_result
	tag := l.completions.tags.Add(1)
	status := C.polylimit_go_decide(l.completions.c, l.limiter, textStart(plain.texts.String()), &plain.lengths[0], plain.headers,
		plain.attributes, &terms, id, C.size_t(len(settings.id)), C.uint64_t(tag), &decision, &result)
	err = resultError(status, &result)
	if status == C.POLYLIMIT_PENDING {
		err = l.completions.await(ctx, tag, &result)
	}
	defer C.polylimit_request_decision_free(decision)
	if err != nil {
		return RequestDecision{}, err
	}
	return requestDecisionOf(decision)
}

func requestDecisionOf(decision *C.polylimit_request_decision) (RequestDecision, error) {
	var outcome C.polylimit_request_outcome
	var failure message
	outcome.size = C.uint32_t(unsafe.Sizeof(outcome))
	if err := failure.err(C.polylimit_request_decision_outcome(decision, &outcome, &failure[0], C.size_t(len(failure)))); err != nil {
		return RequestDecision{}, err
	}
	decided := RequestDecision{
		Allowed:    outcome.allowed != 0,
		Cause:      causeName(outcome.cause),
		Status:     int(outcome.http_status),
		RetryAfter: duration(uint64(outcome.retry_after_us)),
		Decisions:  make([]PolicyDecision, outcome.policy_count),
	}
	for at := range decided.Decisions {
		var made C.polylimit_policy_decision
		made.size = C.uint32_t(unsafe.Sizeof(made))
		if err := failure.err(C.polylimit_request_decision_at(decision, C.size_t(at), &made, &failure[0], C.size_t(len(failure)))); err != nil {
			return RequestDecision{}, err
		}
		decided.Decisions[at] = PolicyDecision{
			PolicyMatch: PolicyMatch{
				Policy:   C.GoString(made.policy),
				Key:      C.GoStringN((*C.char)(made.key), C.int(made.key_length)),
				Cost:     uint64(made.cost),
				Headroom: int(made.headroom),
			},
			Decision:    decisionFrom(&made.decision),
			Reservation: C.GoStringN((*C.char)(made.id), C.int(made.id_length)),
		}
	}
	return decided, nil
}
