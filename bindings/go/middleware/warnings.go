package middleware

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"polylimit.dev/polylimit"
)

// warnings are what a limit logs once, to slog.Default: requests count otherwise than the program may expect.
type warnings struct {
	sharing atomic.Bool
	// The policies that are known to have a name.
	named sync.Map
	// By key part: whether a request had it, or its absence was logged.
	parts sync.Map
}

// shared warns when quotas without a name decide about a request without a route. Own are the policies of that request, or nil.
func (w *warnings) shared(ctx context.Context, limiter *polylimit.Limiter, policies, own []string) {
	if w.sharing.Load() {
		return
	}
	if own != nil {
		policies = own
	}
	for _, policy := range policies {
		if w.isNamed(limiter, policy) || w.sharing.Swap(true) {
			continue
		}
		slog.WarnContext(ctx, "a limit knows no route, so its quotas without a name have one budget for all of its handlers: "+
			"set Options.Scope to the name of that budget, or Options.Route where the router does not set http.Request.Pattern",
			"quotas", policy)
	}
}

func (w *warnings) isNamed(limiter *polylimit.Limiter, policy string) bool {
	if _, isKnown := w.named.Load(policy); isKnown {
		return true
	}
	// Quotas as text have another name, such as "5|minute" for "5/minute".
	if name, err := limiter.PolicyFor(policy, ""); err != nil || name != policy {
		return false
	}
	w.named.Store(policy, nil)
	return true
}

// keyPart warns about a parameter of the route that no request has had so far.
func (w *warnings) keyPart(ctx context.Context, part KeyPart, value, route string) {
	if !strings.HasPrefix(string(part), "path:") {
		return
	}
	if value != "" {
		w.parts.LoadOrStore(part, nil)
		return
	}
	if _, isKnown := w.parts.LoadOrStore(part, nil); !isKnown {
		slog.WarnContext(ctx, "a key part is missing, and Options.MissingKey says how such requests count: the route has no parameter "+
			"of this name, or the router does not set http.Request.PathValue and Options.PathValue is needed",
			"part", string(part), "route", route)
	}
}
