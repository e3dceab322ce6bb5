package polylimit

// #include "shim.h"
import "C"

import (
	"runtime"
	"time"
	"unsafe"
)

// Backoff says when the client of a limited service tries again, and when it gives up: exponential backoff with full jitter. The
// wait before retry n, counted from 0, is random from 0 to the smaller of Cap and Base * 2^n. A wait that the server asks for is
// added to it. DefaultBackoff has the defaults.
type Backoff struct {
	// Base is the longest wait before the first retry: 1 ms to Cap.
	Base time.Duration
	// Cap is where the doubling ends: Base to a day.
	Cap time.Duration
	// MaxWait is the longest wait that a server may ask for: 0 to 366 days.
	MaxWait time.Duration
	// MaxRetries is how many retries may follow the first try; 0 for none.
	MaxRetries uint32
}

// DefaultBackoff has a base of 100 ms, a cap of 20 s, at most 5 retries, and waits of the server of at most 5 minutes.
func DefaultBackoff() Backoff {
	plain := C.polylimit_backoff{size: C.sizeof_polylimit_backoff}
	C.polylimit_backoff_defaults(&plain, nil, 0)
	return Backoff{Base: duration(uint64(plain.base_us)), Cap: duration(uint64(plain.cap_us)), MaxWait: duration(uint64(plain.max_wait_us)),
		MaxRetries: uint32(plain.max_retries)}
}

// Wait is how long to wait before the next try. It is false to give up: once MaxRetries retries were made, and when the server asks
// for more than MaxWait. retry is how many retries were made before, 0 after the first failure; serverWait is what ServerWait read
// of the last response, 0 for nothing. It fails with ErrInvalidArgument when a field is out of its range.
func (b Backoff) Wait(retry uint32, serverWait time.Duration) (time.Duration, bool, error) {
	plain, err := b.plain()
	if err == nil {
		err = checkDuration("serverWait", serverWait)
	}
	if err != nil {
		return 0, false, err
	}
	var us C.uint64_t
	var failure message
	status := C.polylimit_backoff_wait(&plain, C.uint32_t(retry), C.uint64_t(microseconds(serverWait)), &us,
		&failure[0], C.size_t(len(failure)))
	if err := failure.err(status); err != nil || us == C.POLYLIMIT_NEVER {
		return 0, false, err
	}
	return duration(uint64(us)), true, nil
}

func (b Backoff) plain() (C.polylimit_backoff, error) {
	err := checkDurations(namedDuration{"Base", b.Base}, namedDuration{"Cap", b.Cap}, namedDuration{"MaxWait", b.MaxWait})
	return C.polylimit_backoff{size: C.sizeof_polylimit_backoff, max_retries: C.uint32_t(b.MaxRetries),
		base_us: C.uint64_t(microseconds(b.Base)), cap_us: C.uint64_t(microseconds(b.Cap)),
		max_wait_us: C.uint64_t(microseconds(b.MaxWait))}, err
}

// ServerWait is how long a response asks its client to wait, counted from now, and whether it asks for a wait. header are the header fields
// of the response, such as its http.Header, with names in any letter case. Those that are read, in their order: Retry-After-Ms,
// Retry-After, whose date is compared with that of Date and without one with now, and the policies of RateLimit that have nothing
// left, of which the longest time counts. A malformed field is ignored, and a wait above 285 years is cut to that.
func ServerWait(header map[string][]string, now time.Time) (time.Duration, bool) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	fields := cFields(&pinner, header)
	nowUs := max(now.UnixMicro(), 0)
	var us C.uint64_t
	status := C.polylimit_server_wait(unsafe.SliceData(fields), C.size_t(len(fields)), C.uint64_t(nowUs), &us, nil, 0)
	if status != C.POLYLIMIT_OK || us == C.POLYLIMIT_NEVER {
		return 0, false
	}
	return duration(uint64(us)), true
}

// cFields are the header fields for C, whose bytes stay in Go's memory until the pinner unpins them; nil for none.
func cFields(pinner *runtime.Pinner, header map[string][]string) []C.polylimit_pair {
	var fields []C.polylimit_pair
	for name, values := range header {
		for _, value := range values {
			fields = append(fields, C.polylimit_pair{name: cLine(pinner, name), value: cLine(pinner, value)})
		}
	}
	return fields
}

// cLine is a line for C, whose bytes stay in Go's memory until the pinner unpins them.
func cLine(pinner *runtime.Pinner, line string) C.polylimit_line {
	if line == "" {
		return C.polylimit_line{}
	}
	start := unsafe.StringData(line)
	pinner.Pin(start)
	return C.polylimit_line{start: (*C.char)(unsafe.Pointer(start)), length: C.size_t(len(line))}
}
