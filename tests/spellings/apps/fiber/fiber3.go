//go:build !fiber2

package main

import (
	"context"
	"net"

	"github.com/gofiber/fiber/v3"
	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/polylimitfasthttp"
)

const module = "github.com/gofiber/fiber/v3"

type (
	application = fiber.App
	requestCtx  = fiber.Ctx
	handler     = fiber.Handler
	router      = fiber.Router
	settings    = fiber.Config
)

// fiberLimit is that of the README of polylimit for Go.
func fiberLimit(limit *polylimitfasthttp.Limit, onRoute bool) fiber.Handler {
	return func(c fiber.Ctx) error {
		request := &polylimitfasthttp.Request{RequestCtx: c.RequestCtx(), Context: c.Context()}
		if onRoute {
			request.Route, request.Param = c.Route().Path, func(name string) string { return c.Params(name) }
		}
		if !c.App().Config().CaseSensitive {
			request.Paths = polylimit.PathsIgnoreCase
		}
		limit.Serve(request, func(ctx context.Context) {
			c.SetContext(ctx)
			// The limit sees the status of an error, too.
			if err := c.Next(); err != nil && c.App().ErrorHandler(c, err) != nil {
				_ = c.SendStatus(fiber.StatusInternalServerError)
			}
		})
		return nil
	}
}

func create(settings settings) *application { return fiber.New(settings) }

func get(on router, path string, handlers ...handler) {
	on.Get(path, handlers[0], rest(handlers)...)
}

func post(on router, path string, handlers ...handler) {
	on.Post(path, handlers[0], rest(handlers)...)
}

func group(on router, path string, handlers ...handler) router {
	all := []any{}
	for _, one := range handlers {
		all = append(all, one)
	}
	return on.Group(path, all...)
}

func rest(handlers []handler) []any {
	all := []any{}
	for _, one := range handlers[1:] {
		all = append(all, one)
	}
	return all
}

func mount(on router, path string, mounted *application) { on.Use(path, mounted) }

func serve(root *application, listener net.Listener) error {
	return root.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true})
}
