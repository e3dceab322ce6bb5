package nethttp

import (
	"bufio"
	"net"
	"net/http"
)

// observed is the writer of a request whose response may not count. What else a writer can do is done by the one inside it.
type observed struct {
	http.ResponseWriter
	wrote bool
	// settle refunds the request's units if a response with this status does not count. It is called once, before the header is
	// sent, so that the fields tell what is left then.
	settle func(status int)
}

// begin settles with the first status that is final.
func (o *observed) begin(status int) {
	if !o.wrote && status >= http.StatusOK {
		o.wrote = true
		o.settle(status)
	}
}

func (o *observed) WriteHeader(status int) {
	o.begin(status)
	o.ResponseWriter.WriteHeader(status)
}

func (o *observed) Write(body []byte) (int, error) {
	o.begin(http.StatusOK)
	return o.ResponseWriter.Write(body)
}

// Unwrap is for http.ResponseController.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// Flush is for those who ask whether a writer is an http.Flusher.
func (o *observed) Flush() {
	o.begin(http.StatusOK)
	_ = http.NewResponseController(o.ResponseWriter).Flush()
}

// Hijack is for those who ask whether a writer is an http.Hijacker.
func (o *observed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(o.ResponseWriter).Hijack()
}
