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
	"strings"
	"time"
)

// Commit ends the reservation with this id and charges what was spent, as Charge does; the cost of the request has no effect. If the
// reservation is gone, nothing changes and Usage.Found is false: a repeated commit never charges twice.
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
	return l.byID(ctx, C.POLYLIMIT_RENEW, request, id, 0, ttl)
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
	if strings.IndexByte(request.policy, 0) >= 0 {
		return Usage{}, invalid("policy contains a NUL")
	}
	var result C.polylimit_result
	tag := l.completions.tags.Add(1)
	status := C.polylimit_go_submit_by_id(l.completions.c, l.limiter, operation, textStart(request.policy),
		C.size_t(len(request.policy)), textStart(request.key), C.size_t(len(request.key)), cost, textStart(id),
		C.size_t(len(id)), C.uint64_t(microseconds(ttl)), C.uint64_t(tag), &result)
	err := resultError(status, &result)
	if status == C.POLYLIMIT_PENDING {
		err = l.completions.await(ctx, tag, &result)
	}
	if err != nil {
		return Usage{}, err
	}
	return usageOf(&result), nil
}
