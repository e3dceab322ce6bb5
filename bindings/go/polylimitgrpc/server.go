// Package polylimitgrpc limits the calls of gRPC servers, and the calls of clients to servers that have limits.
//
//	limit, err := polylimitgrpc.New(polylimitgrpc.Options{Limiter: limiter, Policy: "api"})
//	...
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// docs/grpc.md describes the interceptors, and docs/http.md the options.
package polylimitgrpc

import (
	"context"
	"net/http"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/middleware"
)

// Options are the options of a limit. Only Limiter is required. The scope of quotas without a name is the method, "/package.Service/Method",
// and rules of a configuration see it as path and as route. Header fields are metadata. The status that Count and Spent take is that of
// HTTP for the code of the call (google/rpc/code.proto); Call.Err has the code, and Call.Response what a Spent may read.
//
// New refuses what a call does not have: Methods, SeparateHead, CountPreflights, CORSOrigins, Status, and SpentBy.
type Options = middleware.Options[*Call, func(*Call, Denial) error]

// PolicyCharge is what a policy of Options.Policies has for itself: a cost, and what was spent.
type PolicyCharge = middleware.PolicyCharge[*Call]

// KeyPart is a part of the key of a call, such as middleware.Header("x-tenant"): a field of its metadata.
type KeyPart = middleware.KeyPart

// Denial is why a call does not proceed; Status is the default status.
type Denial = middleware.Denial

// Limit has the interceptors of a server. Any goroutine may use it at any time.
type Limit struct {
	limit *middleware.Limit[*Call, func(*Call, Denial) error]
}

// New makes a limit. It fails with polylimit.ErrInvalidArgument for an invalid option.
func New(options Options) (*Limit, error) {
	refused := map[string]bool{
		"Methods": len(options.Methods) > 0, "SeparateHead": options.SeparateHead, "CountPreflights": options.CountPreflights,
		"CORSOrigins": len(options.CORSOrigins) > 0, "Status": options.Status != 0, "SpentBy": options.SpentBy != "",
	}
	for _, charge := range options.Charges {
		refused["SpentBy"] = refused["SpentBy"] || charge.SpentBy != ""
	}
	for _, name := range []string{"Methods", "SeparateHead", "CountPreflights", "CORSOrigins", "Status", "SpentBy"} {
		if refused[name] {
			return nil, &polylimit.Error{Kind: polylimit.ErrInvalidArgument, Message: "Options." + name +
				" is for HTTP: calls of gRPC are selected by Skip or by rules, denied by OnDenied, and measured by Spent"}
		}
	}
	limit, err := middleware.New(options, framework)
	if err != nil {
		return nil, err
	}
	return &Limit{limit}, nil
}

// Unary is a grpc.UnaryServerInterceptor.
func (l *Limit) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	call := newCall(ctx, info.FullMethod, request, true)
	ctx, fields := withFields(ctx)
	if fields.isOwn {
		// The limits inside of this one have written theirs by then. A handler may have sent the header.
		defer func() {
			if own := metadataOf(fields.header); grpc.SetHeader(call.Context, own) != nil {
				_ = grpc.SetTrailer(call.Context, own)
			}
		}()
	}
	err := l.serve(ctx, call, fields.header, func(ctx context.Context) (err error) {
		call.Response, err = handler(ctx, request)
		return err
	})
	return call.Response, err
}

// Stream is a grpc.StreamServerInterceptor: it decides once about each stream, when it begins.
func (l *Limit) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	call := newCall(stream.Context(), info.FullMethod, nil, server != nil)
	ctx, fields := withFields(stream.Context())
	limited := &limitedStream{ServerStream: stream, call: call, fields: fields}
	defer limited.report()
	return l.serve(ctx, call, fields.header, func(ctx context.Context) error {
		limited.ctx = ctx
		return handler(server, limited)
	})
}

// serve decides about a call and runs it. What it holds ends when the handler has returned.
func (l *Limit) serve(ctx context.Context, call *Call, fields http.Header, run func(context.Context) error) (err error) {
	call.request = call.request.WithContext(ctx)
	l.decide(call, fields, &err, middleware.Answers{
		Run:    func(ctx context.Context) { err = run(ctx) },
		Settle: func(own *middleware.Admission) { err = l.serveAndSettle(own, call, fields, run) },
	})
	return err
}

// decide decides about a call or a message, and goes on; err is that of one that does not proceed.
func (l *Limit) decide(call *Call, fields http.Header, err *error, answers middleware.Answers) {
	answers.Fail = func(httpStatus int) { *err = status.Error(codeOf(httpStatus), "the call could not be limited") }
	answers.Deny = func(denial Denial) {
		if respond := l.limit.OnDenied(); respond != nil {
			*err = respond(call, denial)
			return
		}
		*err = Status(denial).Err()
	}
	own, failure := l.limit.Decide(call, fields)
	l.limit.Proceed(call, own, failure, []string{"application/grpc"}, answers)
}

func (l *Limit) serveAndSettle(own *middleware.Admission, call *Call, fields http.Header, run func(context.Context) error) error {
	defer own.Close()
	// That of a handler that panics.
	call.Err = status.Error(codes.Internal, "the handler has panicked")
	hasReturned := false
	defer func() {
		code, isGone := httpStatus(call.Err), middleware.IsGone(call.request)
		if isGone {
			code = middleware.ClientClosedRequest
		}
		l.limit.Settle(own, call, code, fields)
		if !hasReturned || isGone && call.Response == nil {
			// No response says what was spent.
			code = 0
		}
		if own.Holds() {
			l.limit.End(own, call, code, fields)
		}
	}()
	call.Err = run(own)
	hasReturned = true
	return call.Err
}

// writtenFields are the fields that all limits of a call write, and whether this limit is the outermost, which sends them.
type writtenFields struct {
	header http.Header
	isOwn  bool
}

type fieldsKey struct{}

func withFields(ctx context.Context) (context.Context, writtenFields) {
	if outer, isInner := ctx.Value(fieldsKey{}).(http.Header); isInner {
		return ctx, writtenFields{outer, false}
	}
	header := http.Header{}
	return context.WithValue(ctx, fieldsKey{}, header), writtenFields{header, true}
}

// limitedStream is a stream behind a limit. The fields are sent with its header.
type limitedStream struct {
	grpc.ServerStream
	ctx    context.Context
	call   *Call
	fields writtenFields
	once   sync.Once
}

func (s *limitedStream) Context() context.Context { return s.ctx }

// report sends the fields, unless it has done so.
func (s *limitedStream) report() {
	s.once.Do(func() {
		if own := metadataOf(s.fields.header); s.fields.isOwn && s.SetHeader(own) != nil {
			s.SetTrailer(own)
		}
	})
}

func (s *limitedStream) SendHeader(own metadata.MD) error {
	s.report()
	return s.ServerStream.SendHeader(own)
}

func (s *limitedStream) SendMsg(message any) error {
	s.report()
	err := s.ServerStream.SendMsg(message)
	if err == nil {
		s.call.Response = message
	}
	return err
}
