package polylimit

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Limiter decides whether requests may proceed. Any goroutine may use it at any time. Close releases its goroutine, descriptors and
// connections; a limiter that is forgotten is closed by the garbage collector, unless the function of WithOnDegraded or of WithCredentials
// refers to it.
//
// Every operation fails with ErrInvalidArgument when the key is longer than 1 MiB, the cost is not from 0 to 10^12 or
// the policy is unknown; with ErrClosed after Close, except what only describes the limiter (Policy, Metrics, MetricsText, Stats, and
// Configuration, CandidateCounts and TopKeys of its Admin), which returns its last state; and with the context's error when that is done
// first. A context that is done cancels the operation: an acquire leaves its wait queue, and units that the store has spent for it are
// refunded, in Redis in the background; whether any other operation was applied is unknown.
type Limiter struct {
	limiter     *C.polylimit_limiter
	completions *completions
	// The number of running operations, and the bit closed.
	uses atomic.Int64
	// How many more operations are not alone; see isAlone.
	accompanied atomic.Int64
	closing     sync.Once
	freeing     sync.Once
	freed       chan struct{}
	// The kind of the store.
	store string
	// Under this number the limiter raises events.
	number       uint64
	subscription *C.polylimit_go_subscription
	// Under this number C has the function that gives credentials; 0 is none.
	credentials uint64
}

// closed is the bit of uses that is set by Close.
const closed = 1 << 62

// Open opens a limiter on a store: "memory:", "local:<name>", "file:///path" or a URL of Redis such as
// "redis://localhost?deadline=20ms". It does not connect: a store that cannot be reached is not an error here.
func Open(url string, options ...Option) (*Limiter, error) {
	cURL, err := cText(url, "url")
	if err != nil {
		return nil, err
	}
	defer free(cURL)
	plain, err := cOptions(options)
	defer freeOptions(plain)
	if err != nil {
		return nil, err
	}
	array := optionArray(plain)
	defer C.free(unsafe.Pointer(array))
	var clock *C.polylimit_clock
	var hook func(DegradedEvent)
	var credentials *credentialsFunction
	for _, option := range options {
		if option.onDegraded != nil {
			hook = option.onDegraded
		}
		if option.clock != nil {
			clock = option.clock.clock
		}
		if option.credentials != nil {
			credentials = option.credentials
		}
	}
	if credentials != nil && credentials.give == nil {
		return nil, invalid("credentials is nil: allowed is a function")
	}
	// What stands before the colon of a URL is no secret.
	store, _, _ := strings.Cut(url, ":")
	limiter := &Limiter{freed: make(chan struct{}), store: store, credentials: registerCredentials(credentials)}
	var failure message
	err = failure.err(C.polylimit_go_open(cURL, array, C.size_t(len(plain)), clock, C.uint64_t(limiter.credentials), &limiter.limiter,
		&failure[0], C.size_t(len(failure))))
	runtime.KeepAlive(options)
	if err != nil {
		unregisterCredentials(limiter.credentials)
		return nil, err
	}
	if limiter.completions, err = openCompletions(); err != nil {
		unregisterCredentials(limiter.credentials)
		C.polylimit_limiter_free(limiter.limiter)
		return nil, err
	}
	if err = limiter.subscribe(hook); err != nil {
		_ = limiter.Close()
		C.polylimit_limiter_free(limiter.limiter)
		return nil, err
	}
	runtime.SetFinalizer(limiter, func(limiter *Limiter) {
		free := func() {
			_ = limiter.Close()
			C.polylimit_limiter_free(limiter.limiter)
		}
		if limiter.uses.Load()&closed != 0 {
			free()
			return
		}
		// Closing waits for the goroutine of the completions, and other finalizers wait for this one.
		go free()
	})
	return limiter, nil
}

// Close closes the limiter and its connections, and returns leased units to the store. Pending and later operations fail with
// ErrClosed; Close waits until they have ended. Closing again has no effect. The error is always nil: a limiter is an io.Closer.
func (l *Limiter) Close() error {
	l.closing.Do(func() {
		l.uses.Add(1)
		l.uses.Or(closed)
		C.polylimit_limiter_close(l.limiter)
		l.leave()
	})
	<-l.freed
	return nil
}

// String is the kind of the store.
func (l *Limiter) String() string {
	if l.uses.Load()&closed != 0 {
		return "closed limiter on " + l.store
	}
	return "limiter on " + l.store
}

