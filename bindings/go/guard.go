package polylimit

/*
#cgo noescape polylimit_go_guard_start
#cgo nocallback polylimit_go_guard_start
#cgo noescape polylimit_go_guard_start_configured
#cgo nocallback polylimit_go_guard_start_configured
#include "shim.h"
*/
import "C"

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// GuardOptions are the options of a guard. The zero value limits every request under the limiter's only policy, by the client's
// address.
type GuardOptions struct {
	// Policies are names of policies, or quotas as text: all of them admit a request, or it spends nothing under any. It may be
	// nil when the limiter has one policy.
	Policies []string
	// ByConfiguration: the rules of the limiter's configuration say which policies, keys and costs a request has, by
	// RequestFacts.Attributes. Policies, key, cost and scope are not given then.
	ByConfiguration bool
	// PerRequest: each request gives its policies, and those of the guard are for a request that gives none.
	PerRequest bool
	// Scope is the budget of quotas without a name, 1 to 256 bytes; empty is none.
	Scope string
	// PerRoute: without a scope, quotas without a name have a budget for each route.
	PerRoute bool
	// KeyParts are the parts of the key: "address", "user", "header:NAME", "cookie:NAME", "path:NAME". They are empty where the
	// program itself finds the key.
	KeyParts []string
	// MissingKey is how a request without a key is counted: by its "address" (the default), "share" (together with all others),
	// or "refuse" (it is answered by 400).
	MissingKey string
	// Cost is the units that each request spends; 0 is the default, 1.
	Cost int64
	// Costs are the units that each request spends under some of Policies, in place of Cost: by the policy as it is in that list. A cost
	// that its policy can never admit is refused. A request has no policies of its own then.
	Costs map[string]int64
	// Methods are the only methods that are limited, in any case; nil limits all. GET has HEAD, too.
	Methods []string
	// SeparateHead: HEAD is separate from GET: a limit on GET does not have it, and a route whose name begins with it has a budget of
	// its own.
	SeparateHead bool
	// CountPreflights: preflights count; see Guard.AppliesTo.
	CountPreflights bool
	// CORSOrigins are the origins whose pages may read denials, such as "https://app.example", or only "*" for all; see
	// Guard.CORSFields.
	CORSOrigins []string
	// Headers select the header fields of responses, as in Limiter.Headers.
	Headers string
	// Status and Message are the response to a request over its limit: 400 to 599, and the sentence in its body. The zero values
	// are the defaults, 429 and a sentence with the wait.
	Status  int
	Message string
	// DryRun: the guard decides, spends and reports, and never denies.
	DryRun bool
	// Reserved: requests are reserved under every policy until GuardCheck.End says what was spent, and not only under those with a
	// quota that counts reservations.
	Reserved bool
	// ReservedPolicies are those of Policies to which the same applies without Reserved. A request has no policies of its own then.
	ReservedPolicies []string
	// SpentBy is what a request has spent, as its response reports it, such as "usage:total", "header:x-tokens", "json:usage.total_tokens"
	// or "3*usage:input + 15*usage:output". Requests are then reserved as with Reserved, and the response is passed to GuardCheck.ReadHead
	// and GuardCheck.ReadBody. A response that reports nothing has spent the cost. Empty is none.
	SpentBy string
	// SpentByEach is the same under some of Policies: by the policy as it is in that list. A request has no policies of its own then.
	SpentByEach map[string]string
	// TTL and MaxAge are as in ReserveTTL and ReserveMaxAge, for the reservations of requests; 0 is the default, and a negative MaxAge
	// never renews.
	TTL, MaxAge time.Duration
	// Wait is how long Check may hold a request that would be denied, up to a minute: until it would be admitted, if that is in time, and
	// then it is decided again. 0 holds none. A leaky bucket holds a request until its turn. When its context is cancelled, the request is
	// not decided any more and has spent nothing; at the context's deadline it is denied.
	Wait time.Duration
	// MaxWaiting is how many requests may be held at the same time, 1 to 1,000,000; 0 is the default, 100. A further one is denied at once.
	MaxWaiting int
}

// Guard is what a limit does with an HTTP request, without a web framework. Any goroutine may use it at any time.
type Guard struct {
	guard     *C.polylimit_guard
	limiter   *Limiter
	addresses *AddressKeys
	keyParts  []string
	// The policies of a request that has none of its own, as they were given.
	policies []string
	// Whether all methods are limited, except perhaps OPTIONS.
	isLimited bool
	// Whether there are origins whose pages may read denials.
	hasOrigins bool
	// Whether it decides by the configuration.
	isConfigured bool
}

