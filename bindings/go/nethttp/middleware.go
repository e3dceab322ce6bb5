package nethttp

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"polylimit.dev/polylimit"
)

// New makes a middleware: a function that limits the requests to a handler. Several of them may stand around one handler, the
// outer one decides first. What an outer one has spent is given back when an inner one denies or cannot decide.
//
// It fails with ErrInvalidArgument when an option is none that is allowed.
func New(options Options) (func(http.Handler) http.Handler, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return &limited{options: options, next: next}
	}, nil
}

type limited struct {
	options Options
	next    http.Handler
}

type decisionKey struct{}

// DecisionOf is the decision by which a request was admitted, that of the first policy where there are several; false when
// it was not limited.
func DecisionOf(request *http.Request) (polylimit.Decision, bool) {
	decision, has := request.Context().Value(decisionKey{}).(polylimit.Decision)
	return decision, has
}

func (l *limited) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	options := &l.options
	if options.Skip != nil && options.Skip(request) {
		l.next.ServeHTTP(writer, request)
		return
	}
	asked, cost, err := l.ask(request)
	var outcomes []polylimit.Outcome
	var denial *polylimit.Decision
	if err == nil {
		outcomes, denial, err = l.decide(request.Context(), asked)
	}
	spent := spentBefore(request)
	if err == nil && denial == nil {
		spent = &spending{limiter: options.Limiter, requests: asked, before: spent}
	}
	if err == nil {
		err = l.setHeaders(writer.Header(), outcomes)
	}
	if err != nil || denial != nil {
		spent.giveBack(request)
	}
	if err != nil {
		l.failed(writer, request, err)
		return
	}
	if denial != nil {
		l.denied(writer, request, cost, Denial{Decision: *denial, Outcomes: outcomes})
		return
	}
	request = request.WithContext(context.WithValue(spent.in(request.Context()), decisionKey{}, outcomes[0].Decision))
	if options.Count == nil {
		l.next.ServeHTTP(writer, request)
		return
	}
	l.serveAndCount(writer, request, spent)
}

// ask says what is asked of the limiter, for each policy.
func (l *limited) ask(request *http.Request) ([]polylimit.Request, int64, error) {
	key, err := l.options.Key(request)
	cost := int64(1)
	if l.options.Cost != nil {
		cost = l.options.Cost(request)
	}
	asked := make([]polylimit.Request, len(l.options.Policies))
	for at, policy := range l.options.Policies {
		asked[at] = polylimit.Key(key).Policy(policy).Cost(cost)
	}
	return asked, cost, err
}

// decide gives the decision of each policy, and the first denial of them.
func (l *limited) decide(ctx context.Context, asked []polylimit.Request) ([]polylimit.Outcome, *polylimit.Decision, error) {
	outcomes := make([]polylimit.Outcome, len(asked))
	if len(asked) == 1 {
		decision, err := l.options.Limiter.Check(ctx, asked[0])
		if err != nil {
			return nil, nil, err
		}
		outcomes[0] = polylimit.Outcome{Policy: l.options.Policies[0], Decision: decision}
	} else {
		decisions, err := l.options.Limiter.CheckTogether(ctx, asked)
		if err != nil {
			return nil, nil, err
		}
		for at, decision := range decisions {
			outcomes[at] = polylimit.Outcome{Policy: l.options.Policies[at], Decision: decision}
		}
	}
	for at := range outcomes {
		if decision := &outcomes[at].Decision; !decision.Allowed {
			return outcomes, decision, nil
		}
	}
	return outcomes, nil, nil
}

// setHeaders adds to the lists that a middleware further out has begun.
func (l *limited) setHeaders(header http.Header, outcomes []polylimit.Outcome) error {
	fields, err := l.options.Limiter.Headers(l.options.Headers, outcomes...)
	for _, field := range fields {
		if strings.HasPrefix(field.Name, "ratelimit") {
			header.Add(field.Name, field.Value)
		} else {
			header.Set(field.Name, field.Value)
		}
	}
	return err
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
	if l.options.OnOutage != nil {
		l.options.OnOutage(writer, request, Denial{Err: err})
		return
	}
	status := http.StatusInternalServerError
	if errors.Is(err, polylimit.ErrStoreUnavailable) || errors.Is(err, polylimit.ErrStoreFailed) {
		status = http.StatusServiceUnavailable
	}
	http.Error(writer, http.StatusText(status), status)
}

// serveAndCount gives the units back when the response is not one of those that count. A handler that panics before it has
// written counts as one that answers 500.
func (l *limited) serveAndCount(writer http.ResponseWriter, request *http.Request, spent *spending) {
	observed := &observed{ResponseWriter: writer, status: http.StatusOK}
	isServed := false
	defer func() {
		if !isServed && !observed.wrote {
			observed.status = http.StatusInternalServerError
		}
		if !l.options.Count(request, observed.status, writer.Header()) {
			spent.refund(request)
		}
	}()
	l.next.ServeHTTP(observed, request)
	isServed = true
}
