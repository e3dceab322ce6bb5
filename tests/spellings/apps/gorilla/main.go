// Command gorilla is the application on gorilla/mux.
package main

import (
	"net/http"

	"github.com/gorilla/mux"
	"polylimit.dev/polylimit/nethttp"
	"polylimit.dev/spellings/nethttp/service"
)

func with(options nethttp.Options) nethttp.Options {
	options.Route = func(request *http.Request) string {
		if route := mux.CurrentRoute(request); route != nil {
			template, _ := route.GetPathTemplate()
			return template
		}
		return ""
	}
	options.PathValue = func(request *http.Request, name string) string { return mux.Vars(request)[name] }
	return options
}

func free(handler http.Handler) http.Handler { return handler }

// router has the handlers, each behind a limit, and another one for the router of /v1.
func router(root *mux.Router, on *service.Handlers, each, users service.Middleware) *mux.Router {
	root.Handle("/login", each(on.Of("login"))).Methods("POST")
	root.Handle("/report", each(on.Of("report"))).Methods("GET", "HEAD")
	sub := root.PathPrefix("/v1").Subrouter()
	sub.Use(mux.MiddlewareFunc(users))
	sub.Handle("/users/{id}", each(on.Of("user"))).Methods("GET", "HEAD")
	return root
}

func around(limit func() service.Middleware, set func(*mux.Router)) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler {
		root := mux.NewRouter()
		set(root)
		return limit()(router(root, on, free, free))
	}
}

func each(limit func() service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return router(mux.NewRouter(), on, limit(), free) }
}

// use is a limit of the router, which runs it after routing.
func use(limit func() service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler {
		root := mux.NewRouter()
		root.Use(mux.MiddlewareFunc(limit()))
		return router(root, on, free, free)
	}
}

func separate(on *service.Handlers) http.Handler {
	root := mux.NewRouter()
	limit := service.Separate(with(nethttp.Options{}))
	for _, prefix := range []string{"/a", "/b"} {
		root.PathPrefix(prefix).Subrouter().Handle("/{id:[0-9]+}", limit(on.Of("number")))
	}
	sub := root.PathPrefix("/c").Subrouter()
	sub.Use(mux.MiddlewareFunc(limit))
	sub.Handle("/x", on.Of("x"))
	sub.Handle("/y", on.Of("y"))
	root.Handle("/e", limit(on.Of("e")))
	root.Handle("/f", limit(on.Of("f")))
	return root
}

func main() {
	limit := func() service.Middleware { return service.Limit(with(nethttp.Options{})) }
	rules := func() service.Middleware { return service.Rules("path", with(nethttp.Options{})) }
	routes := func() service.Middleware { return service.Rules("route", with(nethttp.Options{})) }
	plain := func(*mux.Router) {}
	service.Run("gorilla", service.VersionOf("github.com/gorilla/mux"),
		service.Site{Name: "global", Handlers: service.All, Build: around(func() service.Middleware { return service.Limit(with(nethttp.Options{Scope: "all"})) }, plain)},
		service.Site{Name: "methods", Handlers: service.All, Build: around(func() service.Middleware {
			return service.Limit(with(nethttp.Options{Scope: "all", Methods: []string{"get", "post"}}))
		}, plain)},
		service.Site{Name: "path_rules", Handlers: service.All, Build: around(rules, plain)},
		service.Site{Name: "path_rules_with_encoded_paths", Handlers: service.All, Build: around(rules, func(root *mux.Router) { root.UseEncodedPath().SkipClean(true) })},
		service.Site{Name: "path_rules_with_slashes", Handlers: service.All, Build: around(rules, func(root *mux.Router) { root.SkipClean(true).StrictSlash(true) })},
		service.Site{Name: "path_rules_of_the_router", Handlers: service.All, Build: use(rules)},
		service.Site{Name: "route_rules", Handlers: service.All, Build: use(routes)},
		service.Site{Name: "route_rules_on_routes", Handlers: service.All, Build: each(routes)},
		service.Site{Name: "route", Handlers: service.All, Build: each(limit)},
		service.Site{Name: "use", Handlers: service.All, Build: use(limit)},
		service.Site{Name: "router", Handlers: "user", Build: func(on *service.Handlers) http.Handler { return router(mux.NewRouter(), on, free, limit()) }},
		service.Site{Name: "separate", Handlers: "GET:/a/1,GET:/b/1,GET:/c/x,GET:/c/y,GET:/e,GET:/f", Build: separate},
	)
}
