// Package middleware is what the middlewares of all Go frameworks share: the options, the facts of a request that a guard needs, the
// admission of a request, and the header fields of its response. A middleware for a framework on net/http is built with New; package
// nethttp is the shortest one.
package middleware

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"polylimit.dev/polylimit"
)

// Options are the options of a limit. Only Limiter is required. R is the framework's request, and D is the function that responds to
// a request that does not proceed.
type Options[R, D any] struct {
	// Limiter decides.
	Limiter *polylimit.Limiter
	// Policy is a policy of the limiter, or quotas as text. It is optional when the limiter has one policy. A limiter with a
	// configuration (polylimit.WithConfiguration, polylimit.WithDocument) decides by that, where none of Policy, Policies and PolicyFunc
	// is given: by the method, path, peer and headers of a request, and by Attributes.
	Policy string
	// Policies are several policies in place of Policy, without duplicates: all of them admit a request, or it spends nothing
	// under any.
	Policies []string
	// PolicyFunc returns the policies of a request, in place of Policy and Policies: names, or quotas as text, which must not come
	// from clients because the limiter keeps each of them. A request for which it returns none is not limited.
	PolicyFunc func(R) ([]string, error)
	// Attributes returns what the program knows of a request, such as "plan" or "country", for the rules of a configuration. "user" is
	// what User returns. Nil knows nothing else.
	Attributes func(R) map[string]string
	// Scope is the budget of quotas without a name, such as "/login" (1 to 256 bytes): all middlewares with the same scope share
	// one. If it is empty, the scope is the route, where the framework knows it; a middleware around a whole server has none. A
	// policy with a name has one budget in all scopes.
	Scope string
	// Route returns the route that the router has matched, such as "/users/{id}"; empty for none. It names the budget of quotas without
	// a name and without Scope, and is the attribute "route" for the rules of a configuration. Nil is what the framework itself
	// knows: http.Request.Pattern. Routers that keep the route elsewhere need it; the README has a line for each. It must never
	// return what a client chooses, such as the path of the request: each path would be a budget of its own.
	Route func(R) string
	// PathValue returns a parameter of the route, for the key part Path; empty for none. Nil is what the framework itself knows:
	// http.Request.PathValue.
	PathValue func(request R, name string) string
	// Key finds the key to limit. Without Key and KeyParts the key is the client's address.
	Key func(R) (string, error)
	// KeyParts are the parts of the key in place of Key: Address, User, Header, Cookie, Path. Several are joined.
	KeyParts []KeyPart
	// User returns the authenticated user for the key part User, and for the attribute "user"; empty when there is none.
	User func(R) string
	// MissingKey is how a request is counted for which Key returns an empty key, or which lacks one of KeyParts: by its "address"
	// (the default), "share" (together with all others without a key), or "refuse" (it is not counted and answered by 400).
	MissingKey string
	// Address are the rules that find a client's address. The zero value trusts no proxy.
	Address polylimit.AddressRules
	// FixedCost is the units that each request spends; 0 is the default, 1.
	FixedCost int64
	// Cost is the units that a request spends, in place of FixedCost.
	Cost func(R) int64
	// Charges are the policies of Policies, or Policy, that have a cost or a Spent of their own: by the policy as it is there. So one limit
	// counts the tokens of a request under one policy and the request itself under another. It cannot be combined with PolicyFunc.
	Charges map[string]PolicyCharge[R]
	// Count returns whether a request counts, by the status and the header of its response. If not, its units are refunded before
	// the header is sent, so that the header fields include the refund. Nil counts every request.
	Count func(request R, status int, header http.Header) bool
	// Spent returns the units that a request has spent, by the status and the header of its response, when the response is done; false
	// where it does not know, and then the cost was spent. With it, the cost is reserved until then under every policy, and without it
	// only under policies with a quota that counts reservations, such as "20 concurrent". It is not called for a response without a
	// header: the handler has panicked, or its client has gone.
	Spent func(request R, status int, header http.Header) (units int64, isKnown bool)
	// SpentBy is the same as the response reports it, in place of Spent: "usage:total" for the tokens of OpenAI's and Anthropic's usage,
	// "header:x-tokens", "json:usage.total_tokens", or a sum such as "3*usage:input + 15*usage:output". The body is read as it passes, and
	// is not kept. A response that reports nothing has spent the cost.
	SpentBy string
	// TTL is how long the reservation of a request lasts after its last renewal, 1 ms to 48 h: so long its units stay set aside after
	// this process died. MaxAge is how long it is renewed; a negative one never renews it. 0 is
	// the default, 30 s and an hour.
	TTL, MaxAge time.Duration
	// Wait is how long a request that would be denied may be held, up to a minute: until it would be admitted, if that is in time, and then
	// it is decided again. 0 holds none. A leaky bucket holds a request until its turn. A request whose
	// context is cancelled meanwhile, because its client has left, has spent nothing.
	Wait time.Duration
	// MaxWaiting is how many requests may be held at the same time, 1 to 1,000,000; 0 is the default, 100. A further one is denied at once.
	MaxWaiting int
	// Skip returns whether a request proceeds without a decision; nil skips none.
	Skip func(R) bool
	// Methods are the only methods that are limited, such as "POST", in any case; nil limits all. GET has HEAD, too.
	Methods []string
	// SeparateHead: HEAD is separate from GET, so that a limit on GET does not have it.
	SeparateHead bool
	// CountPreflights: a limit in front of routing counts preflights, by which browsers ask whether a page may send a request. A limit on
	// a route counts each request that gets there.
	CountPreflights bool
	// CORSOrigins are the origins whose pages may read denials, such as "https://app.example", or only "*" for all. A service whose CORS
	// middleware is outside of the limit needs none.
	CORSOrigins []string
	// DryRun: requests are decided, spend and are reported, and none is denied.
	DryRun bool
	// Status is the status of a request over its limit: 400 to 599; 0 is the default, 429.
	Status int
	// Message is the sentence in the body of a request over its limit; empty is the default, which has the wait.
	Message string
	// OnDenied responds to every request that does not proceed: over its limit, in an outage, or without a key. The default is
	// Denial.Respond. The header fields of the limits are set already; the status is not, and net/http sends 200 unless the
	// function writes another one.
	OnDenied D
	// OnOutage is called for every decision that was made without the store, and when the store could not decide. It may admit or deny
	// the request (polylimit.AdmitOutage, polylimit.DenyOutage) or leave it to the outage policy (polylimit.LeaveOutage). A store that
	// could not decide is otherwise answered by 503.
	OnOutage func(R, polylimit.Outage) polylimit.OutageAction
	// OnError receives the error when no decision could be made: of Key, of PolicyFunc, of the limiter, or of the store. The
	// default logs it to slog.Default. An error that is not the store's is answered by 500. A client that has disconnected is
	// not an error: its request gets the status 499, which the client does not see.
	OnError func(R, error)
	// Headers select the header fields of responses, as in polylimit.Limiter.Headers.
	Headers string
}

