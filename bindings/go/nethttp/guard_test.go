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

// guardCase is a case of tests/conformance/guard.json, guard_reservations.json or guard_meters.json.
type guardCase struct {
	Name     string
	Policies map[string]string
	Store    string
	Outage   string
	Error    string
	Guards   []map[string]json.RawMessage
	Requests []guardRequest
	Left     []guardLeft
}

// guardLeft is what remains of a key.
type guardLeft struct {
	Policy, Key string
	Remaining   uint64
}

type guardRequest struct {
	Method  string
	Headers map[string]string
	Respond int
	Fail    bool
	// What the handler says that it has spent.
	Spent *uint64
	// The response of the handler.
	ContentType string `json:"content_type"`
	Body        []string
	// The name of a response that stays open, of one that is sent to its end, and of one whose client closes the connection.
	Open, Close, Leave string
	Then               []guardLeft
	// The time that passes every 100 ms while the request is under way.
	ElapseMs int64 `json:"elapse_ms"`
	Expect   struct {
		Status  int
		Handled *bool
		Fields  map[string]*string
		Text    *string
		Problem map[string]any
	}
}

func TestGuardCases(t *testing.T) { runGuardCases(t, "guard.json") }

func TestGuardCasesOfReservations(t *testing.T) { runGuardCases(t, "guard_reservations.json") }

func TestGuardCasesOfMeters(t *testing.T) { runGuardCases(t, "guard_meters.json") }

func TestGuardCasesOfWaiting(t *testing.T) { runGuardCases(t, "guard_waiting.json") }

func runGuardCases(t *testing.T, name string) {
	text, err := os.ReadFile("../../../tests/conformance/" + name)
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
	clock, err := polylimit.NewManualClock(time.Unix(1789948800, 0))
	if err != nil {
		t.Fatal(err)
	}
	limiters := map[string]*polylimit.Limiter{}
	for _, store := range []string{"memory", "down", "broken"} {
		limiters[store] = c.limiter(t, store, clock)
	}
	handled := false
	closing := map[string]chan struct{}{}
	for _, request := range c.Requests {
		closing[request.Open] = make(chan struct{})
	}
	var handler http.Handler = http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		handled = true
		if spent := request.Header.Get("Test-Spent"); spent != "" {
			writer.Header().Set("X-Spent", spent)
		}
		if request.Header.Get("Test-Fail") != "" {
			panic("broken")
		}
		status, err := strconv.Atoi(request.Header.Get("Test-Respond"))
		if err != nil {
			t.Error(err)
		}
		if kind := request.Header.Get("Test-Content-Type"); kind != "" {
			writer.Header().Set("Content-Type", kind)
		}
		writer.WriteHeader(status)
		var body []string
		_ = json.Unmarshal([]byte(request.Header.Get("Test-Body")), &body)
		for _, piece := range body {
			_, _ = io.WriteString(writer, piece)
		}
		if name := request.Header.Get("Test-Open"); name != "" {
			_ = http.NewResponseController(writer).Flush()
			select {
			case <-closing[name]:
				_, _ = io.WriteString(writer, "the end")
			case <-request.Context().Done():
			}
		}
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
	open := map[string]*openResponse{}
	for at, request := range c.Requests {
		switch {
		case request.Close != "":
			close(closing[request.Close])
			if body := open[request.Close].read(t); body != "the end" {
				t.Errorf("step %d: body %q", at, body)
			}
		case request.Leave != "":
			open[request.Leave].leave()
		default:
			handled = false
			stop := request.elapse(t, clock)
			answer := request.send(t, server.URL)
			opened := response{answer.StatusCode, answer.Header, ""}
			if request.Open == "" {
				opened.body = answer.read(t)
			} else {
				open[request.Open] = answer
			}
			stop()
			request.compare(t, fmt.Sprintf("request %d", at), opened, handled)
		}
		for _, left := range request.Then {
			left.await(t, fmt.Sprintf("step %d", at), limiters["memory"])
		}
	}
	for _, left := range c.Left {
		left.await(t, "at the end", limiters["memory"])
	}
}

