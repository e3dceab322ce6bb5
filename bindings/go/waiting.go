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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// waiting hands results to the goroutines that wait for them. One goroutine watches the library's file descriptor through
// Go's own poller, so that no thread waits, and drains many results at a time.
type waiting struct {
	completions *C.polylimit_completions
	// A duplicate of the descriptor, which Go may close.
	watched *os.File
	ended   chan struct{}
	tags    atomic.Uint64

	mutex sync.Mutex
	// By tag.
	waiters map[uint64]*waiter
	// Results that came before their goroutine had said that it waits.
	early map[uint64]*waiter
}

// waiter is a result that is waited for, or several of one tag.
type waiter struct {
	result C.polylimit_result
	done   chan struct{}
	// How many there will be where there may be several; one that failed is alone.
	wanted  int
	several []C.polylimit_result
}

// release says that nobody uses it any more.
func (w *waiter) release() {
	w.wanted, w.several = 0, w.several[:0]
	waiters.Put(w)
}

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan struct{}, 1)} }}

func startWaiting() (*waiting, error) {
	w := &waiting{ended: make(chan struct{}), waiters: map[uint64]*waiter{}, early: map[uint64]*waiter{}}
	var told message
	if err := told.failed(C.polylimit_completions_open(&w.completions, &told[0], C.size_t(len(told)))); err != nil {
		return nil, err
	}
	descriptor, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(C.polylimit_completions_fd(w.completions)),
		syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		C.polylimit_completions_free(w.completions)
		return nil, &Error{Kind: ErrInternal, Message: "the system gives no file descriptor: " + errno.Error()}
	}
	w.watched = os.NewFile(descriptor, "polylimit completions")
	watched, err := w.watched.SyscallConn()
	if err != nil {
		C.polylimit_completions_free(w.completions)
		return nil, &Error{Kind: ErrInternal, Message: "the file descriptor cannot be watched: " + err.Error()}
	}
	go func() {
		defer close(w.ended)
		results := make([]C.polylimit_result, 64)
		// It ends when the file is closed.
		_ = watched.Read(func(uintptr) bool {
			w.drain(results)
			return false
		})
	}()
	return w, nil
}

// stop ends the goroutine and frees the completions. Nobody waits any more.
func (w *waiting) stop() {
	_ = w.watched.Close()
	<-w.ended
	C.polylimit_completions_free(w.completions)
}

// drain hands out what has finished, until there is no more.
func (w *waiting) drain(results []C.polylimit_result) {
	for {
		var count C.size_t
		var told message
		status := C.polylimit_completions_drain(w.completions, &results[0], C.size_t(unsafe.Sizeof(results[0])),
			C.size_t(len(results)), &count, &told[0], C.size_t(len(told)))
		if status != C.POLYLIMIT_OK || count == 0 {
			return
		}
		w.mutex.Lock()
		for at := range results[:count] {
			w.deliver(&results[at])
		}
		w.mutex.Unlock()
		if int(count) < len(results) {
			return
		}
	}
}

func (w *waiting) deliver(result *C.polylimit_result) {
	tag := uint64(result.tag)
	own, waits := w.waiters[tag]
	if !waits {
		own = waiters.Get().(*waiter)
		own.result = *result
		w.early[tag] = own
		return
	}
	if own.wanted > 0 {
		own.several = append(own.several, *result)
		if len(own.several) < own.wanted && result.status == C.POLYLIMIT_OK {
			return
		}
	} else {
		own.result = *result
	}
	delete(w.waiters, tag)
	own.done <- struct{}{}
}

// submit starts an operation. When its answer is pending, its tag is to be awaited.
func (w *waiting) submit(ctx context.Context, limiter *C.polylimit_limiter, operation C.uint32_t, request Request,
	timeoutUs uint64, result *C.polylimit_result) (tag uint64, pending bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	if strings.IndexByte(request.policy, 0) >= 0 {
		return 0, false, invalid("policy has a NUL in it")
	}
	tag = w.tags.Add(1)
	status := C.polylimit_go_submit(w.completions, limiter, operation,
		(*C.char)(unsafe.Pointer(unsafe.StringData(request.policy))), C.size_t(len(request.policy)),
		(*C.char)(unsafe.Pointer(unsafe.StringData(request.key))), C.size_t(len(request.key)),
		C.uint64_t(request.units()), C.uint64_t(timeoutUs), C.uint64_t(tag), result)
	if status == C.POLYLIMIT_PENDING {
		return tag, true, nil
	}
	return 0, false, failed(status, result)
}

// failed is the error of an operation; nil when it has an answer.
func failed(status C.polylimit_status, result *C.polylimit_result) error {
	if status == C.POLYLIMIT_OK {
		return nil
	}
	// Read in Go: what is passed to C would have to be allocated, for every operation.
	text := (*[len(result.message)]byte)(unsafe.Pointer(&result.message))
	end := max(bytes.IndexByte(text[:], 0), 0)
	return &Error{Kind: Kind(status), Message: string(text[:end])}
}

// await waits for the result of a tag, or until the context is done.
func (w *waiting) await(ctx context.Context, tag uint64, result *C.polylimit_result) error {
	w.mutex.Lock()
	own, came := w.early[tag]
	if came {
		delete(w.early, tag)
		w.mutex.Unlock()
	} else {
		own = waiters.Get().(*waiter)
		w.waiters[tag] = own
		w.mutex.Unlock()
		if err := w.settle(ctx, tag, own); err != nil {
			return err
		}
	}
	*result = own.result
	own.release()
	return failed(result.status, result)
}

// settle waits until what is waited for has come, or until the context is done: then nobody may use the waiter any more.
func (w *waiting) settle(ctx context.Context, tag uint64, own *waiter) error {
	select {
	case <-own.done:
	case <-ctx.Done():
		if w.giveUp(tag) {
			own.release()
			return ctx.Err()
		}
		// It has finished: what it spent is not thrown away.
		<-own.done
	}
	return nil
}

// giveUp forgets an operation that is pending. False when its result has come, or is about to.
func (w *waiting) giveUp(tag uint64) bool {
	var givenUp C.uint32_t
	var told message
	status := C.polylimit_completions_cancel(w.completions, C.uint64_t(tag), &givenUp, &told[0], C.size_t(len(told)))
	if status != C.POLYLIMIT_OK || givenUp == 0 {
		return false
	}
	w.mutex.Lock()
	delete(w.waiters, tag)
	w.mutex.Unlock()
	return true
}
