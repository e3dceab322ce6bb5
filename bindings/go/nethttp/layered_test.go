package nethttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

func TestInvalidOptionsAreRefusedByNew(t *testing.T) {
	two := open(t, polylimit.WithPolicy("a", "1/s"), polylimit.WithPolicy("b", "1/s"))
	for name, options := range map[string]nethttp.Options{
		"is not known":       {Policy: "nobody"},
		"read \"minut\"":     {Policy: "100/minut"},
		"there are several":  {},
		"is a duplicate":     {Policies: []string{"60/minute", "60 per 60s"}},
		"scope":              {Policy: "60/minute", Scope: strings.Repeat("x", 257)},
		"is not known: this": {Policies: []string{"a", "nobody"}},
	} {
		options.Limiter = two
		if _, err := nethttp.New(options); !errors.Is(err, polylimit.ErrInvalidArgument) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	two.Close()
	if _, err := nethttp.New(nethttp.Options{Limiter: two, Policy: "a"}); !errors.Is(err, polylimit.ErrClosed) {
		t.Error(err)
	}
}

func TestOnErrorReceivesTheError(t *testing.T) {
	limiter, broken := open(t, polylimit.WithPolicy("web", "9/hour")), errors.New("the session store is gone")
	var heard []error
	hear := func(_ *http.Request, err error) { heard = append(heard, err) }
	failing := func(*http.Request) (string, error) { return "", broken }
	if status := get(t, around(t, hello, nethttp.Options{Limiter: limiter, Key: failing, OnError: hear}).URL).status; status != 500 {
		t.Error(status)
	}
	server := around(t, hello, nethttp.Options{Limiter: limiter, OnError: hear})
	before := slog.Default()
	defer slog.SetDefault(before)
	var logged bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	logging := around(t, hello, nethttp.Options{Limiter: limiter, Policy: "web"})
	limiter.Close()
	if first, second := get(t, server.URL).status, get(t, logging.URL).status; first != 500 || second != 500 {
		t.Error(first, second)
	}
	if len(heard) != 2 || !errors.Is(heard[0], broken) || !errors.Is(heard[1], polylimit.ErrClosed) {
		t.Error(heard)
	}
	if !strings.Contains(logged.String(), "level=ERROR") || !strings.Contains(logged.String(), "the limiter is closed") {
		t.Error(logged.String())
	}
}

func TestDisconnectedClientGetsStatus499(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("web", "9/hour"))
	onError := func(*http.Request, error) { t.Error("it was reported as an error") }
	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, OnError: onError})
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	recorder := httptest.NewRecorder()
	limit(hello).ServeHTTP(recorder, httptest.NewRequestWithContext(gone, http.MethodGet, "/", nil))
	if recorder.Code != 499 {
		t.Error(recorder.Code)
	}

	// A client that disconnects while it is served: a reverse proxy then panics with http.ErrAbortHandler.
	leaving, cancel := context.WithCancel(context.Background())
	statuses := []int{}
	count := func(_ *http.Request, status int, _ http.Header) bool {
		statuses = append(statuses, status)
		return true
	}
	if limit, err = nethttp.New(nethttp.Options{Limiter: limiter, Count: count}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() != http.ErrAbortHandler || !slices.Equal(statuses, []int{499}) {
			t.Error(statuses)
		}
	}()
	limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		panic(http.ErrAbortHandler)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(leaving, http.MethodGet, "/", nil))
}

