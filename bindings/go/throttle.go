package polylimit

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"time"
	"unsafe"
)

// Throttle is what the requests of one HTTP client share: the backoff, and the pauses that servers have asked for. Any goroutine may
// use it at any time. nethttp.Transport uses it for net/http.
type Throttle struct {
	throttle *C.polylimit_throttle
}

// NewThrottle makes a throttle without pauses; nil is DefaultBackoff. MaxWait bounds all waits of a request together.
func NewThrottle(backoff *Backoff) (*Throttle, error) {
	throttle := &Throttle{}
	var plain *C.polylimit_backoff
	if backoff != nil {
		own, err := backoff.plain()
		if err != nil {
			return nil, err
		}
		plain = &own
	}
	var failure message
	if err := failure.err(C.polylimit_throttle_new(plain, &throttle.throttle, &failure[0], C.size_t(len(failure)))); err != nil {
		return nil, err
	}
	runtime.AddCleanup(throttle, func(plain *C.polylimit_throttle) { C.polylimit_throttle_free(plain) }, throttle.throttle)
	return throttle, nil
}

// ThrottledError is the error of a request that was not sent, because it would have to wait for too long.
type ThrottledError struct {
	// Message says what the server or the limiter asked for.
	Message string
	// RetryAfter is after which time the request would be sent; Never if the limiter never admits it.
	RetryAfter time.Duration
}

func (e *ThrottledError) Error() string { return "polylimit: " + e.Message }

// Attempts are the attempts of one request.
type Attempts struct {
	limiter  *Limiter
	request  Request
	attempts *C.polylimit_attempts
}

// Start starts a request of an HTTP client that acquires from the limiter. Its key is the one of the pauses as well. Whether the
// body can be sent again is replayable. All waits end by the context's deadline.
func (t *Throttle) Start(ctx context.Context, limiter *Limiter, request Request, method string, replayable bool) (*Attempts, error) {
	defer runtime.KeepAlive(t)
	cMethod, err := cText(method, "method")
	if err != nil {
		return nil, err
	}
	defer free(cMethod)
	timeoutUs := C.uint64_t(C.POLYLIMIT_NEVER)
	if deadline, has := ctx.Deadline(); has {
		timeoutUs = C.uint64_t(microseconds(time.Until(deadline)))
	}
	canReplay := C.uint32_t(0)
	if replayable {
		canReplay = 1
	}
	attempts := &Attempts{limiter: limiter, request: request}
	var failure message
	status := C.polylimit_attempts_new(t.throttle, textStart(request.key), C.size_t(len(request.key)), cMethod, canReplay, timeoutUs,
		&attempts.attempts, &failure[0], C.size_t(len(failure)))
	if err := failure.err(status); err != nil {
		return nil, err
	}
	runtime.AddCleanup(attempts, func(plain *C.polylimit_attempts) { C.polylimit_attempts_free(plain) }, attempts.attempts)
	return attempts, nil
}

// Admit waits until the next attempt may be sent. It fails with a *ThrottledError when that would take too long, with the context's
// error when that is done, and with the errors of Limiter.Acquire.
func (a *Attempts) Admit(ctx context.Context) error {
	defer runtime.KeepAlive(a)
	for {
		var step C.uint32_t
		var us C.uint64_t
		var failure message
		err := failure.err(C.polylimit_attempts_step(a.attempts, &step, &us, &failure[0], C.size_t(len(failure))))
		switch {
		case err != nil:
		case step == C.POLYLIMIT_STEP_WAIT:
			err = sleep(ctx, duration(uint64(us)))
		case step == C.POLYLIMIT_STEP_ACQUIRE:
			err = a.acquire(ctx, duration(uint64(us)))
		case step == C.POLYLIMIT_STEP_SEND:
			return nil
		default:
			err = a.refusal()
		}
		if err != nil {
			return err
		}
	}
}

func (a *Attempts) acquire(ctx context.Context, timeout time.Duration) error {
	var result C.polylimit_result
	if err := a.limiter.run(ctx, C.POLYLIMIT_ACQUIRE, a.request, microseconds(timeout), &result); err != nil {
		return err
	}
	decision := (*C.polylimit_decision)(unsafe.Pointer(&result.answer))
	decision.size = C.sizeof_polylimit_decision
	var failure message
	return failure.err(C.polylimit_attempts_acquired(a.attempts, decision, &failure[0], C.size_t(len(failure))))
}

func (a *Attempts) refusal() error {
	var us C.uint64_t
	text, err := rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_attempts_refusal(a.attempts, &us, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
	if err != nil {
		return err
	}
	return &ThrottledError{Message: text, RetryAfter: duration(uint64(us))}
}

// Responded reports a response with its header fields, of which ServerWait has those that are read. If it is true, the client
// discards the response and asks Admit for the next attempt.
func (a *Attempts) Responded(status int, header map[string][]string) (again bool, err error) {
	defer runtime.KeepAlive(a)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	fields := cFields(&pinner, header)
	var isAgain C.uint32_t
	var failure message
	err = failure.err(C.polylimit_attempts_responded(a.attempts, C.uint32_t(status), unsafe.SliceData(fields), C.size_t(len(fields)),
		&isAgain, &failure[0], C.size_t(len(failure))))
	return isAgain != 0, err
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
