package nethttp

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"

	"polylimit.dev/polylimit"
)

// admission is the decision of one middleware about a request, and what the request has spent there, so that it can be refunded
// once. It is also the context of the admitted request.
type admission struct {
	context.Context
	// The admission of the next outer middleware.
	outer   *admission
	options *Options
	key     string
	// The decisions of all policies, and those that this middleware has made. The others were made by an outer one.
	outcomes, own []polylimit.Outcome
	requests      []polylimit.Request
	// The header fields that were written for its own decisions.
	fields     []polylimit.HeaderField
	isRefunded atomic.Bool

	// Most middlewares have one policy.
	oneOutcome, oneOwn [1]polylimit.Outcome
	oneRequest         [1]polylimit.Request
}

type admissionKey struct{}

// Value returns the admission for its key, and otherwise the value of the wrapped context.
func (a *admission) Value(key any) any {
	if _, isIt := key.(admissionKey); isIt {
		return a
	}
	return a.Context.Value(key)
}

// admissionOf is the admission of the innermost middleware so far; nil when there is none.
func admissionOf(ctx context.Context) *admission {
	found, _ := ctx.Value(admissionKey{}).(*admission)
	return found
}

// spent finds the decision of this middleware or an outer one under the same policy for the same key, which is charged once.
func (a *admission) spent(limiter *polylimit.Limiter, policy, key string) *polylimit.Outcome {
	for ; a != nil; a = a.outer {
		if a.options.Limiter != limiter || a.key != key {
			continue
		}
		for at := range a.own {
			if a.own[at].Policy == policy {
				return &a.own[at]
			}
		}
	}
	return nil
}

// writeFields writes the header fields. Lists that an outer middleware has begun are extended.
func (a *admission) writeFields(header http.Header) error {
	if len(a.own) == 0 {
		return nil
	}
	fields, err := a.options.Limiter.Headers(a.options.Headers, a.own...)
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

// canonical is http.CanonicalHeaderKey without an allocation for the names of polylimit.
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

// refundAll refunds this and all outer admissions, and updates the header fields.
func (a *admission) refundAll(ctx context.Context, header http.Header) {
	for ; a != nil; a = a.outer {
		if a.refund(ctx) {
			a.rewriteFields(header)
		}
	}
}

// refund refunds the units of this middleware, also after the client has disconnected. Units whose refund fails stay spent.
// False when they were refunded before.
func (a *admission) refund(ctx context.Context) bool {
	if a.isRefunded.Swap(true) {
		return false
	}
	for at, request := range a.requests {
		if usage, err := a.options.Limiter.Refund(context.WithoutCancel(ctx), request); err == nil {
			a.own[at].Decision = a.own[at].Decision.After(usage)
		}
	}
	return true
}

// rewriteFields updates the header fields after a refund, unless a handler has overwritten them.
func (a *admission) rewriteFields(header http.Header) {
	if len(a.own) == 0 {
		return
	}
	fields, err := a.options.Limiter.Headers(a.options.Headers, a.own...)
	if err != nil || len(fields) != len(a.fields) {
		return
	}
	for at, field := range fields {
		values := header[canonical(field.Name)]
		if index := slices.Index(values, a.fields[at].Value); index >= 0 {
			values[index] = field.Value
		}
	}
	a.fields = fields
}
