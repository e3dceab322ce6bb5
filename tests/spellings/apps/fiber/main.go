// Command fiber is the application on Fiber: 3, or 2 with the build tag fiber2.
package main

import (
	"log"
	"net"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/middleware"
	"polylimit.dev/polylimit/polylimitfasthttp"
	"polylimit.dev/spellings/nethttp/service"
)

func made(options polylimitfasthttp.Options, onRoute bool) handler {
	limit, err := polylimitfasthttp.New(options)
	if err != nil {
		log.Fatal(err)
	}
	return fiberLimit(limit, onRoute)
}

func limit(options polylimitfasthttp.Options, onRoute bool) handler {
	if options.Policy == "" {
		options.Policy = "3/hour fixed_window"
	}
	options.Limiter, options.KeyParts = service.Open(), []polylimitfasthttp.KeyPart{middleware.Header("x-client")}
	return made(options, onRoute)
}

func rules(attribute string, onRoute bool) handler {
	document := polylimit.WithDocument(service.Document(attribute, "/v1/users/{id}"))
	return made(polylimitfasthttp.Options{Limiter: service.Open(document)}, onRoute)
}

func counting(on *service.Handlers, name string) handler {
	return func(c requestCtx) error {
		// Fiber uses the memory of the field again.
		c.Set("x-runs", on.Count(name, string([]byte(c.Get("x-client")))))
		return c.SendString(name)
	}
}

// server has the handlers, with these limits around all of them, each of them, and those of /v1, which may be a mounted application.
func server(on *service.Handlers, settings settings, all, each, users []handler, isMounted bool) *application {
	root := create(settings)
	for _, one := range all {
		root.Use(one)
	}
	with := func(name string) []handler { return append(append([]handler{}, each...), counting(on, name)) }
	post(root, "/login", with("login")...)
	get(root, "/report", with("report")...)
	if isMounted {
		inner := create(settings)
		for _, one := range users {
			inner.Use(one)
		}
		get(inner, "/users/:id", with("user")...)
		mount(root, "/v1", inner)
	} else {
		get(group(root, "/v1", users...), "/users/:id", with("user")...)
	}
	return root
}

type limits struct{ all, each, users []handler }

func site(name, handlers string, settings settings, isMounted bool, limits func() limits) service.Site {
	return service.Site{Name: name, Handlers: handlers, Serve: func(on *service.Handlers, listener net.Listener) error {
		own := limits()
		return serve(server(on, settings, own.all, own.each, own.users, isMounted), listener)
	}}
}

func separate(on *service.Handlers, listener net.Listener) error {
	root := create(settings{})
	one := limit(polylimitfasthttp.Options{Policy: "1/hour fixed_window"}, true)
	for _, prefix := range []string{"/a", "/b"} {
		get(group(root, prefix), "/:id", one, counting(on, "number"))
	}
	for _, prefix := range []string{"/c", "/d"} {
		inner := create(settings{})
		get(inner, "/:id", one, counting(on, "within"))
		mount(root, prefix, inner)
	}
	get(root, "/e", one, counting(on, "e"))
	get(root, "/f", one, counting(on, "f"))
	return serve(root, listener)
}

func main() {
	plain := settings{}
	strict := settings{CaseSensitive: true, StrictRouting: true}
	unescaped := settings{UnescapePath: true}
	all := func(make func() handler) func() limits {
		return func() limits { return limits{all: []handler{make()}} }
	}
	each := func(make func() handler) func() limits {
		return func() limits { return limits{each: []handler{make()}} }
	}
	users := func(make func() handler) func() limits {
		return func() limits { return limits{users: []handler{make()}} }
	}
	global := func() handler { return limit(polylimitfasthttp.Options{Scope: "all"}, false) }
	paths := func() handler { return rules("path", false) }
	routes := func() handler { return rules("route", true) }
	service.Run("fiber", service.VersionOf(module),
		site("global", service.All, plain, false, all(global)),
		site("methods", service.All, plain, false, all(func() handler {
			return limit(polylimitfasthttp.Options{Scope: "all", Methods: []string{"get", "post"}}, false)
		})),
		site("path_rules", service.All, plain, false, all(paths)),
		site("path_rules_strict", service.All, strict, false, all(paths)),
		site("path_rules_unescaped", service.All, unescaped, false, all(paths)),
		site("path_rules_on_routes", service.All, plain, true, each(paths)),
		site("route_rules", service.All, plain, false, each(routes)),
		site("route_rules_of_mounts", service.All, plain, true, each(routes)),
		site("route", service.All, plain, false, each(func() handler { return limit(polylimitfasthttp.Options{}, true) })),
		site("router", "user", plain, false, users(global)),
		site("mount", "user", plain, true, users(global)),
		service.Site{Name: "separate", Handlers: "GET:/a/1,GET:/b/1,GET:/c/1,GET:/d/1,GET:/e,GET:/f", Serve: separate},
	)
}
