package middleware

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strings"

	"polylimit.dev/polylimit"
)

// Framework says how the requests of a framework are read.
type Framework[R any] struct {
	// HTTP is a request as net/http has it.
	HTTP func(R) *http.Request
	// Route is the name of the matched route, the same in every process; empty for none. Nothing that a client chooses may be in it.
	Route func(R) string
	// RoutePath is the attribute "route" of a request whose Route is known; see RoutePattern, which stands in for nil.
	RoutePath func(R) string
	// RouterPaths is how the router reads paths; nil where it compares them byte by byte.
	RouterPaths func(R) polylimit.RouterPaths
	// PathValue is a parameter of the route; empty when the route has no such parameter.
	PathValue func(request R, name string) string
}

// Limit decides about the requests of a framework. Any goroutine may use it at any time.
type Limit[R, D any] struct {
	options   Options[R, D]
	framework Framework[R]
	guard     *polylimit.Guard
	// Whether the configuration of the limiter decides.
	isConfigured bool
	warnings     warnings
}

// New makes a limit. It fails with ErrInvalidArgument for an invalid option: a policy that the limiter does not know, quotas that
// cannot be read, or no policy although the limiter does not have exactly one.
func New[R, D any](options Options[R, D], framework Framework[R]) (*Limit[R, D], error) {
	guard, err := options.guard()
	if err != nil {
		return nil, err
	}
	options.Charges = maps.Clone(options.Charges)
	if options.Route != nil {
		framework.Route = options.Route
	}
	if options.Route != nil || framework.RoutePath == nil {
		framework.RoutePath = func(request R) string { return RoutePattern(framework.Route(request)) }
	}
	if options.PathValue != nil {
		framework.PathValue = options.PathValue
	}
	return &Limit[R, D]{options: options, framework: framework, guard: guard, isConfigured: options.isConfigured()}, nil
}

// Decide decides about a request and writes the header fields of its response. The decision is nil for a request that is not
// limited. Proceed takes both; Fail takes the error.
func (l *Limit[R, D]) Decide(request R, header http.Header) (*Admission, error) {
	plain := l.framework.HTTP(request)
	route := l.framework.Route(request)
	if l.options.Skip != nil && l.options.Skip(request) || !l.guard.AppliesTo(plain.Method, requestedMethod(plain, route)) {
		return nil, nil
	}
	facts, err := l.factsOf(request, plain, route)
	if err != nil {
		return nil, err
	}
	ctx := plain.Context()
	outer := admissionOf(ctx)
	check, err := l.guard.Check(ctx, outer.earlier(), &facts, func(outage polylimit.Outage) polylimit.OutageAction {
		return l.outage(request, outage)
	})
	if err != nil {
		return nil, err
	}
	own := newAdmission(ctx, check, outer)
	own.written.replace(header, check, true)
	if own.Admitted() {
		return own, nil
	}
	if err := l.allowOrigin(plain, header); err != nil {
		own.Close()
		return nil, err
	}
	return own, nil
}

// Answers are the ways in which an adapter goes on with a request after Decide.
type Answers struct {
	// Fail answers with this status a request about which no decision could be made, where the store is not the cause.
	Fail func(status int)
	// Deny answers a request that does not proceed.
	Deny func(Denial)
	// Run runs the handler, with the context of a request whose response changes nothing.
	Run func(context.Context)
	// Settle runs the handler. It calls Limit.Settle when the status is known, Limit.End if the admission holds something, and closes it.
	Settle func(*Admission)
}

// Proceed goes on with a request after Decide, and closes its admission unless Answers.Settle has it. The lines of Accept are those of the
// client.
func (l *Limit[R, D]) Proceed(request R, own *Admission, err error, accept []string, answers Answers) {
	var denial Denial
	isDenied := own != nil && !own.Admitted()
	if isDenied {
		defer own.Close()
		denial, err = own.Denial(accept)
	}
	switch {
	case err != nil:
		answers.Fail(l.Fail(request, err))
	case isDenied:
		answers.Deny(denial)
	case own == nil:
		answers.Run(l.framework.HTTP(request).Context())
	case own.Holds() || l.AwaitsStatus():
		answers.Settle(own)
	default:
		defer own.Close()
		answers.Run(own)
	}
}

