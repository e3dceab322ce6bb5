package polylimit

/*
#cgo noescape polylimit_go_guard_conclude
#cgo nocallback polylimit_go_guard_conclude
#cgo noescape polylimit_go_guard_finish
#cgo nocallback polylimit_go_guard_finish
#cgo nocallback polylimit_go_guard_close
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// GuardCheck is the decision of a guard on one request.
type GuardCheck struct {
	// Admitted is whether the request proceeds.
	Admitted bool
	// Decision is that of the guard's first policy; HasDecision is false when the request is not limited or no decision was made.
	Decision    Decision
	HasDecision bool
	// Holds is whether the request holds reservations, so that End has to be called when its response is done.
	Holds bool

	guard *Guard
	// The policies of the request, as they were given.
	policies []string
	// The check may be read on several goroutines, and is freed by Close.
	mutex sync.Mutex
	check *C.polylimit_guard_check
	text  string
	// Whether there is a decision, and whether the response is known.
	isConcluded, isFinished C.uint32_t
}

// guardCall is memory for one call; it is reused.
type guardCall struct {
	plain   C.polylimit_go_guard_call
	failure message
}

var guardCalls = sync.Pool{New: func() any { return new(guardCall) }}

// Check decides on a request. Earlier is nil, or a check of another guard on the same request: the guards of a request charge a
// policy and key once, and report together. OnOutage may be nil; it is called when a decision was made without the store.
//
// An error means that no decision could be made and that the store is not the cause; it is the context's error when that was
// cancelled. The deadline of a context counts as an outage. Close ends the check.
func (g *Guard) Check(ctx context.Context, earlier *GuardCheck, facts *RequestFacts, onOutage func(Outage) OutageAction) (*GuardCheck, error) {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return nil, err
	}
	if err := g.limiter.enter(); err != nil {
		return nil, err
	}
	defer g.limiter.leave()
	own := guardCalls.Get().(*guardCall)
	defer guardCalls.Put(own)
	check := &GuardCheck{guard: g, policies: g.policiesOf(facts)}
	err := g.decide(ctx, check, own, earlier, facts, onOutage)
	if err != nil {
		check.Close()
		return nil, err
	}
	return check, nil
}

func (g *Guard) decide(ctx context.Context, check *GuardCheck, own *guardCall, earlier *GuardCheck, facts *RequestFacts,
	onOutage func(Outage) OutageAction) error {
	status, err := g.start(check, own, earlier, facts)
	if err != nil {
		return err
	}
	for stage := own.plain.stage; status == C.POLYLIMIT_PENDING; stage = own.plain.stage {
		action := OutageAction(C.POLYLIMIT_OUTAGE_LEAVE)
		switch stage {
		case C.POLYLIMIT_GO_ASKED:
			err := g.limiter.advance(ctx, check.check)
			if errors.Is(err, context.Canceled) {
				return err
			}
			if err != nil {
				C.polylimit_guard_check_give_up(check.check)
			}
		case C.POLYLIMIT_GO_OUTAGE:
			if onOutage != nil {
				action = onOutage(check.outage(own))
			}
		case C.POLYLIMIT_GO_REFUNDED:
			_ = g.limiter.advance(context.WithoutCancel(ctx), check.check)
		}
		status = C.polylimit_go_guard_conclude(&own.plain, C.uint32_t(action), &own.failure[0], C.size_t(len(own.failure)))
	}
	if err := own.failure.err(status); err != nil {
		return err
	}
	check.isConcluded = 1
	check.Admitted, check.Holds = own.plain.admitted != 0, own.plain.holds != 0
	if check.HasDecision = own.plain.has_decision != 0; check.HasDecision {
		check.Decision = decisionFrom(&own.plain.decision)
	}
	check.text, err = check.fieldText(own)
	return err
}

// advance has the store do what a check needs next, and waits for it.
func (l *Limiter) advance(ctx context.Context, check *C.polylimit_guard_check) error {
	var failure message
	if l.isAlone() {
		return l.advanceBlocking(ctx, check)
	}
	for {
		tag := l.completions.tags.Add(1)
		status := C.polylimit_guard_check_submit(check, l.completions.c, C.uint64_t(tag), &failure[0], C.size_t(len(failure)))
		if status != C.POLYLIMIT_PENDING {
			return failure.err(status)
		}
		var result C.polylimit_result
		if err := l.completions.await(ctx, tag, &result); err != nil {
			return err
		}
	}
}

// advanceBlocking waits on the calling thread, as blockingCall does.
func (l *Limiter) advanceBlocking(ctx context.Context, check *C.polylimit_guard_check) error {
	var failure message
	if ctx.Done() == nil {
		return failure.err(C.polylimit_guard_check_run(check, nil, &failure[0], C.size_t(len(failure))))
	}
	var stopped atomic.Uint32
	ended := context.AfterFunc(ctx, func() { stopped.Store(1) })
	defer ended()
	status := C.polylimit_guard_check_run(check, (*C.uint32_t)(unsafe.Pointer(&stopped)), &failure[0], C.size_t(len(failure)))
	if status == C.POLYLIMIT_PENDING {
		return ctx.Err()
	}
	return failure.err(status)
}

// outage is what the program hears.
func (c *GuardCheck) outage(own *guardCall) Outage {
	if own.plain.cause != C.POLYLIMIT_OK {
		return Outage{Err: own.failure.err(own.plain.cause)}
	}
	return Outage{Outcomes: c.Outcomes(false)}
}

// Outcomes are the decisions of the guard's policies or, ofRequest, of all guards of the request so far, with what is left after
// refunds. A check that was closed has none.
func (c *GuardCheck) Outcomes(ofRequest bool) []Outcome {
	if c == nil {
		return nil
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var scope C.uint32_t
	if ofRequest {
		scope = 1
	}
	count := int(C.polylimit_guard_check_outcomes(c.check, scope))
	outcomes := make([]Outcome, 0, count)
	for at := range count {
		own := scratches.Get().(*scratch)
		own.decision.size = C.uint32_t(unsafe.Sizeof(own.decision))
		status := C.polylimit_guard_check_outcome(c.check, scope, C.size_t(at), &own.decision, own.start(),
			C.size_t(len(own.buffer)), &own.length, &own.failure[0], C.size_t(len(own.failure)))
		if policy, isDone, err := own.text(status); isDone && err == nil {
			outcomes = append(outcomes, Outcome{policy, decisionFrom(&own.decision)})
		}
		scratches.Put(own)
	}
	return outcomes
}

// Fields are the fields of the response, for all guards of the request so far: they replace those of earlier guards.
func (c *GuardCheck) Fields(yield func(HeaderField) bool) {
	rest := c.text
	for {
		line, others, isLine := strings.Cut(rest, "\r\n")
		name, value, isField := strings.Cut(line, ": ")
		if !isLine || !isField || !yield(HeaderField{name, value}) {
			return
		}
		rest = others
	}
}

// fieldText is the text of the fields after a call.
func (c *GuardCheck) fieldText(own *guardCall) (string, error) {
	if int(own.plain.length) < len(own.plain.fields) {
		text := unsafe.Slice((*byte)(unsafe.Pointer(&own.plain.fields[0])), int(own.plain.length))
		return string(text), nil
	}
	return rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_guard_check_fields(c.check, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
}

// Problem is the default response to a request that does not proceed, for a client that has sent these lines of Accept.
func (c *GuardCheck) Problem(accept []string) (*Problem, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var cAccept *C.char
	if len(accept) > 0 {
		cAccept = foreignText(strings.Join(accept, ","))
		defer free(cAccept)
	}
	var status C.uint32_t
	text, err := rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_guard_check_response(c.check, cAccept, &status, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
	if err != nil {
		return nil, err
	}
	problem := &Problem{Status: int(status)}
	head, body, _ := strings.Cut(text, "\r\n\r\n")
	problem.Body = body
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		problem.Fields = append(problem.Fields, HeaderField{name, value})
		if name == "content-type" {
			problem.ContentType = value
		}
	}
	return problem, nil
}

// Finish is called when the status of the response is known. If the response does not count, the units that only this guard relies on
// are refunded, also after the context was cancelled, and Fields show what is left then. Until Close, a response that counts is one
// that other guards of the request may rely on.
func (c *GuardCheck) Finish(ctx context.Context, counts bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.check == nil {
		return
	}
	if counts {
		return
	}
	c.isFinished = 1
	own := guardCalls.Get().(*guardCall)
	defer guardCalls.Put(own)
	own.plain.check = c.check
	for C.polylimit_go_guard_finish(&own.plain, 0) == C.POLYLIMIT_PENDING {
		if c.guard.limiter.enter() != nil {
			break
		}
		err := c.guard.limiter.advance(context.WithoutCancel(ctx), c.check)
		c.guard.limiter.leave()
		if err != nil {
			break
		}
	}
	if text, err := c.fieldText(own); err == nil {
		c.text = text
	}
}

// ReadsResponse is whether the response has to be passed to ReadHead, because it reports what the request has spent.
func (c *GuardCheck) ReadsResponse() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.Holds && C.polylimit_guard_check_reads_response(c.check) != 0
}

// ReadHead reads the fields of the response, before End. It returns whether the body has to be passed to ReadBody.
func (c *GuardCheck) ReadHead(fields map[string][]string) bool {
	var text strings.Builder
	for name, lines := range fields {
		for _, line := range lines {
			text.WriteString(name + ": " + strings.ReplaceAll(line, "\n", " ") + "\r\n")
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.check == nil {
		return false
	}
	var readsBody C.uint32_t
	head := text.String()
	C.polylimit_guard_check_read_head(c.check, (*C.uint8_t)(unsafe.StringData(head)), C.size_t(len(head)), &readsBody, nil, 0)
	return readsBody != 0
}

// ReadBody reads the next part of the body of the response, of any size, which is not kept.
func (c *GuardCheck) ReadBody(part []byte) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.check != nil && len(part) > 0 {
		C.polylimit_guard_check_read_body(c.check, (*C.uint8_t)(unsafe.SliceData(part)), C.size_t(len(part)), nil, 0)
	}
}

// End is called for a check that Holds, when the response is done, its client has gone, or a web socket is closed. It commits what was
// spent under each policy that the request has reserved, or what was reserved when isKnown is false; nothing for a response that does
// not count. It waits for the store, also after the context was cancelled. With more than 10^12 units it commits what was reserved, and
// fails with ErrInvalidArgument. Ending again has no effect.
func (c *GuardCheck) End(ctx context.Context, spent int64, isKnown bool) error {
	units := C.uint64_t(C.POLYLIMIT_AS_RESERVED)
	switch {
	case isKnown && spent < 0:
		// It is refused, as units above the range are.
		units = math.MaxInt64
	case isKnown:
		units = C.uint64_t(spent)
	}
	return c.end(ctx, nil, units)
}

// EndEach is End with what was spent under each policy: by the policy as it is in Policies of the guard or of the request. Under one that
// is not in the map, what was reserved was spent. With a policy that the request does not have, and with more than 10^12 units or less than
// 0, what was reserved is committed under all policies, and it fails with ErrInvalidArgument.
func (c *GuardCheck) EndEach(ctx context.Context, spent map[string]int64) error {
	units, err := byPosition("spent", c.policies, spent, C.POLYLIMIT_AS_RESERVED)
	if err != nil {
		return errors.Join(err, c.end(ctx, nil, C.POLYLIMIT_AS_RESERVED))
	}
	return c.end(ctx, units, C.POLYLIMIT_AS_RESERVED)
}

// end ends what the check holds, with the units of all policies or, if there are any, of each.
func (c *GuardCheck) end(ctx context.Context, spent []C.uint64_t, spentByAll C.uint64_t) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.check == nil {
		return nil
	}
	if c.isFinished == 0 {
		c.isFinished = 1
		C.polylimit_guard_check_finish(c.check, 1, nil, 0)
	}
	var failure message
	status := C.polylimit_go_guard_end(c.check, unsafe.SliceData(spent), C.size_t(len(spent)), spentByAll, &failure[0], C.size_t(len(failure)))
	if status != C.POLYLIMIT_PENDING {
		return failure.err(status)
	}
	if err := c.guard.limiter.enter(); err != nil {
		return err
	}
	defer c.guard.limiter.leave()
	return c.guard.limiter.advance(context.WithoutCancel(ctx), c.check)
}

// Close ends a check; the response counts, unless Finish said otherwise. It waits for the store where another guard of the request has
// spent more than this one was charged. What it still holds ends in the background as if the client had
// left. Closing again has no effect.
func (c *GuardCheck) Close() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.check != nil {
		status := C.polylimit_go_guard_close(c.check, c.isConcluded, c.isFinished)
		if status == C.POLYLIMIT_PENDING {
			if c.guard.limiter.enter() == nil {
				_ = c.guard.limiter.advance(context.Background(), c.check)
				c.guard.limiter.leave()
			}
			C.polylimit_guard_check_free(c.check)
		}
		c.check = nil
	}
}
