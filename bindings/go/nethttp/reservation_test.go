package nethttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/internal/guardtest"
	"polylimit.dev/polylimit/nethttp"
)

// slots is a server with a limited handler, and the limiter by which tests see what is left.
type slots struct {
	*httptest.Server
	limiter *polylimit.Limiter
}

func serveSlots(t *testing.T, url, quotas string, options nethttp.Options, handler http.HandlerFunc) slots {
	t.Helper()
	limiter, err := polylimit.Open(url, polylimit.WithPolicy("model", quotas))
	if err != nil {
		t.Fatal(err)
	}
	options.Limiter, options.Key = limiter, func(*http.Request) (string, error) { return "k", nil }
	limit, err := nethttp.New(options)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(limit(handler))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(func() {
		server.Close()
		limiter.Close()
	})
	return slots{server, limiter}
}

// await waits until as much is left.
func (s slots) await(t *testing.T, remaining uint64) {
	t.Helper()
	guardtest.Left{Policy: "model", Key: "k", Remaining: remaining}.Await(t, "meanwhile", s.limiter)
}

// dial opens a connection and sends a request.
func (s slots) dial(t *testing.T, path string) (net.Conn, *bufio.Reader) {
	t.Helper()
	connection, err := net.DialTimeout("tcp", strings.TrimPrefix(s.URL, "http://"), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	return connection, bufio.NewReader(connection)
}

func TestStreamedResponseHoldsItsSlotUntilItsEnd(t *testing.T) {
	next := make(chan string)
	server := serveSlots(t, "memory:", "1 concurrent", nethttp.Options{}, func(writer http.ResponseWriter, _ *http.Request) {
		for part := range next {
			_, _ = io.WriteString(writer, part)
			if err := http.NewResponseController(writer).Flush(); err != nil {
				t.Error(err)
			}
		}
	})
	stream := make(chan *http.Response)
	go func() {
		answer, err := http.Get(server.URL)
		if err != nil {
			t.Error(err)
		}
		stream <- answer
	}()
	next <- "one"
	answer := <-stream
	defer answer.Body.Close()
	server.await(t, 0)
	if denied := get(t, server.URL); denied.status != http.StatusTooManyRequests || denied.header.Get("Retry-After") == "" {
		t.Errorf("%+v", denied)
	}
	next <- "two"
	server.await(t, 0)
	close(next)
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "onetwo" {
		t.Error(string(body), err)
	}
	server.await(t, 1)
}

func TestConnectionThatAHandlerTakesOverHoldsItsSlotUntilItIsClosed(t *testing.T) {
	taken := make(chan net.Conn, 1)
	var statuses []int
	options := nethttp.Options{
		FixedCost: 40,
		Spent: func(_ *http.Request, status int, _ http.Header) (int64, bool) {
			statuses = append(statuses, status)
			return 7, true
		},
	}
	server := serveSlots(t, "memory:", "1 concurrent; 100/day fixed_window", options, func(writer http.ResponseWriter, _ *http.Request) {
		connection, buffered, err := http.NewResponseController(writer).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\nhello")
		_ = buffered.Flush()
		// The handler returns, and the connection stays open.
		taken <- connection
	})
	client, reader := server.dial(t, "/")
	connection := <-taken
	if answer, err := http.ReadResponse(reader, nil); err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(answer, err)
	}
	if denied := get(t, server.URL); denied.status != http.StatusTooManyRequests {
		t.Errorf("%+v", denied)
	}
	server.await(t, 0)
	// The client leaves, and the program notices it and closes the connection, twice.
	_ = client.Close()
	if _, err := io.ReadAll(connection); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Log(err)
	}
	_ = connection.Close()
	_ = connection.Close()
	server.await(t, 93)
	if len(statuses) != 1 || statuses[0] != http.StatusSwitchingProtocols {
		t.Error(statuses)
	}
}

func TestClientThatLeavesGivesItsSlotBack(t *testing.T) {
	options := nethttp.Options{
		FixedCost: 40,
		Spent: func(request *http.Request, _ int, header http.Header) (int64, bool) {
			if request.URL.Path == "/silent" {
				t.Error("there was no response")
			}
			return 7, header.Get("X-Spent") == "7"
		},
	}
	entered := make(chan struct{}, 1)
	server := serveSlots(t, "memory:", "1 concurrent; 100/day fixed_window", options, func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/silent" {
			writer.Header().Set("X-Spent", "7")
			_, _ = io.WriteString(writer, "first")
			_ = http.NewResponseController(writer).Flush()
		}
		entered <- struct{}{}
		<-request.Context().Done()
		if request.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
	})
	// Without a response the cost was spent; with one, what it says, also if a reverse proxy then aborts.
	for _, step := range []struct {
		path string
		left uint64
	}{{"/silent", 60}, {"/stream", 53}, {"/abort", 46}} {
		connection, _ := server.dial(t, step.path)
		<-entered
		server.await(t, 0)
		_ = connection.Close()
		server.await(t, step.left)
	}
}

