package nethttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

var hello = http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
	status := http.StatusOK
	if request.URL.Path == "/failed" {
		status = http.StatusUnauthorized
	}
	writer.WriteHeader(status)
	_, _ = io.WriteString(writer, "hello")
})

func user(request *http.Request) (string, error) { return request.URL.Query().Get("user"), nil }

// serve starts a server with a limited handler.
func serve(t *testing.T, url, quotas string, options nethttp.Options, settings ...polylimit.Option) *httptest.Server {
	t.Helper()
	limiter, err := polylimit.Open(url, append(settings, polylimit.WithPolicy("web", quotas))...)
	if err != nil {
		t.Fatal(err)
	}
	options.Limiter = limiter
	limit, err := nethttp.New(options)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limit(hello))
	t.Cleanup(func() {
		server.Close()
		limiter.Close()
	})
	return server
}

type response struct {
	status int
	header http.Header
	body   string
}

func get(t *testing.T, url string, header ...string) response {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(header); at += 2 {
		request.Header.Add(header[at], header[at+1])
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{answer.StatusCode, answer.Header, string(body)}
}

func TestExactlyTheLimitIsAdmitted(t *testing.T) {
	redis := os.Getenv("REDIS_URL")
	if redis == "" {
		t.Fatal("REDIS_URL names no server: bindings/go/test starts one")
	}
	for name, url := range map[string]string{"local": "file://" + t.TempDir() + "/store?size=1MiB", "redis": redis} {
		t.Run(name, func(t *testing.T) {
			// Two servers share one budget.
			options := nethttp.Options{Key: user}
			servers := []*httptest.Server{serve(t, url, "100/day fixed_window", options), serve(t, url, "100/day fixed_window", options)}
			var passed, denied atomic.Int64
			var group sync.WaitGroup
			for worker := range 16 {
				group.Go(func() {
					for range 10 {
						switch get(t, servers[worker%2].URL+"/?user=alice").status {
						case http.StatusOK:
							passed.Add(1)
						case http.StatusTooManyRequests:
							denied.Add(1)
						}
					}
				})
			}
			group.Wait()
			if passed.Load() != 100 || denied.Load() != 60 {
				t.Errorf("%d passed and %d were denied", passed.Load(), denied.Load())
			}
		})
	}
}

func TestResponseHasHeaderFieldsAndBody(t *testing.T) {
	server := serve(t, "memory:", "1/hour fixed_window", nethttp.Options{Key: user, Headers: "both"})
	allowed := get(t, server.URL+"/?user=a")
	if allowed.status != 200 || allowed.body != "hello" || allowed.header.Get("Ratelimit-Policy") != `"web";q=1;w=3600` ||
		allowed.header.Get("Ratelimit") != `"web";r=0;t=3600` || allowed.header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("%+v", allowed)
	}
	denied := get(t, server.URL+"/?user=a")
	if denied.status != 429 || denied.header.Get("Retry-After") == "" || !strings.Contains(denied.body, `"violated-policies":["web"]`) ||
		denied.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%+v", denied)
	}
	text := get(t, server.URL+"/?user=a", "Accept", "text/html, application/json;q=0.5")
	if text.header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.HasPrefix(text.body, "Not enough") {
		t.Errorf("%+v", text)
	}
}

