package polylimit

// #include "shim.h"
import "C"

import (
	"time"
	"unsafe"
)

// Algorithm is the algorithm by which a quota counts.
type Algorithm uint32

// The algorithms. The zero value is the default, a sliding window.
const (
	TokenBucket   = Algorithm(C.POLYLIMIT_TOKEN_BUCKET)
	LeakyBucket   = Algorithm(C.POLYLIMIT_LEAKY_BUCKET)
	FixedWindow   = Algorithm(C.POLYLIMIT_FIXED_WINDOW)
	SlidingWindow = Algorithm(C.POLYLIMIT_SLIDING_WINDOW)
	SlidingLog    = Algorithm(C.POLYLIMIT_SLIDING_LOG)
	// Concurrency counts reservations; see Concurrent.
	Concurrency = Algorithm(C.POLYLIMIT_CONCURRENCY)
)

// Quota is at most Limit units per Period, counted by an algorithm. A field that is zero has its default.
type Quota struct {
	// Limit is 0 to 10^12 units, or reservations at a time.
	Limit uint64
	// Period is 1 ms to 366 days, whole microseconds; 0 for concurrency, which has none.
	Period    time.Duration
	Algorithm Algorithm
	// Burst is the most units that can be spent at once: the two buckets only.
	Burst uint64
	// Step is the number of tokens that arrive at a time: token bucket only.
	Step uint64
	// Buckets is the number of sub-windows, 1 to 60: sliding window only.
	Buckets uint32
	// Aligned: windows start at multiples of the period since the Unix epoch. Fixed window only.
	Aligned bool
	// CountDenied: denied requests are charged too.
	CountDenied bool
	// Excess is the units beyond the limit or burst that are admitted as well, and reported as Over in decisions: 0 to 10^12.
	Excess uint64
	// Calendar is windows by the calendar in place of a Period, which is 0 then: "month from=15 zone=Europe/Berlin". Fixed window only,
	// which is the default with it.
	Calendar string
}

// Concurrent is at most limit reservations at a time, whatever their units. A policy with such a quota is only ever reserved.
func Concurrent(limit uint64) Quota { return Quota{Limit: limit, Algorithm: Concurrency} }

// ParseQuota reads one quota from its text form, such as "10/s token_bucket burst=20".
func ParseQuota(text string) (Quota, error) {
	cQuota, err := cText(text, "quota")
	if err != nil {
		return Quota{}, err
	}
	defer free(cQuota)
	var plain C.polylimit_quota
	plain.size = C.uint32_t(unsafe.Sizeof(plain))
	var failure message
	if err := failure.err(C.polylimit_quota_parse(cQuota, &plain, &failure[0], C.size_t(len(failure)))); err != nil {
		return Quota{}, err
	}
	return Quota{
		Limit:       uint64(plain.limit),
		Period:      duration(uint64(plain.period_us)),
		Algorithm:   Algorithm(plain.algorithm),
		Burst:       uint64(plain.burst),
		Step:        uint64(plain.step),
		Buckets:     uint32(plain.buckets),
		Aligned:     plain.aligned != 0,
		CountDenied: plain.count_denied != 0,
		Excess:      uint64(plain.excess),
		Calendar:    C.GoString(&plain.calendar[0]),
	}, nil
}

// Text is the quota in its canonical text form; ErrInvalidArgument when it is out of bounds.
func (q Quota) Text() (string, error) {
	if q.Period < 0 || q.Period%time.Microsecond != 0 {
		return "", invalid("period is " + q.Period.String() + ": allowed are whole microseconds")
	}
	plain := C.polylimit_quota{
		algorithm:    C.uint32_t(q.Algorithm),
		limit:        C.uint64_t(q.Limit),
		period_us:    C.uint64_t(q.Period / time.Microsecond),
		burst:        C.uint64_t(q.Burst),
		step:         C.uint64_t(q.Step),
		buckets:      C.uint32_t(q.Buckets),
		aligned:      flag(q.Aligned),
		count_denied: flag(q.CountDenied),
		excess:       C.uint64_t(q.Excess),
	}
	if len(q.Calendar) >= len(plain.calendar) {
		return "", invalid("calendar is " + q.Calendar + ": allowed are at most 63 bytes")
	}
	for at := range len(q.Calendar) {
		plain.calendar[at] = C.char(q.Calendar[at])
	}
	plain.size = C.uint32_t(unsafe.Sizeof(plain))
	return rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_quota_text(&plain, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
}

func flag(set bool) C.uint8_t {
	if set {
		return 1
	}
	return 0
}
