package polylimit

/*
#cgo noescape polylimit_completions_submit_together
#cgo nocallback polylimit_completions_submit_together
#include "shim.h"
*/
import "C"

import (
	"context"
	"unsafe"
)

// CheckTogether checks requests that belong together, such as one client under several policies: all are admitted, or
// nothing is spent. If one is denied, the decisions that admit are those of a peek. Requests for the same key under the same
// policy are one of their sum. The decisions are in the order of the requests; the error is the first one.
//
// The store decides all of them in one step. Between slots of a cluster, units are given back within the call.
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
	plain, err := cRequests(requests)
	defer freeRequests(plain)
	if err != nil {
		return nil, err
	}
	return l.completions.checkTogether(ctx, l.limiter, plain)
}

// cRequests copies checks to memory of C; freeRequests frees them.
func cRequests(requests []Request) ([]C.polylimit_request, error) {
	size := C.size_t(unsafe.Sizeof(C.polylimit_request{}))
	plain := unsafe.Slice((*C.polylimit_request)(C.calloc(C.size_t(len(requests)), size)), len(requests))
	for at, request := range requests {
		if err := request.check(); err != nil {
			return plain, err
		}
		plain[at].size = C.uint32_t(size)
		plain[at].operation = C.POLYLIMIT_CHECK
		plain[at].key = C.CBytes([]byte(request.key))
		plain[at].key_length = C.size_t(len(request.key))
		plain[at].cost = C.uint64_t(request.units())
		if request.policy != "" {
			plain[at].policy = C.CString(request.policy)
		}
		if request.plan != "" {
			plain[at].plan = C.CString(request.plan)
		}
		plain[at].headroom = C.uint32_t(request.headroom)
	}
	return plain, nil
}

func freeRequests(plain []C.polylimit_request) {
	for at := range plain {
		C.free(plain[at].key)
		C.free(unsafe.Pointer(plain[at].policy))
		C.free(unsafe.Pointer(plain[at].plan))
	}
	C.free(unsafe.Pointer(unsafe.SliceData(plain)))
}

// checkTogether submits checks and, if their decisions are pending, waits for them.
func (c *completions) checkTogether(ctx context.Context, limiter *C.polylimit_limiter, requests []C.polylimit_request) ([]Decision, error) {
	tag, own := c.tags.Add(1), waiterPool.Get().(*waiter)
	own.expected = len(requests)
	c.mutex.Lock()
	c.waiters[tag] = own
	c.mutex.Unlock()
	immediate := make([]C.polylimit_decision, len(requests))
	var told message
	status := C.polylimit_completions_submit_together(c.c, limiter, &requests[0],
		C.size_t(unsafe.Sizeof(requests[0])), C.size_t(len(requests)), C.uint64_t(tag), &immediate[0],
		C.size_t(unsafe.Sizeof(immediate[0])), &told[0], C.size_t(len(told)))
	if status != C.POLYLIMIT_PENDING {
		c.mutex.Lock()
		delete(c.waiters, tag)
		c.mutex.Unlock()
		own.release()
		if err := told.err(status); err != nil {
			return nil, err
		}
		decisions := make([]Decision, len(immediate))
		for at := range immediate {
			decisions[at] = decisionFrom(&immediate[at])
		}
		return decisions, nil
	}
	if err := c.wait(ctx, tag, own); err != nil {
		return nil, err
	}
	defer own.release()
	decisions := make([]Decision, 0, len(requests))
	for at := range own.results {
		result := &own.results[at]
		if err := resultError(result.status, result); err != nil {
			return nil, err
		}
		decisions = append(decisions, decisionOf(result))
	}
	return decisions, nil
}
