package polylimitgrpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/polylimitgrpc"
)

// guardCase is a case of tests/conformance/guard.json or guard_reservations.json.
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

type guardLeft struct {
	Policy, Key string
	Remaining   uint64
}

type guardRequest struct {
	Method             string
	Headers            map[string]string
	Respond            int
	Fail               bool
	Spent              *uint64
	Open, Close, Leave string
	Then               []guardLeft
	// The time that passes every 100 ms while the call is under way.
	ElapseMs int64 `json:"elapse_ms"`
	Expect   struct {
		Status  int
		Handled *bool
		Fields  map[string]*string
		Text    *string
		Problem map[string]any
	}
}

// Options that only a guard of HTTP has; New refuses them.
var ofHTTP = []string{"methods", "separate_head", "count_preflights", "cors_origins", "status"}

// The codes in place of the statuses in the cases.
var codesOfCases = map[int]codes.Code{
	200: codes.OK, 400: codes.InvalidArgument, 401: codes.Unauthenticated, 403: codes.PermissionDenied, 404: codes.NotFound,
	418: codes.Aborted, 429: codes.ResourceExhausted, 500: codes.Internal, 503: codes.Unavailable,
}

func TestGuardCases(t *testing.T) { runGuardCases(t, "guard.json", 65) }

func TestGuardCasesOfReservations(t *testing.T) { runGuardCases(t, "guard_reservations.json", 29) }

func TestGuardCasesOfWaiting(t *testing.T) { runGuardCases(t, "guard_waiting.json", 12) }

func runGuardCases(t *testing.T, name string, least int) {
	text, err := os.ReadFile("../../../tests/conformance/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []guardCase }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	ran := 0
	for _, one := range file.Cases {
		if one.isOfGRPC() {
			ran++
			t.Run(one.Name, one.run)
		}
	}
	if ran < least {
		t.Errorf("%d cases, fewer than %d", ran, least)
	}
}

func (c guardCase) isOfGRPC() bool {
	isOfHTTP := slices.ContainsFunc(c.Guards, func(guard map[string]json.RawMessage) bool {
		return slices.ContainsFunc(ofHTTP, func(name string) bool { return guard[name] != nil })
	})
	return !isOfHTTP && !slices.ContainsFunc(c.Requests, func(request guardRequest) bool {
		// A stream has its status at its end, and not before what it sends.
		return request.Method != "" || request.Open != "" && request.Respond != 0
	})
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
	var limits []*polylimitgrpc.Limit
	for _, given := range c.Guards {
		limit, err := polylimitgrpc.New(guardOptions(t, given, limiters, c.Store))
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
		limits = append(limits, limit)
	}
	if c.Error != "" {
		t.Error("no option was refused")
	}
	recovering := grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, "it has panicked")
			}
		}()
		return handler(ctx, request)
	})
	server := serve(t, append(interceptors(limits...), recovering)...)
	for _, request := range c.Requests {
		server.closing[request.Open] = make(chan struct{})
	}
	streams := map[string]*openStream{}
	for at, request := range c.Requests {
		switch {
		case request.Close != "":
			close(server.closing[request.Close])
			if _, err := streams[request.Close].Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("step %d: %v", at, err)
			}
		case request.Leave != "":
			streams[request.Leave].leave()
		default:
			stop := request.elapse(t, clock)
			request.send(t, fmt.Sprintf("request %d", at), server, streams)
			stop()
		}
		for _, left := range request.Then {
			left.await(t, fmt.Sprintf("step %d", at), limiters["memory"])
		}
	}
	for _, left := range c.Left {
		left.await(t, "at the end", limiters["memory"])
	}
}

// elapse lets time pass until the returned function is called, so that a guard that holds the call does so first.
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

// await waits until as much is left: a call ends after its client has read the response.
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

