package routers

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/julienschmidt/httprouter"
	"github.com/labstack/echo/v4"
	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

type middleware = func(http.Handler) http.Handler

// router builds a service with a limit for each of its handlers, which count the requests that they answer: GET /a and GET /b, and
// GET /{id} of two sub-routers at /v1 and /v2.
type router struct {
	name    string
	options nethttp.Options
	build   func(limit middleware, handler http.Handler) http.Handler
}

var routers = []router{
	{"ServeMux", nethttp.Options{}, func(limit middleware, handler http.Handler) http.Handler {
		root, users := http.NewServeMux(), http.NewServeMux()
		users.Handle("GET /{id}", limit(handler))
		root.Handle("GET /a", limit(handler))
		root.Handle("GET /b", limit(handler))
		root.Handle("/v1/", nethttp.StripPrefix("/v1", users))
		root.Handle("/v2/", nethttp.StripPrefix("/v2", users))
		return root
	}},
	{"chi With", nethttp.Options{Route: chiRoute, PathValue: chi.URLParam}, func(limit middleware, handler http.Handler) http.Handler {
		root := chi.NewRouter()
		root.With(limit).Method("GET", "/a", handler)
		root.With(limit).Method("GET", "/b", handler)
		for _, prefix := range []string{"/v1", "/v2"} {
			root.Route(prefix, func(users chi.Router) { users.With(limit).Method("GET", "/{id:[a-z0-9]+}", handler) })
		}
		return root
	}},
	{"chi Group and Mount", nethttp.Options{Route: chiRoute, PathValue: chi.URLParam}, func(limit middleware, handler http.Handler) http.Handler {
		root, users := chi.NewRouter(), chi.NewRouter()
		root.Group(func(group chi.Router) {
			group.Use(limit)
			group.Method("GET", "/a", handler)
			group.Method("GET", "/b", handler)
		})
		users.With(limit).Method("GET", "/{id}", handler)
		root.Mount("/v1", users)
		root.Mount("/v2", users)
		return root
	}},
	{"gorilla/mux handlers", nethttp.Options{Route: gorillaRoute, PathValue: gorillaPathValue}, func(limit middleware, handler http.Handler) http.Handler {
		root := mux.NewRouter()
		root.Handle("/a", limit(handler)).Methods("GET")
		root.Handle("/b", limit(handler)).Methods("GET")
		for _, prefix := range []string{"/v1", "/v2"} {
			root.PathPrefix(prefix).Subrouter().Handle("/{id:[a-z0-9]+}", limit(handler)).Methods("GET")
		}
		return root
	}},
	{"gorilla/mux Use", nethttp.Options{Route: gorillaRoute, PathValue: gorillaPathValue}, func(limit middleware, handler http.Handler) http.Handler {
		root := mux.NewRouter()
		root.Use(limit)
		root.Handle("/a", handler).Methods("GET")
		root.Handle("/b", handler).Methods("GET")
		for _, prefix := range []string{"/v1", "/v2"} {
			root.PathPrefix(prefix).Subrouter().Handle("/{id}", handler).Methods("GET")
		}
		return root
	}},
	{"httprouter", nethttp.Options{}, func(limit middleware, handler http.Handler) http.Handler {
		root := httprouter.New()
		for _, path := range []string{"/a", "/b", "/v1/:id", "/v2/:id"} {
			httprouterHandle(root, "GET", path, limit(handler))
		}
		return root
	}},
	{"gin", nethttp.Options{}, func(limit middleware, handler http.Handler) http.Handler {
		root := gin.New()
		root.Use(ginLimit(limit))
		root.GET("/a", gin.WrapH(handler))
		root.GET("/b", gin.WrapH(handler))
		for _, prefix := range []string{"/v1", "/v2"} {
			root.Group(prefix).GET("/:id", gin.WrapH(handler))
		}
		return root
	}},
	{"echo", nethttp.Options{}, func(limit middleware, handler http.Handler) http.Handler {
		root := echo.New()
		root.Use(echoLimit(limit))
		root.GET("/a", echo.WrapHandler(handler))
		root.GET("/b", echo.WrapHandler(handler))
		for _, prefix := range []string{"/v1", "/v2"} {
			root.Group(prefix).GET("/:id", echo.WrapHandler(handler))
		}
		return root
	}},
}

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}

func open(t *testing.T, options ...polylimit.Option) *polylimit.Limiter {
	t.Helper()
	limiter, err := polylimit.Open("memory:", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limiter.Close() })
	return limiter
}