func TestPanickingHandlerGivesItsSlotBack(t *testing.T) {
	options := nethttp.Options{
		FixedCost: 40,
		Count:     func(_ *http.Request, status int, _ http.Header) bool { return status < 500 },
		Spent: func(request *http.Request, _ int, _ http.Header) (int64, bool) {
			t.Error("the handler has failed")
			return 0, false
		},
	}
	taken := make(chan net.Conn, 1)
	server := serveSlots(t, "memory:", "1 concurrent; 100/day fixed_window", options, func(writer http.ResponseWriter, request *http.Request) {
		switch request.URL.Path {
		case "/begun":
			writer.WriteHeader(http.StatusOK)
		case "/taken":
			connection, _, err := http.NewResponseController(writer).Hijack()
			if err != nil {
				t.Error(err)
			}
			taken <- connection
		}
		panic("broken")
	})
	for _, step := range []struct {
		path string
		left uint64
	}{{"/", 100}, {"/begun", 60}, {"/taken", 20}} {
		_, reader := server.dial(t, step.path)
		if step.path != "/taken" {
			_, _ = io.ReadAll(reader)
		}
		server.await(t, step.left)
	}
	_ = (<-taken).Close()
}

func TestUnitsBeyondTheRangeAreReportedAndTheCostIsSpent(t *testing.T) {
	var mutex sync.Mutex
	spent, reported := int64(-1), 0
	options := nethttp.Options{
		FixedCost: 10,
		Spent:     func(*http.Request, int, http.Header) (int64, bool) { return spent, true },
		OnError: func(_ *http.Request, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			if reported++; !errors.Is(err, polylimit.ErrInvalidArgument) {
				t.Error(err)
			}
		},
	}
	server := serveSlots(t, "memory:", "100/day fixed_window", options, hello)
	for at, wrong := range []int64{-1, -1 << 63, 1_000_000_000_001, 1<<63 - 1} {
		spent = wrong
		if answer := get(t, server.URL); answer.status != http.StatusOK {
			t.Errorf("%+v", answer)
		}
		server.await(t, uint64(90-10*at))
	}
	mutex.Lock()
	defer mutex.Unlock()
	if reported != 4 {
		t.Error(reported)
	}
}

// In Redis what was spent is committed before the server ends the response, alone and among others.
func TestSlotsInRedisAreHeldForTheTimeOfARequest(t *testing.T) {
	for _, callers := range []int{1, 16} {
		var mutex sync.Mutex
		inside, most := 0, 0
		options := nethttp.Options{
			Scope:     fmt.Sprintf("go-slots-%d-%d", callers, time.Now().UnixNano()),
			Policy:    "3 concurrent; 100000/day fixed_window",
			FixedCost: 40,
			Spent:     func(*http.Request, int, http.Header) (int64, bool) { return 7, true },
		}
		server := serveSlots(t, os.Getenv("REDIS_URL"), "1/s", options, func(writer http.ResponseWriter, request *http.Request) {
			mutex.Lock()
			inside++
			most = max(most, inside)
			mutex.Unlock()
			hello(writer, request)
			mutex.Lock()
			inside--
			mutex.Unlock()
		})
		policy, err := server.limiter.PolicyFor(options.Policy, options.Scope)
		if err != nil {
			t.Fatal(err)
		}
		admitted := 0
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				for range 10 {
					for get(t, server.URL).status != http.StatusOK {
						time.Sleep(time.Millisecond)
					}
					mutex.Lock()
					admitted++
					mutex.Unlock()
				}
			})
		}
		group.Wait()
		if most > 3 || admitted != 10*callers {
			t.Error(most, admitted)
		}
		decision, err := server.limiter.Peek(context.Background(), polylimit.Key("k").Policy(policy))
		if err != nil || decision.Remaining != uint64(100_000-7*admitted) {
			t.Errorf("%+v %v", decision, err)
		}
	}
}