// openStream is a stream that its service has not ended.
type openStream struct {
	grpc_testing.TestService_StreamingOutputCallClient
	leave context.CancelFunc
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
	switch store {
	case "memory":
		return opened(t, "memory:", append(options, polylimit.WithClock(clock))...)
	case "down":
		return opened(t, "redis://127.0.0.1:1?doctor_after=0", options...)
	}
	// A store that cannot be opened, because other users may read its file.
	name := fmt.Sprintf("go-grpc-%d", os.Getpid())
	path := fmt.Sprintf("/dev/shm/polylimit-%d-%s", os.Getuid(), name)
	if err := errors.Join(os.WriteFile(path, nil, 0o640), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return opened(t, "local:"+name, options...)
}

// guardOptions are the options of a guard in a case.
func guardOptions(t *testing.T, given map[string]json.RawMessage, limiters map[string]*polylimit.Limiter, store string) polylimitgrpc.Options {
	t.Helper()
	options := polylimitgrpc.Options{}
	if store == "" {
		store = "memory"
	}
	header := func(name string) func(*polylimitgrpc.Call) string {
		return func(call *polylimitgrpc.Call) string { return strings.Join(call.Metadata.Get(name), ", ") }
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
			options.PolicyFunc = func(call *polylimitgrpc.Call) ([]string, error) {
				if plan := header(of.Header)(call); plan != "" {
					return texts(t, of.Plans[plan]), nil
				}
				return texts(t, given["policy"]), nil
			}
		case "key":
			read(&source)
			options.Key = func(call *polylimitgrpc.Call) (string, error) { return header(source.Header)(call), nil }
		case "key_parts":
			for _, part := range texts(t, value) {
				options.KeyParts = append(options.KeyParts, polylimitgrpc.KeyPart(part))
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
					options.Cost = func(*polylimitgrpc.Call) int64 { return cost }
				}
				continue
			}
			read(&source)
			options.Cost = func(call *polylimitgrpc.Call) int64 {
				if cost, err := strconv.ParseInt(header(source.Header)(call), 10, 64); err == nil {
					return cost
				}
				return 1
			}
		case "count":
			var from struct {
				From  int `json:"status_from"`
				Below int `json:"status_below"`
			}
			read(&from)
			options.Count = func(_ *polylimitgrpc.Call, status int, _ http.Header) bool {
				return status >= from.From && (from.Below == 0 || status < from.Below)
			}
		case "spent":
			options.Spent = func(call *polylimitgrpc.Call, _ int, _ http.Header) (int64, bool) {
				response, _ := call.Response.(interface{ GetPayload() *grpc_testing.Payload })
				return spentOf(response.GetPayload().GetBody())
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
			options.Skip = func(call *polylimitgrpc.Call) bool { return header(source.Header)(call) != "" }
		case "headers":
			read(&options.Headers)
		case "message":
			read(&options.Message)
		case "dry_run":
			read(&options.DryRun)
		case "on_denied":
			var response struct{ Body string }
			read(&response)
			options.OnDenied = func(*polylimitgrpc.Call, polylimitgrpc.Denial) error {
				return status.Error(codes.Aborted, response.Body)
			}
		case "on_outage":
			var action string
			read(&action)
			actions := map[string]polylimit.OutageAction{
				"admit": polylimit.AdmitOutage, "deny": polylimit.DenyOutage, "leave": polylimit.LeaveOutage,
			}
			options.OnOutage = func(*polylimitgrpc.Call, polylimit.Outage) polylimit.OutageAction { return actions[action] }
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

// send makes a call, and a stream for a response that stays open, and compares what it gets.
func (r *guardRequest) send(t *testing.T, name string, server *running, streams map[string]*openStream) {
	t.Helper()
	handled := server.calls.Load()
	ctx, leave := context.WithCancel(calling(t))
	t.Cleanup(leave)
	for field, value := range r.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, field, value)
	}
	if r.Fail {
		ctx = metadata.AppendToOutgoingContext(ctx, "test-fail", "1")
	}
	if r.Spent != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, "test-spent", strconv.FormatUint(*r.Spent, 10))
	}
	var header metadata.MD
	var err error
	if r.Open == "" {
		request := &simple{}
		if r.Respond != 0 {
			request.ResponseStatus = &grpc_testing.EchoStatus{Code: int32(codesOfCases[r.Respond])}
		}
		_, err = server.UnaryCall(ctx, request, grpc.Header(&header))
	} else {
		stream, failure := server.StreamingOutputCall(metadata.AppendToOutgoingContext(ctx, "test-open", r.Open), &output{ResponseParameters: repeated(1)})
		if failure != nil {
			t.Fatal(failure)
		}
		streams[r.Open] = &openStream{stream, leave}
		_, err = stream.Recv()
		header, _ = stream.Header()
	}
	r.compare(t, name, err, header, server.calls.Load() > handled)
}

func (r *guardRequest) compare(t *testing.T, name string, err error, header metadata.MD, handled bool) {
	t.Helper()
	expect := r.Expect
	code, isKnown := codesOfCases[expect.Status]
	if !isKnown || status.Code(err) != code || expect.Handled != nil && *expect.Handled != handled {
		t.Errorf("%s: %v, handled %v: %+v", name, err, handled, expect)
	}
	for field, expected := range expect.Fields {
		found := header.Get(field)
		switch {
		case field == "content-type" || field == "vary":
			// Those of a body in HTTP.
		case expected == nil && len(found) > 0:
			t.Errorf("%s: %s is %q, expected none", name, field, found)
		case expected != nil && strings.Join(found, ", ") != *expected:
			t.Errorf("%s: %s is %q, expected %q", name, field, found, *expected)
		}
	}
	message := status.Convert(err).Message()
	if expect.Text != nil && message != strings.TrimSuffix(*expect.Text, "\n") {
		t.Errorf("%s: %q, expected %q", name, message, *expect.Text)
	}
	if expect.Problem == nil {
		return
	}
	if detail := expect.Problem["detail"]; detail != nil && message != detail {
		t.Errorf("%s: %q, expected %q", name, message, detail)
	}
	var violated []any
	_, failure := detailsOf(err)
	for _, one := range failure.GetViolations() {
		violated = append(violated, one.GetSubject())
	}
	if expected := expect.Problem["violated"]; expected != nil && fmt.Sprint(violated) != fmt.Sprint(expected) {
		t.Errorf("%s: %v, expected %v", name, violated, expected)
	}
}
