package nethttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

// guardCase is a case of tests/conformance/guard.json.
type guardCase struct {
	Name     string
	Policies map[string]string
	Store    string
	Outage   string
	Error    string
	Guards   []map[string]json.RawMessage
	Requests []guardRequest
	Left     []struct {
		Policy, Key string
		Remaining   uint64
	}
}

type guardRequest struct {
	Method  string
	Headers map[string]string
	Respond int
	Fail    bool
	Expect  struct {
		Status  int
		Handled *bool
		Fields  map[string]*string
		Text    *string
		Problem map[string]any
	}
}

func TestGuardCases(t *testing.T) {
	text, err := os.ReadFile("../../../tests/conformance/guard.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []guardCase }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cases) == 0 {
		t.Fatal(len(file.Cases), err)
	}
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for _, one := range file.Cases {
		t.Run(one.Name, one.run)
	}
}

func (c guardCase) run(t *testing.T) {
	limiters := map[string]*polylimit.Limiter{}
	for _, store := range []string{"memory", "down", "broken"} {
		limiters[store] = c.limiter(t, store)
	}
	handled := false
	var handler http.Handler = http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		handled = true
		if request.Header.Get("Test-Fail") != "" {
			panic("broken")
		}
		status, err := strconv.Atoi(request.Header.Get("Test-Respond"))
		if err != nil {
			t.Error(err)
		}
		writer.WriteHeader(status)
	})
	for _, given := range slices.Backward(c.Guards) {
		limit, err := nethttp.New(guardOptions(t, given, limiters, c.Store))
		if c.Error != "" {
			var refused *polylimit.Error
			if !errors.As(err, &refused) || refused.Kind.Code() != c.Error {
				t.Errorf("%v is no %s", err, c.Error)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		handler = limit(handler)
	}
	if c.Error != "" {
		t.Error("no option was refused")
	}
	server := httptest.NewUnstartedServer(recovering(handler))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	for at, request := range c.Requests {
		handled = false
		answer := request.send(t, server.URL)
		request.compare(t, fmt.Sprintf("request %d", at), answer, handled)
	}
	for _, left := range c.Left {
		decision, err := limiters["memory"].Peek(context.Background(), polylimit.Key(left.Key).Policy(left.Policy))
		if err != nil || decision.Remaining != left.Remaining {
			t.Errorf("%s %s: %d is left, expected %d; %v", left.Policy, left.Key, decision.Remaining, left.Remaining, err)
		}
	}
}

// recovering answers 500 for a handler that panics, as a service does that wants to answer at all.
func recovering(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		defer func() {
			if recover() != nil {
				writer.WriteHeader(http.StatusInternalServerError)
			}
		}()
		handler.ServeHTTP(writer, request)
	})
}

func (c guardCase) limiter(t *testing.T, store string) *polylimit.Limiter {
	t.Helper()
	var options []polylimit.Option
	for name, quotas := range c.Policies {
		options = append(options, polylimit.WithPolicy(name, quotas))
		if c.Outage != "" && store == "down" {
			options = append(options, polylimit.WithOutage(name, c.Outage))
		}
	}
	var url string
	switch store {
	case "memory":
		clock, err := polylimit.NewManualClock(time.Unix(1789948800, 0))
		if err != nil {
			t.Fatal(err)
		}
		url, options = "memory:", append(options, polylimit.WithClock(clock))
	case "down":
		// Nothing listens on port 1.
		url = "redis://127.0.0.1:1?doctor_after=0"
	default:
		url = brokenStore(t)
	}
	limiter, err := polylimit.Open(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limiter.Close)
	return limiter
}

// brokenStore is the URL of a shared-file store that cannot be opened, because other users may read its file.
func brokenStore(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("go-guard-%d", os.Getpid())
	path := fmt.Sprintf("/dev/shm/polylimit-%d-%s", os.Getuid(), name)
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return "local:" + name
}

