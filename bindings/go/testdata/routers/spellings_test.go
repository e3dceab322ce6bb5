package routers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/julienschmidt/httprouter"
	"github.com/labstack/echo/v4"
	"github.com/rs/cors"
	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

const rule = `
polylimit = 1
[policies.user]
quotas = "2/day fixed_window"
[[rules]]
match = { method = "GET", path = "/v1/{id}" }
apply = [{ policy = "user", key = "all" }]
`

// However these routers read paths, what reaches the handler counts under the rule that names its path.
func TestEverySpellingThatReachesTheHandlerCounts(t *testing.T) {
	targets := []string{"/v1/x", "//v1/x", "/v1//x", "/v1/x/", "/./v1/x", "/y/../v1/x", "/%761/x", "/v1%2Fx", "/v1/%2Fx", "/v1/x%2Fy", "/v1/x;a=b",
		"/v1/x?a", "/v1/%78", "http://h/v1/x", "HTTP://h/%76%31/x", "/V1/x", "/v1/x.json", "/v1/x%3Fa", "/v1/x%23a", "/v1/..%2Fx",
		"/v1/x/y", "/v1/x/y/", "/v1/x;a=b/c"}
	engine := func(set func(*gin.Engine)) func(middleware, http.Handler) http.Handler {
		return func(limit middleware, handler http.Handler) http.Handler {
			root := gin.New()
			set(root)
			root.Use(ginLimit(limit))
			root.GET("/v1/:id", gin.WrapH(handler))
			return root
		}
	}
	for name, build := range map[string]func(limit middleware, handler http.Handler) http.Handler{
		"gin": engine(func(*gin.Engine) {}),
		"gin with all settings": engine(func(root *gin.Engine) {
			root.UseRawPath, root.UnescapePathValues, root.RemoveExtraSlash, root.RedirectFixedPath = true, true, true, true
		}),
		"gin in front": func(limit middleware, handler http.Handler) http.Handler {
			root := gin.New()
			root.RemoveExtraSlash = true
			root.GET("/v1/:id", gin.WrapH(handler))
			return limit(root)
		},
		"httprouter in front": func(limit middleware, handler http.Handler) http.Handler {
			root := httprouter.New()
			root.Handler("GET", "/v1/:id", handler)
			return limit(root)
		},
		"echo": func(limit middleware, handler http.Handler) http.Handler {
			root := echo.New()
			root.Use(echoLimit(limit))
			root.GET("/v1/:id", echo.WrapHandler(handler))
			return root
		},
	} {
		t.Run(name, func(t *testing.T) {
			document, runs := rule, 0
			if name == "echo" {
				// A parameter at the end of a route has the rest of the path, with its slashes.
				document = strings.Replace(rule, "{id}", "{*id}", 1)
			}
			service := build(made(t, nethttp.Options{Limiter: open(t, polylimit.WithDocument(document))}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
			for _, target := range targets {
				for range 3 {
					service.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, target, nil))
				}
				if runs > 2 {
					t.Fatalf("after %s the handler ran %d times", target, runs)
				}
			}
			if runs != 2 {
				t.Errorf("the handler ran %d times", runs)
			}
		})
	}
}

// Pages of another origin, with rs/cors outside of the limit and inside.
func TestPreflightsAreFreeAndDenialsAreReadableWithRSCORSInBothOrders(t *testing.T) {
	const app = "https://app.example"
	allow := cors.New(cors.Options{AllowedOrigins: []string{app}, AllowedMethods: []string{"POST"}})
	limit := func(origins ...string) middleware {
		return made(t, nethttp.Options{Limiter: open(t), Policy: "2/hour fixed_window", Scope: "all", CORSOrigins: origins})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", hello)
	for name, service := range map[string]http.Handler{
		"outside": allow.Handler(limit()(mux)),
		"inside":  limit(app)(allow.Handler(mux)),
	} {
		send := func(method string, header ...string) *httptest.ResponseRecorder {
			request := httptest.NewRequest(method, "/", nil)
			request.Header.Set("Origin", app)
			for at := 0; at < len(header); at += 2 {
				request.Header.Set(header[at], header[at+1])
			}
			recorder := httptest.NewRecorder()
			service.ServeHTTP(recorder, request)
			return recorder
		}
		var found []string
		for range 3 {
			preflight := send("OPTIONS", "Access-Control-Request-Method", "POST")
			answer := send("POST")
			found = append(found, fmt.Sprint(preflight.Code/100, answer.Code, answer.Header().Values("Access-Control-Allow-Origin")))
		}
		if seen := strings.Join(found, "; "); seen != "2 200 ["+app+"]; 2 200 ["+app+"]; 2 429 ["+app+"]" {
			t.Error(name, seen)
		}
	}
}
