package nethttp_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"polylimit.dev/polylimit/internal/guardtest"
	"polylimit.dev/polylimit/nethttp"
)

func TestGuardCases(t *testing.T) { runGuardCases(t, "guard.json", 80) }

func TestGuardCasesOfReservations(t *testing.T) { runGuardCases(t, "guard_reservations.json", 30) }

func TestGuardCasesOfMeters(t *testing.T) { runGuardCases(t, "guard_meters.json", 13) }

func TestGuardCasesOfWaiting(t *testing.T) { runGuardCases(t, "guard_waiting.json", 12) }

func runGuardCases(t *testing.T, file string, least int) {
	guardtest.Run(t, file, least, func(*guardtest.Case) bool { return true }, startCase)
}

var guardFramework = guardtest.Framework[*http.Request, func(http.ResponseWriter, *http.Request, nethttp.Denial)]{
	Field: func(request *http.Request, name string) string { return request.Header.Get(name) },
	Spent: guardtest.SpentOfHeader[*http.Request],
	Deny: func(status int, body string) func(http.ResponseWriter, *http.Request, nethttp.Denial) {
		return func(writer http.ResponseWriter, _ *http.Request, _ nethttp.Denial) {
			writer.WriteHeader(status)
			_, _ = io.WriteString(writer, body)
		}
	},
}

func startCase(t *testing.T, c *guardtest.Case, stores *guardtest.Stores) (guardtest.Service, error) {
	client := guardtest.NewHTTP(c)
	var handler http.Handler = http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		wanted := client.Begin(t, request.Header.Get)
		if wanted.Spent != "" {
			writer.Header().Set("X-Spent", wanted.Spent)
		}
		if wanted.Fail {
			panic("broken")
		}
		if wanted.ContentType != "" {
			writer.Header().Set("Content-Type", wanted.ContentType)
		}
		writer.WriteHeader(wanted.Status)
		for _, piece := range wanted.Body {
			_, _ = io.WriteString(writer, piece)
		}
		if wanted.Open != "" {
			_ = http.NewResponseController(writer).Flush()
			select {
			case <-client.Closing[wanted.Open]:
				_, _ = io.WriteString(writer, "the end")
			case <-request.Context().Done():
			}
		}
	})
	for _, given := range slices.Backward(c.Guards) {
		limit, err := nethttp.New(guardFramework.Read(t, given, stores))
		if err != nil {
			return nil, err
		}
		handler = limit(handler)
	}
	server := httptest.NewUnstartedServer(recovering(handler))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	client.URL = server.URL
	return client, nil
}

// recovering answers 500 for a handler that panics, as a service does that wants to answer at all.
func recovering(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		defer func() {
			if recover() != nil {
				writer.WriteHeader(http.StatusInternalServerError)
			}
		}()
		handler.ServeHTTP(writer, request)
	})
}
