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
	// The fields that all limits of the request have written.
	written *writtenFields
}

// outermost is the admission of the first limit of a request, with the fields that all of them share.
type outermost struct {
	Admission
	fields writtenFields
}

// newAdmission is the admission of a limit, which shares the fields of the outer one if there is one.
func newAdmission(ctx context.Context, check *polylimit.GuardCheck, outer *Admission) *Admission {
	if outer != nil {
		return &Admission{ctx, check, outer.written}
	}
	first := &outermost{}
	first.Admission = Admission{ctx, check, &first.fields}
	return &first.Admission
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

// Holds is whether the request holds reservations, so that Limit.End has to be called when its response is done.
func (a *Admission) Holds() bool { return a.check.Holds }

// Reader reads the response of the request; nil where that does not report what the request has spent.
func (a *Admission) Reader() *ResponseReader {
	if !a.check.ReadsResponse() {
		return nil
	}
	return &ResponseReader{check: a.check}
}

// ResponseReader reads a response that reports what its request has spent, as it passes.
type ResponseReader struct {
	check                 *polylimit.GuardCheck
	hasHead, isBodyWanted bool
}

// Read reads the header of the response, at the first call, and a part of its body, which may be empty. A nil reader reads nothing.
func (r *ResponseReader) Read(header http.Header, part []byte) {
	if r == nil {
		return
	}
	if !r.hasHead {
		r.hasHead, r.isBodyWanted = true, r.check.ReadHead(header)
	}
	if r.isBodyWanted {
		r.check.ReadBody(part)
	}
}

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
		// A CORS middleware may have said that the response depends on the origin.
		if field.Name == "vary" {
			writer.Header().Add(field.Name, field.Value)
		} else {
			writer.Header().Set(field.Name, field.Value)
		}
	}
	writer.WriteHeader(d.Problem.Status)
	// An error means that the client has disconnected.
	_, _ = writer.Write([]byte(d.Problem.Body))
}

// writtenFields are the header fields of a request's limits.
type writtenFields struct {
	mutex  sync.Mutex
	fields []writtenField
	// How often they were written.
	round int
	// Most requests have no more.
	few    [3]writtenField
	values [3]string
}

type writtenField struct {
	name, value string
	// The last round that had the field.
	round int
}

// replace replaces the fields by those of a check. Those that a handler has overwritten stay, unless adds says that no handler had
// the request yet.
func (w *writtenFields) replace(header http.Header, check *polylimit.GuardCheck, adds bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.round++; w.round == 1 {
		w.fields = w.few[:0]
	}
	for field := range check.Fields {
		w.write(header, canonical(field.Name), field.Value, adds)
	}
	// What an outer limit has reported and does not hold any more.
	w.fields = slices.DeleteFunc(w.fields, func(field writtenField) bool {
		isOutdated := field.round != w.round
		if values := header[field.name]; isOutdated && len(values) == 1 && values[0] == field.value {
			delete(header, field.name)
		}
		return isOutdated
	})
}

func (w *writtenFields) write(header http.Header, name, value string, adds bool) {
	at := slices.IndexFunc(w.fields, func(field writtenField) bool { return field.name == name })
	index := -1
	if at >= 0 {
		index = slices.Index(header[name], w.fields[at].value)
	} else {
		at = len(w.fields)
		w.fields = append(w.fields, writtenField{name: name})
	}
	w.fields[at].value, w.fields[at].round = value, w.round
	switch {
	case index >= 0:
		header[name][index] = value
	case adds && at < len(w.values) && w.round == 1:
		w.values[at] = value
		header[name] = w.values[at : at+1 : at+1]
	case adds:
		header[name] = []string{value}
	}
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
