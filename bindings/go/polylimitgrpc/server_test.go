package polylimitgrpc_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/middleware"
	"polylimit.dev/polylimit/polylimitgrpc"
)

type (
	empty  = grpc_testing.Empty
	simple = grpc_testing.SimpleRequest
	output = grpc_testing.StreamingOutputCallRequest
	input  = grpc_testing.StreamingInputCallRequest
)

func TestDenialHasCodeDetailsAndFields(t *testing.T) {
	server := serve(t, interceptors(limited(t, polylimitgrpc.Options{Policies: []string{"1/hour fixed_window", "5/day fixed_window"}}))...)
	var header metadata.MD
	if _, err := server.EmptyCall(calling(t), &empty{}, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if found := header.Get("ratelimit"); len(found) != 1 || !strings.Contains(found[0], ";r=0;t=3600") || !strings.Contains(found[0], ";r=4;t=86400") {
		t.Error(header)
	}
	_, err := server.EmptyCall(calling(t), &empty{}, grpc.Header(&header))
	expectCode(t, codes.ResourceExhausted, err)
	if message := status.Convert(err).Message(); message != "Not enough of the quota is left: retry in 3600 s." {
		t.Error(message)
	}
	retry, failure := detailsOf(err)
	if retry.GetRetryDelay().AsDuration() != time.Hour {
		t.Error(retry)
	}
	if found := failure.GetViolations(); len(found) != 1 || !strings.HasPrefix(found[0].GetSubject(), "1|hour+fixed_window~") {
		t.Error(failure)
	}
	if found := header.Get("retry-after"); !slices.Equal(found, []string{"3600"}) {
		t.Error(header)
	}
	if server.calls.Load() != 1 {
		t.Error(server.calls.Load())
	}
}

func TestRetryInfoIsExactAndAbsentWhereNoWaitHelps(t *testing.T) {
	limit := limited(t, polylimitgrpc.Options{Policy: "4/s token_bucket burst=1", Cost: func(call *polylimitgrpc.Call) int64 {
		return int64(len(call.Request.(*simple).GetPayload().GetBody()))
	}})
	server := serve(t, interceptors(limit)...)
	cost := func(units int) error {
		_, err := server.UnaryCall(calling(t), &simple{Payload: payload(strings.Repeat("x", units))})
		return err
	}
	expectCode(t, codes.OK, cost(1))
	if retry, _ := detailsOf(cost(1)); retry.GetRetryDelay().AsDuration() != 250*time.Millisecond {
		t.Error(retry)
	}
	err := cost(2)
	expectCode(t, codes.ResourceExhausted, err)
	if retry, failure := detailsOf(err); retry != nil || failure == nil {
		t.Error(retry, failure)
	}
}

func TestRetryInfoHasTheJitterOfTheField(t *testing.T) {
	limit := limited(t, polylimitgrpc.Options{Policy: "1/day fixed_window", Headers: "ietf jitter=100%"})
	server := serve(t, interceptors(limit)...)
	_, err := server.EmptyCall(calling(t), &empty{})
	expectCode(t, codes.OK, err)
	for range 3 {
		var header metadata.MD
		_, err = server.EmptyCall(calling(t), &empty{}, grpc.Header(&header))
		retry, _ := detailsOf(err)
		if wait := math.Ceil(retry.GetRetryDelay().AsDuration().Seconds()); header.Get("retry-after")[0] != strconv.Itoa(int(wait)) {
			t.Error(header, retry)
		}
	}
}

func TestMethodsHaveBudgetsOfTheirOwn(t *testing.T) {
	server := serve(t, interceptors(limited(t, polylimitgrpc.Options{Policy: "1/hour fixed_window"}))...)
	for _, expected := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		_, err := server.EmptyCall(calling(t), &empty{})
		expectCode(t, expected, err)
		_, err = server.UnaryCall(calling(t), &simple{})
		expectCode(t, expected, err)
		stream, err := server.StreamingOutputCall(calling(t), &output{ResponseParameters: repeated(1)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		expectCode(t, expected, err)
		if header, err := stream.Header(); err != nil || len(header.Get("ratelimit")) != 1 {
			t.Error(header, err)
		}
	}
}

// The clients of an unknown service choose the names of its methods, so that a budget for each would be no limit.
func TestMethodsThatAreNotRegisteredShareABudget(t *testing.T) {
	limit := limited(t, polylimitgrpc.Options{Policy: "1/hour fixed_window"})
	server := serve(t, append(interceptors(limit), grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.NotFound, "it was proxied")
	}))...)
	for at, expected := range []codes.Code{codes.NotFound, codes.ResourceExhausted} {
		err := server.connection.Invoke(calling(t), []string{"/proxied.A/One", "/proxied.B/Two"}[at], &empty{}, &empty{})
		expectCode(t, expected, err)
	}
}

