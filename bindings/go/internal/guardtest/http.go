package guardtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// HTTP sends the requests of a case to a server. A field of each request has what its handler is to do.
type HTTP struct {
	// Handled is whether the handler has got the request.
	Handled atomic.Bool
	// Closing has a channel for each response that stays open, which is closed when the rest is to be sent.
	Closing map[string]chan struct{}
	// URL is that of the server.
	URL string
	// HasLeft, unless nil, is called when a client has closed its connection.
	HasLeft func(name string)
	open    map[string]*openResponse
}

// NewHTTP makes a client for the requests of a case. Its URL is set when the server runs.
func NewHTTP(c *Case) *HTTP {
	client := &HTTP{Closing: map[string]chan struct{}{}, open: map[string]*openResponse{}}
	for _, request := range c.Requests {
		client.Closing[request.Open] = make(chan struct{})
	}
	return client
}

// Response is what the handler is to do.
type Response struct {
	Status      int
	Fail        bool
	Spent       string
	ContentType string
	Body        []string
	Open        string
}

// Begin reads what the handler is to do from the fields of a request.
func (h *HTTP) Begin(t *testing.T, field func(name string) string) Response {
	h.Handled.Store(true)
	var response Response
	if err := json.Unmarshal([]byte(field("Test-Response")), &response); err != nil {
		t.Error(err)
	}
	return response
}

// openResponse is a response whose body was not read yet.
type openResponse struct {
	*http.Response
	leave context.CancelFunc
}

func (r *openResponse) read(t *testing.T) string {
	t.Helper()
	defer r.leave()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Close sends an open response to its end.
func (h *HTTP) Close(t *testing.T, name string) {
	t.Helper()
	close(h.Closing[name])
	if body := h.open[name].read(t); body != "the end" {
		t.Errorf("%s: body %q", name, body)
	}
}

// Leave closes the connection of an open response.
func (h *HTTP) Leave(name string) {
	h.open[name].leave()
	if h.HasLeft != nil {
		h.HasLeft(name)
	}
}

// Send sends a request and compares its response.
func (h *HTTP) Send(t *testing.T, name string, r *Request) {
	t.Helper()
	h.Handled.Store(false)
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, method, h.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range r.Headers {
		request.Header.Set(field, value)
	}
	wanted := Response{Status: r.Respond, Fail: r.Fail, ContentType: r.ContentType, Body: r.Body, Open: r.Open}
	if wanted.Status == 0 {
		wanted.Status = http.StatusOK
	}
	if r.Spent != nil {
		wanted.Spent = strconv.FormatUint(*r.Spent, 10)
	}
	text, err := json.Marshal(wanted)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Test-Response", string(text))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response, body := &openResponse{answer, leave}, ""
	if r.Open == "" {
		body = response.read(t)
	} else {
		h.open[r.Open] = response
	}
	r.compare(t, name, answer, body, h.Handled.Load())
}

func (r *Request) compare(t *testing.T, name string, answer *http.Response, body string, isHandled bool) {
	t.Helper()
	expect := r.Expect
	if expect.Status != answer.StatusCode || expect.Handled != nil && *expect.Handled != isHandled {
		t.Errorf("%s: status %d, handled %v: %+v", name, answer.StatusCode, isHandled, expect)
	}
	r.CompareFields(t, name, answer.Header.Values)
	if expect.Text != nil && body != *expect.Text {
		t.Errorf("%s: body %q, expected %q", name, body, *expect.Text)
	}
	if expect.Problem == nil {
		return
	}
	var problem map[string]any
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatalf("%s: %q: %v", name, body, err)
	}
	for member, expected := range expect.Problem {
		if member == "violated" {
			member = "violated-policies"
		}
		if fmt.Sprint(problem[member]) != fmt.Sprint(expected) {
			t.Errorf("%s: %s is %v, expected %v", name, member, problem[member], expected)
		}
	}
}

// CompareFields compares the fields of a response with those that the case expects, but for the ignored ones.
func (r *Request) CompareFields(t *testing.T, name string, values func(field string) []string, ignored ...string) {
	t.Helper()
	for field, expected := range r.Expect.Fields {
		found := values(field)
		switch {
		case slices.Contains(ignored, field):
		case expected == nil && len(found) > 0:
			t.Errorf("%s: %s is %q, expected none", name, field, found)
		case expected != nil && strings.Join(found, ", ") != *expected:
			t.Errorf("%s: %s is %q, expected %q", name, field, found, *expected)
		}
	}
}
