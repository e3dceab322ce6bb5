package nethttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

// silent is a response writer that discards the body.
type silent struct{ header http.Header }

func (s *silent) Header() http.Header            { return s.header }
func (s *silent) Write(body []byte) (int, error) { return len(body), nil }
func (s *silent) WriteHeader(int)                {}

// limitedRequest serves an admitted request on a memory store.
func limitedRequest(t testing.TB) func() {
	limiter, err := polylimit.Open("memory:", polylimit.WithPolicy("web", "1000000000/minute"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limiter.Close() })
	limit, err := nethttp.New(nethttp.Options{Limiter: limiter})
	if err != nil {
		t.Fatal(err)
	}
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	response := &silent{http.Header{}}
	return func() {
		clear(response.header)
		handler.ServeHTTP(response, request)
	}
}

func BenchmarkMiddleware(b *testing.B) {
	serve := limitedRequest(b)
	b.ReportAllocs()
	for b.Loop() {
		serve()
	}
}

// With default options it is 7. The race detector discards some pooled objects.
func TestAdmittedRequestAllocatesLittle(t *testing.T) {
	if allocated := testing.AllocsPerRun(1000, limitedRequest(t)); allocated > 12 {
		t.Errorf("%v allocations", allocated)
	}
}