// RequestFacts are what a middleware knows about a request.
type RequestFacts struct {
	// Key is the key of the request; empty when it has none, and when the guard has key parts.
	Key string
	// KeyValues has the value of each key part of the guard; an empty one is missing. That of an address is not read.
	KeyValues []string
	// Peer is the address at the other end of the connection, and ForwardingLines are the lines of the header that
	// Guard.AddressHeader names. They are read for the key part "address", and for a request without a key.
	Peer            string
	ForwardingLines []string
	// Cost is the units that the request spends, if HasCost; otherwise the guard's.
	Cost    int64
	HasCost bool
	// Costs are the units that the request spends under some of its policies, in place of Cost and of the guard's: by the policy as it is
	// in Policies, here or of the guard.
	Costs map[string]int64
	// Route is the name of the route, the same in every process, such as "GET /users/{id}"; empty for none.
	Route string
	// Policies are those of this request in place of the guard's; nil for the guard's, and otherwise the request is not limited
	// when there are none. They must come from the program and never from its users.
	Policies []string
	// Attributes are what a guard by configuration decides by; nothing else is read then.
	Attributes RequestAttributes
}

// OutageAction is what a program says about a decision that was made without the store.
type OutageAction uint32

const (
	// LeaveOutage leaves the decision to the outage policy; a store that could not decide is answered by 503.
	LeaveOutage = OutageAction(C.POLYLIMIT_OUTAGE_LEAVE)
	// AdmitOutage admits the request, unless the store itself has denied it.
	AdmitOutage = OutageAction(C.POLYLIMIT_OUTAGE_ADMIT)
	// DenyOutage denies the request.
	DenyOutage = OutageAction(C.POLYLIMIT_OUTAGE_DENY)
)

// Outage is a decision that was made without the store, or a store that could not decide.
type Outage struct {
	// Err is the store's error; nil when the outage policy has decided.
	Err error
	// Outcomes are the decisions of the guard's policies, if Err is nil.
	Outcomes []Outcome
}

// NewGuard makes a guard. The rules find the address of a client; the zero value trusts no proxy.
func (l *Limiter) NewGuard(options GuardOptions, rules AddressRules) (*Guard, error) {
	if options.Policies != nil && len(options.Policies) == 0 {
		return nil, invalid("policy is an empty list: allowed is a policy's name or quotas, or a list of at least one of them")
	}
	if err := checkDuration("TTL", options.TTL); err != nil {
		return nil, err
	}
	if err := checkDuration("Wait", options.Wait); err != nil {
		return nil, err
	}
	addresses, err := rules.Keys()
	if err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	plain, err := cOptions(options.settings())
	defer freeOptions(plain)
	if err != nil {
		return nil, err
	}
	array := optionArray(plain)
	defer C.free(unsafe.Pointer(array))
	guard := &Guard{
		limiter: l, addresses: addresses, keyParts: options.KeyParts, policies: slices.Clone(options.Policies), isLimited: len(options.Methods) == 0,
		isConfigured: options.ByConfiguration, hasOrigins: len(options.CORSOrigins) > 0,
	}
	var failure message
	status := C.polylimit_guard_new(l.limiter, array, C.size_t(len(plain)), &guard.guard, &failure[0], C.size_t(len(failure)))
	if err := failure.err(status); err != nil {
		return nil, err
	}
	runtime.AddCleanup(guard, func(guard *C.polylimit_guard) { C.polylimit_guard_free(guard) }, guard.guard)
	return guard, nil
}

