package nethttp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

// send is the response of a handler to a request with these fields.
func send(handler http.Handler, method, path string, header ...string) *http.Response {
	request := httptest.NewRequest(method, path, nil)
	for at := 0; at < len(header); at += 2 {
		request.Header.Add(header[at], header[at+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}

// statuses are those of the responses to requests with these methods.
func statuses(handler http.Handler, path string, methods ...string) []int {
	var found []int
	for _, method := range methods {
		found = append(found, send(handler, method, path).StatusCode)
	}
	return found
}

func TestLimitOnGetHasHead(t *testing.T) {
	document := `
polylimit = 1
[policies.report]
quotas = "2/day fixed_window"
[[rules]]
match = { method = "get", path = "/report" }
apply = [{ policy = "report", key = "all" }]
`
	for name, options := range map[string]nethttp.Options{
		"methods":  {Limiter: open(t), Policy: "2/hour fixed_window", Methods: []string{"get"}},
		"document": {Limiter: open(t, polylimit.WithDocument(document))},
	} {
		mux := http.NewServeMux()
		mux.Handle("GET /report", made(t, options)(hello))
		if found := statuses(mux, "/report", "HEAD", "GET", "HEAD", "GET"); !slices.Equal(found, []int{200, 200, 429, 429}) {
			t.Error(name, found)
		}
	}
	separate := nethttp.Options{Limiter: open(t), Policy: "1/hour fixed_window", Methods: []string{"GET"}, SeparateHead: true}
	if found := statuses(made(t, separate)(hello), "/", "GET", "HEAD", "GET", "HEAD"); !slices.Equal(found, []int{200, 200, 429, 200}) {
		t.Error(found)
	}
}

func TestMethodThatNoClientCanSendIsRefused(t *testing.T) {
	for _, method := range []string{"ge t", "", "GET/"} {
		_, err := nethttp.New(nethttp.Options{Limiter: open(t), Policy: "1/hour", Methods: []string{"POST", method}})
		if !errors.Is(err, polylimit.ErrInvalidArgument) || !strings.Contains(err.Error(), "no client can send") {
			t.Errorf("%q: %v", method, err)
		}
	}
}

func preflight(handler http.Handler, path string) int {
	return send(handler, "OPTIONS", path, "Origin", "https://app.example", "Access-Control-Request-Method", "POST").StatusCode
}

func TestPreflightsCountOnRoutesAndWhereTheProgramSaysSo(t *testing.T) {
	for name, one := range map[string]struct {
		options  nethttp.Options
		route    string
		expected []int
	}{
		"in front of routing": {nethttp.Options{}, "", []int{200, 200, 200}},
		"counted":             {nethttp.Options{CountPreflights: true}, "", []int{200, 429, 429}},
		"named":               {nethttp.Options{Methods: []string{"options", "post"}}, "", []int{200, 429, 429}},
		"not named":           {nethttp.Options{Methods: []string{"POST"}, CountPreflights: true}, "", []int{200, 200, 200}},
		"on a route":          {nethttp.Options{}, "/", []int{200, 429, 429}},
	} {
		one.options.Limiter, one.options.Policy, one.options.Scope = open(t), "1/hour fixed_window", "all"
		handler := made(t, one.options)(hello)
		if one.route != "" {
			mux := http.NewServeMux()
			mux.Handle(one.route, handler)
			handler = mux
		}
		found := []int{preflight(handler, "/"), preflight(handler, "/"), preflight(handler, "/")}
		if !slices.Equal(found, one.expected) {
			t.Error(name, found)
		}
	}
	// An OPTIONS request that is no preflight.
	handler := made(t, nethttp.Options{Limiter: open(t), Policy: "1/hour fixed_window", Scope: "all"})(hello)
	for at, header := range [][]string{{"Origin", "https://app.example"}, {"Access-Control-Request-Method", "POST"}} {
		if status := send(handler, "OPTIONS", "/", header...).StatusCode; status != []int{200, 429}[at] {
			t.Error(header, status)
		}
	}
}

func TestPagesOfAllowedOriginsMayReadADenial(t *testing.T) {
	const app = "https://app.example"
	limiter := open(t)
	handler := made(t, nethttp.Options{Limiter: limiter, Policy: "1/hour fixed_window", Scope: "all", CORSOrigins: []string{app}})(hello)
	if admitted := send(handler, "GET", "/", "Origin", app); admitted.StatusCode != 200 || admitted.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error(admitted)
	}
	denied := send(handler, "GET", "/", "Origin", app)
	exposed := denied.Header.Get("Access-Control-Expose-Headers")
	if denied.StatusCode != 429 || denied.Header.Get("Access-Control-Allow-Origin") != app || !strings.Contains(exposed, "retry-after") ||
		!slices.Equal(denied.Header.Values("Vary"), []string{"origin", "accept"}) {
		t.Error(denied.StatusCode, denied.Header)
	}
	for _, header := range [][]string{nil, {"Origin", "https://other.example"}} {
		if other := send(handler, "GET", "/", header...); other.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Error(other.Header)
		}
	}
	// A CORS middleware outside of the limit has said it.
	outside := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("Access-Control-Allow-Origin", "*")
		writer.Header().Set("Vary", "Origin")
		handler.ServeHTTP(writer, request)
	})
	denied = send(outside, "GET", "/", "Origin", app)
	if !slices.Equal(denied.Header.Values("Access-Control-Allow-Origin"), []string{"*"}) || denied.Header.Get("Access-Control-Expose-Headers") != "" ||
		!slices.Equal(denied.Header.Values("Vary"), []string{"Origin", "accept"}) {
		t.Error(denied.Header)
	}
	// Also where the program responds itself.
	own := made(t, nethttp.Options{Limiter: limiter, Policy: "1/hour fixed_window", Scope: "all", CORSOrigins: []string{"*"},
		OnDenied: func(writer http.ResponseWriter, _ *http.Request, _ nethttp.Denial) {
			writer.WriteHeader(http.StatusTeapot)
		}})(hello)
	if denied := send(own, "GET", "/", "Origin", app); denied.StatusCode != 418 || denied.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Error(denied.StatusCode, denied.Header)
	}
	if _, err := nethttp.New(nethttp.Options{Limiter: limiter, Policy: "1/hour", CORSOrigins: []string{"app.example"}}); !errors.Is(err, polylimit.ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestEmptyKeyIsAMissingKey(t *testing.T) {
	for name, options := range map[string]nethttp.Options{
		"function": {Key: func(*http.Request) (string, error) { return "", nil }},
		"header":   {KeyParts: []nethttp.KeyPart{nethttp.Header("X-Key")}},
		"cookie":   {KeyParts: []nethttp.KeyPart{nethttp.Cookie("session")}},
	} {
		options.Limiter, options.Policy, options.Scope, options.MissingKey = open(t), "1/hour", "all", "refuse"
		if status := send(made(t, options)(hello), "GET", "/", "X-Key", "", "Cookie", "session=").StatusCode; status != 400 {
			t.Error(name, status)
		}
	}
}
