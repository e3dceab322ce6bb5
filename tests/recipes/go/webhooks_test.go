//go:build recipe

package recipe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

func TestABusyHostGoesBackToTheQueue(t *testing.T) {
	requests := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer receiver.Close()
	limiter, err := open(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	ctx := context.Background()
	send := func() time.Duration {
		again, err := deliver(ctx, limiter, receiver.URL, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	if again, expected := []time.Duration{send(), send(), send()}, []time.Duration{time.Minute, 0, 0}; !slices.Equal(again, expected) {
		t.Errorf("%v, not %v", again, expected)
	}
	host := strings.TrimPrefix(receiver.URL, "http://")
	if _, err := limiter.Charge(ctx, polylimit.Key(host).Cost(80)); err != nil {
		t.Fatal(err)
	}
	if again := send(); again <= 10*time.Second || requests != 3 {
		t.Errorf("a busy host: again after %v, %v requests", again, requests)
	}
}
