package nethttp

import (
	"bufio"
	"net"
	"net/http"
)

// responseRecorder reports the status of a response before its header is sent. Everything else is done by the wrapped writer.
type responseRecorder struct {
	http.ResponseWriter
	wrote bool
	// settle refunds the request's units if a response with this status does not count. It is called once, before the header is
	// sent, so that the header fields include the refund.
	settle func(status int)
}

// begin calls settle with the first final status.
func (r *responseRecorder) begin(status int) {
	if !r.wrote && status >= http.StatusOK {
		r.wrote = true
		r.settle(status)
	}
}

func (r *responseRecorder) WriteHeader(status int) {
	r.begin(status)
	r.ResponseWriter.WriteHeader(status)
}

func (r *responseRecorder) Write(body []byte) (int, error) {
	r.begin(http.StatusOK)
	return r.ResponseWriter.Write(body)
}

// Unwrap is for http.ResponseController.
func (r *responseRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush implements http.Flusher.
func (r *responseRecorder) Flush() {
	r.begin(http.StatusOK)
	_ = http.NewResponseController(r.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (r *responseRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(r.ResponseWriter).Hijack()
}
