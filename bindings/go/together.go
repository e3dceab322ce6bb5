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
	return l.together(ctx, C.POLYLIMIT_CHECK, requests, nil)
}

// PeekTogether returns the decisions that CheckTogether would return now. It changes no state.
func (l *Limiter) PeekTogether(ctx context.Context, requests []Request) ([]Decision, error) {
	return l.together(ctx, C.POLYLIMIT_PEEK, requests, nil)
}

// RequestReservation is the decisions on requests that were reserved together, and the id of their reservations.
type RequestReservation struct {
	// ID is the id of the reservations, for Limiter.Commit, Limiter.Cancel and Limiter.Renew.
	ID string
	// Decisions are those on the requests, in their order. In a denied request, those that admit are the decisions of a peek.
	Decisions []Decision
}

// Allowed is whether every request is admitted, so that units are set aside or spent.
func (r RequestReservation) Allowed() bool {
	for at := range r.Decisions {
		if !r.Decisions[at].Allowed {
			return false
		}
	}
	return true
}

// ReserveTogether decides as CheckTogether does, but requests under a policy with a quota of concurrency are reserved, all under one id;
// the others spend. When one request is denied, nothing is spent or reserved.
//
//	requests := []polylimit.Request{polylimit.Key("tenant:7").Policy("slots").Cost(0), polylimit.Key("tenant:7").Policy("requests")}
//	reserved, err := limiter.ReserveTogether(ctx, requests)
//	if err != nil {
//	        return err
//	}
//	if reserved.Allowed() {
//	        defer limiter.Cancel(context.WithoutCancel(ctx), requests[0], reserved.ID)
//	        ...
//	}
//
// The caller ends each reservation by Commit or Cancel with its request and this id. They are not renewed in the background: Renew makes
// them last longer. The options are ReserveID, ReserveTTL and ReserveRemember. The requests do not wait in line: it fails with
// ErrInvalidArgument for a ReserveTimeout. When the context is done before the result, neither reservations nor charges remain.
func (l *Limiter) ReserveTogether(ctx context.Context, requests []Request, options ...ReserveOption) (RequestReservation, error) {
	var settings reserveSettings
	for _, option := range options {
		option(&settings)
	}
	terms, err := settings.toC()
	if err != nil {
		return RequestReservation{}, err
	}
	reserved := RequestReservation{ID: settings.id}
	if !settings.hasID {
		if reserved.ID, err = randomID(); err != nil {
			return RequestReservation{}, err
		}
	}
	id := C.CBytes([]byte(reserved.ID))
	defer C.free(id)
	terms.id, terms.id_length = id, C.size_t(len(reserved.ID))
	reserved.Decisions, err = l.together(ctx, C.POLYLIMIT_RESERVE, requests, &terms)
	if err != nil {
		return RequestReservation{}, err
	}
	return reserved, nil
}

func randomID() (string, error) {
	var id [C.POLYLIMIT_RESERVATION_ID_SIZE]byte
	var length C.size_t
	var failure message
	status := C.polylimit_reservation_id_random(unsafe.Pointer(&id[0]), &length, &failure[0], C.size_t(len(failure)))
	return string(id[:length]), failure.err(status)
}

// together decides requests that belong together; those that are reserved have terms.
func (l *Limiter) together(ctx context.Context, operation C.uint32_t, requests []Request,
	terms *C.polylimit_reservation_options) ([]Decision, error) {
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
	plain, err := cRequests(operation, requests, terms)
	defer freeRequests(plain)
	if err != nil {
		return nil, err
	}
	return l.completions.together(ctx, l.limiter, plain)
}

// cRequests copies requests to memory of C; freeRequests frees them. They refer to the id of the terms.
func cRequests(operation C.uint32_t, requests []Request, terms *C.polylimit_reservation_options) ([]C.polylimit_request, error) {
	size := C.size_t(unsafe.Sizeof(C.polylimit_request{}))
	plain := unsafe.Slice((*C.polylimit_request)(C.calloc(C.size_t(len(requests)), size)), len(requests))
	for at, request := range requests {
		if err := request.check(); err != nil {
			return plain, err
		}
		plain[at].size = C.uint32_t(size)
		plain[at].operation = operation
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
		if terms != nil {
			plain[at].id, plain[at].id_length = terms.id, terms.id_length
			plain[at].ttl_us, plain[at].timeout_us = terms.ttl_us, terms.timeout_us
			plain[at].remember_us = terms.remember_us
		}
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

// together submits requests and, if their decisions are pending, waits for them.
func (c *completions) together(ctx context.Context, limiter *C.polylimit_limiter, requests []C.polylimit_request) ([]Decision, error) {
	tag, own := c.tags.Add(1), waiterPool.Get().(*waiter)
	own.expected = len(requests)
	c.mutex.Lock()
	c.waiters[tag] = own
	c.mutex.Unlock()
	immediate := make([]C.polylimit_decision, len(requests))
	var failure message
	status := C.polylimit_completions_submit_together(c.c, limiter, &requests[0],
		C.size_t(unsafe.Sizeof(requests[0])), C.size_t(len(requests)), C.uint64_t(tag), &immediate[0],
		C.size_t(unsafe.Sizeof(immediate[0])), &failure[0], C.size_t(len(failure)))
	if status != C.POLYLIMIT_PENDING {
		c.mutex.Lock()
		delete(c.waiters, tag)
		c.mutex.Unlock()
		own.release()
		if err := failure.err(status); err != nil {
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
