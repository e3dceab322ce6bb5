// Command httprouter is the application on httprouter.
package main

import (
	"net/http"

	"github.com/julienschmidt/httprouter"
	"polylimit.dev/polylimit/nethttp"
	"polylimit.dev/spellings/nethttp/service"
)

// httprouterHandle is that of the README of polylimit for Go.
func httprouterHandle(router *httprouter.Router, method, path string, limited http.Handler) {
	router.HandlerFunc(method, path, func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = path
		for _, param := range httprouter.ParamsFromContext(r.Context()) {
			r.SetPathValue(param.Key, param.Value)
		}
		limited.ServeHTTP(w, r)
	})
}

func free(handler http.Handler) http.Handler { return handler }

func plain(*httprouter.Router) {}

// strict turns off the redirects to the path of a handler, for another slash at the end or another case.
func strict(root *httprouter.Router) {
	root.RedirectTrailingSlash, root.RedirectFixedPath = false, false
}

// reading registers a handler for GET and HEAD: httprouter has no HEAD for GET.
func reading(router *httprouter.Router, path string, limited http.Handler) {
	httprouterHandle(router, http.MethodGet, path, limited)
	httprouterHandle(router, http.MethodHead, path, limited)
}

// router has the handlers, each behind a limit, and another limit around the router that serves /v1. httprouter mounts nothing, so
// that router is asked for what the first one does not find.
func router(on *service.Handlers, set func(*httprouter.Router), each, users service.Middleware) http.Handler {
	root, sub := httprouter.New(), httprouter.New()
	set(root)
	set(sub)
	httprouterHandle(root, http.MethodPost, "/login", each(on.Of("login")))
	reading(root, "/report", each(on.Of("report")))
	reading(sub, "/v1/users/:id", each(on.Of("user")))
	root.NotFound = users(sub)
	return root
}

// front is a limit around the router, which runs before routing.
func front(limit func() service.Middleware, set func(*httprouter.Router)) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return limit()(router(on, set, free, free)) }
}

func each(limit func() service.Middleware, set func(*httprouter.Router)) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return router(on, set, limit(), free) }
}

func separate(on *service.Handlers) http.Handler {
	root := httprouter.New()
	limit := service.Separate(nethttp.Options{})
	for _, prefix := range []string{"/a", "/b"} {
		httprouterHandle(root, http.MethodGet, prefix+"/:id", limit(on.Of("number")))
	}
	httprouterHandle(root, http.MethodGet, "/c/x", limit(on.Of("x")))
	httprouterHandle(root, http.MethodGet, "/c/y", limit(on.Of("y")))
	httprouterHandle(root, http.MethodGet, "/e", limit(on.Of("e")))
	httprouterHandle(root, http.MethodGet, "/f", limit(on.Of("f")))
	return root
}

func main() {
	all := func() service.Middleware { return service.Limit(nethttp.Options{Scope: "all"}) }
	limit := func() service.Middleware { return service.Limit(nethttp.Options{}) }
	paths := func() service.Middleware { return service.Rules("path", nethttp.Options{}) }
	routes := func() service.Middleware { return service.Rules("route", nethttp.Options{}) }
	service.Run("httprouter", service.VersionOf("github.com/julienschmidt/httprouter"),
		service.Site{Name: "global", Handlers: service.All, Build: front(all, plain)},
		service.Site{Name: "methods", Handlers: service.All, Build: front(func() service.Middleware {
			return service.Limit(nethttp.Options{Scope: "all", Methods: []string{"get", "post"}})
		}, plain)},
		service.Site{Name: "path_rules", Handlers: service.All, Build: front(paths, plain)},
		service.Site{Name: "path_rules_without_redirects", Handlers: service.All, Build: front(paths, strict)},
		service.Site{Name: "path_rules_on_routes", Handlers: service.All, Build: each(paths, plain)},
		service.Site{Name: "route_rules", Handlers: service.All, Build: each(routes, plain)},
		service.Site{Name: "route_rules_without_redirects", Handlers: service.All, Build: each(routes, strict)},
		service.Site{Name: "route", Handlers: service.All, Build: each(limit, plain)},
		service.Site{Name: "router", Handlers: "user", Build: func(on *service.Handlers) http.Handler {
			return router(on, plain, free, limit())
		}},
		service.Site{Name: "separate", Handlers: "GET:/a/1,GET:/b/1,GET:/c/x,GET:/c/y,GET:/e,GET:/f", Build: separate},
	)
}