// guardOptions are the options of a guard in a case.
func guardOptions(t *testing.T, given map[string]json.RawMessage, limiters map[string]*polylimit.Limiter, store string) nethttp.Options {
	t.Helper()
	options := nethttp.Options{}
	if store == "" {
		store = "memory"
	}
	for name, value := range given {
		read := func(place any) {
			if err := json.Unmarshal(value, place); err != nil {
				t.Fatal(name, err)
			}
		}
		var source struct{ Header string }
		switch name {
		case "policy":
			options.Policies = texts(t, value)
		case "policies_of":
			var of struct {
				Header string
				Plans  map[string]json.RawMessage
			}
			read(&of)
			options.PolicyFunc = func(request *http.Request) ([]string, error) {
				if plan := request.Header.Get(of.Header); plan != "" {
					return texts(t, of.Plans[plan]), nil
				}
				return texts(t, given["policy"]), nil
			}
		case "key":
			read(&source)
			options.Key = func(request *http.Request) (string, error) { return request.Header.Get(source.Header), nil }
		case "key_parts":
			for _, part := range texts(t, value) {
				options.KeyParts = append(options.KeyParts, nethttp.KeyPart(part))
			}
		case "missing_key":
			read(&options.MissingKey)
		case "cost":
			if json.Unmarshal(value, &options.FixedCost) != nil {
				read(&source)
				options.Cost = func(request *http.Request) int64 {
					if cost, err := strconv.ParseInt(request.Header.Get(source.Header), 10, 64); err == nil {
						return cost
					}
					return 1
				}
			}
		case "count":
			var from struct {
				From  int `json:"status_from"`
				Below int `json:"status_below"`
			}
			read(&from)
			options.Count = func(_ *http.Request, status int, _ http.Header) bool {
				return status >= from.From && (from.Below == 0 || status < from.Below)
			}
		case "skip":
			read(&source)
			options.Skip = func(request *http.Request) bool { return request.Header.Get(source.Header) != "" }
		case "methods":
			read(&options.Methods)
		case "headers":
			read(&options.Headers.Style)
		case "reset_form":
			read(&options.Headers.ResetForm)
		case "header_names":
			read(&options.Headers.Names)
		case "status":
			read(&options.Status)
		case "message":
			read(&options.Message)
		case "dry_run":
			read(&options.DryRun)
		case "on_denied":
			var response struct {
				Status int
				Body   string
			}
			read(&response)
			options.OnDenied = func(writer http.ResponseWriter, _ *http.Request, _ nethttp.Denial) {
				writer.WriteHeader(response.Status)
				_, _ = io.WriteString(writer, response.Body)
			}
		case "on_outage":
			var action string
			read(&action)
			actions := map[string]polylimit.OutageAction{
				"admit": polylimit.AdmitOutage, "deny": polylimit.DenyOutage, "leave": polylimit.LeaveOutage,
			}
			options.OnOutage = func(*http.Request, polylimit.Outage) polylimit.OutageAction { return actions[action] }
		case "store":
			read(&store)
		default:
			t.Fatalf("option %s is not known", name)
		}
	}
	options.Limiter = limiters[store]
	return options
}

// texts are a text, or a list of texts.
func texts(t *testing.T, value json.RawMessage) []string {
	var one string
	if json.Unmarshal(value, &one) == nil {
		return []string{one}
	}
	list := []string{}
	if err := json.Unmarshal(value, &list); err != nil {
		t.Error(string(value), err)
	}
	return list
}

func (r *guardRequest) send(t *testing.T, url string) response {
	t.Helper()
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	request, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range r.Headers {
		request.Header.Set(name, value)
	}
	status := r.Respond
	if status == 0 {
		status = http.StatusOK
	}
	request.Header.Set("Test-Respond", strconv.Itoa(status))
	if r.Fail {
		request.Header.Set("Test-Fail", "1")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{answer.StatusCode, answer.Header, string(body)}
}

func (r *guardRequest) compare(t *testing.T, name string, answer response, handled bool) {
	t.Helper()
	expect := r.Expect
	if expect.Status != answer.status || expect.Handled != nil && *expect.Handled != handled {
		t.Errorf("%s: status %d, handled %v: %+v", name, answer.status, handled, expect)
	}
	for field, expected := range expect.Fields {
		found := answer.header.Values(field)
		switch {
		case expected == nil && len(found) > 0:
			t.Errorf("%s: %s is %q, expected none", name, field, found)
		case expected != nil && strings.Join(found, ", ") != *expected:
			t.Errorf("%s: %s is %q, expected %q", name, field, found, *expected)
		}
	}
	if expect.Text != nil && answer.body != *expect.Text {
		t.Errorf("%s: body %q, expected %q", name, answer.body, *expect.Text)
	}
	if expect.Problem == nil {
		return
	}
	var problem map[string]any
	if err := json.Unmarshal([]byte(answer.body), &problem); err != nil {
		t.Fatalf("%s: %q: %v", name, answer.body, err)
	}
	for member, expected := range expect.Problem {
		if member == "violated" {
			member = "violated-policies"
		}
		if fmt.Sprint(problem[member]) != fmt.Sprint(expected) {
			t.Errorf("%s: %s is %v, expected %v", name, member, problem[member], expected)
		}
	}
}
