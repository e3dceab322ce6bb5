// Command chi is the application on chi.
package main

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"polylimit.dev/polylimit/nethttp"
	"polylimit.dev/spellings/nethttp/service"
)

func route(request *http.Request) string { return chi.RouteContext(request.Context()).RoutePattern() }

func with(options nethttp.Options) nethttp.Options {
	options.Route, options.PathValue = route, chi.URLParam
	return options
}

// router has the handlers, with these middlewares around all of them, each of them, and those of /v1.
func router(on *service.Handlers, all, each, users []service.Middleware) http.Handler {
	root := chi.NewRouter()
	// GET has HEAD, too, with this middleware of chi.
	root.Use(middleware.GetHead)
	root.Use(all...)
	root.With(each...).Method("POST", "/login", on.Of("login"))
	root.With(each...).Method("GET", "/report", on.Of("report"))
	root.Route("/v1", func(sub chi.Router) {
		sub.Use(users...)
		sub.With(each...).Method("GET", "/users/{id}", on.Of("user"))
	})
	return root
}

func around(limit func() service.Middleware, before ...service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return router(on, append(before, limit()), nil, nil) }
}

func each(limit func() service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return router(on, nil, []service.Middleware{limit()}, nil) }
}

func separate(on *service.Handlers) http.Handler {
	root, numbers := chi.NewRouter(), chi.NewRouter()
	limit := service.Separate(with(nethttp.Options{}))
	numbers.With(limit).Method("GET", "/{id}", on.Of("number"))
	root.Mount("/a", numbers)
	root.Mount("/b", numbers)
	for _, prefix := range []string{"/c", "/d"} {
		root.Route(prefix, func(sub chi.Router) {
			sub.Use(limit)
			sub.Method("GET", "/x", on.Of("x"))
		})
	}
	root.Group(func(group chi.Router) {
		group.Use(limit)
		group.Method("GET", "/e", on.Of("e"))
		group.Method("GET", "/f", on.Of("f"))
	})
	return root
}

func rules() service.Middleware { return service.Rules("path", with(nethttp.Options{})) }

func main() {
	service.Run("chi", service.VersionOf("github.com/go-chi/chi/v5"),
		service.Site{Name: "global", Handlers: service.All, Build: around(func() service.Middleware { return service.Limit(with(nethttp.Options{Scope: "all"})) })},
		service.Site{Name: "methods", Handlers: service.All, Build: around(func() service.Middleware {
			return service.Limit(with(nethttp.Options{Scope: "all", Methods: []string{"get", "post"}}))
		})},
		service.Site{Name: "path_rules", Handlers: service.All, Build: around(rules)},
		service.Site{Name: "path_rules_with_clean_paths", Handlers: service.All, Build: around(rules, middleware.CleanPath, middleware.StripSlashes)},
		service.Site{Name: "path_rules_on_routes", Handlers: service.All, Build: each(rules)},
		service.Site{Name: "route_rules", Handlers: service.All, Build: each(func() service.Middleware { return service.Rules("route", with(nethttp.Options{})) })},
		service.Site{Name: "route", Handlers: service.All, Build: each(func() service.Middleware { return service.Limit(with(nethttp.Options{})) })},
		service.Site{Name: "router", Handlers: "user", Build: func(on *service.Handlers) http.Handler {
			return router(on, nil, nil, []service.Middleware{service.Limit(with(nethttp.Options{}))})
		}},
		service.Site{Name: "separate", Handlers: "GET:/a/1,GET:/b/1,GET:/c/x,GET:/d/x,GET:/e,GET:/f", Build: separate},
	)
}
