package middleware

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"polylimit.dev/polylimit"
)

// Admission is the decision of one limit on a request, and the context of the request if it proceeds.
type Admission struct {
	context.Context
	check *polylimit.GuardCheck
	// The fields that all limits of the request have written; that of the outermost one is shared.
	written *writtenFields
	own     writtenFields
}

type admissionKey struct{}

// Value returns the admission for its key, and otherwise the value of the wrapped context.
func (a *Admission) Value(key any) any {
	if _, isIt := key.(admissionKey); isIt {
		return a
	}
	return a.Context.Value(key)
}

// Admitted is whether the request proceeds.
func (a *Admission) Admitted() bool { return a.check.Admitted }

// Close is called after the response. The request counts, unless Limit.Settle said otherwise.
func (a *Admission) Close() { a.check.Close() }

// admissionOf is the admission of the innermost limit so far; nil when there is none.
func admissionOf(ctx context.Context) *Admission {
	found, _ := ctx.Value(admissionKey{}).(*Admission)
	return found
}

// earlier is the check that the next limit shares the request with.
func (a *Admission) earlier() *polylimit.GuardCheck {
	if a == nil {
		return nil
	}
	return a.check
}

// DecisionOf is the decision that admitted a request with this context, with several policies that of the first one; false when the
// request was not limited.
func DecisionOf(ctx context.Context) (polylimit.Decision, bool) {
	for found := admissionOf(ctx); found != nil; found = admissionOf(found.Context) {
		if found.check.HasDecision {
			return found.check.Decision, true
		}
	}
	return polylimit.Decision{}, false
}

// OutcomesOf are the policies that were applied to a request so far, each with its decision. It has none when the request was not
// limited, and after its admission was closed.
func OutcomesOf(ctx context.Context) []polylimit.Outcome {
	return admissionOf(ctx).earlier().Outcomes(true)
}

// Denial is why a request does not proceed.
type Denial struct {
	// Decision is the first denial; its Source is empty when no decision could be made.
	Decision polylimit.Decision
	// Outcomes are the decisions of all policies of this limit, each with its policy.
	Outcomes []polylimit.Outcome
	// Problem is the default response. Its status is 429 or Options.Status, 503 for an outage, and 400 for a missing key.
	Problem *polylimit.Problem
}

// Denial is why a request does not proceed, with the response for a client that has sent these lines of Accept.
func (a *Admission) Denial(accept []string) (Denial, error) {
	problem, err := a.check.Problem(accept)
	denial := Denial{Outcomes: a.check.Outcomes(false), Problem: problem}
	isDenied := func(one polylimit.Outcome) bool { return !one.Decision.Allowed }
	if at := slices.IndexFunc(denial.Outcomes, isDenied); at >= 0 {
		denial.Decision = denial.Outcomes[at].Decision
	}
	return denial, err
}

// Respond writes the default response.
func (d Denial) Respond(writer http.ResponseWriter) {
	for _, field := range d.Problem.Fields {
		writer.Header().Set(field.Name, field.Value)
	}
	writer.WriteHeader(d.Problem.Status)
	// An error means that the client has disconnected.
	_, _ = writer.Write([]byte(d.Problem.Body))
}

// writtenFields are the header fields of a request's limits.
type writtenFields struct {
	mutex  sync.Mutex
	fields []polylimit.HeaderField
	// Most requests have no more.
	few    [4]polylimit.HeaderField
	values [4]string
}

// replace replaces the fields by those of a check. Those that a handler has overwritten stay, unless adds says that no handler had
// the request yet.
func (w *writtenFields) replace(header http.Header, check *polylimit.GuardCheck, adds bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	old := w.fields
	fields := w.few[:0]
	if len(old) > 0 {
		fields = nil
	}
	check.Fields(func(field polylimit.HeaderField) bool {
		field.Name = canonical(field.Name)
		at := slices.IndexFunc(old, func(other polylimit.HeaderField) bool { return other.Name == field.Name })
		index := -1
		if at >= 0 {
			index = slices.Index(header[field.Name], old[at].Value)
			old[at].Name = ""
		}
		switch {
		case index >= 0:
			header[field.Name][index] = field.Value
		case adds && len(fields) < len(w.values) && len(old) == 0:
			w.values[len(fields)] = field.Value
			header[field.Name] = w.values[len(fields) : len(fields)+1 : len(fields)+1]
		case adds:
			header[field.Name] = []string{field.Value}
		}
		fields = append(fields, field)
		return true
	})
	// What an outer limit has told and does not hold any more.
	for _, field := range old {
		if values := header[field.Name]; len(values) == 1 && values[0] == field.Value {
			delete(header, field.Name)
		}
	}
	w.fields = fields
}

// canonical is http.CanonicalHeaderKey without an allocation for the usual names.
func canonical(name string) string {
	switch name {
	case "ratelimit-policy":
		return "Ratelimit-Policy"
	case "ratelimit":
		return "Ratelimit"
	case "retry-after":
		return "Retry-After"
	default:
		return http.CanonicalHeaderKey(name)
	}
}
