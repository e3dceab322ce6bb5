package nethttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/internal/guardtest"
	"polylimit.dev/polylimit/nethttp"
)

// tokenServer is a server that limits tokens and requests together, and the limiter by which tests see what is left.
type tokenServer struct {
	url     string
	limiter *polylimit.Limiter
}

func openTokens(t *testing.T) *polylimit.Limiter {
	t.Helper()
	limiter, err := polylimit.Open("memory:", polylimit.WithPolicy("tokens", "10000/day fixed_window"),
		polylimit.WithPolicy("requests", "60/day fixed_window"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	return limiter
}

func serveTokens(t *testing.T, options nethttp.Options) tokenServer {
	t.Helper()
	limiter := openTokens(t)
	options.Limiter, options.Policies = limiter, []string{"tokens", "requests"}
	options.Key = func(*http.Request) (string, error) { return "k", nil }
	limit, err := nethttp.New(options)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limit(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("X-Used", request.Header.Get("X-Used"))
		_, _ = io.WriteString(writer, "ok")
	})))
	t.Cleanup(server.Close)
	return tokenServer{server.URL, limiter}
}

// ask sends a request with two numbers, and returns its status.
func (s tokenServer) ask(t *testing.T, tokens, used int64) int {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Tokens", strconv.FormatInt(tokens, 10))
	if used >= 0 {
		request.Header.Set("X-Used", strconv.FormatInt(used, 10))
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.ReadAll(answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode
}

// await waits until as much is left: what was spent is committed after the response.
func (s tokenServer) await(t *testing.T, tokens, requests uint64) {
	t.Helper()
	guardtest.Left{Policy: "tokens", Key: "k", Remaining: tokens}.Await(t, "tokens", s.limiter)
	guardtest.Left{Policy: "requests", Key: "k", Remaining: requests}.Await(t, "requests", s.limiter)
}

func tokensOf(request *http.Request) int64 {
	tokens, _ := strconv.ParseInt(request.Header.Get("X-Tokens"), 10, 64)
	return tokens
}

func tokensUsed(_ *http.Request, _ int, header http.Header) (int64, bool) {
	used, err := strconv.ParseInt(header.Get("X-Used"), 10, 64)
	return used, err == nil
}

func TestTokensAndRequestsAreLimitedTogether(t *testing.T) {
	server := serveTokens(t, nethttp.Options{Charges: map[string]nethttp.PolicyCharge{"tokens": {Cost: tokensOf}}})
	for _, step := range []struct {
		tokens           int64
		status           int
		tokensLeft, left uint64
	}{
		{9000, http.StatusOK, 1000, 59},
		// The denial by one policy spends nothing under the other.
		{1001, http.StatusTooManyRequests, 1000, 59},
		{0, http.StatusOK, 1000, 58},
		{1000, http.StatusOK, 0, 57},
	} {
		if status := server.ask(t, step.tokens, -1); status != step.status {
			t.Errorf("%d tokens: %d", step.tokens, status)
		}
		server.await(t, step.tokensLeft, step.left)
	}
}

func TestFixedCostsOfPoliciesAreTheirOwn(t *testing.T) {
	server := serveTokens(t, nethttp.Options{
		FixedCost: 2, Charges: map[string]nethttp.PolicyCharge{"tokens": {FixedCost: 5000}},
	})
	for _, step := range []struct {
		status           int
		tokensLeft, left uint64
	}{{http.StatusOK, 5000, 58}, {http.StatusOK, 0, 56}, {http.StatusTooManyRequests, 0, 56}} {
		if status := server.ask(t, 0, -1); status != step.status {
			t.Error(status)
		}
		server.await(t, step.tokensLeft, step.left)
	}
}

func TestWhatWasSpentIsSettledUnderItsPolicy(t *testing.T) {
	requests := int64(3)
	all := func(*http.Request, int, http.Header) (int64, bool) { return requests, true }
	for _, one := range []struct {
		options         nethttp.Options
		used            int64
		tokens, of, too uint64
	}{
		{nethttp.Options{}, 1234, 10_000 - 1234, 59, 58},
		// The function does not know, and the cost was spent.
		{nethttp.Options{}, -1, 6000, 59, 58},
		// Without one of its own a policy has that of the limit.
		{nethttp.Options{Spent: all}, 5000, 5000, 57, 54},
		{nethttp.Options{Spent: all}, -1, 6000, 57, 54},
	} {
		one.options.Charges = map[string]nethttp.PolicyCharge{"tokens": {FixedCost: 4000, Spent: tokensUsed}}
		server := serveTokens(t, one.options)
		if status := server.ask(t, 0, one.used); status != http.StatusOK {
			t.Error(status)
		}
		server.await(t, one.tokens, one.of)
		if status := server.ask(t, 0, 0); status != http.StatusOK {
			t.Error(status)
		}
		server.await(t, one.tokens, one.too)
	}
}

func TestUnitsOfAPolicyBeyondTheRangeAreReported(t *testing.T) {
	var mutex sync.Mutex
	var reported []error
	spent := int64(-1)
	server := serveTokens(t, nethttp.Options{
		Charges: map[string]nethttp.PolicyCharge{"tokens": {
			Cost: tokensOf, Spent: func(*http.Request, int, http.Header) (int64, bool) { return spent, true },
		}},
		OnError: func(_ *http.Request, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			reported = append(reported, err)
		},
	})
	for at, step := range []struct {
		tokens, spent int64
		status        int
		left          uint64
	}{
		// What was reserved is spent.
		{10, -1, http.StatusOK, 9990},
		{10, 1_000_000_000_001, http.StatusOK, 9980},
		{-1, 0, http.StatusInternalServerError, 9980},
		{1_000_000_000_001, 0, http.StatusInternalServerError, 9980},
	} {
		spent = step.spent
		if status := server.ask(t, step.tokens, -1); status != step.status {
			t.Error(step, status)
		}
		server.await(t, step.left, uint64(59-min(at, 1)))
	}
	mutex.Lock()
	defer mutex.Unlock()
	if len(reported) != 4 {
		t.Error(reported)
	}
	for _, err := range reported {
		if !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Error(err)
		}
	}
}

func TestChargesThatCannotBeMeantAreRefused(t *testing.T) {
	limiter := openTokens(t)
	type charges = map[string]nethttp.PolicyCharge
	both := []string{"tokens", "requests"}
	for message, options := range map[string]nethttp.Options{
		`Options.Charges has "token", which is no policy of Options.Policies: allowed are "tokens", "requests"`: {
			Policies: both, Charges: charges{"tokens": {}, "token": {Cost: tokensOf}},
		},
		`Options.Charges has "requests", which is no policy of Options.Policies: allowed are "tokens"`: {
			Policy: "tokens", Charges: charges{"requests": {FixedCost: 1}},
		},
		`Options.Charges has "tokens", which is no policy of Options.Policies: name the policies`: {
			Charges: charges{"tokens": {Cost: tokensOf}},
		},
		"Options has both Charges and PolicyFunc": {
			PolicyFunc: func(*http.Request) ([]string, error) { return both, nil }, Charges: charges{"tokens": {Cost: tokensOf}},
		},
		`cost is 10001 for policy "tokens", which never admits more than 10000 at once: `: {
			Policies: both, Charges: charges{"tokens": {FixedCost: 10_001}},
		},
		`cost is 100 for policy "requests", which never admits more than 60 at once: `: {Policies: both, FixedCost: 100},
		"cost.tokens is -1: allowed is a number of units":                              {Policies: both, Charges: charges{"tokens": {FixedCost: -1}}},
	} {
		options.Limiter = limiter
		if _, err := nethttp.New(options); !errors.Is(err, polylimit.ErrInvalidArgument) || !strings.Contains(err.Error(), message) {
			t.Errorf("expected %s, have %v", message, err)
		}
	}
	if _, err := nethttp.New(nethttp.Options{
		Limiter: limiter, Policies: both, FixedCost: 60, Charges: charges{"tokens": {FixedCost: 10_000}},
	}); err != nil {
		t.Error(err)
	}
}

func TestGuardTakesCostsByPolicy(t *testing.T) {
	limiter := openTokens(t)
	guard, err := limiter.NewGuard(polylimit.GuardOptions{
		Policies: []string{"tokens", "requests"}, Reserved: true,
	}, polylimit.AddressRules{})
	if err != nil {
		t.Fatal(err)
	}
	server := tokenServer{limiter: limiter}
	check := func(facts polylimit.RequestFacts) (*polylimit.GuardCheck, error) {
		facts.Key = "k"
		return guard.Check(context.Background(), nil, &facts, nil)
	}
	admitted := func(facts polylimit.RequestFacts) *polylimit.GuardCheck {
		t.Helper()
		found, err := check(facts)
		if err != nil || !found.Admitted || !found.Holds {
			t.Fatal(found, err)
		}
		t.Cleanup(found.Close)
		return found
	}
	admitted(polylimit.RequestFacts{Costs: map[string]int64{"tokens": 0}})
	server.await(t, 10_000, 59)
	// The policies of a request have their own order.
	own := admitted(polylimit.RequestFacts{Policies: []string{"requests", "tokens"}, Costs: map[string]int64{"tokens": 100}})
	server.await(t, 9900, 58)
	if err := own.EndEach(context.Background(), map[string]int64{"tokens": 7}); err != nil {
		t.Error(err)
	}
	server.await(t, 9993, 58)
	// What was reserved stays spent where the program names a policy that is not one of the request.
	last := admitted(polylimit.RequestFacts{Costs: map[string]int64{"tokens": 93, "requests": 2}})
	err = last.EndEach(context.Background(), map[string]int64{"tokens": 0, "token": 1})
	if !errors.Is(err, polylimit.ErrInvalidArgument) || !strings.Contains(err.Error(), `allowed are "tokens", "requests"`) {
		t.Error(err)
	}
	if last.End(context.Background(), 0, true) != nil {
		t.Error("ending again has an effect")
	}
	server.await(t, 9900, 56)
	for _, costs := range []map[string]int64{{"token": 1}, {"tokens": -1}} {
		if _, err := check(polylimit.RequestFacts{Costs: costs}); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Error(costs, err)
		}
	}
	server.await(t, 9900, 56)
	// Costs of the guard are those of its own policies.
	guard, err = limiter.NewGuard(polylimit.GuardOptions{
		Policies: []string{"tokens"}, Costs: map[string]int64{"tokens": 2},
	}, polylimit.AddressRules{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = check(polylimit.RequestFacts{Policies: []string{"requests"}})
	if !errors.Is(err, polylimit.ErrInvalidArgument) || !strings.Contains(err.Error(), "policies is given with a request, next to cost") {
		t.Error(err)
	}
}
