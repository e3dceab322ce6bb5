package polylimitgrpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/polylimitgrpc"
)

// client makes a client's interceptor, and a server that answers its first calls by these errors.
func client(t *testing.T, options polylimitgrpc.ClientOptions, answers ...error) *running {
	t.Helper()
	if options.Limiter == nil {
		options.Limiter, options.Policy = opened(t, "memory:"), "1000000/s token_bucket"
	}
	throttled, err := polylimitgrpc.NewClient(options)
	if err != nil {
		t.Fatal(err)
	}
	return serveFor(t, []grpc.DialOption{grpc.WithUnaryInterceptor(throttled)}, grpc.UnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			response, err := handler(ctx, request)
			if len(answers) > 0 {
				response, err, answers = nil, answers[0], answers[1:]
			}
			return response, err
		}))
}

func exhausted(wait time.Duration) error {
	own, err := status.New(codes.ResourceExhausted, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		panic(err)
	}
	return own.Err()
}

func backoff(maxWait time.Duration) *polylimit.Backoff {
	return &polylimit.Backoff{Base: time.Millisecond, Cap: time.Millisecond, MaxWait: maxWait, MaxRetries: 3}
}

func TestClientWaitsAsRetryInfoAsks(t *testing.T) {
	server := client(t, polylimitgrpc.ClientOptions{Backoff: backoff(time.Minute)}, exhausted(900*time.Millisecond))
	began := time.Now()
	if _, err := server.EmptyCall(calling(t), &empty{}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 900*time.Millisecond || server.calls.Load() != 2 {
		t.Error(took, server.calls.Load())
	}
}

func TestClientSendsNothingWhileItWouldWaitForTooLong(t *testing.T) {
	server := client(t, polylimitgrpc.ClientOptions{Backoff: backoff(time.Second)}, exhausted(time.Hour))
	_, err := server.EmptyCall(calling(t), &empty{})
	// The answer of the server, as it is.
	if retry, _ := detailsOf(err); retry.GetRetryDelay().AsDuration() != time.Hour {
		t.Error(err)
	}
	_, err = server.EmptyCall(calling(t), &empty{})
	expectCode(t, codes.ResourceExhausted, err)
	var throttled *polylimit.ThrottledError
	if retry, _ := detailsOf(err); !errors.As(err, &throttled) || retry.GetRetryDelay().AsDuration() != throttled.RetryAfter {
		t.Error(err)
	}
	if server.calls.Load() != 1 {
		t.Error(server.calls.Load())
	}
}

func TestClientStaysWithinItsOwnLimit(t *testing.T) {
	limiter := open(t, polylimit.WithPolicy("api", "1/hour fixed_window"))
	keys := []string{}
	server := client(t, polylimitgrpc.ClientOptions{
		Limiter: limiter, Backoff: backoff(time.Second), Key: func(_ context.Context, method string, _ *grpc.ClientConn) string {
			keys = append(keys, method)
			return method
		},
	})
	for _, expected := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		_, err := server.EmptyCall(calling(t), &empty{})
		expectCode(t, expected, err)
	}
	if _, err := server.UnaryCall(calling(t), &simple{}); err != nil || len(keys) != 3 {
		t.Error(err, keys)
	}
}

func TestClientDoesNotRepeatWhatMayHaveBegun(t *testing.T) {
	for code, expected := range map[codes.Code]int64{codes.Unavailable: 1, codes.Internal: 1, codes.ResourceExhausted: 2} {
		server := client(t, polylimitgrpc.ClientOptions{Backoff: backoff(time.Minute)}, status.Error(code, "once"))
		_, err := server.EmptyCall(calling(t), &empty{})
		if expected == 2 {
			code = codes.OK
		}
		expectCode(t, code, err)
		if found := server.calls.Load(); found != expected {
			t.Error(code, found)
		}
	}
}

func TestClientLeavesTheMetadataToItsCaller(t *testing.T) {
	var header metadata.MD
	server := client(t, polylimitgrpc.ClientOptions{})
	if _, err := server.EmptyCall(calling(t), &empty{}, grpc.Header(&header)); err != nil || len(header.Get("content-type")) != 1 {
		t.Error(header, err)
	}
}

func TestClientEndsItsWaitWithItsContext(t *testing.T) {
	server := client(t, polylimitgrpc.ClientOptions{Backoff: backoff(time.Hour)}, exhausted(30*time.Second))
	ctx, cancel := context.WithCancel(calling(t))
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := server.EmptyCall(ctx, &empty{})
	expectCode(t, codes.Canceled, err)
}

func TestClientRefusesInvalidOptions(t *testing.T) {
	for _, options := range []polylimitgrpc.ClientOptions{{}, {Limiter: opened(t, "memory:")}, {
		Limiter: opened(t, "memory:"), Policy: "1/s", Backoff: &polylimit.Backoff{Base: -1},
	}} {
		if _, err := polylimitgrpc.NewClient(options); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Error(err)
		}
	}
}
