package nethttp

import (
	"bufio"
	"net"
	"net/http"
)

// observed remembers the status of a response. What else a writer can do is done by the one inside it.
type observed struct {
	http.ResponseWriter
	status int
	wrote  bool
}

// WriteHeader remembers the first status that is final.
func (o *observed) WriteHeader(status int) {
	if !o.wrote && status >= http.StatusOK {
		o.status, o.wrote = status, true
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *observed) Write(body []byte) (int, error) {
	o.wrote = true
	return o.ResponseWriter.Write(body)
}

// Unwrap is for http.ResponseController.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// Flush is for those who ask whether a writer is an http.Flusher.
func (o *observed) Flush() {
	o.wrote = true
	_ = http.NewResponseController(o.ResponseWriter).Flush()
}

// Hijack is for those who ask whether a writer is an http.Hijacker.
func (o *observed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(o.ResponseWriter).Hijack()
}
