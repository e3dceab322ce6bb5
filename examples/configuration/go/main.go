// A service in Go whose limits come from a document that changes while the service runs.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

func main() {
	limiter, err := polylimit.Open(
		cmp.Or(os.Getenv("POLYLIMIT_URL"), "local:demo"),
		polylimit.WithConfiguration(cmp.Or(os.Getenv("POLYLIMIT_CONFIGURATION"), "file:polylimit.toml")))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	// It decides about each request by the document's lists and rules.
	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Attributes: attributes})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(writer http.ResponseWriter, _ *http.Request) {
		answer(writer, map[string]any{"hello": "world"})
	})
	mux.HandleFunc("/configuration", func(writer http.ResponseWriter, request *http.Request) {
		tellConfiguration(limiter, writer, request)
	})
	// With port 0 the system chooses one.
	listener, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8083"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, limit(mux)))
}

// attributes are what the rules may ask for besides. An application takes both from the session of its user.
func attributes(request *http.Request) map[string]string {
	query := request.URL.Query()
	return map[string]string{"user": query.Get("user"), "plan": query.Get("plan")}
}

// tellConfiguration waits for a version of the configuration, and returns the active one.
func tellConfiguration(limiter *polylimit.Limiter, writer http.ResponseWriter, request *http.Request) {
	version, err := strconv.ParseUint(cmp.Or(request.URL.Query().Get("version"), "0"), 10, 64)
	if err != nil {
		http.Error(writer, "version is a number", http.StatusBadRequest)
		return
	}
	status, err := limiter.Admin().WaitForVersion(request.Context(), version, 30*time.Second)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(writer, map[string]any{"version": status.Version, "digest": status.Digest})
}

func answer(writer http.ResponseWriter, body map[string]any) {
	writer.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(writer).Encode(body)
}