func TestDocumentDecidesByMethodMetadataAndClient(t *testing.T) {
	limiter := open(t, polylimit.WithDocument(`
		polylimit = 1
		client = { trust = ["127.0.0.1"], header = "x-forwarded-for" }
		[policies.unary]
		quotas = "1/hour fixed_window"
		[policies.tenants]
		quotas = "2/hour fixed_window"
		[policies.streams]
		quotas = "1/hour fixed_window"
		[[rules]]
		match = { route = "/grpc.testing.TestService/UnaryCall" }
		apply = [{ policy = "unary", key = "{client}" }]
		[[rules]]
		match = { path = "/grpc.testing.TestService/EmptyCall", header.x-tenant = "*" }
		apply = [{ policy = "tenants", key = "{header.x-tenant}" }]
		[[rules]]
		match = { path = "/{service}/StreamingOutputCall" }
		apply = [{ policy = "streams", key = "{plan}" }]
		[lists]
		deny = ["client 192.0.2.66"]
	`))
	server := serve(t, interceptors(limited(t, polylimitgrpc.Options{Limiter: limiter, Attributes: func(call *polylimitgrpc.Call) map[string]string {
		return map[string]string{"plan": strings.Join(call.Metadata.Get("x-plan"), "")}
	}}))...)
	unary := func(expected codes.Code, pairs ...string) {
		t.Helper()
		_, err := server.UnaryCall(calling(t, pairs...), &simple{})
		expectCode(t, expected, err)
	}
	for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
		unary(codes.OK, "x-forwarded-for", client)
		unary(codes.ResourceExhausted, "x-forwarded-for", client)
	}
	unary(codes.PermissionDenied, "x-forwarded-for", "192.0.2.66")
	for _, expected := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		_, err := server.EmptyCall(calling(t, "x-tenant", "acme"), &empty{})
		expectCode(t, expected, err)
		_, err = server.EmptyCall(calling(t), &empty{})
		expectCode(t, codes.OK, err)
	}
	for _, expected := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		stream, err := server.StreamingOutputCall(calling(t, "x-plan", "free"), &output{ResponseParameters: repeated(1)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		expectCode(t, expected, err)
	}
}

func TestClientIsThePeerUnlessAProxyIsTrusted(t *testing.T) {
	untrusting := serve(t, interceptors(limited(t, polylimitgrpc.Options{Policy: "1/hour fixed_window"}))...)
	trusting := serve(t, interceptors(limited(t, polylimitgrpc.Options{
		Policy: "1/hour fixed_window", Address: polylimit.AddressRules{Trust: []string{"127.0.0.1"}, Header: "x-forwarded-for"},
	}))...)
	for _, server := range []*running{untrusting, trusting} {
		second := map[*running]codes.Code{untrusting: codes.ResourceExhausted, trusting: codes.OK}[server]
		_, err := server.EmptyCall(calling(t, "x-forwarded-for", "192.0.2.1"), &empty{})
		expectCode(t, codes.OK, err)
		_, err = server.EmptyCall(calling(t, "x-forwarded-for", "192.0.2.2"), &empty{})
		expectCode(t, second, err)
	}
}

func TestClientOfAUnixSocketIsThisHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	limiter := open(t)
	server := grpc.NewServer(interceptors(limited(t, polylimitgrpc.Options{Limiter: limiter, Policy: "5/hour fixed_window", Scope: "s"}))...)
	grpc_testing.RegisterTestServiceServer(server, &service{counts: &counts{}})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	connection, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := grpc_testing.NewTestServiceClient(connection).EmptyCall(calling(t), &empty{}); err != nil {
		t.Error(err)
	}
	policy, err := limiter.PolicyFor("5/hour fixed_window", "s")
	if err != nil {
		t.Fatal(err)
	}
	if left, err := limiter.Peek(context.Background(), polylimit.Key("127.0.0.1").Policy(policy)); err != nil || left.Remaining != 4 {
		t.Error(left, err)
	}
}

