package nethttp

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"polylimit"
)

// New makes a middleware: a function that limits the requests to a handler. Several of them may stand around one handler;
// each is then decided by itself, the outer one first.
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

// DecisionOf is the decision by which a request was admitted; false when it was not limited.
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
	if err != nil {
		l.failed(writer, request, err)
		return
	}
	decision, err := options.Limiter.Check(request.Context(), asked)
	if err != nil {
		l.failed(writer, request, err)
		return
	}
	outcome := polylimit.Outcome{Policy: options.Policy, Decision: decision}
	if err := l.setHeaders(writer.Header(), outcome); err != nil {
		l.failed(writer, request, err)
		return
	}
	if !decision.Allowed {
		l.denied(writer, request, cost, outcome)
		return
	}
	request = request.WithContext(context.WithValue(request.Context(), decisionKey{}, decision))
	if options.Count == nil {
		l.next.ServeHTTP(writer, request)
		return
	}
	l.serveAndCount(writer, request, asked)
}

func (l *limited) ask(request *http.Request) (polylimit.Request, int64, error) {
	key, err := l.options.Key(request)
	asked, cost := polylimit.Key(key).Policy(l.options.Policy), int64(1)
	if l.options.Cost != nil {
		cost = l.options.Cost(request)
		asked = asked.Cost(cost)
	}
	return asked, cost, err
}

// setHeaders adds to the lists that a middleware further out has begun.
func (l *limited) setHeaders(header http.Header, outcome polylimit.Outcome) error {
	fields, err := l.options.Limiter.Headers(l.options.Headers, outcome)
	for _, field := range fields {
		if strings.HasPrefix(field.Name, "ratelimit") {
			header.Add(field.Name, field.Value)
		} else {
			header.Set(field.Name, field.Value)
		}
	}
	return err
}

func (l *limited) denied(writer http.ResponseWriter, request *http.Request, cost int64, outcome polylimit.Outcome) {
	problem, err := l.options.Limiter.Problem(cost, !prefersText(strings.Join(request.Header.Values("Accept"), ",")), outcome)
	if err != nil {
		l.failed(writer, request, err)
		return
	}
	answer := l.options.OnDenied
	if problem.Status != http.StatusTooManyRequests {
		answer = l.options.OnOutage
	}
	if answer != nil {
		answer(writer, request, Denial{Decision: outcome.Decision, Problem: problem})
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

// serveAndCount gives the units back when the response is not one of those that count.
func (l *limited) serveAndCount(writer http.ResponseWriter, request *http.Request, asked polylimit.Request) {
	observed := &observed{ResponseWriter: writer, status: http.StatusOK}
	defer func() {
		if !l.options.Count(request, observed.status, writer.Header()) {
			// Also when the client has gone meanwhile. A refund that fails leaves the request counted.
			_, _ = l.options.Limiter.Refund(context.WithoutCancel(request.Context()), asked)
		}
	}()
	l.next.ServeHTTP(observed, request)
}
