package polylimitgrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/polylimitgrpc"
)

// service is the test service of gRPC itself, as protoc has generated it. The metadata of a call say what it does.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	*counts
}

// counts are what a service and its test share.
type counts struct {
	// How many calls, and messages of streams, it has handled.
	calls, messages atomic.Int64
	// Ends the streams that stay open.
	closing map[string]chan struct{}
}

func (s *service) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	s.calls.Add(1)
	return &grpc_testing.Empty{}, nil
}

func (s *service) UnaryCall(ctx context.Context, request *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	s.calls.Add(1)
	if first(ctx, "test-fail") != "" {
		panic("broken")
	}
	if asked := request.GetResponseStatus(); asked.GetCode() != 0 {
		return nil, status.Error(codes.Code(asked.GetCode()), asked.GetMessage())
	}
	return &grpc_testing.SimpleResponse{Payload: &grpc_testing.Payload{Body: []byte(first(ctx, "test-spent"))}}, nil
}

// StreamingOutputCall sends as many messages as the request has parameters; one that is named stays open.
func (s *service) StreamingOutputCall(request *grpc_testing.StreamingOutputCallRequest, stream grpc_testing.TestService_StreamingOutputCallServer) error {
	s.calls.Add(1)
	ctx := stream.Context()
	for range request.GetResponseParameters() {
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: payload(first(ctx, "test-spent"))}); err != nil {
			return err
		}
		s.messages.Add(1)
	}
	if name := first(ctx, "test-open"); name != "" {
		select {
		case <-s.closing[name]:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// StreamingInputCall goes on after an error, as no service should.
func (s *service) StreamingInputCall(stream grpc_testing.TestService_StreamingInputCallServer) error {
	s.calls.Add(1)
	for {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) || err != nil && stream.Context().Err() != nil {
			break
		}
		if err != nil {
			if _, again := stream.Recv(); again == nil {
				return status.Error(codes.DataLoss, "a stream went on after its end")
			}
			break
		}
		s.messages.Add(1)
	}
	return stream.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: int32(s.messages.Load())})
}

func payload(text string) *grpc_testing.Payload { return &grpc_testing.Payload{Body: []byte(text)} }

func first(ctx context.Context, name string) string {
	sent, _ := metadata.FromIncomingContext(ctx)
	for _, value := range sent.Get(name) {
		return value
	}
	return ""
}

// running is a server with a service, and a client of it.
type running struct {
	grpc_testing.TestServiceClient
	*counts
	connection *grpc.ClientConn
}

// serve starts a server of the service.
func serve(t *testing.T, options ...grpc.ServerOption) *running {
	t.Helper()
	return serveFor(t, nil, options...)
}

func serveFor(t *testing.T, dial []grpc.DialOption, options ...grpc.ServerOption) *running {
	t.Helper()
	server, own := grpc.NewServer(options...), &counts{closing: map[string]chan struct{}{}}
	grpc_testing.RegisterTestServiceServer(server, &service{counts: own})
	dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))
	connection, err := grpc.NewClient(listen(t, server), dial...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return &running{grpc_testing.NewTestServiceClient(connection), own, connection}
}

// listen has a server accept calls until the test ends, at this address.
func listen(t *testing.T, server *grpc.Server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// interceptors are those of these limits, the outer ones first.
func interceptors(limits ...*polylimitgrpc.Limit) []grpc.ServerOption {
	var unary []grpc.UnaryServerInterceptor
	var stream []grpc.StreamServerInterceptor
	for _, limit := range limits {
		unary, stream = append(unary, limit.Unary), append(stream, limit.Stream)
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...)}
}

func limited(t *testing.T, options polylimitgrpc.Options) *polylimitgrpc.Limit {
	t.Helper()
	if options.Limiter == nil {
		options.Limiter = open(t)
	}
	limit, err := polylimitgrpc.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// open opens a limiter whose clock stands still.
func open(t *testing.T, options ...polylimit.Option) *polylimit.Limiter {
	t.Helper()
	clock, err := polylimit.NewManualClock(time.Unix(1789948800, 0))
	if err != nil {
		t.Fatal(err)
	}
	return opened(t, "memory:", append(options, polylimit.WithClock(clock))...)
}

func opened(t *testing.T, url string, options ...polylimit.Option) *polylimit.Limiter {
	t.Helper()
	limiter, err := polylimit.Open(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	return limiter
}

// calling is a context for a call with these metadata, which waits for seconds at most.
func calling(t *testing.T, pairs ...string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

func expectCode(t *testing.T, expected codes.Code, err error) {
	t.Helper()
	if found := status.Code(err); found != expected {
		t.Errorf("%v, not %v: %v", found, expected, err)
	}
}

// detailsOf are the details of a denial.
func detailsOf(err error) (retry *errdetails.RetryInfo, failure *errdetails.QuotaFailure) {
	for _, detail := range status.Convert(err).Details() {
		switch one := detail.(type) {
		case *errdetails.RetryInfo:
			retry = one
		case *errdetails.QuotaFailure:
			failure = one
		}
	}
	return retry, failure
}

func repeated(count int) []*grpc_testing.ResponseParameters {
	parameters := make([]*grpc_testing.ResponseParameters, count)
	for at := range parameters {
		parameters[at] = &grpc_testing.ResponseParameters{Size: int32(at)}
	}
	return parameters
}

func spentOf(text []byte) (int64, bool) {
	spent, err := strconv.ParseInt(string(text), 10, 64)
	return spent, err == nil
}
