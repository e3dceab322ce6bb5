package nethttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/internal/guardtest"
	"polylimit.dev/polylimit/nethttp"
)

// waiting is a handler behind a limit that holds requests, by a clock that stands still.
func waiting(t *testing.T, quotas string) (http.Handler, *polylimit.Limiter, *polylimit.ManualClock) {
	t.Helper()
	clock, err := polylimit.NewManualClock(time.Unix(1789948800, 0))
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := polylimit.Open("memory:", polylimit.WithPolicy("api", quotas), polylimit.WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limiter.Close() })
	limit, err := nethttp.New(nethttp.Options{
		Limiter: limiter, Key: func(*http.Request) (string, error) { return "k", nil }, Wait: time.Minute, MaxWaiting: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), limiter, clock
}

func statusOf(ctx context.Context, handler http.Handler) int {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	return recorder.Code
}

func TestHeldRequestProceedsAndAFurtherOneIsDenied(t *testing.T) {
	handler, _, clock := waiting(t, "1/minute token_bucket")
	if status := statusOf(t.Context(), handler); status != http.StatusOK {
		t.Fatal(status)
	}
	statuses := make(chan int, 2)
	for range 2 {
		go func() { statuses <- statusOf(t.Context(), handler) }()
	}
	if status := <-statuses; status != http.StatusTooManyRequests {
		t.Fatal(status)
	}
	for {
		// The request may begin to wait only now.
		if err := clock.Advance(time.Minute); err != nil {
			t.Fatal(err)
		}
		select {
		case status := <-statuses:
			if status != http.StatusOK {
				t.Fatal(status)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A request whose deadline passes while it is held is denied, and one whose client leaves is not decided any more. Neither spends.
func TestHeldRequestEndsWithItsContext(t *testing.T) {
	for _, quotas := range []string{"1/minute token_bucket", "1/minute leaky_bucket burst=10"} {
		handler, limiter, _ := waiting(t, quotas)
		if status := statusOf(t.Context(), handler); status != http.StatusOK {
			t.Fatal(status)
		}
		before, err := limiter.Peek(t.Context(), polylimit.Key("k"))
		if err != nil {
			t.Fatal(err)
		}
		// Each needs the only place to wait that the one before has left.
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			if status := statusOf(ctx, handler); status != http.StatusTooManyRequests {
				t.Errorf("%s: %d", quotas, status)
			}
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(30*time.Millisecond, cancel)
			statusOf(ctx, handler)
			guardtest.Left{Policy: "api", Key: "k", Remaining: before.Remaining}.Await(t, quotas, limiter)
		}
	}
}
