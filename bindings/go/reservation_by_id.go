package polylimit

/*
#cgo noescape polylimit_go_submit_by_id
#cgo nocallback polylimit_go_submit_by_id
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"time"
)

// Commit ends the reservation with this id and charges what was spent, as Charge does; the cost of the request has no effect. If the
// reservation is gone, nothing changes and Usage.Found is false: a repeated commit never charges twice. With ReserveRemember,
// Usage.Repeated says whether this is a repetition.
func (l *Limiter) Commit(ctx context.Context, request Request, id string, spent int64) (Usage, error) {
	if spent < 0 {
		return Usage{}, invalid(fmt.Sprintf("a commit spends %d units: allowed are 0 to 10^12", spent))
	}
	return l.byID(ctx, C.POLYLIMIT_COMMIT, request, id, C.uint64_t(spent), 0)
}

// CommitReserved ends the reservation with this id and charges what was reserved.
func (l *Limiter) CommitReserved(ctx context.Context, request Request, id string) (Usage, error) {
	return l.byID(ctx, C.POLYLIMIT_COMMIT, request, id, C.POLYLIMIT_AS_RESERVED, 0)
}

// Cancel ends the reservation with this id and spends nothing; the cost of the request has no effect. Usage.Found is false when it is
// gone.
func (l *Limiter) Cancel(ctx context.Context, request Request, id string) (Usage, error) {
	return l.byID(ctx, C.POLYLIMIT_CANCEL, request, id, 0, 0)
}

// Renew makes the reservation with this id end ttl from now, which is 1 ms to 48 h; the cost of the request has no effect. Usage.Found
// is false when it is gone.
func (l *Limiter) Renew(ctx context.Context, request Request, id string, ttl time.Duration) (Usage, error) {
	if err := checkDuration("ttl", ttl); err != nil {
		return Usage{}, err
	}
	return l.byID(ctx, C.POLYLIMIT_RENEW, request, id, 0, ttl)
}

// Block denies the requests of the key for a time from now, which is 1 ms to 366 days; a key that is blocked for longer stays so. 0 forgets
// blocks and penalties. The cost of the request has no effect.
func (a Admin) Block(ctx context.Context, request Request, duration time.Duration) (Usage, error) {
	if duration < 0 {
		return Usage{}, invalid(fmt.Sprintf("a block lasts %v: allowed are 0, or 1 ms to 366 days", duration))
	}
	return a.limiter.byID(ctx, C.POLYLIMIT_BLOCK, request, "", 0, duration)
}

// Unblock ends the block of the key, and forgets its penalties.
func (a Admin) Unblock(ctx context.Context, request Request) (Usage, error) {
	return a.Block(ctx, request, 0)
}

func (l *Limiter) byID(ctx context.Context, operation C.uint32_t, request Request, id string, cost C.uint64_t,
	ttl time.Duration) (Usage, error) {
	if err := l.enter(); err != nil {
		return Usage{}, err
	}
	defer l.leave()
	if err := ctx.Err(); err != nil {
		return Usage{}, err
	}
	if err := request.check(); err != nil {
		return Usage{}, err
	}
	var result C.polylimit_result
	tag := l.completions.tags.Add(1)
	asked := request.toC()
	asked.cost = cost
	status := C.polylimit_go_submit_by_id(l.completions.c, l.limiter, operation, asked, textStart(id), C.size_t(len(id)),
		C.uint64_t(microseconds(ttl)), C.uint64_t(tag), &result)
	err := resultError(status, &result)
	if status == C.POLYLIMIT_PENDING {
		err = l.completions.await(ctx, tag, &result)
	}
	if err != nil {
		return Usage{}, err
	}
	return usageOf(&result), nil
}
