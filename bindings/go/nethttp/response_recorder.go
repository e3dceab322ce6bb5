package nethttp

import (
	"bufio"
	"net"
	"net/http"

	"polylimit.dev/polylimit/middleware"
)

// responseRecorder reports the status of a response before its header is sent. Everything else is done by the wrapped writer.
type responseRecorder struct {
	http.ResponseWriter
	// The final status; 0 before it is known.
	status int
	// settle refunds the request's units if a response with this status does not count. It is called once, before the header is
	// sent, so that the header fields include the refund.
	settle func(status int)
	// onClose ends what the request holds, when the handler has taken over the connection and closes it; nil where it holds nothing.
	onClose    func(status int)
	isHijacked bool
	// reader reads a response that reports what was spent; nil where it does not.
	reader *middleware.ResponseReader
}

// begin calls settle with the first final status.
func (r *responseRecorder) begin(status int) {
	if r.status == 0 && (status >= http.StatusOK || r.isHijacked) {
		r.status = status
		r.settle(status)
		r.reader.Read(r.Header(), nil)
	}
}

func (r *responseRecorder) WriteHeader(status int) {
	r.begin(status)
	r.ResponseWriter.WriteHeader(status)
}

func (r *responseRecorder) Write(body []byte) (int, error) {
	r.begin(http.StatusOK)
	r.reader.Read(r.Header(), body)
	return r.ResponseWriter.Write(body)
}

// Unwrap is for http.ResponseController.
func (r *responseRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush implements http.Flusher.
func (r *responseRecorder) Flush() {
	r.begin(http.StatusOK)
	_ = http.NewResponseController(r.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker. The connection holds what the request holds until it is closed, and the status is 101.
func (r *responseRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffer, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.onClose != nil {
		r.isHijacked = true
		r.begin(http.StatusSwitchingProtocols)
		connection = &heldConnection{connection, r.onClose}
	}
	return connection, buffer, err
}

// heldConnection is a connection that a handler has taken over from a request that holds something.
type heldConnection struct {
	net.Conn
	onClose func(status int)
}

func (c *heldConnection) Close() error {
	defer c.onClose(http.StatusSwitchingProtocols)
	return c.Conn.Close()
}
