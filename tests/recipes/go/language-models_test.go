//go:build recipe

package recipe

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

func TestAnswersCommitWhatTheyTook(t *testing.T) {
	limiter, err := open(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	app := handler(limiter)
	ask := func(tenant, maxTokens string) *httptest.ResponseRecorder {
		request := httptest.NewRequest(http.MethodGet, "/answer?prompt=one+two&max_tokens="+maxTokens, nil)
		request.Header.Set("X-Tenant", tenant)
		response := httptest.NewRecorder()
		app.ServeHTTP(response, request)
		return response
	}
	// Another answer of this size fits only if the one before has committed 6 tokens.
	for range 2 {
		if response := ask("acme", "90000"); response.Code != http.StatusOK || response.Body.String() != "You said: one two " {
			t.Fatalf("%v: %v", response.Code, response.Body)
		}
	}
	// More than the bucket holds: no wait helps.
	if response := ask("acme", "100000"); response.Code != http.StatusTooManyRequests {
		t.Errorf("more than the bucket holds: %v", response.Code)
	}
	for _, wrong := range []*httptest.ResponseRecorder{ask("", "5"), ask("acme", "many")} {
		if wrong.Code != http.StatusBadRequest {
			t.Errorf("a wrong request: %v", wrong.Code)
		}
	}
}
