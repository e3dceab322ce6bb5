// Package guardtest runs the cases of the guard in tests/conformance through the integrations of frameworks. It is not published.
package guardtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

// Case is a case of tests/conformance/guard.json, guard_reservations.json, guard_meters.json or guard_waiting.json.
type Case struct {
	Name     string
	Policies map[string]string
	Store    string
	Outage   string
	Error    string
	Guards   []Options
	Requests []Request
	Left     []Left
}

// Request is a step of a case: a request, or what becomes of one whose response is open.
type Request struct {
	Method  string
	Headers map[string]string
	Respond int
	Fail    bool
	// What the handler says that it has spent.
	Spent *uint64
	// The response of the handler.
	ContentType string `json:"content_type"`
	Body        []string
	// The name of a response that stays open, of one that is sent to its end, and of one whose client closes the connection.
	Open, Close, Leave string
	Then               []Left
	// The time that passes every 100 ms while the request is under way.
	ElapseMs int64 `json:"elapse_ms"`
	Expect   struct {
		Status  int
		Handled *bool
		Fields  map[string]*string
		Text    *string
		Problem map[string]any
	}
}

// Service is a service of a framework behind the limits of a case.
type Service interface {
	// Send sends a request and compares its response with what the case expects. A response that stays open is kept.
	Send(t *testing.T, name string, request *Request)
	// Close sends an open response to its end.
	Close(t *testing.T, name string)
	// Leave closes the connection of an open response.
	Leave(name string)
}

// Run runs the cases of a file that the framework can express, and fails if they are fewer than least. The function start makes a service
// with the limits of a case, and returns the error of the first limit that is refused.
func Run(t *testing.T, file string, least int, isExpressible func(*Case) bool, start func(*testing.T, *Case, *Stores) (Service, error)) {
	t.Helper()
	_, source, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(source), "../../../../tests/conformance", file))
	if err != nil {
		t.Fatal(err)
	}
	var cases struct{ Cases []Case }
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	ran := 0
	for _, one := range cases.Cases {
		if isExpressible(&one) {
			ran++
			t.Run(one.Name, func(t *testing.T) { one.run(t, start) })
		}
	}
	if ran < least {
		t.Errorf("%d cases, fewer than %d", ran, least)
	}
}

func (c *Case) run(t *testing.T, start func(*testing.T, *Case, *Stores) (Service, error)) {
	stores := c.open(t)
	service, err := start(t, c, stores)
	if c.Error != "" {
		var refused *polylimit.Error
		if !errors.As(err, &refused) || refused.Kind.Code() != c.Error {
			t.Errorf("%v is no %s", err, c.Error)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for at, request := range c.Requests {
		switch {
		case request.Close != "":
			service.Close(t, request.Close)
		case request.Leave != "":
			service.Leave(request.Leave)
		default:
			stop := stores.elapse(t, request.ElapseMs)
			service.Send(t, fmt.Sprintf("request %d", at), &request)
			stop()
		}
		for _, left := range request.Then {
			left.Await(t, fmt.Sprintf("step %d", at), stores.limiters["memory"])
		}
	}
	for _, left := range c.Left {
		left.Await(t, "at the end", stores.limiters["memory"])
	}
}

// Stores are the limiters of a case by the name of their store.
type Stores struct {
	limiters map[string]*polylimit.Limiter
	// The one that guards have which name none.
	usual string
	clock *polylimit.ManualClock
}

func (c *Case) open(t *testing.T) *Stores {
	t.Helper()
	clock, err := polylimit.NewManualClock(time.Unix(1789948800, 0))
	if err != nil {
		t.Fatal(err)
	}
	stores := &Stores{map[string]*polylimit.Limiter{}, c.Store, clock}
	if stores.usual == "" {
		stores.usual = "memory"
	}
	// Nothing listens on port 1.
	urls := map[string]string{"memory": "memory:", "down": "redis://127.0.0.1:1?doctor_after=0", "broken": BrokenStore(t)}
	for store, url := range urls {
		var options []polylimit.Option
		for name, quotas := range c.Policies {
			options = append(options, polylimit.WithPolicy(name, quotas))
			if c.Outage != "" && store == "down" {
				options = append(options, polylimit.WithOutage(name, c.Outage))
			}
		}
		if store == "memory" {
			options = append(options, polylimit.WithClock(clock))
		}
		limiter, err := polylimit.Open(url, options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { limiter.Close() })
		stores.limiters[store] = limiter
	}
	return stores
}

// BrokenStore is the URL of a local store that cannot be opened, because other users may read its file.
func BrokenStore(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("go-guard-%d", os.Getpid())
	path := fmt.Sprintf("/dev/shm/polylimit-%d-%s", os.Getuid(), name)
	if err := errors.Join(os.WriteFile(path, nil, 0o640), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return "local:" + name
}

// elapse lets time pass until the returned function is called, so that a guard that holds the request does so first.
func (s *Stores) elapse(t *testing.T, everyMs int64) func() {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for everyMs > 0 {
			select {
			case <-stopped:
				return
			case <-time.After(100 * time.Millisecond):
				if err := s.clock.Advance(time.Duration(everyMs) * time.Millisecond); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	return func() {
		close(stopped)
		<-ended
	}
}

// Left is what remains of a key.
type Left struct {
	Policy, Key string
	Remaining   uint64
}

// Await waits until as much is left: a check ends after its client has read the response.
func (l Left) Await(t *testing.T, when string, limiter *polylimit.Limiter) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		decision, err := limiter.Peek(context.Background(), polylimit.Key(l.Key).Policy(l.Policy))
		if err == nil && decision.Remaining == l.Remaining {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%s: %s %s: %d is left, expected %d; %v", when, l.Policy, l.Key, decision.Remaining, l.Remaining, err)
		}
	}
}
