package polylimitfasthttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/middleware"
	"polylimit.dev/polylimit/polylimitfasthttp"
)

// serve serves a handler until the test ends, and returns its URL.
func serve(t *testing.T, handler fasthttp.RequestHandler) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	server := &fasthttp.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String()
}

// response is a response that was read.
type response struct {
	status int
	header http.Header
	body   string
}

func get(t *testing.T, url string, header ...string) response {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(header); at += 2 {
		request.Header.Set(header[at], header[at+1])
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

func open(t *testing.T, options ...polylimit.Option) *polylimit.Limiter {
	t.Helper()
	limiter, err := polylimit.Open("memory:", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	return limiter
}

func limited(t *testing.T, options polylimitfasthttp.Options) *polylimitfasthttp.Limit {
	t.Helper()
	limit, err := polylimitfasthttp.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

func TestNestedLimitsReportTogetherAndTheHandlerSeesThem(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("outer", "5/hour fixed_window"), polylimit.WithPolicy("inner", "1/hour fixed_window"))
	outer := limited(t, polylimitfasthttp.Options{Limiter: limiter, Policy: "outer"})
	inner := limited(t, polylimitfasthttp.Options{Limiter: limiter, Policy: "inner"})
	url := serve(t, outer.Handler(inner.Handler(func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Add("x-own", "1")
		if decision, isLimited := middleware.DecisionOf(polylimitfasthttp.ContextOf(ctx)); !isLimited || decision.Remaining != 0 {
			t.Error(decision, isLimited)
		}
	})))
	first, second := get(t, url), get(t, url)
	for _, answer := range []response{first, second} {
		found := strings.Join(answer.header.Values("Ratelimit"), ", ")
		if !strings.Contains(found, `"outer";r=4;`) || !strings.Contains(found, `"inner";r=0;`) {
			t.Error(found)
		}
	}
	if first.status != 200 || first.header.Get("x-own") != "1" || second.status != 429 || second.header.Get("Retry-After") == "" {
		t.Error(first, second)
	}
	if kind := second.header.Get("Content-Type"); kind != "application/problem+json" {
		t.Error(kind)
	}
}

func TestClientIsThePeerUnlessAProxyIsTrusted(t *testing.T) {
	rules := polylimit.AddressRules{Trust: []string{"loopback"}, Header: "x-forwarded-for"}
	for _, address := range []polylimit.AddressRules{{}, rules} {
		limit := limited(t, polylimitfasthttp.Options{Limiter: open(t), Policy: "1/hour fixed_window", Scope: "s", Address: address})
		url := serve(t, limit.Handler(func(*fasthttp.RequestCtx) {}))
		expected := []int{200, 429}
		if address.Header != "" {
			expected = []int{200, 200}
		}
		found := []int{get(t, url, "x-forwarded-for", "192.0.2.1").status, get(t, url, "x-forwarded-for", "192.0.2.2").status}
		if !slices.Equal(found, expected) {
			t.Error(found, expected)
		}
	}
}

func TestErrorOfTheProgramIsAnsweredBy500(t *testing.T) {
	reported := make(chan error, 1)
	limit := limited(t, polylimitfasthttp.Options{
		Limiter: open(t), Policy: "1/hour", Scope: "s",
		Key:     func(*polylimitfasthttp.Request) (string, error) { return "", errors.New("no key today") },
		OnError: func(_ *polylimitfasthttp.Request, err error) { reported <- err },
	})
	answer := get(t, serve(t, limit.Handler(func(*fasthttp.RequestCtx) { t.Error("it ran") })))
	if err := <-reported; answer.status != 500 || answer.body != "Internal Server Error" || err.Error() != "no key today" {
		t.Error(answer, err)
	}
}

func TestSlotIsHeldWhileABodyStreamIsSent(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("streams", "1 concurrent"))
	limit := limited(t, polylimitfasthttp.Options{Limiter: limiter})
	events := make(chan string)
	url := serve(t, limit.Handler(func(ctx *fasthttp.RequestCtx) { stream(ctx, events) }))
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	events <- "first "
	if status := get(t, url).status; status != 429 {
		t.Error(status)
	}
	close(events)
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "first " {
		t.Error(string(body), err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		left, err := limiter.Peek(context.Background(), polylimit.Key("127.0.0.1"))
		if err == nil && left.Allowed {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatal(left, err)
		}
	}
}

// stream is the second example of README.md, with a header that is sent at once.
func stream(ctx *fasthttp.RequestCtx, events <-chan string) {
	ctx.Response.ImmediateHeaderFlush = true
	release := polylimitfasthttp.Hold(ctx)
	ctx.SetBodyStreamWriter(func(writer *bufio.Writer) {
		defer release()
		for event := range events {
			_, _ = writer.WriteString(event)
			if writer.Flush() != nil {
				return // The client has gone.
			}
		}
	})
}

// exampleServer is the first example of README.md.
func exampleServer(limiter *polylimit.Limiter, address string, handler fasthttp.RequestHandler) error {
	limit, err := polylimitfasthttp.New(polylimitfasthttp.Options{Limiter: limiter, Policy: "100/minute", Scope: "service"})
	if err != nil {
		return err
	}
	err = fasthttp.ListenAndServe(address, limit.Handler(handler))
	return err
}

func TestExampleOfTheReadmeServes(t *testing.T) {
	if err := exampleServer(open(t), "no address", func(*fasthttp.RequestCtx) {}); err == nil {
		t.Error("no address was accepted")
	}
}

func TestReadmeHasTheseExamplesAndTheFunctionOfTheApplicationOfFiber(t *testing.T) {
	var sources strings.Builder
	for _, name := range []string{"limit_test.go", "../../../tests/spellings/apps/fiber/fiber3.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(source)
	}
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	for _, rest := range blocks {
		block, _, _ := strings.Cut(rest, "```")
		for line := range strings.Lines(block) {
			if !strings.Contains(sources.String(), line) {
				t.Errorf("no test has this line: %s", line)
			}
		}
	}
	if len(blocks) != 3 {
		t.Error(len(blocks))
	}
}
