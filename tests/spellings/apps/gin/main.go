// Command gin is the application on gin.
package main

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
	"polylimit.dev/polylimit/nethttp"
	"polylimit.dev/spellings/nethttp/service"
)

// ginLimit and ginWriter are those of the README of polylimit for Go.
func ginLimit(limit func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request.Pattern = c.FullPath()
		for _, param := range c.Params {
			c.Request.SetPathValue(param.Key, param.Value)
		}
		own, isAdmitted := c.Writer, false
		limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			isAdmitted = true
			c.Request, c.Writer = r, ginWriter{own, w}
			c.Next()
			if c.Writer = own; !own.Written() {
				w.WriteHeader(own.Status())
			}
		})).ServeHTTP(own, c.Request)
		if !isAdmitted {
			c.Abort()
		}
	}
}

type ginWriter struct {
	gin.ResponseWriter
	limited http.ResponseWriter
}

func (w ginWriter) WriteHeaderNow() {
	if !w.Written() {
		w.limited.WriteHeader(w.Status())
	}
	w.ResponseWriter.WriteHeaderNow()
}

func (w ginWriter) Write(body []byte) (int, error) {
	w.WriteHeaderNow()
	return w.ResponseWriter.Write(body)
}

func (w ginWriter) WriteString(body string) (int, error) { return w.Write([]byte(body)) }

func (w ginWriter) Flush() {
	w.WriteHeaderNow()
	w.ResponseWriter.Flush()
}

func (w ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.limited).Hijack()
}

func plain(*gin.Engine) {}

func tolerant(root *gin.Engine) {
	root.UseRawPath, root.UnescapePathValues, root.RemoveExtraSlash, root.RedirectFixedPath = true, true, true, true
}

// engine has the handlers, with these limits around all of them, each of them, and those of /v1. gin has no HEAD for GET.
func engine(on *service.Handlers, set func(*gin.Engine), all, each, users []gin.HandlerFunc) http.Handler {
	root := gin.New()
	set(root)
	root.Use(all...)
	with := func(name string) []gin.HandlerFunc {
		return append(append([]gin.HandlerFunc{}, each...), gin.WrapH(on.Of(name)))
	}
	root.POST("/login", with("login")...)
	root.Match([]string{"GET", "HEAD"}, "/report", with("report")...)
	sub := root.Group("/v1", users...)
	sub.Match([]string{"GET", "HEAD"}, "/users/:id", with("user")...)
	return root
}

func one(limit service.Middleware) []gin.HandlerFunc { return []gin.HandlerFunc{ginLimit(limit)} }

func use(limit func() service.Middleware, set func(*gin.Engine)) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return engine(on, set, one(limit()), nil, nil) }
}

func each(limit func() service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return engine(on, plain, nil, one(limit()), nil) }
}

// front is a limit around the engine, which runs before routing.
func front(limit func() service.Middleware) func(*service.Handlers) http.Handler {
	return func(on *service.Handlers) http.Handler { return limit()(engine(on, plain, nil, nil, nil)) }
}

func separate(on *service.Handlers) http.Handler {
	root := gin.New()
	limit := ginLimit(service.Separate(nethttp.Options{}))
	for _, prefix := range []string{"/a", "/b"} {
		root.Group(prefix).GET("/:id", limit, gin.WrapH(on.Of("number")))
	}
	sub := root.Group("/c", limit)
	sub.GET("/x", gin.WrapH(on.Of("x")))
	sub.GET("/y", gin.WrapH(on.Of("y")))
	root.GET("/e", limit, gin.WrapH(on.Of("e")))
	root.GET("/f", limit, gin.WrapH(on.Of("f")))
	return root
}

func main() {
	gin.SetMode(gin.ReleaseMode)
	all := func() service.Middleware { return service.Limit(nethttp.Options{Scope: "all"}) }
	limit := func() service.Middleware { return service.Limit(nethttp.Options{}) }
	paths := func() service.Middleware { return service.Rules("path", nethttp.Options{}) }
	routes := func() service.Middleware { return service.Rules("route", nethttp.Options{}) }
	service.Run("gin", service.VersionOf("github.com/gin-gonic/gin"),
		service.Site{Name: "global", Handlers: service.All, Build: use(all, plain)},
		service.Site{Name: "methods", Handlers: service.All, Build: use(func() service.Middleware {
			return service.Limit(nethttp.Options{Scope: "all", Methods: []string{"get", "post"}})
		}, plain)},
		service.Site{Name: "front", Handlers: service.All, Build: front(all)},
		service.Site{Name: "path_rules", Handlers: service.All, Build: front(paths)},
		service.Site{Name: "path_rules_of_the_engine", Handlers: service.All, Build: use(paths, plain)},
		service.Site{Name: "path_rules_with_clean_paths", Handlers: service.All, Build: use(paths, tolerant)},
		service.Site{Name: "route_rules", Handlers: service.All, Build: use(routes, plain)},
		service.Site{Name: "route_rules_with_clean_paths", Handlers: service.All, Build: use(routes, tolerant)},
		service.Site{Name: "route", Handlers: service.All, Build: each(limit)},
		service.Site{Name: "use", Handlers: service.All, Build: use(limit, plain)},
		service.Site{Name: "router", Handlers: "user", Build: func(on *service.Handlers) http.Handler {
			return engine(on, plain, nil, nil, one(limit()))
		}},
		service.Site{Name: "separate", Handlers: "GET:/a/1,GET:/b/1,GET:/c/x,GET:/c/y,GET:/e,GET:/f", Build: separate},
	)
}
