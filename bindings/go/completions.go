package polylimit

/*
#cgo noescape polylimit_go_submit
#cgo nocallback polylimit_go_submit
#include "shim.h"
*/
import "C"

import (
	"bytes"
	"context"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// completions passes results to the goroutines that wait for them. One goroutine watches the library's file descriptor with
// Go's poller, so that no thread blocks, and drains many results at a time.
type completions struct {
	c *C.polylimit_completions
	// A duplicate of the descriptor, because Go closes it.
	watched *os.File
	ended   chan struct{}
	tags    atomic.Uint64

	mutex sync.Mutex
	// By tag.
	waiters map[uint64]*waiter
	// Results that arrived before their goroutine called await.
	early map[uint64]*waiter
}

// waiter holds the result, or the results, of one tag for the goroutine that waits.
type waiter struct {
	result C.polylimit_result
	done   chan struct{}
	// The number of results for checks that belong together, otherwise 0. An error is a single result.
	expected int
	results  []C.polylimit_result
}

// release returns the waiter to the pool.
func (w *waiter) release() {
	w.expected, w.results = 0, w.results[:0]
	waiterPool.Put(w)
}

var waiterPool = sync.Pool{New: func() any { return &waiter{done: make(chan struct{}, 1)} }}

func openCompletions() (*completions, error) {
	c := &completions{ended: make(chan struct{}), waiters: map[uint64]*waiter{}, early: map[uint64]*waiter{}}
	var failure message
	if err := failure.err(C.polylimit_completions_open(&c.c, &failure[0], C.size_t(len(failure)))); err != nil {
		return nil, err
	}
	descriptor, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(C.polylimit_completions_fd(c.c)),
		syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		C.polylimit_completions_free(c.c)
		return nil, &Error{Kind: ErrInternal, Message: "cannot duplicate a file descriptor: " + errno.Error()}
	}
	c.watched = os.NewFile(descriptor, "polylimit completions")
	watched, err := c.watched.SyscallConn()
	if err != nil {
		C.polylimit_completions_free(c.c)
		return nil, &Error{Kind: ErrInternal, Message: "the file descriptor cannot be watched: " + err.Error()}
	}
	go func() {
		defer close(c.ended)
		results := make([]C.polylimit_result, 64)
		// Read returns when stop closes the file.
		_ = watched.Read(func(uintptr) bool {
			c.drain(results)
			return false
		})
	}()
	return c, nil
}

// stop ends the goroutine and frees the completions. No operation may be pending.
func (c *completions) stop() {
	_ = c.watched.Close()
	<-c.ended
	C.polylimit_completions_free(c.c)
}

// drain delivers the results of finished operations until there are no more.
func (c *completions) drain(results []C.polylimit_result) {
	for {
		var count C.size_t
		var failure message
		status := C.polylimit_completions_drain(c.c, &results[0], C.size_t(unsafe.Sizeof(results[0])),
			C.size_t(len(results)), &count, &failure[0], C.size_t(len(failure)))
		if status != C.POLYLIMIT_OK || count == 0 {
			return
		}
		c.mutex.Lock()
		for at := range results[:count] {
			c.deliver(&results[at])
		}
		c.mutex.Unlock()
		if int(count) < len(results) {
			return
		}
	}
}

// deliver passes a result to its goroutine. The caller holds the mutex.
func (c *completions) deliver(result *C.polylimit_result) {
	tag := uint64(result.tag)
	own, isWaiting := c.waiters[tag]
	if !isWaiting {
		own = waiterPool.Get().(*waiter)
		own.result = *result
		c.early[tag] = own
		return
	}
	if own.expected > 0 {
		own.results = append(own.results, *result)
		if len(own.results) < own.expected && result.status == C.POLYLIMIT_OK {
			return
		}
	} else {
		own.result = *result
	}
	delete(c.waiters, tag)
	own.done <- struct{}{}
}

// submit starts an operation. If its answer is pending, the caller must call await with the tag.
func (c *completions) submit(ctx context.Context, limiter *C.polylimit_limiter, operation C.uint32_t, request Request,
	timeoutUs uint64, result *C.polylimit_result) (tag uint64, pending bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	if err := request.check(); err != nil {
		return 0, false, err
	}
	tag = c.tags.Add(1)
	status := C.polylimit_go_submit(c.c, limiter, operation, request.toC(), C.uint64_t(timeoutUs), C.uint64_t(tag), result)
	if status == C.POLYLIMIT_PENDING {
		return tag, true, nil
	}
	return 0, false, resultError(status, result)
}

// resultError is the error of an operation; nil when it has an answer.
func resultError(status C.polylimit_status, result *C.polylimit_result) error {
	if status == C.POLYLIMIT_OK {
		return nil
	}
	// Read without a call to C, because its argument would escape to the heap in every operation.
	text := (*[len(result.message)]byte)(unsafe.Pointer(&result.message))
	end := max(bytes.IndexByte(text[:], 0), 0)
	return &Error{Kind: Kind(status), Message: string(text[:end])}
}

// await waits for the result of a tag, or until the context is done.
func (c *completions) await(ctx context.Context, tag uint64, result *C.polylimit_result) error {
	c.mutex.Lock()
	own, isThere := c.early[tag]
	if isThere {
		delete(c.early, tag)
		c.mutex.Unlock()
	} else {
		own = waiterPool.Get().(*waiter)
		c.waiters[tag] = own
		c.mutex.Unlock()
		if err := c.wait(ctx, tag, own); err != nil {
			return err
		}
	}
	*result = own.result
	own.release()
	return resultError(result.status, result)
}

// wait blocks until the result is there. If the context is done first, it cancels the operation and releases the waiter.
func (c *completions) wait(ctx context.Context, tag uint64, own *waiter) error {
	select {
	case <-own.done:
	case <-ctx.Done():
		if c.cancel(tag) {
			own.release()
			return ctx.Err()
		}
		// The operation has finished, so that its result is returned.
		<-own.done
	}
	return nil
}

// cancel cancels a pending operation. False when its result has arrived, or is about to.
func (c *completions) cancel(tag uint64) bool {
	var cancelled C.uint32_t
	var failure message
	status := C.polylimit_completions_cancel(c.c, C.uint64_t(tag), &cancelled, &failure[0], C.size_t(len(failure)))
	if status != C.POLYLIMIT_OK || cancelled == 0 {
		return false
	}
	c.mutex.Lock()
	delete(c.waiters, tag)
	c.mutex.Unlock()
	return true
}