func TestOptions(t *testing.T) {
	t.Run("cost", func(t *testing.T) {
		server := serve(t, "memory:", "10/hour fixed_window", nethttp.Options{Cost: func(*http.Request) int64 { return 10 }})
		if first, second := get(t, server.URL).status, get(t, server.URL).status; first != 200 || second != 429 {
			t.Error(first, second)
		}
		for _, cost := range []int64{-1, 1 << 62} {
			wrong := serve(t, "memory:", "10/hour", nethttp.Options{Cost: func(*http.Request) int64 { return cost }})
			if status := get(t, wrong.URL).status; status != 500 {
				t.Error(cost, status)
			}
		}
	})
	t.Run("count", func(t *testing.T) {
		failures := func(_ *http.Request, status int, _ http.Header) bool { return status == http.StatusUnauthorized }
		server := serve(t, "memory:", "3/hour fixed_window", nethttp.Options{Count: failures})
		for range 5 {
			if status := get(t, server.URL).status; status != 200 {
				t.Error(status)
			}
		}
		statuses := ""
		for range 4 {
			statuses += fmt.Sprint(get(t, server.URL+"/failed").status, " ")
		}
		if statuses != "401 401 401 429 " {
			t.Error(statuses)
		}
	})
	t.Run("skip", func(t *testing.T) {
		health := func(request *http.Request) bool { return request.URL.Path == "/health" }
		server := serve(t, "memory:", "0/hour", nethttp.Options{Skip: health})
		skipped := get(t, server.URL+"/health")
		if skipped.status != 200 || skipped.header.Get("Ratelimit") != "" || get(t, server.URL).status != 429 {
			t.Errorf("%+v", skipped)
		}
	})
	t.Run("on denied", func(t *testing.T) {
		server := serve(t, "memory:", "0/hour", nethttp.Options{OnDenied: func(writer http.ResponseWriter, _ *http.Request, denial nethttp.Denial) {
			http.Error(writer, fmt.Sprint(denial.Problem.Status, denial.Decision.Allowed), http.StatusTeapot)
		}})
		if denied := get(t, server.URL); denied.status != http.StatusTeapot || denied.body != "429 false\n" {
			t.Errorf("%+v", denied)
		}
	})
	t.Run("key", func(t *testing.T) {
		server := serve(t, "memory:", "1/hour", nethttp.Options{KeyParts: []nethttp.KeyPart{nethttp.Header("X-Api-Key")}})
		for _, step := range []struct {
			key    string
			status int
		}{{"a", 200}, {"b", 200}, {"a", 429}} {
			if got := get(t, server.URL, "X-Api-Key", step.key).status; got != step.status {
				t.Error(step, got)
			}
		}
		behind := polylimit.AddressRules{Trust: []string{"loopback"}, Header: "x-forwarded-for"}
		server = serve(t, "memory:", "1/hour", nethttp.Options{Address: behind})
		for _, step := range []struct {
			forwarded string
			status    int
		}{{"203.0.113.7", 200}, {"203.0.113.8", 200}, {"198.51.100.1, 203.0.113.7", 429}} {
			if got := get(t, server.URL, "X-Forwarded-For", step.forwarded).status; got != step.status {
				t.Error(step, got)
			}
		}
		// Two lines of the header are one list.
		if got := get(t, server.URL, "X-Forwarded-For", "203.0.113.7", "X-Forwarded-For", "203.0.113.9").status; got != 200 {
			t.Error(got)
		}
	})
	t.Run("limiter", func(t *testing.T) {
		if _, err := nethttp.New(nethttp.Options{}); err == nil {
			t.Error("there is no limiter")
		}
	})
	t.Run("invalid options", func(t *testing.T) {
		limiter := open(t, polylimit.WithPolicy("ip", "9/hour"))
		for message, options := range map[string]nethttp.Options{
			"policy is an empty list: allowed is a policy's name": {Policies: []string{}},
			`policy "ip" is a duplicate: leave out one`:           {Policies: []string{"ip", "5/hour", "ip"}},
			`header setting "all" is not known`:                   {Headers: "all"},
			"both Key and KeyParts":                               {Key: user, KeyParts: []nethttp.KeyPart{nethttp.Address()}},
			"Options.User is needed":                              {KeyParts: []nethttp.KeyPart{nethttp.User()}},
			`key part "ip" cannot be read`:                        {KeyParts: []nethttp.KeyPart{"ip"}},
			"cost":                                                {FixedCost: -1},
			"status is 200":                                       {Status: 200},
			"missing key":                                         {MissingKey: "ignore"},
			"everybody":                                           {Address: polylimit.AddressRules{Trust: []string{"everybody"}}},
		} {
			options.Limiter = limiter
			_, err := nethttp.New(options)
			if !errors.Is(err, polylimit.ErrInvalidArgument) || !strings.Contains(err.Error(), message) {
				t.Errorf("%v: %v", message, err)
			}
		}
	})
}

func open(t *testing.T, options ...polylimit.Option) *polylimit.Limiter {
	t.Helper()
	limiter, err := polylimit.Open("memory:", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limiter.Close() })
	return limiter
}

// around starts a server whose handler has all of these middlewares, the first one outermost.
func around(t *testing.T, handler http.Handler, all ...nethttp.Options) *httptest.Server {
	t.Helper()
	for _, options := range slices.Backward(all) {
		limit, err := nethttp.New(options)
		if err != nil {
			t.Fatal(err)
		}
		handler = limit(handler)
	}
	server := httptest.NewUnstartedServer(handler)
	// net/http logs panics of handlers there.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func left(t *testing.T, limiter *polylimit.Limiter, policy string) uint64 {
	t.Helper()
	decision, err := limiter.Peek(context.Background(), polylimit.Key("a").Policy(policy))
	if err != nil {
		t.Fatal(err)
	}
	return decision.Remaining
}

