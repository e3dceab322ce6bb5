package polylimitgrpc

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"polylimit.dev/polylimit"
)

// ClientOptions are the options of a client's interceptor. Only Limiter is required.
type ClientOptions struct {
	// Limiter is the limiter that every attempt acquires from.
	Limiter *polylimit.Limiter
	// Policy is its policy, or quotas as text; empty if the limiter has exactly one policy.
	Policy string
	// Key returns the key of a call; nil is the target of the connection.
	Key func(ctx context.Context, method string, connection *grpc.ClientConn) string
	// Cost is the units of each attempt; nil is 1.
	Cost *int64
	// Backoff says how often and how long a call may wait; nil is polylimit.DefaultBackoff. Its MaxWait bounds all waits.
	Backoff *polylimit.Backoff
}

// NewClient makes an interceptor for unary calls that stays within a limit of your own and waits as servers demand, as nethttp.Transport
// does for HTTP: RESOURCE_EXHAUSTED is status 429, and a google.rpc.RetryInfo is Retry-After. A call that would have to wait for too long
// fails with RESOURCE_EXHAUSTED and a *polylimit.ThrottledError, without being sent.
//
// It fails with polylimit.ErrInvalidArgument when the limiter does not know the policy or a setting of the backoff is out of its range.
func NewClient(options ClientOptions) (grpc.UnaryClientInterceptor, error) {
	if options.Limiter == nil {
		return nil, &polylimit.Error{
			Kind: polylimit.ErrInvalidArgument, Message: "ClientOptions.Limiter is nil: allowed is one from polylimit.Open",
		}
	}
	if options.Key == nil {
		options.Key = func(_ context.Context, _ string, connection *grpc.ClientConn) string { return connection.Target() }
	}
	policy, err := options.Limiter.PolicyFor(options.Policy, "")
	if err != nil {
		return nil, err
	}
	throttle, err := polylimit.NewThrottle(options.Backoff)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker,
		callOptions ...grpc.CallOption) error {
		key := polylimit.Key(options.Key(ctx, method, connection)).Policy(policy)
		if options.Cost != nil {
			key = key.Cost(*options.Cost)
		}
		attempts, err := throttle.Start(ctx, options.Limiter, key, http.MethodPost, true)
		if err != nil {
			return clientError(err)
		}
		for {
			if err := attempts.Admit(ctx); err != nil {
				return clientError(err)
			}
			var header, trailer metadata.MD
			own := append(callOptions[:len(callOptions):len(callOptions)], grpc.Header(&header), grpc.Trailer(&trailer))
			failure := invoke(ctx, method, request, reply, connection, own...)
			again, err := attempts.Responded(httpStatus(failure), demandsOf(failure, header, trailer))
			switch {
			case err != nil:
				return clientError(err)
			case !again:
				return failure
			}
		}
	}, nil
}

// demandsOf are the fields by which a server asks its client to wait. A RetryInfo is more exact than the field of the metadata.
func demandsOf(failure error, header, trailer metadata.MD) http.Header {
	fields := headerOf(metadata.Join(header, trailer))
	for _, detail := range statusOf(failure).Details() {
		if info, isRetry := detail.(*errdetails.RetryInfo); isRetry {
			seconds := math.Ceil(max(info.GetRetryDelay().AsDuration(), 0).Seconds())
			fields["Retry-After"] = []string{strconv.FormatInt(int64(seconds), 10)}
		}
	}
	return fields
}

// notSent is the error of a call that was not sent, with the status that callers of gRPC ask for.
type notSent struct {
	error
	status *status.Status
}

func (e *notSent) Unwrap() error { return e.error }

func (e *notSent) GRPCStatus() *status.Status { return e.status }

func clientError(err error) error {
	own := status.FromContextError(err)
	var throttled *polylimit.ThrottledError
	switch {
	case errors.As(err, &throttled):
		own = status.New(codes.ResourceExhausted, err.Error())
		if throttled.RetryAfter < polylimit.Never {
			if detailed, failure := own.WithDetails(retryInfo(throttled.RetryAfter)); failure == nil {
				own = detailed
			}
		}
	case errors.Is(err, polylimit.ErrStoreUnavailable):
		own = status.New(codes.Unavailable, err.Error())
	}
	return &notSent{err, own}
}

func retryInfo(wait time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}
}
