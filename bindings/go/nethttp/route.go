package nethttp

import (
	"context"
	"net/http"
	"strings"

	"polylimit.dev/polylimit/middleware"
)

// StripPrefix is http.StripPrefix for a handler with limits behind it: they know the prefix, so that a limit behind a second
// http.ServeMux has the whole route. With
//
//	http.Handle("/v1/", nethttp.StripPrefix("/v1", users))
//	http.Handle("/v2/", nethttp.StripPrefix("/v2", users))
//
// the route "/users/{id}" of the ServeMux users is "/v1/users/{id}" or "/v2/users/{id}". Behind http.StripPrefix quotas without a name
// have one budget for both.
func StripPrefix(prefix string, handler http.Handler) http.Handler {
	if prefix == "" {
		return handler
	}
	inner := http.StripPrefix(prefix, http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		// http.StripPrefix has made a copy. What it matched before is in the context, so that a pattern is one of the handler's own.
		request.Pattern = ""
		handler.ServeHTTP(writer, request)
	}))
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		stripped := &mount{prefix: strings.TrimSuffix(prefix, "/"), route: routeOf(request)}
		if outer := mountOf(request); outer != nil {
			stripped.prefix = outer.prefix + stripped.prefix
		}
		inner.ServeHTTP(writer, request.WithContext(context.WithValue(request.Context(), mountKey{}, stripped)))
	})
}

// mount is what StripPrefix has stripped from a request, with the route that was matched before.
type mount struct{ prefix, route string }

type mountKey struct{}

// mountOf is the innermost mount of a request; nil for none.
func mountOf(request *http.Request) *mount {
	found, _ := request.Context().Value(mountKey{}).(*mount)
	return found
}

// routeOf is the pattern of an http.ServeMux with the prefixes that StripPrefix has stripped. Others are no part of it: a client may
// have chosen them, and would get a budget for each.
func routeOf(request *http.Request) string {
	at := mountOf(request)
	switch {
	case at == nil:
		return request.Pattern
	case request.Pattern == "":
		return at.route
	default:
		return middleware.JoinRoute(at.prefix, request.Pattern)
	}
}

// routePathOf is the route as rules see it. They name a whole path, so that a prefix is put before it that another handler has stripped,
// if the pattern was matched afterwards: it is no pattern of a subtree, which it could be stripped from.
func routePathOf(request *http.Request) string {
	route := middleware.RoutePattern(routeOf(request))
	if mountOf(request) != nil || strings.HasSuffix(request.Pattern, "/") || strings.HasSuffix(request.Pattern, "...}") {
		return route
	}
	return middleware.StrippedPrefix(request) + route
}
