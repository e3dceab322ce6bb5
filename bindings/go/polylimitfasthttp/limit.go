// Package polylimitfasthttp limits the requests of fasthttp servers, and of frameworks on fasthttp such as Fiber.
//
//	limit, err := polylimitfasthttp.New(polylimitfasthttp.Options{Limiter: limiter, Policy: "api"})
//	...
//	fasthttp.ListenAndServe(":8080", limit.Handler(handler))
//
// The README of polylimit for Go has the function that makes it a handler of Fiber.
package polylimitfasthttp

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"polylimit.dev/polylimit/middleware"
)

// Options are the options of a limit. Only Limiter is required. Options.Route and Options.PathValue stand in for those of a Request.
type Options = middleware.Options[*Request, func(*Request, Denial)]

// PolicyCharge is what a policy of Options.Policies has for itself: a cost, and what was spent.
type PolicyCharge = middleware.PolicyCharge[*Request]

// Denial is why a request does not proceed. Request.Respond sends the default response.
type Denial = middleware.Denial

// KeyPart is a part of the key of a request, such as middleware.Header("x-api-key").
type KeyPart = middleware.KeyPart

// Limit decides about requests. Any goroutine may use it at any time.
type Limit struct {
	limit *middleware.Limit[*Request, func(*Request, Denial)]
}

// New makes a limit. It fails with polylimit.ErrInvalidArgument for an invalid option.
func New(options Options) (*Limit, error) {
	limit, err := middleware.New(options, framework)
	if err != nil {
		return nil, err
	}
	return &Limit{limit}, nil
}

type contextKey struct{}

// Handler is a handler behind the limit, in front of any routing. It may be the handler of another limit.
func (l *Limit) Handler(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		request := &Request{RequestCtx: ctx}
		request.Context, _ = ctx.UserValue(contextKey{}).(context.Context)
		l.Serve(request, func(own context.Context) {
			ctx.SetUserValue(contextKey{}, own)
			next(ctx)
		})
	}
}

// ContextOf is the context of a request behind Handler, for middleware.DecisionOf and middleware.OutcomesOf.
func ContextOf(ctx *fasthttp.RequestCtx) context.Context {
	if own, isLimited := ctx.UserValue(contextKey{}).(context.Context); isLimited {
		return own
	}
	return context.Background()
}

// Serve decides about a request, and calls next if it proceeds. The context that next gets is to be the Request.Context of the limits
// inside of this one. What the request holds ends when next has returned, and every Hold is released.
func (l *Limit) Serve(request *Request, next func(context.Context)) {
	if request.Context == nil {
		request.Context = context.Background()
	}
	request.read(request.Context)
	var own *middleware.Admission
	var err error
	request.respond(func(header http.Header) { own, err = l.limit.Decide(request, header) })
	l.limit.Proceed(request, own, err, request.plain.Header.Values("Accept"), middleware.Answers{
		Fail: func(status int) {
			request.SetStatusCode(status)
			request.SetContentType("text/plain; charset=utf-8")
			request.SetBodyString(http.StatusText(status))
		},
		Deny: func(denial Denial) {
			if respond := l.limit.OnDenied(); respond != nil {
				respond(request, denial)
				return
			}
			request.Respond(denial)
		},
		Run:    next,
		Settle: func(own *middleware.Admission) { l.serveAndSettle(request, own, next) },
	})
}

// serveAndSettle settles when the handler has returned. One that panics has the status 500, and says nothing about what was spent.
func (l *Limit) serveAndSettle(request *Request, own *middleware.Admission, next func(context.Context)) {
	outer, _ := request.UserValue(heldKey{}).(*held)
	held := &held{outer: outer}
	status, header := 0, http.Header{}
	held.end = func() {
		if own.Holds() {
			l.limit.End(own, request, status, header)
		}
		own.Close()
	}
	held.count.Store(1)
	defer held.release()
	request.SetUserValue(heldKey{}, held)
	settle := func(status int) {
		request.respond(func(now http.Header) {
			l.limit.Settle(own, request, status, now)
			header = now
		})
	}
	hasReturned := false
	defer func() {
		request.SetUserValue(heldKey{}, outer)
		if !hasReturned {
			settle(http.StatusInternalServerError)
		}
	}()
	next(own)
	hasReturned = true
	settle(request.Response.StatusCode())
	status = request.Response.StatusCode()
	if reader := own.Reader(); reader != nil {
		var body []byte
		if !request.Response.IsBodyStream() {
			body = request.Response.Body()
		}
		reader.Read(header, body)
	}
}

type heldKey struct{}

// held is what a request holds until its handler has returned and each Hold is released.
type held struct {
	count atomic.Int64
	outer *held
	end   func()
}

func (h *held) release() {
	if h.count.Add(-1) == 0 {
		h.end()
	}
}

// Hold keeps what the limits of a request hold, such as slots of "20 concurrent", beyond the return of its handler: until the
// function is called that it returns. fasthttp sends a body stream, and runs a connection that was taken over, after that. It is
// called by the handler.
func Hold(ctx *fasthttp.RequestCtx) (release func()) {
	var all []*held
	for own, _ := ctx.UserValue(heldKey{}).(*held); own != nil; own = own.outer {
		own.count.Add(1)
		all = append(all, own)
	}
	var isReleased atomic.Bool
	return func() {
		if !isReleased.Swap(true) {
			for _, own := range slices.Backward(all) {
				own.release()
			}
		}
	}
}
