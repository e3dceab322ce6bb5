package nethttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"polylimit.dev/polylimit"
)

// New creates a middleware: a function that limits the requests to a handler. A handler may have several of them; the outer one
// decides first, and its units are refunded when an inner one denies or its store cannot decide. The same policy of the same
// limiter is charged once for a key.
//
// It fails with ErrInvalidArgument for an invalid option: a policy that the limiter does not know, quotas that cannot be read,
// or no policy although the limiter does not have exactly one.
func New(options Options) (func(http.Handler) http.Handler, error) {
	guard, err := options.guard()
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return &limitedHandler{options: &options, guard: guard, next: next}
	}, nil
}

// limitedHandler is a handler behind the middleware.
type limitedHandler struct {
	options *Options
	guard   *polylimit.Guard
	next    http.Handler
}

// clientClosedRequest is the status of a request whose client has disconnected. The client does not see it, but logs and counters
// of responses do, where it must not appear as an error of the server.
const clientClosedRequest = 499

func (l *limitedHandler) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if l.options.Skip != nil && l.options.Skip(request) || !l.guard.AppliesTo(request.Method) {
		l.next.ServeHTTP(writer, request)
		return
	}
	ctx := request.Context()
	outer := admissionOf(ctx)
	var check *polylimit.GuardCheck
	facts, err := l.factsOf(request)
	if err == nil {
		check, err = l.guard.Check(ctx, outer.earlier(), &facts, func(outage polylimit.Outage) polylimit.OutageAction {
			return l.outage(request, outage)
		})
	}
	if err != nil {
		l.failed(writer, request, err)
		return
	}
	defer check.Close()
	own := &admission{Context: ctx, check: check}
	if own.written = &own.own; outer != nil {
		own.written = outer.written
	}
	own.written.replace(writer.Header(), check, true)
	switch {
	case !check.Admitted:
		l.denied(writer, request, check)
	case l.options.Count == nil:
		l.next.ServeHTTP(writer, request.WithContext(own))
	default:
		l.serveAndCount(writer, request.WithContext(own), own)
	}
}

// factsOf reads what the guard needs to know about a request.
func (l *limitedHandler) factsOf(request *http.Request) (facts polylimit.RequestFacts, err error) {
	options := l.options
	facts.Route, facts.Peer = request.Pattern, request.RemoteAddr
	if facts.Peer == "" || facts.Peer == "@" {
		// The other end of a Unix socket, which has no address, is on this host.
		facts.Peer = "127.0.0.1"
	}
	if name := l.guard.AddressHeader(); name != "" {
		facts.ForwardingLines = request.Header.Values(name)
	}
	if options.Key != nil {
		if facts.Key, err = options.Key(request); err != nil {
			return facts, err
		}
	}
	for _, part := range options.KeyParts {
		facts.KeyValues = append(facts.KeyValues, options.valueOf(part, request))
	}
	if options.Cost != nil {
		facts.Cost, facts.HasCost = options.Cost(request), true
	}
	if options.PolicyFunc != nil {
		if facts.Policies, err = options.PolicyFunc(request); facts.Policies == nil {
			facts.Policies = []string{}
		}
	}
	return facts, err
}

// outage asks the program about an outage.
func (l *limitedHandler) outage(request *http.Request, outage polylimit.Outage) polylimit.OutageAction {
	if outage.Err != nil {
		l.report(request, outage.Err)
	}
	if l.options.OnOutage == nil {
		return polylimit.LeaveOutage
	}
	return l.options.OnOutage(request, outage)
}

func (l *limitedHandler) denied(writer http.ResponseWriter, request *http.Request, check *polylimit.GuardCheck) {
	problem, err := check.Problem(request.Header.Values("Accept"))
	if err != nil {
		l.failed(writer, request, err)
		return
	}
	if l.options.OnDenied != nil {
		denial := Denial{Outcomes: check.Outcomes(false), Problem: problem}
		for at := range denial.Outcomes {
			if decision := denial.Outcomes[at].Decision; !decision.Allowed {
				denial.Decision = decision
				break
			}
		}
		l.options.OnDenied(writer, request, denial)
		return
	}
	for _, field := range problem.Fields {
		writer.Header().Set(field.Name, field.Value)
	}
	writer.WriteHeader(problem.Status)
	// An error means that the client has disconnected.
	_, _ = writer.Write([]byte(problem.Body))
}

// failed responds to a request about which no decision could be made, and the store is not the cause.
func (l *limitedHandler) failed(writer http.ResponseWriter, request *http.Request, err error) {
	if isGone(request) && errors.Is(err, context.Canceled) {
		writer.WriteHeader(clientClosedRequest)
		return
	}
	l.report(request, err)
	http.Error(writer, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
}

func (l *limitedHandler) report(request *http.Request, err error) {
	if l.options.OnError != nil {
		l.options.OnError(request, err)
	} else {
		slog.ErrorContext(request.Context(), "a request could not be limited", "error", err, "pattern", request.Pattern)
	}
}

// isGone is whether the client has closed its connection.
func isGone(request *http.Request) bool { return errors.Is(request.Context().Err(), context.Canceled) }

// serveAndCount runs the handler, and refunds the units of a response that does not count. A handler that panics before it has
// written has the status 500, or 499 when its client has disconnected.
func (l *limitedHandler) serveAndCount(writer http.ResponseWriter, request *http.Request, own *admission) {
	recorder := &responseRecorder{ResponseWriter: writer, settle: func(status int) {
		if !l.options.Count(request, status, writer.Header()) {
			own.check.Finish(request.Context(), false)
			own.written.replace(writer.Header(), own.check, false)
		}
	}}
	isServed := false
	defer func() {
		switch {
		case isServed:
			recorder.begin(http.StatusOK)
		case isGone(request):
			recorder.begin(clientClosedRequest)
		default:
			recorder.begin(http.StatusInternalServerError)
		}
	}()
	l.next.ServeHTTP(recorder, request)
	isServed = true
}
