package polylimit

/*
#cgo noescape polylimit_go_reserve
#cgo nocallback polylimit_go_reserve
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// ReserveOption is a setting of one reservation.
type ReserveOption func(*reserveSettings)

// reserveSettings holds what a caller has set; nil is the library's default.
type reserveSettings struct {
	id          string
	hasID       bool
	ttl, maxAge *time.Duration
	timeout     time.Duration
	remember    time.Duration
}

// ReserveID names the reservation: 1 to 64 bytes; a random id is the default. A caller that has received no answer repeats the
// reserve with the same id, and nothing is set aside twice.
func ReserveID(id string) ReserveOption {
	return func(settings *reserveSettings) { settings.id, settings.hasID = id, true }
}

// ReserveTTL is how long the reservation lasts after its last renewal, 1 ms to 48 h; 30 s is the default. So long its units stay
// set aside after its process died.
func ReserveTTL(ttl time.Duration) ReserveOption {
	return func(settings *reserveSettings) { settings.ttl = &ttl }
}

// ReserveTimeout is how long the caller waits in line, as in Acquire, until the reservation is admitted; it does not wait by default.
func ReserveTimeout(timeout time.Duration) ReserveOption {
	return func(settings *reserveSettings) { settings.timeout = timeout }
}

// ReserveMaxAge is how long the reservation is renewed in the background, every third of its ttl; an hour is the default, and 0 never
// renews it.
func ReserveMaxAge(maxAge time.Duration) ReserveOption {
	return func(settings *reserveSettings) { settings.maxAge = &maxAge }
}

// ReserveRemember is how long after its commit the id is remembered, 1 ms to 48 h; it is not by default. Meanwhile nothing more is charged
// for the id under this key and policy: a commit that is repeated is reported as Usage.Repeated, and a Reserve, of a job that runs
// again, asks for a slot only. A key remembers its 1,000 latest commits.
func ReserveRemember(remember time.Duration) ReserveOption {
	return func(settings *reserveSettings) { settings.remember = remember }
}

// Reservation is units that are set aside for their holder, made by Limiter.Reserve. The library renews it in the background until it
// is ended. Any goroutine may use it at any time.
type Reservation struct {
	limiter  *Limiter
	request  Request
	decision Decision
	id       string

	mutex sync.Mutex
	// nil once the reservation was ended.
	handle  *C.polylimit_reservation
	cleanup runtime.Cleanup
}

// Reserve decides as Check does and, when every quota admits the request, sets its cost aside until the reservation is committed or
// cancelled. A denied request has a reservation as well: its Allowed is false, and ending it does nothing.
//
//	r, err := limiter.Reserve(ctx, polylimit.Key("tenant:7").Cost(4000))
//	if err != nil {
//	        return err
//	}
//	defer r.Cancel()
//	if !r.Allowed() {
//	        // try again after r.Decision().RetryAfter
//	}
//	...
//	_, err = r.Commit(ctx, 1200)
//
// With ReserveTimeout it waits in line, at most until the context's deadline. It fails with ErrInvalidArgument also when a quota of the
// policy is a leaky bucket, and when the policy is leased.
func (l *Limiter) Reserve(ctx context.Context, request Request, options ...ReserveOption) (*Reservation, error) {
	var settings reserveSettings
	for _, option := range options {
		option(&settings)
	}
	if deadline, has := ctx.Deadline(); has && settings.timeout > 0 {
		settings.timeout = min(settings.timeout, max(0, time.Until(deadline)))
	}
	plain, err := settings.toC()
	if err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	reservation := &Reservation{limiter: l, request: request}
	var result C.polylimit_result
	tag, pending, err := l.completions.reserve(ctx, l.limiter, request, &plain, &settings, reservation, &result)
	if pending {
		err = l.completions.await(ctx, tag, &result)
	}
	if err != nil {
		C.polylimit_reservation_free(reservation.handle)
		return nil, err
	}
	reservation.decision = decisionOf(&result)
	var length C.size_t
	id := C.polylimit_reservation_id(reservation.handle, &length)
	reservation.id = C.GoStringN((*C.char)(id), C.int(length))
	// What its holder forgets is given back when it is collected.
	free := func(handle *C.polylimit_reservation) { C.polylimit_reservation_free(handle) }
	reservation.cleanup = runtime.AddCleanup(reservation, free, reservation.handle)
	return reservation, nil
}

// toC is the settings in the form of C, without the id.
func (s *reserveSettings) toC() (plain C.polylimit_reservation_options, err error) {
	plain.size = C.uint32_t(unsafe.Sizeof(plain))
	var failure message
	if err := failure.err(C.polylimit_reservation_defaults(&plain, &failure[0], C.size_t(len(failure)))); err != nil {
		return plain, err
	}
	if err := checkDuration("timeout", s.timeout); err != nil {
		return plain, err
	}
	plain.timeout_us = C.uint64_t(microseconds(s.timeout))
	if err := checkDuration("remember", s.remember); err != nil {
		return plain, err
	}
	plain.remember_us = C.uint64_t(microseconds(s.remember))
	if s.ttl != nil {
		if err := checkDuration("ttl", *s.ttl); err != nil {
			return plain, err
		}
		plain.ttl_us = C.uint64_t(microseconds(*s.ttl))
	}
	if s.maxAge != nil {
		if err := checkDuration("maxAge", *s.maxAge); err != nil {
			return plain, err
		}
		plain.max_age_us = C.uint64_t(microseconds(*s.maxAge))
	}
	return plain, nil
}

// reserve submits a reserve. If its answer is pending, the caller must call await with the tag.
func (c *completions) reserve(ctx context.Context, limiter *C.polylimit_limiter, request Request,
	plain *C.polylimit_reservation_options, settings *reserveSettings, reservation *Reservation,
	result *C.polylimit_result) (tag uint64, pending bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	if err := request.check(); err != nil {
		return 0, false, err
	}
	// NULL is a random id. The library refuses an id of no bytes, which points at the NUL.
	var id *C.char
	if settings.hasID {
		id = textStart(settings.id + "\x00")
	}
	tag = c.tags.Add(1)
	status := C.polylimit_go_reserve(c.c, limiter, request.toC(), plain, id, C.size_t(len(settings.id)), C.uint64_t(tag),
		&reservation.handle, result)
	if status == C.POLYLIMIT_PENDING {
		return tag, true, nil
	}
	return 0, false, resultError(status, result)
}

// Allowed is whether every quota has admitted the request, so that its units are set aside.
func (r *Reservation) Allowed() bool { return r.decision.Allowed }

// Decision is the decision on the request.
func (r *Reservation) Decision() Decision { return r.decision }

// ID is the id, by which another process can end the reservation.
func (r *Reservation) ID() string { return r.id }

// IsLost is whether the reservation is known to have ended without its holder: a renewal did not find it, or its time has passed
// without one. Its units may be admitted to others meanwhile.
func (r *Reservation) IsLost() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.handle != nil && C.polylimit_reservation_is_lost(r.handle) != 0
}

// Commit ends the reservation and charges what was spent: less than was reserved, more, or nothing. Usage.Found is false, and nothing
// is charged, when the reservation had ended before; so a Commit that failed may be repeated. Where a request's context may be done
// by now, context.WithoutCancel makes one that is not.
func (r *Reservation) Commit(ctx context.Context, spent int64) (Usage, error) {
	usage, err := r.limiter.Commit(ctx, r.request, r.id, spent)
	return r.ended(usage, err)
}

// CommitReserved ends the reservation and charges what was reserved.
func (r *Reservation) CommitReserved(ctx context.Context) (Usage, error) {
	usage, err := r.limiter.CommitReserved(ctx, r.request, r.id)
	return r.ended(usage, err)
}

// ended releases the handle after a commit. If it failed, Cancel has still something to give back.
func (r *Reservation) ended(usage Usage, err error) (Usage, error) {
	if err == nil {
		r.Detach()
	}
	return usage, err
}

// Cancel ends the reservation, unless it was ended before, and spends nothing. It does not wait for Redis, so that it can be
// deferred: if the store cannot be reached, the reservation ends by its ttl.
func (r *Reservation) Cancel() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.free()
}

// Detach leaves the reservation to another holder, which ends it by the id that Detach returns. It is renewed no more, and Cancel does
// nothing.
func (r *Reservation) Detach() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.handle != nil {
		C.polylimit_reservation_detach(r.handle)
		r.free()
	}
	return r.id
}

// free frees the handle, which ends what is left of the reservation. The caller holds the mutex.
func (r *Reservation) free() {
	if r.handle != nil {
		r.cleanup.Stop()
		C.polylimit_reservation_free(r.handle)
		r.handle = nil
	}
}