// requestedMethod is the method that a preflight asks about, if the limit is in front of routing. On a route an OPTIONS request runs the
// handler.
func requestedMethod(request *http.Request, route string) string {
	if request.Method != http.MethodOptions || route != "" || request.Header.Get("Origin") == "" {
		return ""
	}
	return request.Header.Get("Access-Control-Request-Method")
}

// allowOrigin adds what a page of another origin needs to read a denial, unless a CORS middleware outside of the limit has done so.
func (l *Limit[R, D]) allowOrigin(request *http.Request, header http.Header) error {
	if len(header["Access-Control-Allow-Origin"]) > 0 {
		return nil
	}
	fields, err := l.guard.CORSFields(request.Header.Get("Origin"))
	for _, field := range fields {
		header.Add(field.Name, field.Value)
	}
	return err
}

// OnDenied is the function of the options.
func (l *Limit[R, D]) OnDenied() D { return l.options.OnDenied }

// AwaitsStatus is whether Settle must be called when the status of a response is known.
func (l *Limit[R, D]) AwaitsStatus() bool { return l.options.Count != nil }

// Settle refunds the units of a response that does not count, and rewrites its header fields. It is called once, before the header
// is sent.
func (l *Limit[R, D]) Settle(own *Admission, request R, status int, header http.Header) {
	if l.options.Count != nil && !l.options.Count(request, status, header) {
		own.check.Finish(own, false)
		own.written.replace(header, own.check, false)
	}
}

// End commits what a request has spent or, for one without a response, what was reserved. It is called once for an admission that Holds,
// when its response is done: the handler has returned, or a connection that it took over is closed. A status of 0 is no response.
func (l *Limit[R, D]) End(own *Admission, request R, status int, header http.Header) {
	if err := l.end(own, request, status, header); err != nil {
		l.report(request, err)
	}
}

func (l *Limit[R, D]) end(own *Admission, request R, status int, header http.Header) error {
	var units int64
	var isKnown bool
	if l.options.Spent != nil && status != 0 {
		units, isKnown = l.options.Spent(request, status, header)
	}
	if len(l.options.Charges) == 0 || status == 0 {
		return own.check.End(own, units, isKnown)
	}
	spent := map[string]int64{}
	for _, policy := range l.options.policies() {
		units, isKnown := units, isKnown
		if charge := l.options.Charges[policy]; charge.Spent != nil {
			units, isKnown = charge.Spent(request, status, header)
		}
		if isKnown {
			spent[policy] = units
		}
	}
	return own.check.EndEach(own, spent)
}

// ClientClosedRequest is the status of a request whose client has disconnected. The client does not see it, but logs and counters
// of responses do, where it must not appear as an error of the server.
const ClientClosedRequest = 499

// Fail reports an error of Decide, and returns the status of the response.
func (l *Limit[R, D]) Fail(request R, err error) int {
	if IsGone(l.framework.HTTP(request)) && errors.Is(err, context.Canceled) {
		return ClientClosedRequest
	}
	l.report(request, err)
	return http.StatusInternalServerError
}

// IsGone is whether the client has closed its connection.
func IsGone(request *http.Request) bool { return errors.Is(request.Context().Err(), context.Canceled) }

