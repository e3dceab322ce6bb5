package nethttp

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"polylimit.dev/polylimit"
)

// admission is the check of one middleware on a request, and the context of the admitted request.
type admission struct {
	context.Context
	check *polylimit.GuardCheck
	// The fields that all middlewares of the request have written; that of the outermost one is shared.
	written *writtenFields
	own     writtenFields
}

type admissionKey struct{}

// Value returns the admission for its key, and otherwise the value of the wrapped context.
func (a *admission) Value(key any) any {
	if _, isIt := key.(admissionKey); isIt {
		return a
	}
	return a.Context.Value(key)
}

// admissionOf is the admission of the innermost middleware so far; nil when there is none.
func admissionOf(ctx context.Context) *admission {
	found, _ := ctx.Value(admissionKey{}).(*admission)
	return found
}

// earlier is the check that the next middleware shares the request with.
func (a *admission) earlier() *polylimit.GuardCheck {
	if a == nil {
		return nil
	}
	return a.check
}

// DecisionOf is the decision that admitted a request, with several policies that of the first one; false when the request was not
// limited.
func DecisionOf(request *http.Request) (polylimit.Decision, bool) {
	for found := admissionOf(request.Context()); found != nil; found = admissionOf(found.Context) {
		if found.check.HasDecision {
			return found.check.Decision, true
		}
	}
	return polylimit.Decision{}, false
}

// OutcomesOf are the policies that were applied to a request so far, each with its decision. It has none when the request was not
// limited, and when the middleware has returned.
func OutcomesOf(request *http.Request) []polylimit.Outcome {
	return admissionOf(request.Context()).earlier().Outcomes(true)
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
	// What an outer middleware has told and does not hold any more.
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

// valueOf is the value of a key part; empty when the request has none.
func (o *Options) valueOf(part KeyPart, request *http.Request) string {
	switch kind, name, _ := strings.Cut(string(part), ":"); kind {
	case "user":
		return o.User(request)
	case "header":
		return strings.Join(request.Header.Values(name), ", ")
	case "cookie":
		if cookie, err := request.Cookie(name); err == nil {
			return cookie.Value
		}
	case "path":
		return request.PathValue(name)
	}
	return ""
}
