package polylimit

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Limiter decides whether requests may proceed. Any goroutine may use it at any time. Close it when it is not needed any
// more.
//
// Every operation fails with ErrInvalidArgument when the key is longer than 1 MiB, the cost is no number from 0 to 10^12
// or the policy is not known; with ErrClosed after Close; and with the context's error when that is done first. A context
// that is done gives up the operation: an acquire leaves its queue, and units that the store has spent for it are refunded, in
// Redis in the background; of anything else it stays unknown whether it was applied.
type Limiter struct {
	limiter *C.polylimit_limiter
	waiting *waiting
	// How many operations are under way, and whether it was closed.
	uses    atomic.Int64
	closing sync.Once
	freeing sync.Once
	freed   chan struct{}
	// By which its events are told.
	number  uint64
	hearing *C.polylimit_go_hearing
}

// closed is the bit of uses that says so.
const closed = 1 << 62

// Open opens a limiter on a store: "memory:", "local:<name>", "file:///path" or a URL of Redis such as
// "redis://localhost?deadline=20ms". It connects to nothing: a store that cannot be reached may be found later.
func Open(url string, options ...Option) (*Limiter, error) {
	cURL, err := cText(url, "url")
	if err != nil {
		return nil, err
	}
	defer free(cURL)
	plain, err := plainOptions(options)
	defer freePlain(plain)
	if err != nil {
		return nil, err
	}
	array := inC(plain)
	defer C.free(unsafe.Pointer(array))
	var clock *C.polylimit_clock
	var hook func(DegradedEvent)
	for _, option := range options {
		if option.onDegraded != nil {
			hook = option.onDegraded
		}
		if option.clock != nil {
			clock = option.clock.clock
		}
	}
	limiter := &Limiter{freed: make(chan struct{})}
	var told message
	err = told.failed(C.polylimit_limiter_open(cURL, array, C.size_t(len(plain)), clock, &limiter.limiter,
		&told[0], C.size_t(len(told))))
	runtime.KeepAlive(options)
	if err != nil {
		return nil, err
	}
	if limiter.waiting, err = startWaiting(); err != nil {
		C.polylimit_limiter_free(limiter.limiter)
		return nil, err
	}
	if err = limiter.hear(hook); err != nil {
		limiter.Close()
		return nil, err
	}
	return limiter, nil
}

// Close ends the use of the limiter: later operations fail with ErrClosed, connections are closed, and what is leased is
// given back. It waits for operations that are under way, which end soon. Closing it again does nothing.
func (l *Limiter) Close() {
	l.closing.Do(func() {
		l.uses.Add(1)
		l.uses.Or(closed)
		C.polylimit_limiter_close(l.limiter)
		l.leave()
	})
	<-l.freed
}

// enter says that the limiter is used until leave.
func (l *Limiter) enter() error {
	if l.uses.Add(1)&closed != 0 {
		l.leave()
		return &Error{Kind: ErrClosed, Message: "the limiter is closed"}
	}
	return nil
}

// leave frees what is in C when it is closed and nobody uses it any more.
func (l *Limiter) leave() {
	if l.uses.Add(-1) == closed {
		l.freeing.Do(func() {
			l.waiting.stop()
			C.polylimit_limiter_free(l.limiter)
			l.deafen()
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

// Acquire waits until the request is admitted and, in a leaky bucket, until its turn has come; at most for the timeout
// and until the context's deadline. When that cannot be met it says so at once: then the decision is a denial, and nothing
// was spent. Those who wait for one key under one policy are served in the order in which they came.
func (l *Limiter) Acquire(ctx context.Context, request Request, timeout time.Duration) (Decision, error) {
	if deadline, has := ctx.Deadline(); has {
		timeout = min(timeout, time.Until(deadline))
	}
	return l.decide(ctx, C.POLYLIMIT_ACQUIRE, request, microseconds(timeout))
}

// Take spends as much of the cost as every quota admits, from 0 to the cost, and says how much it took.
func (l *Limiter) Take(ctx context.Context, request Request) (Usage, error) {
	return l.spend(ctx, C.POLYLIMIT_TAKE, request)
}

// Charge spends the cost whether it fits or not, for a cost that is learnt afterwards. Use saturates at 8 times each
// quota's capacity.
func (l *Limiter) Charge(ctx context.Context, request Request) (Usage, error) {
	return l.spend(ctx, C.POLYLIMIT_CHARGE, request)
}

// Refund gives back up to what is used, the newest first.
func (l *Limiter) Refund(ctx context.Context, request Request) (Usage, error) {
	return l.spend(ctx, C.POLYLIMIT_REFUND, request)
}

// Reset forgets the key under its policy; the cost does not matter.
func (l *Limiter) Reset(ctx context.Context, request Request) (Usage, error) {
	return l.spend(ctx, C.POLYLIMIT_RESET, request)
}

// Ready waits until the store answers, at most for the timeout; ErrStoreUnavailable when it does not. Nothing needs it; a
// service that starts may want it.
func (l *Limiter) Ready(ctx context.Context, timeout time.Duration) error {
	var result C.polylimit_result
	return l.do(ctx, C.POLYLIMIT_READY, Request{}, microseconds(timeout), &result)
}
