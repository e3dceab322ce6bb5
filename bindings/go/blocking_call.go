package polylimit

/*
#cgo noescape polylimit_go_call
#cgo nocallback polylimit_go_call
#include "shim.h"
*/
import "C"

import (
	"context"
	"sync/atomic"
	"unsafe"
)

// blockingCall runs an operation on the calling thread. It is used when operations come one at a time: handing the answer
// from another thread to this one would take as long as Redis does.
func (l *Limiter) blockingCall(ctx context.Context, operation C.uint32_t, request Request, result *C.polylimit_result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := request.check(); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return resultError(l.callUntilStopped(operation, request, nil, result), result)
	}
	// An answer that is available at once needs no watch on the context.
	status := l.callUntilStopped(operation, request, &alreadyStopped, result)
	if status != C.POLYLIMIT_PENDING {
		return resultError(status, result)
	}
	var stopped atomic.Uint32
	ended := context.AfterFunc(ctx, func() { stopped.Store(1) })
	defer ended()
	status = l.callUntilStopped(operation, request, (*C.uint32_t)(unsafe.Pointer(&stopped)), result)
	if status == C.POLYLIMIT_PENDING {
		return ctx.Err()
	}
	return resultError(status, result)
}

// alreadyStopped is a stop flag that is set, so that a call returns only an answer that is available at once.
var alreadyStopped C.uint32_t = 1

func (l *Limiter) callUntilStopped(operation C.uint32_t, request Request, stopped *C.uint32_t, result *C.polylimit_result) C.polylimit_status {
	return C.polylimit_go_call(l.limiter, operation, request.toC(), stopped, result)
}