// PolicyCharge is what a policy of a list has for itself; what is not set is that of Options.
type PolicyCharge[R any] struct {
	// FixedCost is the units that each request spends under the policy, in place of Options.Cost and Options.FixedCost; 0 is those. One
	// that the policy can never admit is refused.
	FixedCost int64
	// Cost is the units that a request spends under the policy, in place of FixedCost: 0 to 10^12.
	Cost func(R) int64
	// Spent is Options.Spent for this policy: the cost is reserved under it until the response is done.
	Spent func(request R, status int, header http.Header) (units int64, isKnown bool)
	// SpentBy is Options.SpentBy for this policy.
	SpentBy string
}

// KeyPart is a part of the key of a request.
type KeyPart string

// Address is the client's address as a part of the key.
func Address() KeyPart { return "address" }

// User is the authenticated user as a part of the key; Options.User finds it.
func User() KeyPart { return "user" }

// Header is the value of a request's header field as a part of the key.
func Header(name string) KeyPart { return KeyPart("header:" + name) }

// Cookie is the value of a cookie as a part of the key.
func Cookie(name string) KeyPart { return KeyPart("cookie:" + name) }

// Path is the value of a parameter of the route as a part of the key, such as "tenant" in "/tenants/{tenant}".
func Path(name string) KeyPart { return KeyPart("path:" + name) }