// elapse lets time pass until the returned function is called, so that a guard that holds the request does so first.
func (r *guardRequest) elapse(t *testing.T, clock *polylimit.ManualClock) func() {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for r.ElapseMs > 0 {
			select {
			case <-stopped:
				return
			case <-time.After(100 * time.Millisecond):
				if err := clock.Advance(time.Duration(r.ElapseMs) * time.Millisecond); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	return func() {
		close(stopped)
		<-ended
	}
}

// await waits until as much is left: a check ends after its client has read the response.
func (l guardLeft) await(t *testing.T, when string, limiter *polylimit.Limiter) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		decision, err := limiter.Peek(context.Background(), polylimit.Key(l.Key).Policy(l.Policy))
		if err == nil && decision.Remaining == l.Remaining {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%s: %s %s: %d is left, expected %d; %v", when, l.Policy, l.Key, decision.Remaining, l.Remaining, err)
		}
	}
}

// openResponse is a response whose body was not read yet.
type openResponse struct {
	*http.Response
	leave context.CancelFunc
}

func (r *openResponse) read(t *testing.T) string {
	t.Helper()
	defer r.leave()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
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

func (c guardCase) limiter(t *testing.T, store string, clock *polylimit.ManualClock) *polylimit.Limiter {
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
	t.Cleanup(func() { limiter.Close() })
	return limiter
}

// brokenStore is the URL of a local store that cannot be opened, because other users may read its file.
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
	options, charges := nethttp.Options{}, map[string]nethttp.PolicyCharge{}
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
		case "wait_ms":
			var waitMs int64
			read(&waitMs)
			options.Wait = time.Duration(waitMs) * time.Millisecond
		case "max_waiting":
			read(&options.MaxWaiting)
		case "cost":
			if json.Unmarshal(value, &options.FixedCost) == nil {
				if cost := options.FixedCost; cost == 0 {
					options.Cost = func(*http.Request) int64 { return cost }
				}
			} else {
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
		case "costs":
			var costs []int64
			read(&costs)
			for at, policy := range texts(t, given["policy"]) {
				charge := charges[policy]
				charge.FixedCost = costs[at]
				charges[policy] = charge
			}
		case "spent":
			var meters []*string
			if json.Unmarshal(value, &options.SpentBy) == nil {
				continue
			}
			if json.Unmarshal(value, &meters) == nil {
				for at, policy := range texts(t, given["policy"]) {
					if charge := charges[policy]; meters[at] != nil {
						charge.SpentBy = *meters[at]
						charges[policy] = charge
					}
				}
				continue
			}
			read(&source)
			options.Spent = func(_ *http.Request, _ int, header http.Header) (int64, bool) {
				spent, err := strconv.ParseInt(header.Get(source.Header), 10, 64)
				return spent, err == nil
			}
		case "ttl_ms":
			var milliseconds int64
			read(&milliseconds)
			// 0 is the default.
			if options.TTL = time.Duration(milliseconds) * time.Millisecond; options.TTL == 0 {
				options.TTL = -1
			}
		case "skip":
			read(&source)
			options.Skip = func(request *http.Request) bool { return request.Header.Get(source.Header) != "" }
		case "methods":
			read(&options.Methods)
		case "separate_head":
			read(&options.SeparateHead)
		case "count_preflights":
			read(&options.CountPreflights)
		case "cors_origins":
			read(&options.CORSOrigins)
		case "headers":
			read(&options.Headers)
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
	if len(charges) > 0 {
		options.Charges = charges
	}
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

func (r *guardRequest) send(t *testing.T, url string) *openResponse {
	t.Helper()
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
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
	if r.Spent != nil {
		request.Header.Set("Test-Spent", strconv.FormatUint(*r.Spent, 10))
	}
	if r.Body != nil {
		body, _ := json.Marshal(r.Body)
		request.Header.Set("Test-Body", string(body))
		request.Header.Set("Test-Content-Type", r.ContentType)
	}
	if r.Open != "" {
		request.Header.Set("Test-Open", r.Open)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return &openResponse{answer, leave}
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
