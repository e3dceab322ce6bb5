package polylimit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

const password = "p4ssw0rd-nobody-sees"

// freePort returns a port that is free now: below those that the kernel gives to connections, which would take it meanwhile.
func freePort() int {
	for {
		port := 10_000 + rand.IntN(10_000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			return port
		}
	}
}

// server is a Redis server for one test, with a password and with eviction.
func server(t *testing.T) (url string, process *exec.Cmd) {
	port := freePort()
	process = exec.Command("redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(),
		"--logfile", filepath.Join(t.TempDir(), "log"), "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--requirepass", password)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	url = fmt.Sprintf("redis://:%s@127.0.0.1:%d", password, port)
	waiting := open(t, url, polylimit.WithPolicy("api", "5/hour"), polylimit.WithOption("doctor_after", "0"))
	if err := waiting.Ready(ctx, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	return url, process
}

// log records the output of slog's default logger during a test, and the events of a hook.
type log struct {
	mutex  sync.Mutex
	text   bytes.Buffer
	events []polylimit.DegradedEvent
}

func (l *log) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(line)
}

func (l *log) hook(event polylimit.DegradedEvent) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.events = append(l.events, event)
}

func (l *log) received() ([]polylimit.DegradedEvent, []string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return append([]polylimit.DegradedEvent{}, l.events...), strings.SplitAfter(l.text.String(), "\n")
}

func logging(t *testing.T) *log {
	kept, before := &log{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(kept, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return kept
}

func until(t *testing.T, what string, so func() bool) {
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain: " + what)
		}
	}
}

func TestOutageRaisesAnEventWhenItBeginsAndWhenItEnds(t *testing.T) {
	kept := logging(t)
	url, process := server(t)
	limiter := open(t, url, polylimit.WithPolicy("api", "1000000/hour"), polylimit.WithOption("deadline", "500ms"),
		polylimit.WithOption("doctor_after", "0"), polylimit.WithOnDegraded(kept.hook))
	source := func() string { return must(limiter.Check(ctx, polylimit.Key("a key that nobody sees")))(t).Source }
	if source() != "store" {
		t.Fatal("the store was not asked")
	}
	_ = process.Process.Signal(syscall.SIGSTOP)
	for range 10 {
		if source() != "fallback" {
			t.Fatal("the store has answered")
		}
	}
	_ = process.Process.Signal(syscall.SIGCONT)
	until(t, "the end is reported", func() bool {
		source()
		events, _ := kept.received()
		return len(events) > 1
	})
	limiter.Close()
	events, lines := kept.received()
	if len(events) != 2 || len(lines) != 3 {
		t.Fatal(events, lines)
	}
	started, ended := events[0], events[1]
	if started.Kind != "started" || started.Reason == "" || started.Lasted != 0 || started.Decisions != 0 || started.Severity != "problem" {
		t.Error(started)
	}
	if ended.Kind != "ended" || ended.Reason != started.Reason || ended.Lasted <= 0 || ended.Decisions < 10 || ended.Severity != "fine" {
		t.Error(ended)
	}
	for at, event := range events {
		if !strings.Contains(lines[at], "level=WARN") || !strings.Contains(lines[at], event.Message) {
			t.Error(lines[at])
		}
	}
	if !strings.Contains(started.Message, "decides without its store") || strings.Contains(fmt.Sprint(events, lines), "nobody") {
		t.Error(events, lines)
	}
}

func TestFindingOfTheDoctorRaisesAnEvent(t *testing.T) {
	kept := logging(t)
	url, _ := server(t)
	limiter := open(t, url, polylimit.WithPolicy("api", "1000000/hour"), polylimit.WithOption("deadline", "10s"),
		polylimit.WithOption("doctor_after", "1ms"), polylimit.WithOnDegraded(kept.hook))
	until(t, "the finding is reported", func() bool {
		must(limiter.Check(ctx, polylimit.Key("user:42")))(t)
		events, _ := kept.received()
		return len(events) > 0
	})
	limiter.Close()
	events, lines := kept.received()
	if len(events) != 1 || len(lines) != 2 || events[0].Kind != "finding" || events[0].Subject != "memory" || events[0].Reason != "" {
		t.Fatal(events, lines)
	}
	if !strings.Contains(events[0].Message, "allkeys-lru") || strings.Contains(lines[0], password) {
		t.Error(events, lines)
	}
}

func TestPanicOfAHookIsLogged(t *testing.T) {
	kept := logging(t)
	limiter := open(t, "memory:", polylimit.WithPolicy("api", "5/hour"), polylimit.WithOption("max_keys", "1"),
		polylimit.WithOnDegraded(func(event polylimit.DegradedEvent) { panic("reported " + event.Reason) }))
	for _, key := range []string{"one", "another", "a third"} {
		must(limiter.Check(ctx, polylimit.Key(key)))(t)
	}
	// Events that were raised before Close are delivered after it.
	limiter.Close()
	until(t, "the panic is logged", func() bool {
		_, lines := kept.received()
		return len(lines) == 3 && strings.Contains(lines[1], "OnDegraded panicked: reported store_full")
	})
}
