// Package nethttp limits the requests of net/http servers.
//
//	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Policy: "api"})
//	...
//	http.Handle("/api/", limit(api))
package nethttp

import (
	"context"
	"net/http"
	"sync"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/middleware"
)

// Options are the options of a middleware. Only Limiter is required. Without Scope, the scope of quotas without a name is the route:
// http.Request.Pattern, which an http.ServeMux sets, with the prefixes that StripPrefix has stripped. For other routers Options.Route
// returns it.
type Options = middleware.Options[*http.Request, func(http.ResponseWriter, *http.Request, Denial)]

// PolicyCharge is what a policy of Options.Policies has for itself: a cost, and what was spent.
type PolicyCharge = middleware.PolicyCharge[*http.Request]

// Denial is why a request does not proceed.
type Denial = middleware.Denial

// KeyPart is a part of the key of a request.
type KeyPart = middleware.KeyPart

// Address is the client's address as a part of the key.
func Address() KeyPart { return middleware.Address() }

// User is the authenticated user as a part of the key; Options.User finds it.
func User() KeyPart { return middleware.User() }

// Header is the value of a request's header field as a part of the key.
func Header(name string) KeyPart { return middleware.Header(name) }

// Cookie is the value of a cookie as a part of the key.
func Cookie(name string) KeyPart { return middleware.Cookie(name) }

// Path is the value of a wildcard in the pattern of an http.ServeMux as a part of the key, such as "tenant" in
// "/tenants/{tenant}".
func Path(name string) KeyPart { return middleware.Path(name) }

// New creates a middleware: a function that limits the requests to a handler. A handler may have several of them; the outer one
// decides first, and its units are refunded when an inner one denies or its store cannot decide. The same policy of the same
// limiter is charged once for a key.
//
// It fails with ErrInvalidArgument for an invalid option: a policy that the limiter does not know, quotas that cannot be read,
// or no policy although the limiter does not have exactly one.
func New(options Options) (func(http.Handler) http.Handler, error) {
	limit, err := middleware.New(options, middleware.Framework[*http.Request]{
		HTTP:      func(request *http.Request) *http.Request { return request },
		Route:     routeOf,
		RoutePath: routePathOf,
		PathValue: (*http.Request).PathValue,
	})
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler { return &limitedHandler{limit, next} }, nil
}

// DecisionOf is the decision that admitted a request, with several policies that of the first one; false when the request was not
// limited.
func DecisionOf(request *http.Request) (polylimit.Decision, bool) {
	return middleware.DecisionOf(request.Context())
}

// OutcomesOf are the policies that were applied to a request so far, each with its decision. It has none when the request was not
// limited, and when the middleware has returned.
func OutcomesOf(request *http.Request) []polylimit.Outcome {
	return middleware.OutcomesOf(request.Context())
}

// limitedHandler is a handler behind the middleware.
type limitedHandler struct {
	limit *middleware.Limit[*http.Request, func(http.ResponseWriter, *http.Request, Denial)]
	next  http.Handler
}

func (h *limitedHandler) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	own, err := h.limit.Decide(request, writer.Header())
	h.limit.Proceed(request, own, err, request.Header["Accept"], middleware.Answers{
		Fail: func(status int) {
			if status == middleware.ClientClosedRequest {
				writer.WriteHeader(status)
				return
			}
			http.Error(writer, http.StatusText(status), status)
		},
		Deny: func(denial Denial) {
			if respond := h.limit.OnDenied(); respond != nil {
				respond(writer, request, denial)
				return
			}
			denial.Respond(writer)
		},
		Run: func(ctx context.Context) {
			if own == nil {
				h.next.ServeHTTP(writer, request)
				return
			}
			h.next.ServeHTTP(writer, request.WithContext(ctx))
		},
		Settle: func(own *middleware.Admission) { h.serveAndSettle(writer, request, own) },
	})
}

// serveAndSettle runs the handler, and settles when the status of the response is known. A handler that panics before it has
// written has the status 500, or 499 when its client has disconnected. What the request holds ends when the handler has returned or,
// if the handler has taken over the connection, when that is closed.
func (h *limitedHandler) serveAndSettle(writer http.ResponseWriter, request *http.Request, own *middleware.Admission) {
	inner := request.WithContext(own)
	recorder := &responseRecorder{ResponseWriter: writer, settle: func(status int) {
		h.limit.Settle(own, inner, status, writer.Header())
	}}
	var once sync.Once
	end := func(status int) {
		once.Do(func() {
			if own.Holds() {
				h.limit.End(own, inner, status, writer.Header())
			}
			own.Close()
		})
	}
	if own.Holds() {
		recorder.onClose, recorder.reader = end, own.Reader()
	}
	isServed := false
	defer func() {
		isGone, isBegun := middleware.IsGone(request), recorder.status != 0
		switch {
		case isServed:
			recorder.begin(http.StatusOK)
		case isGone:
			recorder.begin(middleware.ClientClosedRequest)
		default:
			recorder.begin(http.StatusInternalServerError)
		}
		switch {
		case isServed && recorder.isHijacked:
		case isBegun && isGone, isServed && !isGone, isServed && isBegun:
			end(recorder.status)
		default:
			// No response says what was spent.
			end(0)
		}
	}()
	h.next.ServeHTTP(recorder, inner)
	isServed = true
}
