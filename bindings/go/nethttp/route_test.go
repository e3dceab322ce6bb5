package nethttp_test

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

// made is a middleware with these options.
func made(t *testing.T, options nethttp.Options) func(http.Handler) http.Handler {
	t.Helper()
	limit, err := nethttp.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// raw is the status of a request whose first line is sent as it is.
func raw(t *testing.T, server *httptest.Server, line string) int {
	t.Helper()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := fmt.Fprintf(connection, "%s HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n", line); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(line, " ")
	answer, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// logged is what a function logs.
func logged(run func()) string {
	before := slog.Default()
	defer slog.SetDefault(before)
	var text bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	run()
	return text.String()
}

// Two ServeMux with the same patterns, below two prefixes.
func TestQuotasWithoutANameHaveABudgetForEachMountedRoute(t *testing.T) {
	limit := made(t, nethttp.Options{Limiter: open(t), Policy: "1/hour fixed_window"})
	users := http.NewServeMux()
	users.Handle("GET /users/{id}", limit(hello))
	inner := http.NewServeMux()
	inner.Handle("/deep/", nethttp.StripPrefix("/deep", users))
	mux := http.NewServeMux()
	mux.Handle("/v1/", nethttp.StripPrefix("/v1", users))
	mux.Handle("/v2/", nethttp.StripPrefix("/v2/", http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		request.URL.Path = "/" + request.URL.Path
		users.ServeHTTP(writer, request)
	})))
	mux.Handle("/v3/", nethttp.StripPrefix("/v3", inner))
	mux.Handle("/v4/", nethttp.StripPrefix("/v4", limit(hello)))
	mux.Handle("/v5/", limit(nethttp.StripPrefix("/v5", hello)))
	mux.Handle("/v6/", nethttp.StripPrefix("", limit(hello)))
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, path := range []string{"/v1/users/1", "/v2/users/1", "/v3/deep/users/1", "/v4/x", "/v5/x", "/v6/x"} {
		for _, expected := range []int{200, 429} {
			if status := get(t, server.URL+path).status; status != expected {
				t.Errorf("%s: %d, expected %d", path, status, expected)
			}
		}
	}
	// Another value of the parameter, and another path below a mount, are the same route.
	for _, path := range []string{"/v1/users/2", "/v4/y"} {
		if status := get(t, server.URL+path).status; status != 429 {
			t.Error(path, status)
		}
	}
}

// Behind another handler that strips a prefix, the client may have chosen it.
func TestPrefixThatAClientMayHaveChosenIsNoBudget(t *testing.T) {
	limit := made(t, nethttp.Options{Limiter: open(t), Policy: "1/hour fixed_window"})
	users := http.NewServeMux()
	users.Handle("/users/{id}", limit(hello))
	mux := http.NewServeMux()
	mux.HandleFunc("/{tenant}/", func(writer http.ResponseWriter, request *http.Request) {
		http.StripPrefix("/"+request.PathValue("tenant"), users).ServeHTTP(writer, request)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for at, expected := range []int{200, 429, 429} {
		if status := get(t, fmt.Sprintf("%s/%d/users/1", server.URL, at)).status; status != expected {
			t.Error(at, status)
		}
	}
}

const routes = `
polylimit = 1
[policies.users]
quotas = "2/day fixed_window"
[policies.deep]
quotas = "1/day fixed_window"
[[rules]]
match = { method = "GET", route = "/v1/users/{id}" }
apply = [{ policy = "users", key = "{route}" }]
[[rules]]
match = { route = "/v2/files/*" }
apply = [{ policy = "deep", key = "all" }]
[[rules]]
match = { route = "the program's" }
apply = [{ policy = "deep", key = "program" }]
[[rules]]
match = { path = "/v3/{*rest}" }
apply = [{ policy = "deep", key = "{path.rest}" }]
`

func TestRulesSeeTheRouteWithItsPrefixes(t *testing.T) {
	for name, strip := range map[string]func(string, http.Handler) http.Handler{
		"StripPrefix": nethttp.StripPrefix, "http.StripPrefix": http.StripPrefix,
	} {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, polylimit.WithDocument(routes))
			limit := made(t, nethttp.Options{Limiter: limiter, Attributes: func(request *http.Request) map[string]string {
				if own := request.Header.Get("X-Route"); own != "" {
					return map[string]string{"route": own}
				}
				return nil
			}})
			inner := http.NewServeMux()
			inner.Handle("GET /users/{id}", limit(hello))
			inner.Handle("/files/{path...}", limit(hello))
			mux := http.NewServeMux()
			for _, prefix := range []string{"/v1", "/v2"} {
				mux.Handle(prefix+"/", strip(prefix, inner))
			}
			mux.Handle("/v3/", strip("/v3", limit(hello)))
			server := httptest.NewServer(mux)
			defer server.Close()
			for _, step := range []struct {
				path   string
				status int
			}{
				{"/v1/users/1", 200}, {"/v1/users/2", 200}, {"/v1/users/3", 429}, {"/v2/users/1", 200}, {"/v2/users/1", 200}, {"/v2/users/1", 200},
				{"/v3/x/y", 200}, {"/v3/x/y", 429}, {"/v3/z", 200},
			} {
				if status := get(t, server.URL+step.path).status; status != step.status {
					t.Errorf("%+v: %d", step, status)
				}
			}
			// What follows is a subtree: the pattern may stand before the prefix was stripped, unless StripPrefix did it.
			if name == "StripPrefix" {
				for _, expected := range []int{200, 429} {
					if status := get(t, server.URL+"/v2/files/a/b").status; status != expected {
						t.Error(status)
					}
				}
			}
			for _, expected := range []int{200, 429} {
				if status := get(t, server.URL+"/v2/users/9", "X-Route", "the program's").status; status != expected {
					t.Error(status)
				}
			}
		})
	}
}

