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

// Options are the options of a middleware. Only Limiter is required.
type Options struct {
	// Limiter decides.
	Limiter *polylimit.Limiter
	// Policy is a policy of the limiter, or quotas as text. It is optional when the limiter has one policy.
	Policy string
	// Policies are several policies in place of Policy, without duplicates: all of them admit a request, or it spends nothing
	// under any.
	Policies []string
	// Scope is the budget of quotas without a name, such as "/login" (1 to 256 bytes): all middlewares with the same scope share
	// one. If it is empty, the scope is the route (http.Request.Pattern, if an http.ServeMux has set it); a middleware around a
	// whole server has none. A policy with a name has one budget in all scopes.
	Scope string
	// Key finds the key to limit: ClientAddress, Header, or a function of the request. If it is nil or returns an empty key, the
	// key is the client's address, and no proxy is trusted.
	Key func(*http.Request) (string, error)
	// Cost is the units that a request spends; nil means 1.
	Cost func(*http.Request) int64
	// Count returns whether a request counts, by the status and the header of its response. If not, its units are refunded before
	// the header is sent, so that the header fields include the refund. Nil counts every request.
	Count func(request *http.Request, status int, header http.Header) bool
	// Skip returns whether a request proceeds without a decision; nil skips none.
	Skip func(*http.Request) bool
	// OnDenied responds to a denied request. The default is 429 with a problem document, or with text for a client that prefers
	// it. The header fields are set already; the status is not, and net/http sends 200 unless the function writes another one.
	OnDenied func(http.ResponseWriter, *http.Request, Denial)
	// OnOutage responds to a request that was denied because the store is unavailable, or about which no decision could be made.
	// The default is 503, or 500 if the cause is not the store.
	OnOutage func(http.ResponseWriter, *http.Request, Denial)
	// OnError receives the error when no decision could be made: of Key, or of the limiter. The default logs it to slog.Default.
	// A client that has disconnected is not an error: its request gets the status 499, which the client does not see.
	OnError func(*http.Request, error)
	// Headers select the header fields of responses.
	Headers polylimit.HeaderSettings
}

// Denial is why a request does not proceed.
type Denial struct {
	// Decision is the first denial, if Err is nil.
	Decision polylimit.Decision
	// Outcomes are the decisions of all policies, each with its policy.
	Outcomes []polylimit.Outcome
	// Problem is the default response; nil if Err is not nil.
	Problem *polylimit.Problem
	// Err is the error when no decision could be made.
	Err error
}

// Header makes the value of a request's header field the key. Without the field it is the client's address.
func Header(name string) func(*http.Request) (string, error) {
	return func(request *http.Request) (string, error) { return request.Header.Get(name), nil }
}

// ClientAddress makes the client's address the key, found by rules for trusted proxies.
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

// peerOf is the address at the other end of a connection; for a Unix socket, which has none, this host.
func peerOf(remote string) string {
	if remote == "" || remote == "@" {
		return "127.0.0.1"
	}
	return remote
}

// check validates the options, and returns the middleware without a handler.
func (o *Options) check() (*limitedHandler, error) {
	if o.Limiter == nil {
		return nil, invalid("Options.Limiter is nil: allowed is one from polylimit.Open")
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
	// Rendering no outcomes checks the names in Headers.
	if _, err := o.Limiter.Headers(o.Headers); err != nil {
		return nil, err
	}
	address, err := ClientAddress(polylimit.AddressRules{})
	if err != nil {
		return nil, err
	}
	l := &limitedHandler{options: *o, address: address, policies: &policies{limiter: o.Limiter, given: o.Policies, scope: o.Scope}}
	_, err = l.policies.at("")
	return l, err
}

func invalid(message string) error {
	return &polylimit.Error{Kind: polylimit.ErrInvalidArgument, Message: message}
}
