//go:build recipe

package recipe

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// other is the server that stands for that of the page: tests/recipes/run writes it into the program.
var other string

func TestA429IsTriedAgainAfterItsWait(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.Write([]byte("12.50"))
	}))
	defer server.Close()
	client, err := open(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	other = server.URL
	if text, err := balance(client, "alice"); err != nil || text != "12.50" || requests != 2 {
		t.Errorf("%q, %v, %d requests", text, err, requests)
	}
}