func TestQuotasWithoutANameBelongToTheirRoute(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("named", "2/hour"))
	made := func(options nethttp.Options) func(http.Handler) http.Handler {
		options.Limiter, options.Key = limiter, user
		limit, err := nethttp.New(options)
		if err != nil {
			t.Fatal(err)
		}
		return limit
	}
	mux := http.NewServeMux()
	both := made(nethttp.Options{Policy: "1/hour"})
	mux.Handle("/a", both(hello))
	mux.Handle("/users/{id}", both(hello))
	for _, path := range []string{"/shared/a", "/shared/b"} {
		mux.Handle(path, made(nethttp.Options{Policy: "1/hour", Scope: "shared"})(hello))
	}
	for _, path := range []string{"/named/a", "/named/b"} {
		mux.Handle(path, made(nethttp.Options{Policy: "named"})(hello))
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, step := range []struct {
		path   string
		status int
	}{
		{"/a", 200}, {"/users/1", 200}, {"/a", 429}, {"/users/2", 429},
		{"/shared/a", 200}, {"/shared/b", 429},
		{"/named/a", 200}, {"/named/b", 200}, {"/named/a", 429},
	} {
		if got := get(t, server.URL+step.path+"?user=u").status; got != step.status {
			t.Error(step, got)
		}
	}
}

func TestOnePolicyIsChargedOnceForARequest(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("web", "9/hour"), polylimit.WithPolicy("other", "9/hour"))
	one := nethttp.Options{Limiter: limiter, Policy: "web", Key: user}
	several := nethttp.Options{Limiter: limiter, Policies: []string{"other", "web"}, Key: user}
	remaining := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		decision, isLimited := nethttp.DecisionOf(request)
		if !isLimited || decision.Remaining != 8 {
			t.Errorf("%v %+v", isLimited, decision)
		}
		hello(writer, request)
	})
	answer := get(t, around(t, remaining, one, several, one).URL+"?user=a")
	if web, other := left(t, limiter, "web"), left(t, limiter, "other"); answer.status != 200 || web != 8 || other != 8 {
		t.Errorf("%+v: %d and %d are left", answer, web, other)
	}
	if fields := strings.Join(answer.header.Values("Ratelimit-Policy"), ", "); strings.Count(fields, `"web"`) != 1 {
		t.Error(fields)
	}
	// Another key or another limiter has another budget.
	address := nethttp.Options{Limiter: limiter, Policy: "web"}
	elsewhere := nethttp.Options{Limiter: open(t, polylimit.WithPolicy("web", "9/hour")), Policy: "web", Key: user}
	get(t, around(t, hello, one, address, elsewhere).URL+"?user=b")
	if decision, err := limiter.Peek(context.Background(), polylimit.Key("127.0.0.1").Policy("web")); err != nil || decision.Remaining != 8 {
		t.Error(decision, err)
	}
	if decision, err := elsewhere.Limiter.Peek(context.Background(), polylimit.Key("b")); err != nil || decision.Remaining != 8 {
		t.Error(decision, err)
	}
}

func TestHeaderFieldsIncludeARefund(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("outer", "2/hour fixed_window"), polylimit.WithPolicy("inner", "0/hour"))
	server := around(t, hello, nethttp.Options{Limiter: limiter, Policy: "outer", Key: user}, nethttp.Options{Limiter: limiter, Policy: "inner", Key: user})
	denied := get(t, server.URL+"?user=a")
	fields := strings.Join(denied.header.Values("Ratelimit"), ", ")
	if denied.status != 429 || left(t, limiter, "outer") != 2 || !strings.Contains(fields, `"outer";r=2;`) {
		t.Errorf("%+v", denied)
	}
}

func TestRequestWithoutAKeyIsLimitedByItsAddress(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("web", "9/hour"))
	for _, options := range []nethttp.Options{{Key: user}, {KeyParts: []nethttp.KeyPart{nethttp.Header("X-Api-Key")}}} {
		options.Limiter = limiter
		if status := get(t, around(t, hello, options).URL).status; status != 200 {
			t.Error(status)
		}
	}
	decision, err := limiter.Peek(context.Background(), polylimit.Key("127.0.0.1"))
	if err != nil || decision.Remaining != 7 {
		t.Error(decision, err)
	}
}