func (o *GuardOptions) settings() []Option {
	var settings []Option
	add := func(name string, values ...string) {
		for _, value := range values {
			settings = append(settings, Option{name: name, value: value})
		}
	}
	given := func(name, value string) {
		if value != "" {
			add(name, value)
		}
	}
	add("policy", o.Policies...)
	add("by_configuration", strconv.FormatBool(o.ByConfiguration))
	add("per_request", strconv.FormatBool(o.PerRequest))
	given("scope", o.Scope)
	add("per_route", strconv.FormatBool(o.PerRoute))
	add("key_part", o.KeyParts...)
	given("missing_key", o.MissingKey)
	if o.Cost != 0 {
		add("cost", strconv.FormatInt(o.Cost, 10))
	}
	for policy, cost := range o.Costs {
		add("cost."+policy, strconv.FormatInt(cost, 10))
	}
	add("method", o.Methods...)
	add("separate_head", strconv.FormatBool(o.SeparateHead))
	add("count_preflights", strconv.FormatBool(o.CountPreflights))
	add("cors_origin", o.CORSOrigins...)
	given("headers", o.Headers)
	if o.Status != 0 {
		add("status", strconv.Itoa(o.Status))
	}
	given("message", o.Message)
	add("dry_run", strconv.FormatBool(o.DryRun))
	add("reserved", strconv.FormatBool(o.Reserved))
	for _, policy := range o.ReservedPolicies {
		add("reserved."+policy, "true")
	}
	given("spent", o.SpentBy)
	for policy, meter := range o.SpentByEach {
		add("spent."+policy, meter)
	}
	if o.TTL != 0 {
		add("ttl_us", strconv.FormatUint(microseconds(o.TTL), 10))
	}
	if o.MaxAge != 0 {
		add("max_age_us", strconv.FormatUint(microseconds(o.MaxAge), 10))
	}
	if o.Wait != 0 {
		add("wait_us", strconv.FormatUint(microseconds(o.Wait), 10))
	}
	if o.MaxWaiting != 0 {
		add("max_waiting", strconv.Itoa(o.MaxWaiting))
	}
	return settings
}

// AppliesTo is whether a request with this method is limited. A limit on GET has HEAD, too, unless SeparateHead says otherwise.
//
// The requested method is the field Access-Control-Request-Method of a request that has an Origin, too, otherwise empty. With the method
// OPTIONS it is a preflight, by which a browser asks whether a page may send a request: it is not limited, unless CountPreflights says
// otherwise or OPTIONS is one of the methods. A limit that is attached to a handler gives none, because an OPTIONS request that
// gets there runs the handler.
func (g *Guard) AppliesTo(method, requested string) bool {
	if g.isLimited && method != "OPTIONS" {
		return true
	}
	defer runtime.KeepAlive(g)
	text, asked := foreignText(method), foreignText(requested)
	defer free(text)
	defer free(asked)
	return C.polylimit_guard_applies_to(g.guard, text, asked) != 0
}

