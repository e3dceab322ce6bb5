package polylimitfasthttp

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/middleware"
)

// Request is a request, and what the router knows of it. It is valid until its handler has returned.
type Request struct {
	*fasthttp.RequestCtx
	// Context is the context of the request with the limits outside of this one. It may have a deadline. Nil is none: fasthttp's own is
	// done when the server shuts down, which ends no request.
	Context context.Context
	// Route is the pattern of the route that was matched, such as "/users/:id"; empty for none.
	Route string
	// Param is a parameter of the route; nil when there are none.
	Param func(name string) string
	// Paths is how the router reads paths; the zero value is byte by byte.
	Paths polylimit.RouterPaths

	// The request as the guard reads it.
	plain *http.Request
}

var framework = middleware.Framework[*Request]{
	HTTP:        func(request *Request) *http.Request { return request.plain },
	Route:       func(request *Request) string { return request.Route },
	RoutePath:   func(request *Request) string { return routePath(request.Route) },
	RouterPaths: func(request *Request) polylimit.RouterPaths { return request.Paths },
	PathValue: func(request *Request, name string) string {
		if request.Param == nil {
			return ""
		}
		return request.Param(name)
	},
}

// What Fiber has after the name of a parameter: constraints, and the mark of an optional one.
var afterName = regexp.MustCompile(`(/:\w+)(<[^/]*>)?\??`)

// routePath is a pattern as rules have it.
func routePath(pattern string) string {
	plain := afterName.ReplaceAllString(pattern, "$1")
	return middleware.RoutePattern(strings.ReplaceAll(plain, "/+", "/*"))
}

func (r *Request) read(ctx context.Context) {
	header := http.Header{}
	// The values are copied, because fasthttp uses their memory again.
	r.Request.Header.VisitAll(func(name, value []byte) { header.Add(string(name), string(value)) })
	path := string(r.URI().PathOriginal())
	target := &url.URL{Path: path, RawPath: path}
	if plain, err := url.PathUnescape(path); err == nil {
		target.Path = plain
	}
	plain := &http.Request{
		Method: string(r.Method()), URL: target, Host: string(r.Host()), Header: header, RemoteAddr: r.RemoteAddr().String(),
	}
	if _, err := netip.ParseAddrPort(plain.RemoteAddr); err != nil {
		// The other end of a Unix socket is on this host.
		plain.RemoteAddr = "127.0.0.1"
	}
	r.plain = plain.WithContext(ctx)
}

// respond has a function change the header of the response, as it is at that time.
func (r *Request) respond(change func(http.Header)) {
	header, before := http.Header{}, http.Header{}
	r.Response.Header.VisitAll(func(name, value []byte) {
		header.Add(string(name), string(value))
		before.Add(string(name), string(value))
	})
	change(header)
	for name := range maps.Keys(before) {
		if _, remains := header[name]; !remains {
			r.Response.Header.Del(name)
		}
	}
	for name, values := range header {
		if slices.Equal(values, before[name]) {
			continue
		}
		r.Response.Header.Del(name)
		for _, value := range values {
			r.Response.Header.Add(name, value)
		}
	}
}

// Respond sends the default response to a request that does not proceed.
func (r *Request) Respond(denial Denial) {
	r.respond(func(header http.Header) { denial.Respond(&responseWriter{r.RequestCtx, header}) })
}

// responseWriter is the response of a denial.
type responseWriter struct {
	ctx    *fasthttp.RequestCtx
	header http.Header
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) { w.ctx.SetStatusCode(status) }

func (w *responseWriter) Write(body []byte) (int, error) {
	w.ctx.Response.AppendBody(body)
	return len(body), nil
}
