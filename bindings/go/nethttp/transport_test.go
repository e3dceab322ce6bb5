package nethttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

// answer is a response of a scripted server.
type answer struct {
	status int
	field  string
	value  string
}

// scripted is a server that answers by a script, then by 200, and the requests that it got.
type scripted struct {
	*httptest.Server
	mutex   sync.Mutex
	answers []answer
	seen    []string
	at      []time.Time
}

func script(t *testing.T, answers ...answer) *scripted {
	server := &scripted{answers: answers}
	server.Server = httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		server.mutex.Lock()
		defer server.mutex.Unlock()
		server.at = append(server.at, time.Now())
		server.seen = append(server.seen, strings.TrimSpace(request.Method+" "+string(body)))
		if len(server.answers) > 0 {
			next := server.answers[0]
			server.answers = server.answers[1:]
			if next.field != "" {
				writer.Header().Set(next.field, next.value)
			}
			writer.WriteHeader(next.status)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func (s *scripted) expect(t *testing.T, requests ...string) {
	t.Helper()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if strings.Join(s.seen, ", ") != strings.Join(requests, ", ") {
		t.Errorf("the server got %q, not %q", s.seen, requests)
	}
}

// between is the time between the first two requests.
func (s *scripted) between() time.Duration { return s.at[1].Sub(s.at[0]) }

// throttled makes a client; its default policy admits every request at once.
func throttled(t *testing.T, options nethttp.TransportOptions) *http.Client {
	t.Helper()
	limiter, err := polylimit.Open("memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limiter.Close() })
	if options.Limiter = limiter; options.Policy == "" {
		options.Policy = "1000000/s token_bucket"
	}
	transport, err := nethttp.NewTransport(options)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: transport}
}

func backoff(maxWait time.Duration, maxRetries uint32) *polylimit.Backoff {
	return &polylimit.Backoff{Base: time.Millisecond, Cap: time.Millisecond, MaxWait: maxWait, MaxRetries: maxRetries}
}

// do sends a request and returns the status of the response.
func do(t *testing.T, client *http.Client, method, url string, body io.Reader) int {
	t.Helper()
	status, err := try(context.Background(), client, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func try(ctx context.Context, client *http.Client, method, url string, body io.Reader) (int, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func is(t *testing.T, expected, actual int) {
	t.Helper()
	if expected != actual {
		t.Errorf("%d, not %d", actual, expected)
	}
}

func TestResponseWithRetryAfterIsRetriedAfterThatTime(t *testing.T) {
	server := script(t, answer{429, "Retry-After", "1"})
	is(t, 200, do(t, throttled(t, nethttp.TransportOptions{}), "POST", server.URL, strings.NewReader("sent again")))
	server.expect(t, "POST sent again", "POST sent again")
	if server.between() < time.Second {
		t.Error(server.between())
	}
}

func TestOtherRequestsOfTheHostAreHeldBackAndThoseOfOtherHostsAreNot(t *testing.T) {
	server, other := script(t, answer{503, "Retry-After", "1"}), script(t)
	client := throttled(t, nethttp.TransportOptions{Backoff: backoff(time.Minute, 0)})
	is(t, 503, do(t, client, "GET", server.URL, nil))
	is(t, 200, do(t, client, "GET", other.URL, nil))
	is(t, 200, do(t, client, "GET", server.URL, nil))
	server.expect(t, "GET", "GET")
	if server.between() < time.Second || !other.at[0].Before(server.at[1]) {
		t.Error(server.at, other.at)
	}
}

func TestFieldsWithNothingLeftHoldBackTheNextRequest(t *testing.T) {
	server := script(t, answer{200, "RateLimit", `"a";r=0;t=1`})
	client := throttled(t, nethttp.TransportOptions{})
	is(t, 200, do(t, client, "GET", server.URL, nil))
	is(t, 200, do(t, client, "GET", server.URL, nil))
	if server.between() < time.Second {
		t.Error(server.between())
	}
}

func TestRetriesDependOnMethodAndBodyAndAreBounded(t *testing.T) {
	now := answer{503, "Retry-After", "0"}
	server := script(t, now, now)
	client := throttled(t, nethttp.TransportOptions{Backoff: backoff(time.Minute, 2)})
	is(t, 503, do(t, client, "POST", server.URL, strings.NewReader("x")))
	is(t, 200, do(t, client, "PUT", server.URL, strings.NewReader("x")))
	server.expect(t, "POST x", "PUT x", "PUT x")

	server = script(t, answer{status: 429})
	is(t, 429, do(t, client, "PUT", server.URL, io.MultiReader(strings.NewReader("once"))))
	server.expect(t, "PUT once")

	server = script(t, answer{status: 429}, answer{status: 429}, answer{status: 429}, answer{status: 429})
	is(t, 429, do(t, client, "GET", server.URL, nil))
	server.expect(t, "GET", "GET", "GET")
}

func TestWaitThatDoesNotFitReturnsTheResponseAndRefusesTheNextRequest(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for name, client := range map[string]*http.Client{
		"max wait": throttled(t, nethttp.TransportOptions{Backoff: backoff(10*time.Second, 5)}),
		"deadline": throttled(t, nethttp.TransportOptions{}),
	} {
		server := script(t, answer{429, "Retry-After", "60"})
		if status, err := try(ctx, client, "GET", server.URL, nil); status != 429 {
			t.Error(name, status, err)
		}
		_, err := try(ctx, client, "GET", server.URL, nil)
		var refused *polylimit.ThrottledError
		if !errors.As(err, &refused) || refused.RetryAfter > time.Minute ||
			!strings.HasPrefix(refused.Message, "the server asked for a wait of 60 s with status 429: ") {
			t.Error(name, err)
		}
		server.expect(t, "GET")
	}
}

func TestRequestsArePacedByTheLimiterAndRefusedWhereItAdmitsThemTooLate(t *testing.T) {
	server := script(t)
	key := func(*http.Request) string { return "shared" }
	client := throttled(t, nethttp.TransportOptions{Policy: "2/s token_bucket burst=1", Key: key})
	start := time.Now()
	for range 3 {
		is(t, 200, do(t, client, "GET", server.URL, nil))
	}
	// The bucket counts by the wall clock.
	if passed := time.Since(start); passed < 990*time.Millisecond {
		t.Error(passed)
	}
	two := int64(2)
	for cost, retryAfter := range map[*int64]bool{nil: true, &two: false} {
		client := throttled(t, nethttp.TransportOptions{Policy: "1/hour", Cost: cost, Backoff: backoff(5*time.Second, 0)})
		if retryAfter {
			is(t, 200, do(t, client, "GET", server.URL, nil))
		}
		body := &closed{Reader: strings.NewReader("x")}
		_, err := try(context.Background(), client, "POST", server.URL, body)
		var refused *polylimit.ThrottledError
		if !errors.As(err, &refused) || (refused.RetryAfter != polylimit.Never) != retryAfter {
			t.Error(err)
		}
		if !body.is {
			t.Error("the body is open")
		}
	}
}

type closed struct {
	io.Reader
	is bool
}

func (c *closed) Close() error {
	c.is = true
	return nil
}

func TestCancelledRequestLeavesTheQueue(t *testing.T) {
	server := script(t)
	limiter, err := polylimit.Open("memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	transport, err := nethttp.NewTransport(nethttp.TransportOptions{Limiter: limiter, Policy: "1/hour",
		Key: func(*http.Request) string { return "k" }, Backoff: backoff(24*time.Hour, 0)})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	is(t, 200, do(t, client, "GET", server.URL, nil))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := try(ctx, client, "GET", server.URL, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := limiter.Reset(context.Background(), polylimit.Key("k").Policy("1/hour")); err != nil {
		t.Error(err)
	}
	is(t, 200, do(t, client, "GET", server.URL, nil))
	server.expect(t, "GET", "GET")
}

func TestOptionsOfATransportAreChecked(t *testing.T) {
	limiter, err := polylimit.Open("memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	for _, options := range []nethttp.TransportOptions{
		{Limiter: limiter},
		{Limiter: limiter, Policy: "unknown"},
		{Limiter: limiter, Policy: "1/s", Backoff: &polylimit.Backoff{}},
	} {
		if _, err := nethttp.NewTransport(options); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Error(err)
		}
	}
}
