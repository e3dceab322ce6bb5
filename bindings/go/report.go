package polylimit

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"strings"
	"unsafe"
)

// Doctor examines the store for problems of its operation. Each finding is a line "severity: subject: message"; the severity is
// fine, advice or problem. It makes a decision on a key of its own, which it then deletes. It blocks a thread, but not the caller, whose
// context may end before.
func (a Admin) Doctor(ctx context.Context) ([]string, error) {
	l := a.limiter
	if err := l.enter(); err != nil {
		return nil, err
	}
	type examined struct {
		text string
		err  error
	}
	done := make(chan examined, 1)
	go func() {
		defer l.leave()
		text, err := rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
			return C.polylimit_admin_doctor(l.limiter, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
		})
		done <- examined{text, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case found := <-done:
		if found.err != nil || found.text == "" {
			return nil, found.err
		}
		return strings.Split(strings.TrimSuffix(found.text, "\n"), "\n"), nil
	}
}

// Stats are the counters of the limiter, by name.
func (l *Limiter) Stats() (map[string]uint64, error) {
	defer runtime.KeepAlive(l)
	plain := make([]C.polylimit_stat, 64)
	for {
		var count C.size_t
		var failure message
		status := C.polylimit_limiter_stats(l.limiter, unsafe.SliceData(plain), C.size_t(len(plain)), &count,
			&failure[0], C.size_t(len(failure)))
		if err := failure.err(status); err != nil {
			return nil, err
		}
		if int(count) > len(plain) {
			plain = make([]C.polylimit_stat, count)
			continue
		}
		stats := make(map[string]uint64, count)
		for _, stat := range plain[:count] {
			stats[C.GoString(stat.name)] = uint64(stat.value)
		}
		return stats, nil
	}
}
