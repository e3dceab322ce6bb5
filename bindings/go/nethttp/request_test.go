package nethttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/internal/guardtest"
	"polylimit.dev/polylimit/nethttp"
)

func TestKeyPartsAreReadFromTheRequest(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("web", "9/hour"))
	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Policy: "web",
		User:     func(request *http.Request) string { return request.Header.Get("X-Login") },
		KeyParts: []nethttp.KeyPart{nethttp.Address(), nethttp.User(), nethttp.Header("X-Plan"), nethttp.Cookie("session"), nethttp.Path("tenant")}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/tenants/{tenant}", limit(hello))
	server := httptest.NewServer(mux)
	defer server.Close()
	get(t, server.URL+"/tenants/a%7Cb", "X-Login", "anna", "X-Plan", "free", "X-Plan", "trial", "Cookie", "theme=dark; session=s1")
	// The last part is missing.
	get(t, server.URL+"/tenants/a", "X-Login", "anna", "X-Plan", "free")
	for _, key := range []string{"127.0.0.1|user:anna|x-plan:free, trial|cookie:session:s1|path:tenant:a%7Cb", "127.0.0.1"} {
		if decision, err := limiter.Peek(context.Background(), polylimit.Key(key)); err != nil || decision.Remaining != 8 {
			t.Error(key, decision.Remaining, err)
		}
	}
}

func TestPoliciesBelongToTheRequest(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("a", "1/hour"), polylimit.WithPolicy("b", "9/hour"))
	plans := map[string][]string{"free": {"a"}, "pro": {"b", "100/hour"}}
	options := nethttp.Options{Limiter: limiter, Key: user, PolicyFunc: func(request *http.Request) ([]string, error) {
		return plans[request.URL.Query().Get("plan")], nil
	}}
	server := around(t, http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		_, isLimited := nethttp.DecisionOf(request)
		_, _ = fmt.Fprint(writer, len(nethttp.OutcomesOf(request)), isLimited)
	}), options)
	for _, step := range []struct{ plan, body string }{{"free", "1 true"}, {"pro", "2 true"}, {"pro", "2 true"}, {"internal", "0 false"}} {
		if answer := get(t, server.URL+"?user=u&plan="+step.plan); answer.status != 200 || answer.body != step.body {
			t.Errorf("%+v: %+v", step, answer)
		}
	}
	if status := get(t, server.URL+"?user=u&plan=free").status; status != 429 {
		t.Error(status)
	}
}

func TestOutcomesOfTellsEveryMiddleware(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("out", "9/hour"), polylimit.WithPolicy("in", "5/hour"))
	var later func() ([]polylimit.Outcome, polylimit.Decision)
	server := around(t, http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		for _, outcome := range nethttp.OutcomesOf(request) {
			_, _ = fmt.Fprint(writer, outcome.Policy, outcome.Decision.Remaining, ";")
		}
		later = func() ([]polylimit.Outcome, polylimit.Decision) {
			decision, _ := nethttp.DecisionOf(request)
			return nethttp.OutcomesOf(request), decision
		}
	}), nethttp.Options{Limiter: limiter, Policy: "out"}, nethttp.Options{Limiter: limiter, Policy: "in"})
	if body := get(t, server.URL).body; body != "out8;in4;" {
		t.Error(body)
	}
	server.Close()
	if outcomes, decision := later(); len(outcomes) != 0 || decision.Remaining != 4 {
		t.Error(outcomes, decision)
	}
}

// The handler behind http.TimeoutHandler goes on after the outer middleware has returned.
func TestInnerMiddlewareDecidesAfterTheOuterOneHasReturned(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("out", "9/hour"), polylimit.WithPolicy("in", "5/hour"))
	made := func(policy string) func(http.Handler) http.Handler {
		limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Policy: policy, Key: user})
		if err != nil {
			t.Fatal(err)
		}
		return limit
	}
	goOn, done := make(chan struct{}), make(chan struct{})
	inner := made("in")(hello)
	late := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		defer close(done)
		<-goOn
		inner.ServeHTTP(writer, request.WithContext(context.WithoutCancel(request.Context())))
	})
	server := httptest.NewServer(made("out")(http.TimeoutHandler(late, time.Millisecond, "late")))
	defer server.Close()
	if status := get(t, server.URL+"?user=a").status; status != http.StatusServiceUnavailable {
		t.Error(status)
	}
	close(goOn)
	<-done
	if out, in := left(t, limiter, "out"), left(t, limiter, "in"); out != 8 || in != 4 {
		t.Error(out, in)
	}
}

