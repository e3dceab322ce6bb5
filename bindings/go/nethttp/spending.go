package nethttp

import (
	"context"
	"net/http"
	"sync/atomic"

	"polylimit.dev/polylimit"
)

// spending is what a request has spent in one middleware, so that it can be given back: once, whatever the reasons.
type spending struct {
	limiter  *polylimit.Limiter
	requests []polylimit.Request
	// What was spent further out.
	before  *spending
	isGiven atomic.Bool
}

type spendingKey struct{}

// spentBefore is what a request has spent further out; nil when that is nothing.
func spentBefore(request *http.Request) *spending {
	spent, _ := request.Context().Value(spendingKey{}).(*spending)
	return spent
}

func (s *spending) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, spendingKey{}, s)
}

// giveBack refunds this and all that was spent further out.
func (s *spending) giveBack(request *http.Request) {
	for ; s != nil; s = s.before {
		s.refund(request)
	}
}

// refund also works when the client has gone meanwhile. One that fails leaves the request counted.
func (s *spending) refund(request *http.Request) {
	if s.isGiven.Swap(true) {
		return
	}
	for _, asked := range s.requests {
		_, _ = s.limiter.Refund(context.WithoutCancel(request.Context()), asked)
	}
}
