//go:build recipe

package recipe

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestPlansHaveLimitsOfTheirOwn(t *testing.T) {
	limiter, err := open(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	app, err := handler(limiter)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(key string) *httptest.ResponseRecorder {
		request := httptest.NewRequest(http.MethodGet, "/v1/items", nil)
		request.Header.Set("X-Api-Key", key)
		response := httptest.NewRecorder()
		app.ServeHTTP(response, request)
		return response
	}
	for key, policy := range map[string]string{"key-of-acme": "q=60;", "key-of-globex": "q=600;", "another": "q=10;"} {
		response := ask(key)
		if told := response.Header().Get("RateLimit-Policy"); response.Code != http.StatusOK || !strings.Contains(told, policy) {
			t.Errorf("%v: %v, %v", key, response.Code, told)
		}
	}
	for range 9 {
		if response := ask("another"); response.Code != http.StatusOK {
			t.Errorf("%v before the limit", response.Code)
		}
	}
	if response := ask("another"); response.Code != http.StatusTooManyRequests {
		t.Errorf("%v beyond the limit", response.Code)
	}
}