// CORSFields are the fields by which a page of this origin may read a denial: none for an origin that is not one of CORSOrigins. The
// origin is the field Origin of the request. A middleware adds them to a denial without Access-Control-Allow-Origin.
func (g *Guard) CORSFields(origin string) ([]HeaderField, error) {
	if !g.hasOrigins || origin == "" {
		return nil, nil
	}
	defer runtime.KeepAlive(g)
	from := foreignText(origin)
	defer free(from)
	text, err := rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_guard_cors_fields(g.guard, from, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
	return headerFields(text), err
}

// AddressHeader is the name of the header field whose lines RequestFacts.ForwardingLines has; empty when none is read.
func (g *Guard) AddressHeader() string { return g.addresses.header }

// needsAddress is whether the client's address may be the key of a request, or a part of it.
func (g *Guard) needsAddress(facts *RequestFacts) bool {
	if len(g.keyParts) == 0 {
		return facts.Key == ""
	}
	for at, part := range g.keyParts {
		if part == "address" || at >= len(facts.KeyValues) || facts.KeyValues[at] == "" {
			return true
		}
	}
	return false
}

// start starts the check, and concludes it if the store decides at once. POLYLIMIT_PENDING: the stage says what is next.
func (g *Guard) start(check *GuardCheck, own *guardCall, earlier *GuardCheck, facts *RequestFacts) (C.polylimit_status, error) {
	defer runtime.KeepAlive(g)
	if g.isConfigured {
		return g.startConfigured(check, own, earlier, &facts.Attributes), nil
	}
	if hasNUL(facts.Route) {
		return 0, invalid("route contains a NUL")
	}
	var address string
	rules, peer, line, lines := g.addresses.rules, facts.Peer, "", len(facts.ForwardingLines)
	switch {
	case !g.needsAddress(facts):
		rules = nil
	case lines > 1 || hasNUL(peer) || len(peer) >= C.POLYLIMIT_GO_SHORT:
		var err error
		if address, err = g.addresses.Key(peer, facts.ForwardingLines); err != nil {
			return 0, err
		}
		rules, peer, lines = nil, address, 0
	case lines == 1:
		line = facts.ForwardingLines[0]
	}
	if rules == nil && address == "" {
		peer = ""
	}
	values, valueSizes := packed(facts.KeyValues)
	policies, policySizes := packed(facts.Policies)
	if facts.Policies != nil && hasNUL(facts.Policies...) {
		return 0, invalid("a policy contains a NUL")
	}
	var known *C.polylimit_guard_check
	if earlier != nil {
		earlier.mutex.Lock()
		defer earlier.mutex.Unlock()
		known = earlier.check
	}
	hasCost, hasPolicies := C.uint32_t(0), C.uint32_t(0)
	if facts.HasCost {
		if facts.Cost < 0 {
			return 0, negativeCost(facts.Cost)
		}
		hasCost = 1
	}
	if facts.Policies != nil {
		hasPolicies = 1
	}
	costs, err := g.costsOf(facts)
	if err != nil {
		return 0, err
	}
	status := C.polylimit_go_guard_start(&own.plain, g.guard, known, rules, textStart(peer), C.size_t(len(peer)),
		textStart(line), C.size_t(len(line)), C.size_t(lines), textStart(facts.Key), C.size_t(len(facts.Key)),
		textStart(values), unsafe.SliceData(valueSizes), C.size_t(len(valueSizes)), hasCost, C.uint64_t(facts.Cost),
		unsafe.SliceData(costs), C.size_t(len(costs)), textStart(facts.Route), C.size_t(len(facts.Route)), hasPolicies, textStart(policies),
		unsafe.SliceData(policySizes), C.size_t(len(policySizes)), &own.failure[0], C.size_t(len(own.failure)))
	check.check = own.plain.check
	return status, nil
}

// startConfigured starts the check of a guard that decides by the configuration; see start.
func (g *Guard) startConfigured(check *GuardCheck, own *guardCall, earlier *GuardCheck, request *RequestAttributes) C.polylimit_status {
	var known *C.polylimit_guard_check
	if earlier != nil {
		earlier.mutex.Lock()
		defer earlier.mutex.Unlock()
		known = earlier.check
	}
	plain := request.plain()
	status := C.polylimit_go_guard_start_configured(&own.plain, g.guard, known, textStart(plain.texts.String()),
		&plain.lengths[0], plain.headers, plain.attributes, &own.failure[0], C.size_t(len(own.failure)))
	check.check = own.plain.check
	return status
}

// costsOf are the costs of a request under each of its policies; nil where it has none.
func (g *Guard) costsOf(facts *RequestFacts) ([]C.uint64_t, error) {
	if len(facts.Costs) == 0 {
		return nil, nil
	}
	for _, cost := range facts.Costs {
		if cost < 0 {
			return nil, negativeCost(cost)
		}
	}
	policies := g.policiesOf(facts)
	return byPosition("RequestFacts.Costs", policies, facts.Costs, C.POLYLIMIT_GUARD_COST)
}

// policiesOf are the policies of a request, as they were given.
func (g *Guard) policiesOf(facts *RequestFacts) []string {
	if facts.Policies != nil {
		return facts.Policies
	}
	return g.policies
}

// byPosition are the units of each policy, and absent for one that has none. Negative ones are refused by the core, as those above the
// range are.
func byPosition(name string, policies []string, given map[string]int64, absent C.uint64_t) ([]C.uint64_t, error) {
	units, found := make([]C.uint64_t, len(policies)), 0
	for at, policy := range policies {
		units[at] = absent
		one, isGiven := given[policy]
		if !isGiven {
			continue
		}
		found++
		if units[at] = C.uint64_t(one); one < 0 {
			units[at] = math.MaxInt64
		}
	}
	if found == len(given) {
		return units, nil
	}
	unknown := slices.Sorted(maps.Keys(given))
	unknown = slices.DeleteFunc(unknown, func(policy string) bool { return slices.Contains(policies, policy) })
	return nil, invalid(name + " has " + strconv.Quote(unknown[0]) + ", which is no policy of the request: allowed are " + quotedList(policies))
}

// quotedList is a list of names for a message.
func quotedList(names []string) string {
	if len(names) == 0 {
		return "none, because the guard has no list of policies"
	}
	quoted := make([]string, len(names))
	for at, name := range names {
		quoted[at] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

// packed joins texts into one, with the length of each.
func packed(texts []string) (string, []C.size_t) {
	if len(texts) == 0 {
		return "", nil
	}
	sizes := make([]C.size_t, len(texts))
	for at, text := range texts {
		sizes[at] = C.size_t(len(text))
	}
	return strings.Join(texts, ""), sizes
}