func TestReceivedMessagesAreCharged(t *testing.T) {
	size := func(call *polylimitgrpc.Call) int64 { return int64(len(call.Request.(*input).GetPayload().GetBody())) }
	limiter := open(t, polylimit.WithPolicy("calls", "100/hour fixed_window"), polylimit.WithPolicy("bytes", "10/hour fixed_window"))
	calls := limited(t, polylimitgrpc.Options{Limiter: limiter, Policy: "calls"})
	bytes := limited(t, polylimitgrpc.Options{Limiter: limiter, Policy: "bytes", Cost: size})
	server := serve(t, grpc.ChainStreamInterceptor(calls.Stream, bytes.Received))
	send := func(texts ...string) (*grpc_testing.StreamingInputCallResponse, metadata.MD, error) {
		stream, err := server.StreamingInputCall(calling(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if stream.Send(&input{Payload: payload(text)}) != nil {
				break
			}
		}
		response, err := stream.CloseAndRecv()
		return response, stream.Trailer(), err
	}
	if response, _, err := send("four", "more"); err != nil || response.GetAggregatedPayloadSize() != 2 {
		t.Fatal(response, err)
	}
	// The second one is the first to exceed the 10 bytes, and the handler's own result is not sent.
	_, trailer, err := send("ab", "c", "d")
	expectCode(t, codes.ResourceExhausted, err)
	if retry, failure := detailsOf(err); retry.GetRetryDelay().AsDuration() != time.Hour || failure.GetViolations()[0].GetSubject() != "bytes" {
		t.Error(retry, failure)
	}
	if found := trailer.Get("ratelimit"); !slices.Equal(found, []string{`"bytes";r=0;t=3600`}) {
		t.Error(trailer)
	}
	if handled := server.messages.Load(); handled != 3 {
		t.Error(handled)
	}
	if left, err := limiter.Peek(context.Background(), polylimit.Key("127.0.0.1").Policy("calls")); err != nil || left.Remaining != 98 {
		t.Error(left, err)
	}
}

func TestSentMessagesAreCharged(t *testing.T) {
	// The same policy for the stream and for its messages: each counts.
	limit := limited(t, polylimitgrpc.Options{Policy: "4/hour fixed_window"})
	server := serve(t, grpc.ChainStreamInterceptor(limit.Stream, limit.Sent))
	stream, err := server.StreamingOutputCall(calling(t), &output{ResponseParameters: repeated(9)})
	if err != nil {
		t.Fatal(err)
	}
	received := 0
	for ; err == nil; received++ {
		_, err = stream.Recv()
	}
	expectCode(t, codes.ResourceExhausted, err)
	if received-1 != 3 || server.messages.Load() != 3 {
		t.Error(received, server.messages.Load())
	}
}

func TestNestedLimitsReportTogether(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("outer", "5/hour fixed_window"), polylimit.WithPolicy("inner", "1/hour fixed_window"))
	outer := limited(t, polylimitgrpc.Options{Limiter: limiter, Policy: "outer"})
	inner := limited(t, polylimitgrpc.Options{Limiter: limiter, Policies: []string{"inner", "outer"}})
	server := serve(t, interceptors(outer, inner)...)
	expected := `"outer";r=4;t=3600, "inner";r=0;t=3600`
	for _, code := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		var header metadata.MD
		_, err := server.EmptyCall(calling(t), &empty{}, grpc.Header(&header))
		expectCode(t, code, err)
		if found := header.Get("ratelimit"); !slices.Equal(found, []string{expected}) {
			t.Errorf("%q, not %q", found, expected)
		}
	}
}

