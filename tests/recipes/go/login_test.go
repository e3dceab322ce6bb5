//go:build recipe

package recipe

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
)

func TestFailuresOnlyCountAndTheAccountStaysOpenElsewhere(t *testing.T) {
	limiter, err := open(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	app, err := handler(limiter)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(times int, name, password, address string, status int) {
		t.Helper()
		for range times {
			form := url.Values{"name": {name}, "password": {password}}
			request := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(form.Encode()))
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			request.RemoteAddr = address + ":50000"
			response := httptest.NewRecorder()
			app.ServeHTTP(response, request)
			if response.Code != status {
				t.Fatalf("%q from %v: %v, not %v", name, address, response.Code, status)
			}
		}
	}
	expect(10, "alice", "correct horse", "192.0.2.7", http.StatusOK)
	expect(5, "Alice ", "x", "192.0.2.7", http.StatusUnauthorized)
	expect(3, "alice", "correct horse", "192.0.2.7", http.StatusTooManyRequests)
	expect(1, "alice", "correct horse", "192.0.2.8", http.StatusOK)
	expect(1, "", "x", "192.0.2.7", http.StatusBadRequest)
}
