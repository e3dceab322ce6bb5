package polylimitgrpc

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"polylimit.dev/polylimit/middleware"
)

// Call is what a limit knows about a call. The functions of Options take it.
type Call struct {
	// Context is the context of the call, with what interceptors outside of the limit have added.
	Context context.Context
	// FullMethod is "/package.Service/Method".
	FullMethod string
	// Metadata is what the client has sent.
	Metadata metadata.MD
	// Request is the request of a unary call, and the message that Received or Sent decides about; nil for a stream as a whole.
	Request any
	// Response is the response of a unary call, or the last message that a stream has sent, for Options.Count and Options.Spent.
	Response any
	// Err is the error of the call, for Options.Count and Options.Spent.
	Err error

	// The call as the guard reads it, and the route.
	request *http.Request
	route   string
}

// framework reads a call as the request that it is in HTTP/2. A method that is not registered, which only an unknown service handler
// serves, has no route: its clients choose the name.
var framework = middleware.Framework[*Call]{
	HTTP:      func(call *Call) *http.Request { return call.request },
	Route:     func(call *Call) string { return call.route },
	PathValue: func(*Call, string) string { return "" },
}

func newCall(ctx context.Context, method string, request any, isRegistered bool) *Call {
	sent, _ := metadata.FromIncomingContext(ctx)
	call := &Call{Context: ctx, FullMethod: method, Metadata: sent, Request: request}
	if isRegistered {
		call.route = method
	}
	plain := &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: method}, RequestURI: method, RemoteAddr: peerOf(ctx), Header: headerOf(sent),
	}
	if authority := sent.Get(":authority"); len(authority) > 0 {
		plain.Host = authority[0]
	}
	call.request = plain.WithContext(ctx)
	return call
}

// message is the call for the decision about one of its messages. The guard does not see the values of the context, where the limits of
// the call have left what they charged: each message counts.
func (c *Call) message(message any) *Call {
	own := *c
	own.Request, own.request = message, c.request.WithContext(valueless{c.Context})
	return &own
}

// headerOf are metadata as header fields, without those of HTTP/2 itself and without binary values.
func headerOf(sent metadata.MD) http.Header {
	header := make(http.Header, len(sent))
	for name, values := range sent {
		if name[:1] != ":" && !isBinary(name) {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	return header
}

func isBinary(name string) bool { return len(name) > 4 && name[len(name)-4:] == "-bin" }

// peerOf is the address at the other end of the connection. A client without one, such as that of a Unix socket, is on this host.
func peerOf(ctx context.Context) string {
	if other, isKnown := peer.FromContext(ctx); isKnown && other.Addr != nil {
		address := other.Addr.String()
		if _, err := netip.ParseAddrPort(address); err == nil {
			return address
		}
	}
	return "127.0.0.1"
}

// valueless is a context without its values.
type valueless struct{ context.Context }

func (valueless) Value(any) any { return nil }