func TestSecondAttemptIsChargedAgain(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("out", "9/hour"), polylimit.WithPolicy("in", "5/hour"))
	inner, err := nethttp.New(nethttp.Options{Limiter: limiter, Policy: "in", Key: user})
	if err != nil {
		t.Fatal(err)
	}
	limited := inner(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	twice := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		limited.ServeHTTP(writer, request)
		limited.ServeHTTP(writer, request)
	})
	fields := get(t, around(t, twice, nethttp.Options{Limiter: limiter, Policy: "out", Key: user}).URL+"?user=a").header.Values("Ratelimit")
	if left(t, limiter, "in") != 3 || len(fields) != 1 || !strings.Contains(fields[0], `"in";r=3;`) {
		t.Error(fields)
	}
}

func TestStoreThatCannotDecideIsAnOutage(t *testing.T) {
	limiter, err := polylimit.Open(guardtest.BrokenStore(t), polylimit.WithPolicy("web", "9/hour"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limiter.Close() })
	var mutex sync.Mutex
	var heard []error
	add := func(err error) {
		mutex.Lock()
		defer mutex.Unlock()
		heard = append(heard, err)
	}
	options := nethttp.Options{Limiter: limiter, OnError: func(_ *http.Request, err error) { add(err) },
		OnOutage: func(_ *http.Request, outage polylimit.Outage) polylimit.OutageAction {
			add(outage.Err)
			return polylimit.LeaveOutage
		}}
	if status := get(t, around(t, hello, options).URL).status; status != http.StatusServiceUnavailable {
		t.Error(status)
	}
	if len(heard) != 2 || !errors.Is(heard[0], polylimit.ErrStoreFailed) || !errors.Is(heard[1], polylimit.ErrStoreFailed) {
		t.Error(heard)
	}
}

// On a store in Redis a request waits, alone and among others; its units are refunded also after its client has disconnected.
func TestUnitsInRedisAreRefunded(t *testing.T) {
	for _, goroutines := range []int{1, 16} {
		policy := fmt.Sprintf("refunds-%d", goroutines)
		limiter, err := polylimit.Open(os.Getenv("REDIS_URL"),
			polylimit.WithPolicy(policy, "100/day fixed_window"), polylimit.WithPolicy("other", "1000/day"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { limiter.Close() })
		limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Policies: []string{policy, "other"}, Key: user,
			Count: func(_ *http.Request, status int, _ http.Header) bool { return status == http.StatusUnauthorized }})
		if err != nil {
			t.Fatal(err)
		}
		handler := limit(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			if request.URL.Path == "/gone" {
				request.Context().Value(cancelKey{}).(context.CancelFunc)()
			}
			hello(writer, request)
		}))
		var group sync.WaitGroup
		for range goroutines {
			group.Go(func() {
				for _, path := range []string{"/", "/failed", "/gone"} {
					ctx, cancel := context.WithCancel(context.Background())
					ctx = context.WithValue(ctx, cancelKey{}, cancel)
					recorder := httptest.NewRecorder()
					handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, path+"?user=a", nil))
					cancel()
					if recorder.Code != http.StatusOK && path != "/failed" {
						t.Error(path, recorder.Code)
					}
				}
			})
		}
		group.Wait()
		if got := left(t, limiter, policy); got != uint64(100-goroutines) {
			t.Error(goroutines, got)
		}
	}
}

type cancelKey struct{}

// The deadline of a request passes before the store has answered: that is an outage, and not an error of the program.
func TestDeadlineOfTheRequestIsAnOutage(t *testing.T) {
	// A server that accepts connections and never answers.
	silent := silentServer(t)
	for _, goroutines := range []int{1, 4} {
		limiter, err := polylimit.Open("redis://"+silent+"?deadline=60s&first_connect_max=60s&doctor_after=0", polylimit.WithPolicy("web", "9/hour"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { limiter.Close() })
		limit, err := nethttp.New(nethttp.Options{Limiter: limiter, OnError: func(*http.Request, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range goroutines {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
				defer cancel()
				recorder := httptest.NewRecorder()
				limit(hello).ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
				if recorder.Code != http.StatusServiceUnavailable {
					t.Error(recorder.Code)
				}
			})
		}
		group.Wait()
	}
}