// guard makes the guard of these options.
func (o *Options[R, D]) guard() (*polylimit.Guard, error) {
	if o.Limiter == nil {
		return nil, invalid("Options.Limiter is nil: allowed is one from polylimit.Open")
	}
	if o.Policy != "" && len(o.Policies) > 0 {
		return nil, invalid("Options has both Policy and Policies: allowed is one of them")
	}
	if o.Key != nil && len(o.KeyParts) > 0 {
		return nil, invalid("Options has both Key and KeyParts: allowed is one of them")
	}
	var parts []string
	for _, part := range o.KeyParts {
		if part == User() && o.User == nil {
			return nil, invalid("KeyParts has the user: Options.User is needed, which finds it")
		}
		parts = append(parts, string(part))
	}
	if o.isConfigured() && (o.Key != nil || len(parts) > 0 || o.Cost != nil || o.FixedCost != 0 || o.Charges != nil || o.Scope != "") {
		return nil, invalid("Options has no policy, so the limiter's configuration decides: allowed are neither key, cost nor scope")
	}
	costs, reserved, meters, err := o.charges()
	if err != nil {
		return nil, err
	}
	return o.Limiter.NewGuard(polylimit.GuardOptions{
		ByConfiguration: o.isConfigured(),
		Policies:        o.policies(), PerRequest: o.PolicyFunc != nil, Scope: o.Scope, PerRoute: true, KeyParts: parts,
		MissingKey: o.MissingKey, Cost: o.FixedCost, Costs: costs, ReservedPolicies: reserved, Methods: o.Methods, SeparateHead: o.SeparateHead,
		CountPreflights: o.CountPreflights, CORSOrigins: o.CORSOrigins, Headers: o.Headers, Status: o.Status,
		Message: o.Message, DryRun: o.DryRun, Reserved: o.Spent != nil, SpentBy: o.SpentBy, SpentByEach: meters, TTL: o.TTL, MaxAge: o.MaxAge,
		Wait: o.Wait, MaxWaiting: o.MaxWaiting,
	}, o.Address)
}

// charges are the fixed costs of Charges, the policies that have a Spent, and what SpentBy is for each policy.
func (o *Options[R, D]) charges() (costs map[string]int64, reserved []string, meters map[string]string, err error) {
	if len(o.Charges) > 0 && o.PolicyFunc != nil {
		return nil, nil, nil, invalid("Options has both Charges and PolicyFunc: allowed is one of them")
	}
	if o.Spent != nil && o.SpentBy != "" {
		return nil, nil, nil, invalid("Options has both Spent and SpentBy: allowed is one of them")
	}
	costs, meters = map[string]int64{}, map[string]string{}
	for _, policy := range slices.Sorted(maps.Keys(o.Charges)) {
		charge := o.Charges[policy]
		if !slices.Contains(o.policies(), policy) {
			return nil, nil, nil, invalid(notOneOf(policy, o.policies()))
		}
		if charge.FixedCost != 0 {
			costs[policy] = charge.FixedCost
		}
		switch {
		case charge.Spent != nil && charge.SpentBy != "":
			return nil, nil, nil, invalid(fmt.Sprintf("Options.Charges has both Spent and SpentBy for %q: allowed is one of them", policy))
		case charge.Spent != nil:
			reserved = append(reserved, policy)
		case charge.SpentBy != "":
			meters[policy] = charge.SpentBy
		}
	}
	if o.SpentBy == "" || len(o.Charges) == 0 {
		return costs, reserved, meters, nil
	}
	for _, policy := range o.policies() {
		if charge := o.Charges[policy]; charge.Spent == nil && charge.SpentBy == "" {
			meters[policy] = o.SpentBy
		}
	}
	return costs, reserved, meters, nil
}

func notOneOf(policy string, policies []string) string {
	message := fmt.Sprintf("Options.Charges has %q, which is no policy of Options.Policies: ", policy)
	if len(policies) == 0 {
		return message + "name the policies of the limit there"
	}
	allowed := make([]string, len(policies))
	for at, one := range policies {
		allowed[at] = strconv.Quote(one)
	}
	return message + "allowed are " + strings.Join(allowed, ", ")
}

// policies are Policy, or Policies.
func (o *Options[R, D]) policies() []string {
	if o.Policy != "" {
		return []string{o.Policy}
	}
	return o.Policies
}

// isConfigured is whether the configuration of the limiter decides.
func (o *Options[R, D]) isConfigured() bool {
	_, isConfigured := o.Limiter.Admin().Configuration()
	return isConfigured && o.Policy == "" && o.Policies == nil && o.PolicyFunc == nil
}

func invalid(message string) error {
	return &polylimit.Error{Kind: polylimit.ErrInvalidArgument, Message: message}
}
