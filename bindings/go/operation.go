package polylimit

// #include "shim.h"
import "C"

import "context"

// Result is the result of one request of CheckMany.
type Result struct {
	// Decision is valid if Err is nil.
	Decision Decision
	Err      error
}

// CheckMany checks several requests, of one or more policies, in one batch. Each is decided on its own, in order, and has its
// own result.
func (l *Limiter) CheckMany(ctx context.Context, requests []Request) []Result {
	results := make([]Result, len(requests))
	if err := l.enter(); err != nil {
		for at := range results {
			results[at].Err = err
		}
		return results
	}
	defer l.leave()
	// The tags of pending requests; 0 for one whose answer was available at once.
	tags := make([]uint64, len(requests))
	for at, request := range requests {
		var result C.polylimit_result
		tag, pending, err := l.completions.submit(ctx, l.limiter, C.POLYLIMIT_CHECK, request, 0, &result)
		switch {
		case err != nil:
			results[at].Err = err
		case pending:
			tags[at] = tag
		default:
			results[at].Decision = decisionOf(&result)
		}
	}
	for at, tag := range tags {
		if tag == 0 {
			continue
		}
		var result C.polylimit_result
		if err := l.completions.await(ctx, tag, &result); err != nil {
			results[at].Err = err
		} else {
			results[at].Decision = decisionOf(&result)
		}
	}
	return results
}

func (l *Limiter) decide(ctx context.Context, operation C.uint32_t, request Request, timeoutUs uint64) (Decision, error) {
	var result C.polylimit_result
	if err := l.run(ctx, operation, request, timeoutUs, &result); err != nil {
		return Decision{}, err
	}
	return decisionOf(&result), nil
}

func (l *Limiter) spend(ctx context.Context, operation C.uint32_t, request Request) (Usage, error) {
	var result C.polylimit_result
	if err := l.run(ctx, operation, request, 0, &result); err != nil {
		return Usage{}, err
	}
	return usageOf(&result), nil
}

// toC is the request in the form of C, which uses the memory of its texts.
func (r *Request) toC() C.polylimit_go_asked {
	return C.polylimit_go_asked{
		policy:        textStart(r.policy),
		key:           textStart(r.key),
		plan:          textStart(r.plan),
		policy_length: C.size_t(len(r.policy)),
		key_length:    C.size_t(len(r.key)),
		plan_length:   C.size_t(len(r.plan)),
		cost:          C.uint64_t(r.units()),
		headroom:      C.uint32_t(r.headroom),
	}
}

// run runs an operation and waits for its answer.
func (l *Limiter) run(ctx context.Context, operation C.uint32_t, request Request, timeoutUs uint64,
	result *C.polylimit_result) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	// Acquire and Ready may wait for long, and must not block a thread.
	if operation < C.POLYLIMIT_ACQUIRE && l.isAlone() {
		return l.blockingCall(ctx, operation, request, result)
	}
	tag, pending, err := l.completions.submit(ctx, l.limiter, operation, request, timeoutUs, result)
	if pending {
		return l.completions.await(ctx, tag, result)
	}
	return err
}