func made(t *testing.T, options nethttp.Options) middleware {
	t.Helper()
	limit, err := nethttp.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

func hello(writer http.ResponseWriter, _ *http.Request) { _, _ = writer.Write([]byte("hello")) }

func get(service http.Handler, path string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	service.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder
}

func TestQuotasWithoutANameHaveABudgetForEachRoute(t *testing.T) {
	for _, one := range routers {
		t.Run(one.name, func(t *testing.T) {
			options := one.options
			options.Limiter, options.Policy = open(t), "2/hour fixed_window"
			service := one.build(made(t, options), http.HandlerFunc(hello))
			for _, paths := range [][]string{{"/a", "/a", "/a"}, {"/b", "/b", "/b"}, {"/v1/x", "/v1/y", "/v1/z"}, {"/v2/x", "/v2/y", "/v2/z"}} {
				for at, path := range paths {
					if answer := get(service, path); answer.Code != []int{200, 200, 429}[at] {
						t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
					}
				}
			}
		})
	}
}

func TestRulesAndKeysReadTheRoute(t *testing.T) {
	document := `
polylimit = 1
[policies.users]
quotas = "2/day fixed_window"
[[rules]]
match = { method = "GET", route = "/v1/{id}" }
apply = [{ policy = "users", key = "{route}" }]
`
	for _, one := range routers {
		t.Run(one.name, func(t *testing.T) {
			options := one.options
			options.Limiter = open(t, polylimit.WithDocument(document))
			service := one.build(made(t, options), http.HandlerFunc(hello))
			for _, step := range []struct {
				path   string
				status int
			}{{"/v1/x", 200}, {"/v2/x", 200}, {"/v1/y", 200}, {"/v1/z", 429}, {"/v2/z", 200}, {"/a", 200}} {
				if answer := get(service, step.path); answer.Code != step.status {
					t.Errorf("%+v: %d", step, answer.Code)
				}
			}
		})
	}
}

func TestParametersOfTheRouteArePartsOfTheKey(t *testing.T) {
	for _, one := range routers {
		t.Run(one.name, func(t *testing.T) {
			options := one.options
			options.Limiter, options.Policy, options.Scope = open(t), "1/hour fixed_window", "users"
			options.KeyParts = []nethttp.KeyPart{nethttp.Path("id")}
			service := one.build(made(t, options), http.HandlerFunc(hello))
			for _, step := range []struct {
				path   string
				status int
			}{{"/v1/x", 200}, {"/v1/y", 200}, {"/v1/x", 429}, {"/v2/x", 429}} {
				if answer := get(service, step.path); answer.Code != step.status {
					t.Errorf("%+v: %d", step, answer.Code)
				}
			}
		})
	}
}

// The status that a limit sees is the one that the client gets, also of an error that a framework answers.
func TestResponsesThatDoNotCountAreRefunded(t *testing.T) {
	for _, one := range routers {
		t.Run(one.name, func(t *testing.T) {
			options := one.options
			options.Limiter, options.Policy = open(t), "1/hour fixed_window"
			options.Count = func(_ *http.Request, status int, _ http.Header) bool { return status == http.StatusUnauthorized }
			var status int
			service := one.build(made(t, options), http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
				writer.WriteHeader(status)
				if status != http.StatusAccepted {
					_, _ = writer.Write([]byte("text"))
				}
			}))
			for _, step := range [][2]int{{200, 200}, {202, 202}, {404, 404}, {401, 401}, {200, 429}} {
				status = step[0]
				answer := get(service, "/a")
				if answer.Code != step[1] {
					t.Errorf("%v: %d", step, answer.Code)
				}
				if field := answer.Header().Get("ratelimit"); strings.Contains(field, "r=1;") != (answer.Code < 401 || answer.Code == 404) {
					t.Errorf("%v: %s", step, field)
				}
			}
		})
	}
}

func TestErrorsOfFrameworksAreResponses(t *testing.T) {
	count := func(_ *http.Request, status int, _ http.Header) bool { return status == http.StatusTeapot }
	limit := func() middleware {
		return made(t, nethttp.Options{Limiter: open(t), Policy: "1/hour fixed_window", Count: count})
	}
	e := echo.New()
	e.Use(echoLimit(limit()))
	e.GET("/a", func(c echo.Context) error {
		if c.QueryParam("fail") != "" {
			return echo.NewHTTPError(http.StatusTeapot, "no")
		}
		return c.NoContent(http.StatusNoContent)
	})
	g := gin.New()
	g.Use(ginLimit(limit()))
	g.GET("/a", func(c *gin.Context) {
		if c.Query("fail") != "" {
			c.AbortWithStatus(http.StatusTeapot)
			return
		}
		c.Status(http.StatusNoContent)
	})
	for name, service := range map[string]http.Handler{"echo": e, "gin": g} {
		for _, step := range []struct {
			path   string
			status int
		}{{"/a", 204}, {"/a", 204}, {"/a?fail=1", 418}, {"/a", 429}} {
			if answer := get(service, step.path); answer.Code != step.status {
				t.Errorf("%s %+v: %d", name, step, answer.Code)
			}
		}
	}
}

// A limit in front of routing has one budget, which the log says once.
func TestLimitOfAWholeRouterHasOneBudget(t *testing.T) {
	root := chi.NewRouter()
	root.Use(made(t, nethttp.Options{Limiter: open(t), Policy: "1/hour fixed_window", Route: chiRoute}))
	root.Get("/a", hello)
	root.Get("/b", hello)
	if first, second := get(root, "/a").Code, get(root, "/b").Code; first != 200 || second != 429 {
		t.Error(first, second)
	}
	mounted := chi.NewRouter()
	limit := made(t, nethttp.Options{Limiter: open(t), Policy: "1/hour fixed_window", Route: chiRoute})
	for _, prefix := range []string{"/v1", "/v2"} {
		mounted.Route(prefix, func(users chi.Router) {
			users.Use(limit)
			users.Get("/a", hello)
			users.Get("/b", hello)
		})
	}
	for _, step := range []struct {
		path   string
		status int
	}{{"/v1/a", 200}, {"/v1/b", 429}, {"/v2/a", 200}, {"/v2/b", 429}} {
		if answer := get(mounted, step.path); answer.Code != step.status {
			t.Errorf("%+v: %d", step, answer.Code)
		}
	}
}

// The blocks of README.md after the marker are the functions of this package.
func TestReadmeHasTheAdapters(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("adapters.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n### Other routers\n")
	blocks := strings.Split(section, "```go\n")
	if !found || len(blocks) < 2 {
		t.Fatal("README.md has no section Other routers with examples")
	}
	for _, block := range blocks[1:] {
		if code, _, _ := strings.Cut(block, "```"); !strings.Contains(string(source), code) {
			t.Errorf("adapters.go does not say:\n%s", code)
		}
	}
}
