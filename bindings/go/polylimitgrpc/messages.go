package polylimitgrpc

import (
	"context"
	"net/http"
	"sync"

	"google.golang.org/grpc"

	"polylimit.dev/polylimit/middleware"
)

// Received is a grpc.StreamServerInterceptor that decides about each message of a stream that the server receives, with Call.Request as
// the message. The first denial ends the stream: RecvMsg returns its error, and so does the call, whatever the handler returns. The
// header fields of the denial are in the trailer.
func (l *Limit) Received(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return l.messages(server, stream, info, handler, true)
}

// Sent is Received for each message that the server sends. A message that is denied is not sent.
func (l *Limit) Sent(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return l.messages(server, stream, info, handler, false)
}

func (l *Limit) messages(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler, received bool) error {
	limited := &limitedMessages{
		ServerStream: stream, limit: l, call: newCall(stream.Context(), info.FullMethod, nil, server != nil), received: received,
	}
	err := handler(server, limited)
	if denial := limited.ended(); denial != nil {
		return denial
	}
	return err
}

// limitedMessages is a stream whose messages are limited in one direction.
type limitedMessages struct {
	grpc.ServerStream
	limit    *Limit
	call     *Call
	received bool
	mutex    sync.Mutex
	denial   error
}

func (s *limitedMessages) RecvMsg(message any) error {
	if !s.received {
		return s.ServerStream.RecvMsg(message)
	}
	if err := s.ended(); err != nil {
		return err
	}
	// What a message costs may be in it.
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return s.admit(message)
}

func (s *limitedMessages) SendMsg(message any) error {
	if !s.received {
		if err := s.admit(message); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(message)
}

// ended is the denial that has ended the stream.
func (s *limitedMessages) ended() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.denial
}

func (s *limitedMessages) admit(message any) error {
	if err := s.ended(); err != nil {
		return err
	}
	call, fields := s.call.message(message), http.Header{}
	var err error
	isAdmitted := false
	s.limit.decide(call, fields, &err, middleware.Answers{
		Run: func(context.Context) { isAdmitted = true },
		Settle: func(own *middleware.Admission) {
			defer own.Close()
			isAdmitted = true
			if own.Holds() {
				// A message is done when it has arrived.
				s.limit.limit.End(own, call, 0, fields)
			}
		},
	})
	if isAdmitted {
		return nil
	}
	s.SetTrailer(metadataOf(fields))
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.denial = err
	return err
}
