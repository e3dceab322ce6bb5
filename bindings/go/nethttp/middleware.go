package nethttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"polylimit.dev/polylimit"
)

// New creates a middleware: a function that limits the requests to a handler. A handler may have several of them; the outer one
// decides first. The units of an outer one are refunded when an inner one denies or cannot decide. The same policy of the same
// limiter is charged once for a key, by the outer one.
//
// It fails with ErrInvalidArgument for an invalid option: a policy that the limiter does not know, quotas that cannot be read,
// or no policy although the limiter does not have exactly one.
func New(options Options) (func(http.Handler) http.Handler, error) {
	prototype, err := options.check()
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return &limitedHandler{options: prototype.options, address: prototype.address, policies: prototype.policies, next: next}
	}, nil
}

// limitedHandler is a handler behind the middleware.
type limitedHandler struct {
	options  Options
	address  func(*http.Request) (string, error)
	policies *policies
	next     http.Handler
}

// clientClosedRequest is the status of a request whose client has disconnected. The client does not see it, but logs and counters
// of responses do, where it must not appear as an error of the server.
const clientClosedRequest = 499

// DecisionOf is the decision that admitted a request, with several policies that of the first one; false when the request was not
// limited.
func DecisionOf(request *http.Request) (polylimit.Decision, bool) {
	found := admissionOf(request.Context())
	if found == nil {
		return polylimit.Decision{}, false
	}
	return found.outcomes[0].Decision, true
}

func (l *limitedHandler) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	options := &l.options
	if options.Skip != nil && options.Skip(request) {
		l.next.ServeHTTP(writer, request)
		return
	}
	ctx := request.Context()
	own := &admission{Context: ctx, options: options, outer: admissionOf(ctx)}
	cost, err := l.planChecks(request, own)
	var denial *polylimit.Decision
	if err == nil {
		denial, err = own.decide(ctx)
	}
	if err == nil {
		err = own.writeFields(writer.Header())
		if err != nil && denial == nil {
			own.refund(ctx)
		}
	}
	if err != nil || denial != nil {
		own.outer.refundAll(ctx, writer.Header())
	}
	if err != nil {
		l.failed(writer, request, err)
		return
	}
	if denial != nil {
		l.denied(writer, request, cost, Denial{Decision: *denial, Outcomes: own.outcomes})
		return
	}
	request = request.WithContext(own)
	if options.Count == nil {
		l.next.ServeHTTP(writer, request)
		return
	}
	l.serveAndCount(writer, request, own)
}

// planChecks finds key and cost, and adds a check for each policy that no outer middleware has charged.
func (l *limitedHandler) planChecks(request *http.Request, own *admission) (int64, error) {
	names, err := l.policies.at(request.Pattern)
	if err != nil {
		return 0, err
	}
	if l.options.Key != nil {
		own.key, err = l.options.Key(request)
	}
	if err == nil && own.key == "" {
		own.key, err = l.address(request)
	}
	if err != nil {
		return 0, err
	}
	cost := int64(1)
	if l.options.Cost != nil {
		cost = l.options.Cost(request)
	}
	own.outcomes, own.own, own.requests = own.oneOutcome[:0], own.oneOwn[:0], own.oneRequest[:0]
	for _, policy := range names {
		if known := own.outer.spent(l.options.Limiter, policy, own.key); known != nil {
			own.outcomes = append(own.outcomes, *known)
			continue
		}
		own.outcomes = append(own.outcomes, polylimit.Outcome{Policy: policy})
		own.own = append(own.own, polylimit.Outcome{Policy: policy})
		own.requests = append(own.requests, polylimit.Key(own.key).Policy(policy).Cost(cost))
	}
	return cost, nil
}

// decide runs the checks, and returns the first denial.
func (a *admission) decide(ctx context.Context) (*polylimit.Decision, error) {
	switch len(a.requests) {
	case 0:
		return nil, nil
	case 1:
		decision, err := a.options.Limiter.Check(ctx, a.requests[0])
		if err != nil {
			return nil, err
		}
		a.own[0].Decision = decision
	default:
		decisions, err := a.options.Limiter.CheckTogether(ctx, a.requests)
		if err != nil {
			return nil, err
		}
		for at, decision := range decisions {
			a.own[at].Decision = decision
		}
	}
	var denial *polylimit.Decision
	next := 0
	for at := range a.outcomes {
		if next < len(a.own) && a.outcomes[at].Policy == a.own[next].Policy {
			a.outcomes[at].Decision = a.own[next].Decision
			next++
		}
		if decision := &a.outcomes[at].Decision; !decision.Allowed && denial == nil {
			denial = decision
		}
	}
	return denial, nil
}

func (l *limitedHandler) denied(writer http.ResponseWriter, request *http.Request, cost int64, denial Denial) {
	asText := polylimit.PrefersText(strings.Join(request.Header.Values("Accept"), ","))
	problem, err := l.options.Limiter.Problem(cost, !asText, denial.Outcomes...)
	if err != nil {
		l.failed(writer, request, err)
		return
	}
	respond := l.options.OnDenied
	if problem.Status != http.StatusTooManyRequests {
		respond = l.options.OnOutage
	}
	if respond != nil {
		denial.Problem = problem
		respond(writer, request, denial)
		return
	}
	header := writer.Header()
	header.Set("Content-Type", problem.ContentType)
	header.Set("Cache-Control", "no-store")
	writer.WriteHeader(problem.Status)
	// An error means that the client has disconnected.
	_, _ = writer.Write([]byte(problem.Body))
}

// failed responds to a request about which no decision could be made.
func (l *limitedHandler) failed(writer http.ResponseWriter, request *http.Request, err error) {
	if isGone(request) && errors.Is(err, context.Canceled) {
		writer.WriteHeader(clientClosedRequest)
		return
	}
	if l.options.OnError != nil {
		l.options.OnError(request, err)
	} else {
		slog.ErrorContext(request.Context(), "a request could not be limited", "error", err, "pattern", request.Pattern)
	}
	if l.options.OnOutage != nil {
		l.options.OnOutage(writer, request, Denial{Err: err})
		return
	}
	status := http.StatusInternalServerError
	if errors.Is(err, polylimit.ErrStoreUnavailable) || errors.Is(err, polylimit.ErrStoreFailed) ||
		errors.Is(err, context.DeadlineExceeded) {
		status = http.StatusServiceUnavailable
	}
	http.Error(writer, http.StatusText(status), status)
}

// isGone is whether the client has closed its connection.
func isGone(request *http.Request) bool { return errors.Is(request.Context().Err(), context.Canceled) }

// serveAndCount runs the handler, and refunds the units of a response that does not count. A handler that panics before it has
// written has the status 500, or 499 when its client has disconnected.
func (l *limitedHandler) serveAndCount(writer http.ResponseWriter, request *http.Request, own *admission) {
	recorder := &responseRecorder{ResponseWriter: writer, settle: func(status int) {
		if !l.options.Count(request, status, writer.Header()) && own.refund(request.Context()) {
			own.rewriteFields(writer.Header())
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