func TestHeaderFieldsIncludeTheRefundOfAResponseThatDoesNotCount(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("web", "9/hour fixed_window"), polylimit.WithPolicy("out", "5/hour fixed_window"))
	answers := http.NewServeMux()
	answers.HandleFunc("/empty", func(http.ResponseWriter, *http.Request) {})
	answers.HandleFunc("/status", func(writer http.ResponseWriter, _ *http.Request) { writer.WriteHeader(http.StatusAccepted) })
	answers.HandleFunc("/body", func(writer http.ResponseWriter, _ *http.Request) { _, _ = writer.Write([]byte("hello")) })
	answers.HandleFunc("/flush", func(writer http.ResponseWriter, _ *http.Request) { writer.(http.Flusher).Flush() })
	answers.HandleFunc("/failed", func(writer http.ResponseWriter, _ *http.Request) { http.Error(writer, "no", http.StatusUnauthorized) })
	failures := func(_ *http.Request, status int, _ http.Header) bool { return status == http.StatusUnauthorized }
	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Policy: "web", Key: user, Count: failures})
	if err != nil {
		t.Fatal(err)
	}
	server := around(t, limit(answers), nethttp.Options{Limiter: limiter, Policy: "out", Key: user})
	for at, path := range []string{"/empty", "/status", "/body", "/flush"} {
		fields := strings.Join(get(t, server.URL+path+"?user=a").header.Values("Ratelimit"), ", ")
		if !strings.Contains(fields, `"web";r=9;`) || !strings.Contains(fields, fmt.Sprintf(`"out";r=%d;`, 4-at)) {
			t.Error(path, fields)
		}
	}
	if got := get(t, server.URL+"/failed?user=a").header.Values("Ratelimit"); !strings.Contains(strings.Join(got, ", "), `"web";r=8;`) {
		t.Error(got)
	}
	if got := left(t, limiter, "web"); got != 8 {
		t.Error(got)
	}
}

func TestPanickingHandlerHasStatus500ForCount(t *testing.T) {
	for counted, expected := range map[int]uint64{http.StatusInternalServerError: 8, http.StatusOK: 9} {
		limiter := open(t, polylimit.WithPolicy("web", "9/hour"))
		count := func(_ *http.Request, status int, _ http.Header) bool { return status == counted }
		panics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") })
		server := around(t, panics, nethttp.Options{Limiter: limiter, Policy: "web", Key: user, Count: count})
		if answer, err := http.Get(server.URL + "/?user=a"); err == nil {
			_ = answer.Body.Close()
			t.Error(answer.Status)
		}
		if got := left(t, limiter, "web"); got != expected {
			t.Error(counted, got)
		}
	}
}

func TestDenialDuringAnOutageIs503(t *testing.T) {
	deny := polylimit.WithOutage("web", "deny")
	server := serve(t, "redis://127.0.0.1:1", "5/hour", nethttp.Options{}, deny)
	if denied := get(t, server.URL); denied.status != 503 || !strings.Contains(denied.body, "temporary-reduced-capacity") {
		t.Errorf("%+v", denied)
	}
	admit := func(_ *http.Request, outage polylimit.Outage) polylimit.OutageAction {
		if outage.Err != nil || len(outage.Outcomes) != 1 || outage.Outcomes[0].Decision.Source != "deny" || outage.Outcomes[0].Decision.Degraded == "" {
			t.Errorf("%+v", outage)
		}
		return polylimit.AdmitOutage
	}
	server = serve(t, "redis://127.0.0.1:1", "5/hour", nethttp.Options{OnOutage: admit}, deny)
	if allowed := get(t, server.URL); allowed.status != 200 || allowed.header.Get("X-Ratelimit-Outage") != "on_outage" {
		t.Errorf("%+v", allowed)
	}
	server = serve(t, "redis://127.0.0.1:1", "1/hour", nethttp.Options{})
	if first, second := get(t, server.URL).status, get(t, server.URL).status; first != 200 || second != 429 {
		t.Error("this process decides by itself:", first, second)
	}
}

// Streaming and hijacking work through the wrapped writer.
func TestWrappedWriterStreamsAndHijacks(t *testing.T) {
	limiter, err := polylimit.Open("memory:", polylimit.WithPolicy("web", "9/hour"))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Count: func(*http.Request, int, http.Header) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limit(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/upgrade" {
			connection, buffered, err := writer.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\nraw")
			_ = buffered.Flush()
			_ = connection.Close()
			return
		}
		_, _ = io.WriteString(writer, "first")
		writer.(http.Flusher).Flush()
		<-request.Context().Done()
	})))
	defer server.Close()
	stream, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(stream.Body, first); err != nil || string(first) != "first" {
		t.Error(err, string(first))
	}
	_ = stream.Body.Close()
	connection, err := net.DialTimeout("tcp", strings.TrimPrefix(server.URL, "http://"), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, _ = io.WriteString(connection, "GET /upgrade HTTP/1.1\r\nHost: x\r\n\r\n")
	if answer, err := io.ReadAll(connection); err != nil || !strings.HasSuffix(string(answer), "\r\n\r\nraw") {
		t.Error(err, string(answer))
	}
}

// silentServer listens and answers nothing.
func silentServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}
