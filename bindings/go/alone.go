package polylimit

/*
#cgo noescape polylimit_go_call
#cgo nocallback polylimit_go_call
#include "shim.h"
*/
import "C"

import (
	"context"
	"strings"
	"sync/atomic"
	"unsafe"
)

// alone does an operation for the only goroutine that uses the limiter, which waits on its own thread: handing the answer from
// thread to thread would take as long as Redis does.
func (l *Limiter) alone(ctx context.Context, operation C.uint32_t, request Request, result *C.polylimit_result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if strings.IndexByte(request.policy, 0) >= 0 {
		return invalid("policy has a NUL in it")
	}
	// What is known at once needs nobody to watch the context.
	status := l.call(operation, request, &stoppedFromTheStart, result)
	if status != C.POLYLIMIT_PENDING {
		return failed(status, result)
	}
	if ctx.Done() == nil {
		return failed(l.call(operation, request, nil, result), result)
	}
	var stopped atomic.Uint32
	ended := context.AfterFunc(ctx, func() { stopped.Store(1) })
	defer ended()
	status = l.call(operation, request, (*C.uint32_t)(unsafe.Pointer(&stopped)), result)
	if status == C.POLYLIMIT_PENDING {
		return ctx.Err()
	}
	return failed(status, result)
}

var stoppedFromTheStart C.uint32_t = 1

func (l *Limiter) call(operation C.uint32_t, request Request, stopped *C.uint32_t, result *C.polylimit_result) C.polylimit_status {
	return C.polylimit_go_call(l.limiter, operation,
		(*C.char)(unsafe.Pointer(unsafe.StringData(request.policy))), C.size_t(len(request.policy)),
		(*C.char)(unsafe.Pointer(unsafe.StringData(request.key))), C.size_t(len(request.key)),
		C.uint64_t(request.units()), stopped, result)
}
