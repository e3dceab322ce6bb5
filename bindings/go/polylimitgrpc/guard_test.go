package polylimitgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"polylimit.dev/polylimit/internal/guardtest"
	"polylimit.dev/polylimit/polylimitgrpc"
)

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

func runGuardCases(t *testing.T, file string, least int) {
	guardtest.Run(t, file, least, isOfGRPC, startCase)
}

func isOfGRPC(c *guardtest.Case) bool {
	isOfHTTP := slices.ContainsFunc(c.Guards, func(guard guardtest.Options) bool {
		return slices.ContainsFunc(ofHTTP, func(name string) bool { return guard[name] != nil })
	})
	return !isOfHTTP && !slices.ContainsFunc(c.Requests, func(request guardtest.Request) bool {
		// A stream has its status at its end, and not before what it sends.
		return request.Method != "" || request.Open != "" && request.Respond != 0
	})
}

var guardFramework = guardtest.Framework[*polylimitgrpc.Call, func(*polylimitgrpc.Call, polylimitgrpc.Denial) error]{
	Field: func(call *polylimitgrpc.Call, name string) string { return strings.Join(call.Metadata.Get(name), ", ") },
	Spent: func(call *polylimitgrpc.Call, _ http.Header, _ string) (int64, bool) {
		response, _ := call.Response.(interface{ GetPayload() *grpc_testing.Payload })
		return spentOf(response.GetPayload().GetBody())
	},
	Deny: func(_ int, body string) func(*polylimitgrpc.Call, polylimitgrpc.Denial) error {
		return func(*polylimitgrpc.Call, polylimitgrpc.Denial) error { return status.Error(codes.Aborted, body) }
	},
}

// caseService is the service of a case, and its streams that have not ended.
type caseService struct {
	*running
	streams map[string]*openStream
}

type openStream struct {
	grpc_testing.TestService_StreamingOutputCallClient
	leave context.CancelFunc
}

func startCase(t *testing.T, c *guardtest.Case, stores *guardtest.Stores) (guardtest.Service, error) {
	var limits []*polylimitgrpc.Limit
	for _, given := range c.Guards {
		limit, err := polylimitgrpc.New(guardFramework.Read(t, given, stores))
		if err != nil {
			return nil, err
		}
		limits = append(limits, limit)
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
	return &caseService{server, map[string]*openStream{}}, nil
}

// Close has the service end a stream.
func (s *caseService) Close(t *testing.T, name string) {
	close(s.closing[name])
	if _, err := s.streams[name].Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("%s: %v", name, err)
	}
}

// Leave cancels the call of a stream.
func (s *caseService) Leave(name string) { s.streams[name].leave() }

// Send makes a call, and a stream for a response that stays open, and compares what it gets.
func (s *caseService) Send(t *testing.T, name string, r *guardtest.Request) {
	t.Helper()
	handled := s.calls.Load()
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
		_, err = s.UnaryCall(ctx, request, grpc.Header(&header))
	} else {
		stream, failure := s.StreamingOutputCall(metadata.AppendToOutgoingContext(ctx, "test-open", r.Open), &output{ResponseParameters: repeated(1)})
		if failure != nil {
			t.Fatal(failure)
		}
		s.streams[r.Open] = &openStream{stream, leave}
		_, err = stream.Recv()
		header, _ = stream.Header()
	}
	compare(t, name, r, err, header, s.calls.Load() > handled)
}

func compare(t *testing.T, name string, r *guardtest.Request, err error, header metadata.MD, isHandled bool) {
	t.Helper()
	expect := r.Expect
	code, isKnown := codesOfCases[expect.Status]
	if !isKnown || status.Code(err) != code || expect.Handled != nil && *expect.Handled != isHandled {
		t.Errorf("%s: %v, handled %v: %+v", name, err, isHandled, expect)
	}
	// The ignored fields are those of a body in HTTP.
	r.CompareFields(t, name, header.Get, "content-type", "vary")
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
