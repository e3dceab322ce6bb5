// Package nethttp limits the requests of net/http servers.
//
//	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Policy: "api"})
//	...
//	http.Handle("/api/", limit(api))
package nethttp

import (
	"net/http"

	"polylimit.dev/polylimit"
)

// Options say what is limited, and how. Only Limiter is needed.
type Options struct {
	// Limiter decides.
	Limiter *polylimit.Limiter
	// Policy is a policy of the limiter, or quotas as text; it may be left out where the limiter has one policy.
	Policy string
	// Policies are several in place of Policy: all of them admit a request, or it spends nothing under any. None may be given
	// twice.
	Policies []string
	// Scope is where quotas without a name count, such as "/login" (1 to 256 bytes): all middlewares that name it share one
	// budget. Empty: on a route, that route (http.Request.Pattern, where an http.ServeMux has chosen it before); around a
	// whole server, none. A policy with a name is shared whatever the scope.
	Scope string
	// Key is whom to limit: ClientAddress, Header, or a function of the request. Nil is the client's address without
	// trusting any proxy; so it is for a request whose key is empty.
	Key func(*http.Request) (string, error)
	// Cost is the units that a request spends; nil is 1 for each.
	Cost func(*http.Request) int64
	// Count says which requests count, by the status and the header of their responses: the units of the others are refunded
	// before the header is sent, whose fields tell what is left then. Nil counts every request.
	Count func(request *http.Request, status int, header http.Header) bool
	// Skip says which requests are not limited at all; nil is none.
	Skip func(*http.Request) bool
	// OnDenied answers a denied request; nil answers 429 with a problem document, or with text to those who want that. The
	// header fields are set already; the status is not, and net/http takes 200 for one that is never written.
	OnDenied func(http.ResponseWriter, *http.Request, Denial)
	// OnOutage answers a request that was denied because the store could not be asked, or that could not be decided; nil
	// answers 503, or 500 where it is not the store's fault.
	OnOutage func(http.ResponseWriter, *http.Request, Denial)
	// OnError hears why a request could not be decided: an error of Key, or of the limiter. Nil logs it by slog.Default. A
	// client that went away meanwhile is no error: its request is answered with 499, which it does not see.
	OnError func(*http.Request, error)
	// Headers say which header fields responses get.
	Headers polylimit.HeaderSettings
}

// Denial is why a request does not proceed.
type Denial struct {
	// Decision is the first denial, where Err is nil.
	Decision polylimit.Decision
	// Outcomes are the decisions of all policies, each with its policy.
	Outcomes []polylimit.Outcome
	// Problem is what would be answered; nil where Err is not.
	Problem *polylimit.Problem
	// Err is why no decision could be made.
	Err error
}

// Header limits by a field of the request; requests without it count for their client's address.
func Header(name string) func(*http.Request) (string, error) {
	return func(request *http.Request) (string, error) { return request.Header.Get(name), nil }
}

// ClientAddress limits by the address of the client, which proxies in front of the server are trusted to say.
func ClientAddress(rules polylimit.AddressRules) (func(*http.Request) (string, error), error) {
	keys, err := rules.Keys()
	if err != nil {
		return nil, err
	}
	return func(request *http.Request) (string, error) {
		var lines []string
		if name := keys.Header(); name != "" {
			lines = request.Header.Values(name)
		}
		return keys.Key(peerOf(request.RemoteAddr), lines)
	}, nil
}

// peerOf is the other end of a connection. That of a Unix socket has no address, and is on this host.
func peerOf(remote string) string {
	if remote == "" || remote == "@" {
		return "127.0.0.1"
	}
	return remote
}

// check refuses what would limit nothing, or fail at each request, and gives the middleware without a handler.
func (o *Options) check() (*limited, error) {
	if o.Limiter == nil {
		return nil, invalid("Options.Limiter is nil: allowed is one that polylimit.Open gives")
	}
	if o.Policy != "" && len(o.Policies) > 0 {
		return nil, invalid("Options has both Policy and Policies: allowed is one of them")
	}
	if o.Policies == nil {
		o.Policies = []string{o.Policy}
	}
	if len(o.Policies) == 0 {
		return nil, invalid("policy is an empty list: allowed is a policy's name or quotas, or a list of at least one of them")
	}
	// Refuses names that are not known as soon as they are given.
	if _, err := o.Limiter.Headers(o.Headers); err != nil {
		return nil, err
	}
	address, err := ClientAddress(polylimit.AddressRules{})
	if err != nil {
		return nil, err
	}
	l := &limited{options: *o, address: address, policies: &policies{limiter: o.Limiter, given: o.Policies, scope: o.Scope}}
	_, err = l.policies.at("")
	return l, err
}

func invalid(message string) error {
	return &polylimit.Error{Kind: polylimit.ErrInvalidArgument, Message: message}
}
