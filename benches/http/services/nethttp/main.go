// A net/http service with the middleware that the environment selects: VARIANT, STORE.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/redis/go-redis/v9"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

func main() {
	handler, err := handlerOf(os.Getenv("VARIANT"), os.Getenv("STORE"))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, handler))
}

func handlerOf(variant, store string) (http.Handler, error) {
	mux := http.NewServeMux()
	switch variant {
	case "round_trip":
		options, err := redis.ParseURL(store)
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(options)
		mux.HandleFunc("/", func(writer http.ResponseWriter, request *http.Request) {
			if err := client.Get(request.Context(), "missing").Err(); err != nil && !errors.Is(err, redis.Nil) {
				http.Error(writer, err.Error(), http.StatusInternalServerError)
				return
			}
			hello(writer, request)
		})
		return mux, nil
	case "fields":
		mux.HandleFunc("/", hello)
		return withConstantFields(mux), nil
	case "polylimit":
		mux.HandleFunc("/", hello)
		limiter, err := polylimit.Open(store, polylimit.WithPolicy("all", "1000000000/day"))
		if err != nil {
			return nil, err
		}
		limit, err := nethttp.New(nethttp.Options{Limiter: limiter})
		if err != nil {
			return nil, err
		}
		return limit(mux), nil
	default:
		mux.HandleFunc("/", hello)
		return mux, nil
	}
}

func hello(writer http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(writer, "hello")
}

func withConstantFields(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		fields := writer.Header()
		fields.Set("Ratelimit-Policy", `"all";q=1000000000;w=86400`)
		fields.Set("Ratelimit", `"all";r=999999999;t=86400`)
		next.ServeHTTP(writer, request)
	})
}
