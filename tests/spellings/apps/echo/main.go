// Command echo is the application on echo.
package main

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"polylimit.dev/polylimit/nethttp"
	"polylimit.dev/spellings/nethttp/service"
)

// echoLimit is that of the README of polylimit for Go.
func echoLimit(limit func(http.Handler) http.Handler) echo.MiddlewareFunc {
	wrapped := echo.WrapMiddleware(limit)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		limited := wrapped(func(c echo.Context) error {
			// The limit sees the status of an error, too.
			if err := next(c); err != nil {
				c.Error(err)
			}
			return nil
		})
		return func(c echo.Context) error {
			c.Request().Pattern = c.Path()
			for at, name := range c.ParamNames() {
				c.Request().SetPathValue(name, c.ParamValues()[at])
			}
			return limited(c)
		}
	}
}

func plain(*echo.Echo) {}

// withoutSlashes is the middleware of echo that changes the path before routing.
func withoutSlashes(root *echo.Echo) { root.Pre(middleware.RemoveTrailingSlash()) }

// server has the handlers, with these limits around all of them, each of them, and those of /v1. echo has no HEAD for GET.
func server(on *service.Handlers, set func(*echo.Echo), all, each, users []echo.MiddlewareFunc) http.Handler {
	root := echo.New()
	set(root)
	root.Use(all...)
	reading := []string{http.MethodGet, http.MethodHead}
	root.POST("/login", echo.WrapHandler(on.Of("login")), each...)
	root.Match(reading, "/report", echo.WrapHandler(on.Of("report")), each...)
	// The middlewares of a group get routes of their own, which answer all other paths of the group.
	root.Group("/v1", users...).Match(reading, "/users/:id", echo.WrapHandler(on.Of("user")), each...)
	return root
}

func one(limit service.Middleware) []echo.MiddlewareFunc {
	return []echo.MiddlewareFunc{echoLimit(limit)}
}

func use(limit func() service.Middleware, set func(*echo.Echo)) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return server(on, set, one(limit()), nil, nil) }
}

func each(limit func() service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return server(on, plain, nil, one(limit()), nil) }
}

// front is a limit around the server, which runs before routing.
func front(limit func() service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return limit()(server(on, plain, nil, nil, nil)) }
}

func separate(on *service.Handlers) http.Handler {
	root := echo.New()
	limit := echoLimit(service.Separate(nethttp.Options{}))
	for _, prefix := range []string{"/a", "/b"} {
		root.Group(prefix).GET("/:id", echo.WrapHandler(on.Of("number")), limit)
	}
	sub := root.Group("/c", limit)
	sub.GET("/x", echo.WrapHandler(on.Of("x")))
	sub.GET("/y", echo.WrapHandler(on.Of("y")))
	root.GET("/e", echo.WrapHandler(on.Of("e")), limit)
	root.GET("/f", echo.WrapHandler(on.Of("f")), limit)
	return root
}

func main() {
	all := func() service.Middleware { return service.Limit(nethttp.Options{Scope: "all"}) }
	limit := func() service.Middleware { return service.Limit(nethttp.Options{}) }
	// A parameter at the end of a route has the rest of the path, with its slashes.
	paths := func() service.Middleware { return service.RulesFor("path", "/v1/users/{*id}", nethttp.Options{}) }
	routes := func() service.Middleware { return service.Rules("route", nethttp.Options{}) }
	service.Run("echo", service.VersionOf("github.com/labstack/echo/v4"),
		service.Site{Name: "global", Handlers: service.All, Build: use(all, plain)},
		service.Site{Name: "methods", Handlers: service.All, Build: use(func() service.Middleware {
			return service.Limit(nethttp.Options{Scope: "all", Methods: []string{"get", "post"}})
		}, plain)},
		service.Site{Name: "front", Handlers: service.All, Build: front(all)},
		service.Site{Name: "path_rules", Handlers: service.All, Build: front(paths)},
		service.Site{Name: "path_rules_of_the_server", Handlers: service.All, Build: use(paths, plain)},
		service.Site{Name: "path_rules_without_slashes", Handlers: service.All, Build: use(paths, withoutSlashes)},
		service.Site{Name: "route_rules", Handlers: service.All, Build: use(routes, plain)},
		service.Site{Name: "route_rules_without_slashes", Handlers: service.All, Build: use(routes, withoutSlashes)},
		service.Site{Name: "route", Handlers: service.All, Build: each(limit)},
		service.Site{Name: "use", Handlers: service.All, Build: use(limit, plain)},
		service.Site{Name: "router", Handlers: "user", Build: func(on *service.Handlers) http.Handler {
			return server(on, plain, nil, nil, one(limit()))
		}},
		service.Site{Name: "separate", Handlers: "GET:/a/1,GET:/b/1,GET:/c/x,GET:/c/y,GET:/e,GET:/f", Build: separate},
	)
}
