package polylimitfasthttp_test

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/valyala/fasthttp"

	"polylimit.dev/polylimit/internal/guardtest"
	"polylimit.dev/polylimit/polylimitfasthttp"
)

func TestGuardCases(t *testing.T) { runGuardCases(t, "guard.json", 80) }

func TestGuardCasesOfReservations(t *testing.T) { runGuardCases(t, "guard_reservations.json", 30) }

func TestGuardCasesOfMeters(t *testing.T) { runGuardCases(t, "guard_meters.json", 13) }

func TestGuardCasesOfWaiting(t *testing.T) { runGuardCases(t, "guard_waiting.json", 12) }

func runGuardCases(t *testing.T, file string, least int) {
	// A body that is streamed is not read.
	isStreamed := func(request guardtest.Request) bool { return request.Open != "" && request.Body != nil }
	guardtest.Run(t, file, least, func(c *guardtest.Case) bool { return !slices.ContainsFunc(c.Requests, isStreamed) }, startCase)
}

var guardFramework = guardtest.Framework[*polylimitfasthttp.Request, func(*polylimitfasthttp.Request, polylimitfasthttp.Denial)]{
	Field: func(request *polylimitfasthttp.Request, name string) string {
		return string(request.Request.Header.Peek(name))
	},
	Spent: guardtest.SpentOfHeader[*polylimitfasthttp.Request],
	Deny: func(status int, body string) func(*polylimitfasthttp.Request, polylimitfasthttp.Denial) {
		return func(request *polylimitfasthttp.Request, _ polylimitfasthttp.Denial) {
			request.SetStatusCode(status)
			request.SetBodyString(body)
		}
	},
}

func startCase(t *testing.T, c *guardtest.Case, stores *guardtest.Stores) (guardtest.Service, error) {
	client := guardtest.NewHTTP(c)
	handler := func(ctx *fasthttp.RequestCtx) {
		wanted := client.Begin(t, func(name string) string { return string(ctx.Request.Header.Peek(name)) })
		if wanted.Spent != "" {
			ctx.Response.Header.Set("X-Spent", wanted.Spent)
		}
		if wanted.Fail {
			panic("broken")
		}
		ctx.SetStatusCode(wanted.Status)
		if wanted.ContentType != "" {
			ctx.SetContentType(wanted.ContentType)
		}
		for _, piece := range wanted.Body {
			ctx.Response.AppendBodyString(piece)
		}
		if wanted.Open != "" {
			release := polylimitfasthttp.Hold(ctx)
			ctx.Response.ImmediateHeaderFlush = true
			ctx.SetBodyStreamWriter(func(writer *bufio.Writer) {
				defer release()
				<-client.Closing[wanted.Open]
				_, _ = writer.WriteString("the end")
			})
		}
	}
	for _, given := range slices.Backward(c.Guards) {
		limit, err := polylimitfasthttp.New(guardFramework.Read(t, given, stores))
		if err != nil {
			return nil, err
		}
		handler = limit.Handler(handler)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &fasthttp.Server{Handler: recovering(handler), Logger: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(listener) }()
	// Shutdown waits for the idle connections of clients.
	t.Cleanup(func() { _ = listener.Close() })
	client.URL = "http://" + listener.Addr().String()
	// A server of fasthttp learns that a client has left when it sends.
	client.HasLeft = func(name string) { close(client.Closing[name]) }
	return client, nil
}

// recovering answers 500 for a handler that panics, as a service does that wants to answer at all.
func recovering(handler fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		defer func() {
			if recover() != nil {
				ctx.SetStatusCode(http.StatusInternalServerError)
			}
		}()
		handler(ctx)
	}
}
