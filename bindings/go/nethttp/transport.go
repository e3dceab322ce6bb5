package nethttp

import (
	"net"
	"net/http"
	"strings"

	"polylimit.dev/polylimit"
)

// Transport is an http.RoundTripper that stays within a limit of your own and waits as servers demand, for http.Client.Transport.
// The rules are those of every language: docs/clients.md. Any goroutine may use it at any time; NewTransport makes it.
//
// A request fails with a *polylimit.ThrottledError when it would have to wait for more than MaxWait of the backoff or beyond its
// context's deadline, and with a *polylimit.Error when the limiter cannot decide.
type Transport struct {
	options  TransportOptions
	throttle *polylimit.Throttle
}

// TransportOptions are the options of a Transport.
type TransportOptions struct {
	// Limiter is the limiter that every attempt acquires from.
	Limiter *polylimit.Limiter
	// Policy is its policy, or quotas as text; empty if the limiter has exactly one policy.
	Policy string
	// Base sends the requests; nil is http.DefaultTransport.
	Base http.RoundTripper
	// Key returns the key of a request; nil is its host, with the port unless it is the scheme's own.
	Key func(*http.Request) string
	// Cost is the units of each attempt; nil is 1.
	Cost *int64
	// Backoff says how often and how long a request may wait; nil is polylimit.DefaultBackoff. Its MaxWait bounds all waits.
	Backoff *polylimit.Backoff
}

// NewTransport makes a transport. It fails with ErrInvalidArgument when the limiter does not know the policy or a setting of the
// backoff is out of its range.
func NewTransport(options TransportOptions) (*Transport, error) {
	if options.Base == nil {
		options.Base = http.DefaultTransport
	}
	if options.Key == nil {
		options.Key = hostKey
	}
	policy, err := options.Limiter.PolicyFor(options.Policy, "")
	if err != nil {
		return nil, err
	}
	options.Policy = policy
	throttle, err := polylimit.NewThrottle(options.Backoff)
	if err != nil {
		return nil, err
	}
	return &Transport{options: options, throttle: throttle}, nil
}

// RoundTrip sends a request as soon as its limits allow it.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	key := polylimit.Key(t.options.Key(request)).Policy(t.options.Policy)
	if t.options.Cost != nil {
		key = key.Cost(*t.options.Cost)
	}
	hasBody := request.Body != nil && request.Body != http.NoBody
	attempts, err := t.throttle.Start(ctx, t.options.Limiter, key, methodOf(request), !hasBody || request.GetBody != nil)
	if err == nil {
		err = attempts.Admit(ctx)
	}
	if err != nil {
		if hasBody {
			_ = request.Body.Close() // A RoundTripper closes the body also when it fails.
		}
		return nil, err
	}
	for {
		response, err := t.options.Base.RoundTrip(request)
		if err != nil {
			return response, err
		}
		again, err := attempts.Responded(response.StatusCode, response.Header)
		if err == nil && !again {
			return response, nil
		}
		_ = response.Body.Close()
		if err == nil {
			err = attempts.Admit(ctx)
		}
		if err == nil && hasBody {
			request = request.Clone(ctx)
			request.Body, err = request.GetBody()
		}
		if err != nil {
			return nil, err
		}
	}
}

func methodOf(request *http.Request) string {
	if request.Method == "" {
		return http.MethodGet
	}
	return request.Method
}

func hostKey(request *http.Request) string {
	host, port := strings.ToLower(request.URL.Hostname()), request.URL.Port()
	isDefault := port == "" || request.URL.Scheme == "http" && port == "80" || request.URL.Scheme == "https" && port == "443"
	switch {
	case !isDefault:
		return net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		return "[" + host + "]"
	default:
		return host
	}
}
