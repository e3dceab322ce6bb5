package nethttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"polylimit.dev/polylimit"
)

// New makes a middleware: a function that limits the requests to a handler. Several of them may stand around one handler, the
// outer one decides first. What an outer one has spent is given back when an inner one denies or cannot decide; what it has
// spent from the same policy of the same limiter for the same key is not spent again by an inner one.
//
// It fails with ErrInvalidArgument when an option is none that is allowed: a policy that the limiter does not know, quotas that
// cannot be read, or no policy where the limiter has not exactly one.
func New(options Options) (func(http.Handler) http.Handler, error) {
	made, err := options.check()
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return &limited{options: made.options, address: made.address, policies: made.policies, next: next}
	}, nil
}

type limited struct {
	options  Options
	address  func(*http.Request) (string, error)
	policies *policies
	next     http.Handler
}

// clientClosedRequest is answered to a client that went away, which does not see it: logs and counters of responses do. It is
// no fault of the server.
const clientClosedRequest = 499

// DecisionOf is the decision by which a request was admitted, that of the first policy where there are several; false when
// it was not limited.
func DecisionOf(request *http.Request) (polylimit.Decision, bool) {
	found := admissionOf(request.Context())
	if found == nil {
		return polylimit.Decision{}, false
	}
	return found.outcomes[0].Decision, true
}

func (l *limited) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	options := &l.options
	if options.Skip != nil && options.Skip(request) {
		l.next.ServeHTTP(writer, request)
		return
	}
	ctx := request.Context()
	own := &admission{Context: ctx, options: options, before: admissionOf(ctx)}
	cost, err := l.ask(request, own)
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
		own.before.giveBack(ctx, writer.Header())
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

// ask says what is asked of the limiter, for each policy from which nothing was spent further out.
func (l *limited) ask(request *http.Request, own *admission) (int64, error) {
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
	own.outcomes, own.asked, own.requests = own.oneOutcome[:0], own.oneAsked[:0], own.oneRequest[:0]
	for _, policy := range names {
		if known := own.before.spent(l.options.Limiter, policy, own.key); known != nil {
			own.outcomes = append(own.outcomes, *known)
			continue
		}
		own.outcomes = append(own.outcomes, polylimit.Outcome{Policy: policy})
		own.asked = append(own.asked, polylimit.Outcome{Policy: policy})
		own.requests = append(own.requests, polylimit.Key(own.key).Policy(policy).Cost(cost))
	}
	return cost, nil
}

// decide finds the decision of each policy that is asked, and gives the first denial of them.
func (a *admission) decide(ctx context.Context) (*polylimit.Decision, error) {
	switch len(a.requests) {
	case 0:
		return nil, nil
	case 1:
		decision, err := a.options.Limiter.Check(ctx, a.requests[0])
		if err != nil {
			return nil, err
		}
		a.asked[0].Decision = decision
	default:
		decisions, err := a.options.Limiter.CheckTogether(ctx, a.requests)
		if err != nil {
			return nil, err
		}
		for at, decision := range decisions {
			a.asked[at].Decision = decision
		}
	}
	var denial *polylimit.Decision
	next := 0
	for at := range a.outcomes {
		if next < len(a.asked) && a.outcomes[at].Policy == a.asked[next].Policy {
			a.outcomes[at].Decision = a.asked[next].Decision
			next++
		}
		if decision := &a.outcomes[at].Decision; !decision.Allowed && denial == nil {
			denial = decision
		}
	}
	return denial, nil
}

func (l *limited) denied(writer http.ResponseWriter, request *http.Request, cost int64, denial Denial) {
	asText := polylimit.PrefersText(strings.Join(request.Header.Values("Accept"), ","))
	problem, err := l.options.Limiter.Problem(cost, !asText, denial.Outcomes...)
	if err != nil {
		l.failed(writer, request, err)
		return
	}
	answer := l.options.OnDenied
	if problem.Status != http.StatusTooManyRequests {
		answer = l.options.OnOutage
	}
	if answer != nil {
		denial.Problem = problem
		answer(writer, request, denial)
		return
	}
	header := writer.Header()
	header.Set("Content-Type", problem.ContentType)
	header.Set("Cache-Control", "no-store")
	writer.WriteHeader(problem.Status)
	// Nobody is told when the client has gone.
	_, _ = writer.Write([]byte(problem.Body))
}

// failed answers a request that could not be decided.
func (l *limited) failed(writer http.ResponseWriter, request *http.Request, err error) {
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

// isGone says whether the client has closed its connection.
func isGone(request *http.Request) bool { return errors.Is(request.Context().Err(), context.Canceled) }

// serveAndCount gives the units back when the response is not one of those that count. A handler that panics before it has
// written counts as one that answers 500, or 499 when its client has gone.
func (l *limited) serveAndCount(writer http.ResponseWriter, request *http.Request, own *admission) {
	observed := &observed{ResponseWriter: writer, settle: func(status int) {
		if !l.options.Count(request, status, writer.Header()) && own.refund(request.Context()) {
			own.rewriteFields(writer.Header())
		}
	}}
	isServed := false
	defer func() {
		switch {
		case isServed:
			observed.begin(http.StatusOK)
		case isGone(request):
			observed.begin(clientClosedRequest)
		default:
			observed.begin(http.StatusInternalServerError)
		}
	}()
	l.next.ServeHTTP(observed, request)
	isServed = true
}
