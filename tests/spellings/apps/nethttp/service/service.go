// Package service is what the applications on net/http share: the handlers, which count their executions, the limits, and the servers.
package service

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

// Middleware is what nethttp.New makes.
type Middleware = func(http.Handler) http.Handler

// Site is a way to attach a limit, with the handlers that are limited there.
type Site struct {
	Name, Handlers string
	Build          func(on *Handlers) http.Handler
	// Serve serves a framework that is not on net/http, in place of Build.
	Serve func(on *Handlers, listener net.Listener) error
}

// All are the handlers of most sites.
const All = "login,report,user"

// Handlers are those of a site.
type Handlers struct {
	mutex sync.Mutex
	runs  map[string]int
}

// Of is a handler that counts its executions for each client.
func (h *Handlers) Of(name string) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("x-runs", h.Count(name, request.Header.Get("x-client")))
		_, _ = io.WriteString(writer, name)
	})
}

// Count counts an execution for a client, and returns the value of the field x-runs.
func (h *Handlers) Count(name, client string) string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	key := name + " " + client
	h.runs[key]++
	return fmt.Sprintf("%s=%d", name, h.runs[key])
}

// Open opens a limiter.
func Open(options ...polylimit.Option) *polylimit.Limiter {
	limiter, err := polylimit.Open("memory:", options...)
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

func made(options nethttp.Options) Middleware {
	limit, err := nethttp.New(options)
	if err != nil {
		log.Fatal(err)
	}
	return limit
}

// Limit is a limit with quotas: 3/hour, unless the options have others.
func Limit(options nethttp.Options) Middleware {
	if options.Policy == "" {
		options.Policy = "3/hour fixed_window"
	}
	options.Limiter, options.KeyParts = Open(), []nethttp.KeyPart{nethttp.Header("x-client")}
	return made(options)
}

// Separate is a limit whose budgets are those of the routes.
func Separate(options nethttp.Options) Middleware {
	options.Policy = "1/hour fixed_window"
	return Limit(options)
}

// Rules is a limit by a document whose rules name the path or the route of each handler.
func Rules(attribute string, options nethttp.Options) Middleware {
	return RulesFor(attribute, "/v1/users/{id}", options)
}

// RulesFor is Rules with another path or route of the handler user.
func RulesFor(attribute, user string, options nethttp.Options) Middleware {
	options.Limiter = Open(polylimit.WithDocument(Document(attribute, user)))
	return made(options)
}

// Document is the document whose rules name the path or the route of each handler.
func Document(attribute, user string) string {
	text := "polylimit = 1\n"
	for _, one := range [][3]string{{"login", "POST", "/login"}, {"report", "GET", "/report"}, {"user", "GET", user}} {
		text += fmt.Sprintf("[policies.%s]\nquotas = \"3/hour fixed_window\"\n[[rules]]\nmatch = { method = %q, %s = %q }\n"+
			"apply = [{ policy = %q, key = \"{header.x-client}\" }]\n", one[0], one[1], attribute, one[2], one[0])
	}
	return text
}

// VersionOf is the version of a module that this program was built with.
func VersionOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == module {
			return strings.TrimPrefix(one.Version, "v")
		}
	}
	return "unknown"
}

// Run serves the sites until the standard input is closed.
func Run(framework, version string, sites ...Site) {
	for _, site := range sites {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		on := &Handlers{runs: map[string]int{}}
		serve := func() error { return site.Serve(on, listener) }
		if site.Serve == nil {
			server := &http.Server{Handler: site.Build(on), ErrorLog: log.New(io.Discard, "", 0)}
			server.Protocols = new(http.Protocols)
			server.Protocols.SetHTTP1(true)
			server.Protocols.SetUnencryptedHTTP2(true)
			serve = func() error { return server.Serve(listener) }
		}
		go func() { log.Fatal(serve()) }()
		fmt.Println("listening", site.Name, listener.Addr().(*net.TCPAddr).Port, site.Handlers)
	}
	fmt.Println("version", framework, version)
	fmt.Println("note route yes, where the limit is behind routing")
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
