package polylimit

// #include "shim.h"
import "C"

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// DegradedEvent is an event of a limiter for its operators: it begins to decide without its store, decides with it again, or its
// doctor has found something.
type DegradedEvent struct {
	// Kind is "started", "ended" or "finding".
	Kind string
	// Reason is why the first decision was made without the store, such as "timeout"; empty for a finding.
	Reason string
	// Lasted is the time from the first decision without the store to the last one; 0 unless Kind is "ended".
	Lasted time.Duration
	// Decisions is the number of decisions that were made without the store; 0 unless Kind is "ended".
	Decisions uint64
	// Severity is "fine" when an outage has ended, otherwise "advice" or "problem".
	Severity string
	// Subject is what the finding is about, such as "memory"; empty for the other kinds.
	Subject string
	// Message is a sentence for a log. It contains no key, password or URL.
	Message string
}

// WithOnDegraded sets a function that is called when the limiter begins to decide without its store, when it decides with it
// again, and for each finding of its doctor: one event after the other, on a goroutine of the package. slog.Default logs each
// event as a warning, and a panic of the function as an error.
func WithOnDegraded(hook func(DegradedEvent)) Option { return Option{onDegraded: hook} }

// The library calls back on any thread, also inside calls that cgo marks as nocallback. So a function in C writes each event as a
// line to one pipe of the process, and one goroutine reads the lines.
var events struct {
	start sync.Once
	err   error
	write C.int
	last  uint64

	mutex sync.Mutex
	hooks map[uint64]func(DegradedEvent)
}

// separator separates the fields of a line; no field contains it.
const separator = "\x1f"

func startEvents() error {
	events.start.Do(func() {
		ends, err := openPipe()
		if err != nil {
			events.err = &Error{Kind: ErrInternal, Message: "cannot create a pipe: " + err.Error()}
			return
		}
		events.write = C.int(ends[1])
		events.hooks = map[uint64]func(DegradedEvent){}
		lines := bufio.NewScanner(os.NewFile(uintptr(ends[0]), "polylimit events"))
		go func() {
			for lines.Scan() {
				dispatch(strings.Split(lines.Text(), separator))
			}
		}()
	})
	return events.err
}

// openPipe opens a pipe whose ends do not block, and which no other program inherits. Not every system can do that in one call.
func openPipe() (ends [2]int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err = syscall.Pipe(ends[:]); err != nil {
		return ends, err
	}
	for _, end := range ends {
		syscall.CloseOnExec(end)
		if err = syscall.SetNonblock(end, true); err != nil {
			return ends, errors.Join(err, syscall.Close(ends[0]), syscall.Close(ends[1]))
		}
	}
	return ends, nil
}

// subscribe has C write the events of the limiter to the pipe.
func (l *Limiter) subscribe(hook func(DegradedEvent)) error {
	if err := startEvents(); err != nil {
		return err
	}
	events.mutex.Lock()
	events.last++
	l.number = events.last
	events.hooks[l.number] = hook
	events.mutex.Unlock()
	l.subscription = C.polylimit_go_subscription_new(events.write, C.uint64_t(l.number))
	var failure message
	return failure.err(C.polylimit_go_subscribe(l.limiter, l.subscription, &failure[0], C.size_t(len(failure))))
}

// unsubscribe writes a last line that removes the hook. The library must not raise any more events of this limiter.
func (l *Limiter) unsubscribe() {
	C.polylimit_go_subscription_end(l.subscription)
}

// dispatch passes the event of a line to the logger and to the hook of its limiter.
func dispatch(fields []string) {
	number, _ := strconv.ParseUint(fields[0], 10, 64)
	events.mutex.Lock()
	hook := events.hooks[number]
	if len(fields) == 1 {
		delete(events.hooks, number)
	}
	events.mutex.Unlock()
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