func TestSeveralMiddlewaresLimitOneHandler(t *testing.T) {
	limiter, err := polylimit.Open("memory:", polylimit.WithPolicy("ip", "9/hour"), polylimit.WithPolicy("user", "1/hour"))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	var handler http.Handler = http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		decision, limited := nethttp.DecisionOf(request)
		_, _ = fmt.Fprint(writer, decision.Remaining, limited)
	})
	for _, policy := range []string{"user", "ip"} {
		limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Policy: policy})
		if err != nil {
			t.Fatal(err)
		}
		handler = limit(handler)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	first, second := get(t, server.URL), get(t, server.URL)
	fields := strings.Join(first.header.Values("Ratelimit"), ", ")
	if first.body != "0 true" || !strings.Contains(fields, `"ip";r=8;`) || !strings.Contains(fields, `"user";r=0;`) || second.status != 429 {
		t.Errorf("%+v %+v", first, second)
	}
	// The units of the outer one are refunded when the inner one denies.
	left, err := limiter.Peek(context.Background(), polylimit.Key("127.0.0.1").Policy("ip"))
	if err != nil || left.Remaining != 8 {
		t.Errorf("%+v %v", left, err)
	}
}

func TestOneMiddlewareAppliesSeveralPolicies(t *testing.T) {
	limiter, err := polylimit.Open("memory:", polylimit.WithPolicy("ip", "9/hour"), polylimit.WithPolicy("user", "1/hour"))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	var denial nethttp.Denial
	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Policies: []string{"ip", "user"}, Key: user,
		Count: func(_ *http.Request, status int, _ http.Header) bool { return status == http.StatusOK },
		OnDenied: func(writer http.ResponseWriter, _ *http.Request, why nethttp.Denial) {
			denial = why
			writer.WriteHeader(why.Problem.Status)
		}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limit(hello))
	defer server.Close()
	remaining := func() [2]uint64 {
		var left [2]uint64
		for at, policy := range []string{"ip", "user"} {
			decision, err := limiter.Peek(context.Background(), polylimit.Key("a").Policy(policy))
			if err != nil {
				t.Fatal(err)
			}
			left[at] = decision.Remaining
		}
		return left
	}
	if failed := get(t, server.URL+"/failed?user=a"); failed.status != http.StatusUnauthorized || remaining() != [2]uint64{9, 1} {
		t.Errorf("%+v %v", failed, remaining())
	}
	first, second := get(t, server.URL+"?user=a"), get(t, server.URL+"?user=a")
	if first.status != 200 || second.status != 429 || remaining() != [2]uint64{8, 0} {
		t.Errorf("%+v %+v %v", first, second, remaining())
	}
	if len(denial.Outcomes) != 2 || denial.Decision.Allowed || denial.Outcomes[0].Decision.Remaining != 8 {
		t.Errorf("%+v", denial)
	}
	if _, err := nethttp.New(nethttp.Options{Limiter: limiter, Policy: "ip", Policies: []string{"user"}}); err == nil {
		t.Error("both Policy and Policies were taken")
	}
}

func TestOuterUnitsAreKeptAfterAnErrorOfTheProgram(t *testing.T) {
	for name, inner := range map[string]nethttp.Options{
		"no key":    {Key: func(*http.Request) (string, error) { return "", errors.New("no session") }},
		"no cost":   {Key: user, Cost: func(*http.Request) int64 { return -1 }},
		"no policy": {Key: user, PolicyFunc: func(*http.Request) ([]string, error) { return []string{"nobody"}, nil }},
		"no plan":   {Key: user, PolicyFunc: func(*http.Request) ([]string, error) { return nil, errors.New("no plan") }},
	} {
		limiter := open(t, polylimit.WithPolicy("ip", "9/hour"), polylimit.WithPolicy("user", "9/hour"))
		outer := nethttp.Options{Limiter: limiter, Policy: "ip", Key: user}
		var heard []error
		inner.Limiter, inner.Policy = limiter, "user"
		inner.OnError = func(_ *http.Request, err error) { heard = append(heard, err) }
		server := around(t, hello, outer, inner)
		if status := get(t, server.URL+"/?user=a").status; status != 500 || len(heard) != 1 {
			t.Error(name, status, heard)
		}
		if ip, user := left(t, limiter, "ip"), left(t, limiter, "user"); ip != 8 || user != 9 {
			t.Error(name, ip, user)
		}
	}
}
