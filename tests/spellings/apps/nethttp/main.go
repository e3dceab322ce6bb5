// Command nethttp is the application on http.ServeMux. Its versions are those of Go.
package main

import (
	"net/http"
	"runtime"
	"strings"

	"polylimit.dev/polylimit/nethttp"
	"polylimit.dev/spellings/nethttp/service"
)

func free(handler http.Handler) http.Handler { return handler }

// mux has the handlers, each behind a limit, and another one around the handlers of /v1.
func mux(on *service.Handlers, limit, router service.Middleware) *http.ServeMux {
	root, users := http.NewServeMux(), http.NewServeMux()
	root.Handle("POST /login", limit(on.Of("login")))
	root.Handle("GET /report", limit(on.Of("report")))
	users.Handle("GET /users/{id}", limit(on.Of("user")))
	root.Handle("/v1/", nethttp.StripPrefix("/v1", router(users)))
	return root
}

func around(limit func() service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return limit()(mux(on, free, free)) }
}

func each(limit func() service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return mux(on, limit(), free) }
}

func separate(on *service.Handlers) http.Handler {
	limit := service.Separate(nethttp.Options{})
	root, numbers := http.NewServeMux(), http.NewServeMux()
	numbers.Handle("/{id}", limit(on.Of("number")))
	for _, prefix := range []string{"/a", "/b"} {
		root.Handle(prefix+"/", nethttp.StripPrefix(prefix, numbers))
	}
	for _, prefix := range []string{"/c", "/d"} {
		root.Handle(prefix+"/", limit(http.StripPrefix(prefix, on.Of("mounted"))))
	}
	root.Handle("GET /e", limit(on.Of("e")))
	root.Handle("POST /e", limit(on.Of("e")))
	return root
}

func main() {
	all := nethttp.Options{Scope: "all"}
	service.Run("nethttp", strings.TrimPrefix(runtime.Version(), "go"),
		service.Site{Name: "global", Handlers: service.All, Build: around(func() service.Middleware { return service.Limit(all) })},
		service.Site{Name: "methods", Handlers: service.All, Build: around(func() service.Middleware {
			return service.Limit(nethttp.Options{Scope: "all", Methods: []string{"get", "post"}})
		})},
		service.Site{Name: "path_rules", Handlers: service.All, Build: around(func() service.Middleware { return service.Rules("path", nethttp.Options{}) })},
		service.Site{Name: "path_rules_on_routes", Handlers: service.All, Build: each(func() service.Middleware { return service.Rules("path", nethttp.Options{}) })},
		service.Site{Name: "route_rules", Handlers: service.All, Build: each(func() service.Middleware { return service.Rules("route", nethttp.Options{}) })},
		service.Site{Name: "route", Handlers: service.All, Build: each(func() service.Middleware { return service.Limit(nethttp.Options{}) })},
		service.Site{Name: "router", Handlers: "user", Build: func(on *service.Handlers) http.Handler {
			return mux(on, free, service.Limit(nethttp.Options{}))
		}},
		service.Site{Name: "separate", Handlers: "GET:/a/1,GET:/b/1,GET:/c/1,GET:/d/1,GET:/e,POST:/e", Build: separate},
	)
}