func TestHandlerThatSendsItsHeaderHasTheFieldsInTheTrailer(t *testing.T) {
	limit := limited(t, polylimitgrpc.Options{Policy: "5/hour fixed_window"})
	early := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := grpc.SendHeader(ctx, metadata.Pairs("x-own", "1")); err != nil {
			return nil, err
		}
		return handler(ctx, request)
	}
	server := serve(t, grpc.ChainUnaryInterceptor(limit.Unary, early))
	var header, trailer metadata.MD
	_, err := server.EmptyCall(calling(t), &empty{}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil || len(header.Get("x-own")) != 1 || len(trailer.Get("ratelimit")) != 1 {
		t.Error(header, trailer, err)
	}
}

func TestHandlerSeesTheDecision(t *testing.T) {
	limit := limited(t, polylimitgrpc.Options{Policy: "5/hour fixed_window"})
	var remaining []uint64
	note := func(ctx context.Context) {
		decision, isLimited := middleware.DecisionOf(ctx)
		if !isLimited {
			t.Error("no decision")
		}
		remaining = append(remaining, decision.Remaining)
	}
	server := serve(t, grpc.ChainUnaryInterceptor(limit.Unary, func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		note(ctx)
		return handler(ctx, request)
	}), grpc.ChainStreamInterceptor(limit.Stream, func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		note(stream.Context())
		return handler(server, stream)
	}))
	if _, err := server.EmptyCall(calling(t), &empty{}); err != nil {
		t.Error(err)
	}
	stream, err := server.StreamingOutputCall(calling(t), &output{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) || !slices.Equal(remaining, []uint64{4, 4}) {
		t.Error(err, remaining)
	}
}

func TestOutagePolicyDecidesWithoutTheStore(t *testing.T) {
	for outage, expected := range map[string][]codes.Code{
		"allow": {codes.OK, codes.OK}, "deny": {codes.Unavailable, codes.Unavailable}, "fallback": {codes.OK, codes.ResourceExhausted},
	} {
		// Nothing listens on port 1.
		limiter := opened(t, "redis://127.0.0.1:1?doctor_after=0", polylimit.WithPolicy("api", "1/hour fixed_window"), polylimit.WithOutage("api", outage))
		limit := limited(t, polylimitgrpc.Options{Limiter: limiter})
		server := serve(t, append(interceptors(limit), grpc.ChainStreamInterceptor(limit.Received))...)
		for _, code := range expected {
			var header metadata.MD
			_, err := server.EmptyCall(calling(t), &empty{}, grpc.Header(&header))
			if expectCode(t, code, err); code == codes.OK && len(header.Get("x-ratelimit-outage")) != 1 {
				t.Error(outage, header)
			}
		}
	}
}

func TestOptionsOfHTTPAreRefused(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("api", "1/hour"))
	for name, options := range map[string]polylimitgrpc.Options{
		"Methods":         {Methods: []string{"POST"}},
		"SeparateHead":    {SeparateHead: true},
		"CountPreflights": {CountPreflights: true},
		"CORSOrigins":     {CORSOrigins: []string{"*"}},
		"Status":          {Status: 503},
		"SpentBy":         {SpentBy: "usage:total"},
		"Limiter":         {},
		"Policy":          {Policies: []string{"api"}, Policy: "api"},
	} {
		if name != "Limiter" {
			options.Limiter = limiter
		}
		if _, err := polylimitgrpc.New(options); !errors.Is(err, polylimit.ErrInvalidArgument) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	charges := map[string]polylimitgrpc.PolicyCharge{"api": {SpentBy: "header:x"}}
	if _, err := polylimitgrpc.New(polylimitgrpc.Options{Limiter: limiter, Policy: "api", Charges: charges}); err == nil {
		t.Error("SpentBy of a policy was not refused")
	}
}

func TestErrorOfTheProgramIsInternalAndReported(t *testing.T) {
	reported := make(chan error, 1)
	limit := limited(t, polylimitgrpc.Options{
		Policy:  "1/hour",
		Key:     func(*polylimitgrpc.Call) (string, error) { return "", errors.New("no key today") },
		OnError: func(_ *polylimitgrpc.Call, err error) { reported <- err },
	})
	_, err := serve(t, interceptors(limit)...).EmptyCall(calling(t), &empty{})
	if expectCode(t, codes.Internal, err); strings.Contains(err.Error(), "today") {
		t.Error(err)
	}
	if err := <-reported; err.Error() != "no key today" {
		t.Error(err)
	}
}