// The path is the one that the router sees, with the prefixes that were stripped, also of a target with an authority.
func TestAbsoluteTargetIsCountedByItsPath(t *testing.T) {
	document := `
polylimit = 1
[policies.login]
quotas = "2/day fixed_window"
[[rules]]
match = { path = "/v1/login" }
apply = [{ policy = "login", key = "all" }]
`
	limit := made(t, nethttp.Options{Limiter: open(t, polylimit.WithDocument(document))})
	inner := http.NewServeMux()
	inner.Handle("/login", limit(hello))
	mux := http.NewServeMux()
	mux.Handle("/v1/", http.StripPrefix("/v1", inner))
	mux.HandleFunc("/old", func(writer http.ResponseWriter, request *http.Request) {
		request.URL.Path, request.URL.RawPath = "/v1/login", ""
		mux.ServeHTTP(writer, request)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, step := range []struct {
		line   string
		status int
	}{
		{"GET http://h/v1/login", 200}, {"GET HTTP://other:1/v1/login?a", 200}, {"GET /v1/login", 429}, {"GET /v1/%6cogin", 429}, {"GET /v1/login?x=1", 429},
	} {
		if status := raw(t, server, step.line); status != step.status {
			t.Errorf("%+v: %d", step, status)
		}
	}
}

func TestHandlerThatRewritesThePathDecidesWhichOneCounts(t *testing.T) {
	document := `
polylimit = 1
[policies.login]
quotas = "1/day fixed_window"
[[rules]]
match = { path = "/login" }
apply = [{ policy = "login", key = "all" }]
`
	limit := made(t, nethttp.Options{Limiter: open(t, polylimit.WithDocument(document))})
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/sign-in" {
			request.URL.Path = "/login"
		}
		limit(hello).ServeHTTP(writer, request)
	}))
	defer server.Close()
	for _, step := range []struct {
		path   string
		status int
	}{{"/sign-in", 200}, {"/login", 429}, {"/sign-in", 429}} {
		if status := get(t, server.URL+step.path).status; status != step.status {
			t.Errorf("%+v: %d", step, status)
		}
	}
}

func TestBudgetThatHandlersShareIsLoggedOnce(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("web", "9/hour"))
	for name, one := range map[string]struct {
		options nethttp.Options
		lines   int
	}{
		"quotas":                     {nethttp.Options{Policy: "3/minute"}, 1},
		"one of several":             {nethttp.Options{Policies: []string{"web", "3/minute"}}, 1},
		"quotas of a request":        {nethttp.Options{PolicyFunc: func(*http.Request) ([]string, error) { return []string{"web", "3/minute"}, nil }}, 1},
		"a scope":                    {nethttp.Options{Policy: "3/minute", Scope: "all"}, 0},
		"a route":                    {nethttp.Options{Policy: "3/minute", Route: func(*http.Request) string { return "/a" }}, 0},
		"a policy with a name":       {nethttp.Options{Policy: "web"}, 0},
		"the only policy":            {nethttp.Options{}, 0},
		"named policy of a request":  {nethttp.Options{PolicyFunc: func(*http.Request) ([]string, error) { return []string{"web"}, nil }}, 0},
		"no policy for this request": {nethttp.Options{PolicyFunc: func(*http.Request) ([]string, error) { return nil, nil }}, 0},
	} {
		one.options.Limiter = limiter
		handler := made(t, one.options)(hello)
		text := logged(func() {
			for range 3 {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
			}
		})
		if strings.Count(text, "level=WARN") != one.lines || one.lines > 0 && !strings.Contains(text, "quotas=3/minute") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestPathParameterThatIsMissingIsLoggedOnce(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("web", "9/hour"))
	options := nethttp.Options{Limiter: limiter, KeyParts: []nethttp.KeyPart{nethttp.Address(), nethttp.Path("tenant")}}
	serve := func(options nethttp.Options, pattern, path string) string {
		mux := http.NewServeMux()
		limit := made(t, options)
		mux.Handle(pattern, limit(hello))
		mux.Handle("/other", limit(hello))
		return logged(func() {
			for _, path := range []string{path, path, "/other"} {
				mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
			}
		})
	}
	if text := serve(options, "/{name}/x", "/a/x"); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "part=path:tenant") {
		t.Error(text)
	}
	// The part is there for the first route of the two.
	if text := serve(options, "/{tenant}/x", "/a/x"); text != "" {
		t.Error(text)
	}
	options.PathValue = func(_ *http.Request, name string) string { return "a " + name }
	if text := serve(options, "/{name}/x", "/a/x"); text != "" {
		t.Error(text)
	}
	if decision, err := limiter.Peek(t.Context(), polylimit.Key("192.0.2.1|path:tenant:a tenant")); err != nil || decision.Remaining != 6 {
		t.Error(decision, err)
	}
}
