package polylimit

// #include "shim.h"
import "C"

import (
	"runtime"
	"time"
)

// ManualClock is a clock for tests. It stands still until it is set or advanced, and may go back. Any goroutine may use it at
// any time.
type ManualClock struct {
	clock *C.polylimit_clock
}

// NewManualClock creates a clock that shows this time, to the microsecond: 1970 to 2255.
func NewManualClock(now time.Time) (*ManualClock, error) {
	var plain *C.polylimit_clock
	var failure message
	status := C.polylimit_clock_new(C.uint64_t(now.UnixMicro()), &plain, &failure[0], C.size_t(len(failure)))
	if err := failure.err(status); err != nil {
		return nil, err
	}
	clock := &ManualClock{plain}
	runtime.AddCleanup(clock, func(plain *C.polylimit_clock) { C.polylimit_clock_free(plain) }, plain)
	return clock, nil
}

// Now is the current time of the clock.
func (c *ManualClock) Now() time.Time {
	defer runtime.KeepAlive(c)
	return time.UnixMicro(int64(C.polylimit_clock_now_us(c.clock)))
}

// Set sets the time; it may go back.
func (c *ManualClock) Set(now time.Time) error {
	defer runtime.KeepAlive(c)
	var failure message
	return failure.err(C.polylimit_clock_set(c.clock, C.uint64_t(now.UnixMicro()), &failure[0], C.size_t(len(failure))))
}

// Advance moves the time forward, by whole microseconds.
func (c *ManualClock) Advance(by time.Duration) error {
	defer runtime.KeepAlive(c)
	if by < 0 {
		return invalid("a manual clock advances forward: set it to go back")
	}
	var failure message
	return failure.err(C.polylimit_clock_advance(c.clock, C.uint64_t(by/time.Microsecond), &failure[0], C.size_t(len(failure))))
}
