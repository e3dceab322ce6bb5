// An HTTP server in Go whose requests are limited by the net/http middleware of polylimit.
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

func main() {
	limiter, err := polylimit.Open(
		cmp.Or(os.Getenv("POLYLIMIT_URL"), "local:demo"),
		polylimit.WithPolicy("demo", cmp.Or(os.Getenv("POLYLIMIT_QUOTA"), "100/minute")))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Key: user})
	if err != nil {
		log.Fatal(err)
	}
	// With port 0 the system chooses one.
	listener, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, limit(http.HandlerFunc(hello))))
}

// user is whom to limit: the query parameter "user", or "demo".
func user(request *http.Request) (string, error) {
	return cmp.Or(request.URL.Query().Get("user"), "demo"), nil
}

func hello(writer http.ResponseWriter, _ *http.Request) {
	writer.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(writer, `{"hello":"world"}`)
}