// enter registers an operation, which must call leave when it ends.
func (l *Limiter) enter() error {
	if l.uses.Add(1)&closed != 0 {
		l.leave()
		return &Error{Kind: ErrClosed, Message: "the limiter is closed"}
	}
	return nil
}

// accompaniedFor is how many later operations are not alone after one has met another.
const accompaniedFor = 128

// isAlone reports whether an operation that has entered may block its thread. For operations that come one at a time this is
// faster than passing the answer from another thread to the goroutine. But Go runs no other goroutine on the processor of a
// blocked thread until its monitor notices: a service with 16 connections, some of whose operations are alone for a moment,
// then answers a third of the requests. So the operations before have to have been alone as well.
func (l *Limiter) isAlone() bool {
	if l.uses.Load() != 1 {
		if l.accompanied.Load() < accompaniedFor {
			l.accompanied.Store(accompaniedFor)
		}
		return false
	}
	return l.accompanied.Load() <= 0 || l.accompanied.Add(-1) < 0
}

// leave ends an operation. The last one after Close frees what only operations need; what describes the limiter stays until it is collected.
func (l *Limiter) leave() {
	if l.uses.Add(-1) == closed {
		l.freeing.Do(func() {
			l.completions.stop()
			l.unsubscribe()
			unregisterCredentials(l.credentials)
			close(l.freed)
		})
	}
}

// Check decides, and spends the cost from every quota of the policy when all admit it.
func (l *Limiter) Check(ctx context.Context, request Request) (Decision, error) {
	return l.decide(ctx, C.POLYLIMIT_CHECK, request, 0)
}

// Peek is the decision that a check would give now; it leaves no trace.
func (l *Limiter) Peek(ctx context.Context, request Request) (Decision, error) {
	return l.decide(ctx, C.POLYLIMIT_PEEK, request, 0)
}

// Acquire waits until the request is admitted and, in a leaky bucket, until its turn; at most for the timeout and until the
// context's deadline. If these cannot be met, it returns a denial at once and spends nothing. Requests that wait for the same
// key under the same policy are served in order.
func (l *Limiter) Acquire(ctx context.Context, request Request, timeout time.Duration) (Decision, error) {
	if err := checkDuration("timeout", timeout); err != nil {
		return Decision{}, err
	}
	if deadline, has := ctx.Deadline(); has {
		timeout = min(timeout, time.Until(deadline))
	}
	return l.decide(ctx, C.POLYLIMIT_ACQUIRE, request, microseconds(timeout))
}

// Take spends as much of the cost as every quota admits, from 0 to the cost; Usage.Taken is how much that was.
func (l *Limiter) Take(ctx context.Context, request Request) (Usage, error) {
	return l.spend(ctx, C.POLYLIMIT_TAKE, request)
}

// Charge spends the cost even if it exceeds what is left, for a cost that is known only afterwards. Usage saturates at 8 times
// each quota's capacity.
func (l *Limiter) Charge(ctx context.Context, request Request) (Usage, error) {
	return l.spend(ctx, C.POLYLIMIT_CHARGE, request)
}

// Refund gives units back, the newest first, at most as many as are used.
func (l *Limiter) Refund(ctx context.Context, request Request) (Usage, error) {
	return l.spend(ctx, C.POLYLIMIT_REFUND, request)
}

// Reset deletes the state of the key under its policy; the cost has no effect.
func (l *Limiter) Reset(ctx context.Context, request Request) (Usage, error) {
	return l.spend(ctx, C.POLYLIMIT_RESET, request)
}

// Ready waits until the store answers, and fails with ErrStoreUnavailable after the timeout. A service calls it at its start, so
// that its first decisions are the store's; a limiter works without it too.
func (l *Limiter) Ready(ctx context.Context, timeout time.Duration) error {
	if err := checkDuration("timeout", timeout); err != nil {
		return err
	}
	var result C.polylimit_result
	return l.run(ctx, C.POLYLIMIT_READY, Request{}, microseconds(timeout), &result)
}

// Admin has the operations of a limiter for operators; see Limiter.Admin. Any goroutine may use it at any time. It keeps the limiter alive.
type Admin struct {
	limiter *Limiter
}

// Admin returns the operations for operators: keys of the store, explanations, the policy document, lists.
func (l *Limiter) Admin() Admin {
	return Admin{limiter: l}
}