// factsOf reads what the guard needs to know about a request.
func (l *Limit[R, D]) factsOf(request R, plain *http.Request, route string) (facts polylimit.RequestFacts, err error) {
	options := &l.options
	if l.isConfigured {
		facts.Attributes = l.attributesOf(request, plain, route)
		return facts, nil
	}
	facts.Route, facts.Peer = route, plain.RemoteAddr
	if facts.Peer == "" || facts.Peer == "@" {
		// The other end of a Unix socket, which has no address, is on this host.
		facts.Peer = "127.0.0.1"
	}
	if name := l.guard.AddressHeader(); name != "" {
		facts.ForwardingLines = plain.Header.Values(name)
	}
	if options.Key != nil {
		if facts.Key, err = options.Key(request); err != nil {
			return facts, err
		}
	}
	for _, part := range options.KeyParts {
		value := l.valueOf(part, request, plain)
		l.warnings.keyPart(plain.Context(), part, value, route)
		facts.KeyValues = append(facts.KeyValues, value)
	}
	if options.Cost != nil {
		facts.Cost, facts.HasCost = options.Cost(request), true
	}
	for policy, charge := range options.Charges {
		if charge.Cost == nil {
			continue
		}
		if facts.Costs == nil {
			facts.Costs = make(map[string]int64, len(options.Charges))
		}
		facts.Costs[policy] = charge.Cost(request)
	}
	if options.PolicyFunc != nil {
		if facts.Policies, err = options.PolicyFunc(request); facts.Policies == nil {
			facts.Policies = []string{}
		}
	}
	if route == "" && options.Scope == "" && err == nil {
		l.warnings.shared(plain.Context(), options.Limiter, options.policies(), facts.Policies)
	}
	return facts, err
}

// attributesOf are the attributes of a request for the rules of a configuration.
func (l *Limit[R, D]) attributesOf(request R, plain *http.Request, route string) polylimit.RequestAttributes {
	attributes := polylimit.RequestAttributes{Method: plain.Method, Path: pathOf(plain), Peer: plain.RemoteAddr}
	if l.framework.RouterPaths != nil {
		attributes.RouterPaths = l.framework.RouterPaths(request)
	}
	attributes.Headers = make([][2]string, 0, len(plain.Header)+1)
	// net/http keeps it apart.
	attributes.Headers = append(attributes.Headers, [2]string{"host", plain.Host})
	for name, lines := range plain.Header {
		for _, line := range lines {
			attributes.Headers = append(attributes.Headers, [2]string{name, line})
		}
	}
	var given map[string]string
	if l.options.Attributes != nil {
		given = l.options.Attributes(request)
	}
	// The program's own map stays as it is.
	attributes.Attributes = make(map[string]string, len(given)+2)
	if route != "" {
		attributes.Attributes["route"] = l.framework.RoutePath(request)
	}
	maps.Copy(attributes.Attributes, given)
	if l.options.User != nil {
		if user := l.options.User(request); user != "" {
			attributes.Attributes["user"] = user
		}
	}
	return attributes
}

// valueOf is the value of a key part; empty when the request has none.
func (l *Limit[R, D]) valueOf(part KeyPart, request R, plain *http.Request) string {
	switch kind, name, _ := strings.Cut(string(part), ":"); kind {
	case "user":
		return l.options.User(request)
	case "header":
		return strings.Join(plain.Header.Values(name), ", ")
	case "cookie":
		if cookie, err := plain.Cookie(name); err == nil {
			return cookie.Value
		}
	case "path":
		return l.framework.PathValue(request, name)
	}
	return ""
}

// outage asks the program about an outage.
func (l *Limit[R, D]) outage(request R, outage polylimit.Outage) polylimit.OutageAction {
	if outage.Err != nil {
		l.report(request, outage.Err)
	}
	if l.options.OnOutage == nil {
		return polylimit.LeaveOutage
	}
	return l.options.OnOutage(request, outage)
}

func (l *Limit[R, D]) report(request R, err error) {
	if l.options.OnError != nil {
		l.options.OnError(request, err)
		return
	}
	slog.ErrorContext(l.framework.HTTP(request).Context(), "a request could not be limited", "error", err,
		"pattern", l.framework.Route(request))
}
