package nethttp

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"

	"polylimit.dev/polylimit"
)

// admission is what one middleware decided about a request, and what the request has spent there, so that it can be given
// back: once, whatever the reasons. It is the context of the admitted request as well.
type admission struct {
	context.Context
	// What was decided further out.
	before  *admission
	options *Options
	key     string
	// The decisions of all policies of the middleware, and those that were asked for here: not what was spent further out.
	outcomes, asked []polylimit.Outcome
	requests        []polylimit.Request
	// The fields that were written for what was asked here.
	fields  []polylimit.HeaderField
	isGiven atomic.Bool

	// Most middlewares have one policy.
	oneOutcome, oneAsked [1]polylimit.Outcome
	oneRequest           [1]polylimit.Request
}

type admissionKey struct{}

// Value is this for those who look for it, and otherwise that of the context in it.
func (a *admission) Value(key any) any {
	if _, isIt := key.(admissionKey); isIt {
		return a
	}
	return a.Context.Value(key)
}

// admissionOf is what the nearest middleware further out has decided; nil when there is none.
func admissionOf(ctx context.Context) *admission {
	found, _ := ctx.Value(admissionKey{}).(*admission)
	return found
}

// spent is what the same policy has decided about the same key further out: it is charged once.
func (a *admission) spent(limiter *polylimit.Limiter, policy, key string) *polylimit.Outcome {
	for ; a != nil; a = a.before {
		if a.options.Limiter != limiter || a.key != key {
			continue
		}
		for at := range a.asked {
			if a.asked[at].Policy == policy {
				return &a.asked[at]
			}
		}
	}
	return nil
}

// writeFields adds to the lists that a middleware further out has begun.
func (a *admission) writeFields(header http.Header) error {
	if len(a.asked) == 0 {
		return nil
	}
	fields, err := a.options.Limiter.Headers(a.options.Headers, a.asked...)
	a.fields = fields
	for _, field := range fields {
		name := canonical(field.Name)
		if isList := name == "Ratelimit" || name == "Ratelimit-Policy"; isList {
			header[name] = append(header[name], field.Value)
		} else {
			header[name] = []string{field.Value}
		}
	}
	return err
}

// canonical is http.CanonicalHeaderKey without making the texts anew.
func canonical(name string) string {
	switch name {
	case "ratelimit-policy":
		return "Ratelimit-Policy"
	case "ratelimit":
		return "Ratelimit"
	case "retry-after":
		return "Retry-After"
	default:
		return http.CanonicalHeaderKey(name)
	}
}

// giveBack refunds this and all that was spent further out, and tells the client so.
func (a *admission) giveBack(ctx context.Context, header http.Header) {
	for ; a != nil; a = a.before {
		if a.refund(ctx) {
			a.rewriteFields(header)
		}
	}
}

// refund also works when the client has gone meanwhile. What cannot be given back stays counted. False when it was given back
// before.
func (a *admission) refund(ctx context.Context) bool {
	if a.isGiven.Swap(true) {
		return false
	}
	for at, asked := range a.requests {
		if usage, err := a.options.Limiter.Refund(context.WithoutCancel(ctx), asked); err == nil {
			a.asked[at].Decision = a.asked[at].Decision.After(usage)
		}
	}
	return true
}

// rewriteFields puts what is left now in place of what was left before, unless that was overwritten.
func (a *admission) rewriteFields(header http.Header) {
	if len(a.asked) == 0 {
		return
	}
	fields, err := a.options.Limiter.Headers(a.options.Headers, a.asked...)
	if err != nil || len(fields) != len(a.fields) {
		return
	}
	for at, field := range fields {
		values := header[canonical(field.Name)]
		if place := slices.Index(values, a.fields[at].Value); place >= 0 {
			values[place] = field.Value
		}
	}
	a.fields = fields
}
