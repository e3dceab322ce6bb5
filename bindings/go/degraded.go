package polylimit

// #include "shim.h"
import "C"

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// DegradedEvent is what a limiter tells its operators: that it decides without its store, or with it again, or what keeps its
// limits from being held.
type DegradedEvent struct {
	// Kind is "started", "ended" or "finding".
	Kind string
	// Reason is why the first decision was made without the store, such as "timeout"; empty for a finding.
	Reason string
	// Lasted is the time from the first decision that was made without the store to the last one; 0 unless it has ended.
	Lasted time.Duration
	// Decisions is how many were made without the store; 0 unless it has ended.
	Decisions uint64
	// Severity is "fine" when it is over, otherwise "advice" or "problem".
	Severity string
	// Subject is what the doctor looked at, such as "memory"; empty unless it is a finding.
	Subject string
	// Message is a sentence for a log. It holds no key, password or URL.
	Message string
}

// WithOnDegraded calls a function when the limiter begins to decide without its store, when it decides with it again, and with
// what its doctor finds, one event after the other, on a goroutine of the package. The same is logged as a warning by
// slog.Default. A panic in it is logged.
func WithOnDegraded(hook func(DegradedEvent)) Option { return Option{onDegraded: hook} }

// The library calls back on any thread, also while a goroutine is in a call that C may not leave. So a function of C writes each
// event as a line to one pipe of the process, and one goroutine reads them.
var degraded struct {
	start  sync.Once
	failed error
	write  C.int
	last   uint64

	mutex sync.Mutex
	hooks map[uint64]func(DegradedEvent)
}

// separator stands between the fields of a line, and in none of them.
const separator = "\x1f"

func startDegraded() error {
	degraded.start.Do(func() {
		var ends [2]int
		if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
			degraded.failed = &Error{Kind: ErrInternal, Message: "the system gives no pipe: " + err.Error()}
			return
		}
		degraded.write = C.int(ends[1])
		degraded.hooks = map[uint64]func(DegradedEvent){}
		lines := bufio.NewScanner(os.NewFile(uintptr(ends[0]), "polylimit events"))
		go func() {
			for lines.Scan() {
				tell(strings.Split(lines.Text(), separator))
			}
		}()
	})
	return degraded.failed
}

// hear has the events of a limiter told.
func (l *Limiter) hear(hook func(DegradedEvent)) error {
	if err := startDegraded(); err != nil {
		return err
	}
	degraded.mutex.Lock()
	degraded.last++
	l.number = degraded.last
	degraded.hooks[l.number] = hook
	degraded.mutex.Unlock()
	l.hearing = C.polylimit_go_hearing_new(degraded.write, C.uint64_t(l.number))
	var told message
	return told.failed(C.polylimit_go_hear(l.limiter, l.hearing, &told[0], C.size_t(len(told))))
}

// deafen ends that, after what was told before. Nothing may be told any more by then.
func (l *Limiter) deafen() {
	C.polylimit_go_hearing_end(l.hearing)
}

// tell hands an event to the logger and the function of its limiter.
func tell(fields []string) {
	number, _ := strconv.ParseUint(fields[0], 10, 64)
	degraded.mutex.Lock()
	hook := degraded.hooks[number]
	if len(fields) == 1 {
		delete(degraded.hooks, number)
	}
	degraded.mutex.Unlock()
	if len(fields) < 8 {
		return
	}
	lastedUs, _ := strconv.ParseInt(fields[3], 10, 64)
	decisions, _ := strconv.ParseUint(fields[4], 10, 64)
	event := DegradedEvent{Kind: fields[1], Reason: fields[2], Lasted: time.Duration(lastedUs) * time.Microsecond,
		Decisions: decisions, Severity: fields[5], Subject: fields[6], Message: fields[7]}
	defer func() {
		if raised := recover(); raised != nil {
			slog.Default().Error("polylimit: OnDegraded panicked: " + fmt.Sprint(raised))
		}
	}()
	slog.Default().Warn("polylimit: "+event.Message, "kind", event.Kind)
	if hook != nil {
		hook(event)
	}
}
