// Package routers has the adapters of README.md for routers that do not set http.Request.Pattern, and tests them with the routers. It is a
// module of its own, so that programs that use polylimit do not depend on any router.
package routers

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/julienschmidt/httprouter"
	"github.com/labstack/echo/v4"
)

func chiRoute(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() } // PathValue: chi.URLParam

func gorillaRoute(r *http.Request) string {
	if route := mux.CurrentRoute(r); route != nil {
		template, _ := route.GetPathTemplate()
		return template
	}
	return ""
}

func gorillaPathValue(r *http.Request, name string) string { return mux.Vars(r)[name] }

// httprouter passes no handler its route, so the code that registers a handler passes it.
func httprouterHandle(router *httprouter.Router, method, path string, limited http.Handler) {
	router.HandlerFunc(method, path, func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = path
		for _, param := range httprouter.ParamsFromContext(r.Context()) {
			r.SetPathValue(param.Key, param.Value)
		}
		limited.ServeHTTP(w, r)
	})
}

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

// ginWriter reports the status of a response to the limit before gin sends it.
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
