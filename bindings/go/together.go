package polylimit

/*
#cgo noescape polylimit_completions_submit_together
#cgo nocallback polylimit_completions_submit_together
#include "shim.h"
*/
import "C"

import (
	"context"
	"strings"
	"unsafe"
)

// CheckTogether checks requests that belong together, such as one client under several policies: all are admitted, or
// nothing is spent. When one is denied or fails, what the others have spent is given back, and their decisions show what is
// left. The decisions are in the order of the requests; the error is the first of any of them.
//
// Each is decided on its own, so that for a moment others may find units missing that are then given back.
func (l *Limiter) CheckTogether(ctx context.Context, requests []Request) ([]Decision, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	plain, err := plainRequests(requests)
	defer freeRequests(plain)
	if err != nil {
		return nil, err
	}
	return l.waiting.together(ctx, l.limiter, plain)
}

// plainRequests are checks as C has them, in C's memory; freeRequests frees them.
func plainRequests(requests []Request) ([]C.polylimit_request, error) {
	size := C.size_t(unsafe.Sizeof(C.polylimit_request{}))
	plain := unsafe.Slice((*C.polylimit_request)(C.calloc(C.size_t(len(requests)), size)), len(requests))
	for at, request := range requests {
		if strings.IndexByte(request.policy, 0) >= 0 {
			return plain, invalid("policy has a NUL in it")
		}
		plain[at].size = C.uint32_t(size)
		plain[at].operation = C.POLYLIMIT_CHECK
		plain[at].key = C.CBytes([]byte(request.key))
		plain[at].key_length = C.size_t(len(request.key))
		plain[at].cost = C.uint64_t(request.units())
		if request.policy != "" {
			plain[at].policy = C.CString(request.policy)
		}
	}
	return plain, nil
}

func freeRequests(plain []C.polylimit_request) {
	for at := range plain {
		C.free(plain[at].key)
		C.free(unsafe.Pointer(plain[at].policy))
	}
	C.free(unsafe.Pointer(unsafe.SliceData(plain)))
}

// together checks requests and, where the decisions are not known at once, waits for them.
func (w *waiting) together(ctx context.Context, limiter *C.polylimit_limiter, requests []C.polylimit_request) ([]Decision, error) {
	tag, own := w.tags.Add(1), waiters.Get().(*waiter)
	own.wanted = len(requests)
	w.mutex.Lock()
	w.waiters[tag] = own
	w.mutex.Unlock()
	known := make([]C.polylimit_decision, len(requests))
	var told message
	status := C.polylimit_completions_submit_together(w.completions, limiter, &requests[0],
		C.size_t(unsafe.Sizeof(requests[0])), C.size_t(len(requests)), C.uint64_t(tag), &known[0],
		C.size_t(unsafe.Sizeof(known[0])), &told[0], C.size_t(len(told)))
	if status != C.POLYLIMIT_PENDING {
		w.mutex.Lock()
		delete(w.waiters, tag)
		w.mutex.Unlock()
		own.release()
		if err := told.failed(status); err != nil {
			return nil, err
		}
		decisions := make([]Decision, len(known))
		for at := range known {
			decisions[at] = decisionFrom(&known[at])
		}
		return decisions, nil
	}
	if err := w.settle(ctx, tag, own); err != nil {
		return nil, err
	}
	defer own.release()
	decisions := make([]Decision, 0, len(requests))
	for at := range own.several {
		result := &own.several[at]
		if err := failed(result.status, result); err != nil {
			return nil, err
		}
		decisions = append(decisions, decisionOf(result))
	}
	return decisions, nil
}
