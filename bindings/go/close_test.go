package polylimit_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"polylimit.dev/polylimit"
)

// otherProcess is an environment variable: the store on which a second process of this program makes one decision.
const otherProcess = "POLYLIMIT_TEST_OTHER_PROCESS"

func TestMain(m *testing.M) {
	url := os.Getenv(otherProcess)
	if url == "" {
		os.Exit(m.Run())
	}
	limiter, err := polylimit.Open(url, polylimit.WithPolicy("api", "9/hour"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	decision, err := limiter.Check(ctx, polylimit.Key("of another process"))
	fmt.Print(decision.Source, " ", err)
	limiter.Close()
	os.Exit(0)
}

func TestCloseEndsPendingOperations(t *testing.T) {
	for name, url := range stores(t) {
		// Many tries are needed to hit operations that begin during Close.
		for try := range 20 {
			t.Run(fmt.Sprint(name, " ", try), func(t *testing.T) { closeDuringOperations(t, url) })
		}
	}
}

func closeDuringOperations(t *testing.T, url string) {
	limiter := open(t, url, polylimit.WithPolicy("closing", "1/hour fixed_window"))
	// A server keeps keys longer than this run.
	key := polylimit.Key(time.Now().String())
	if !must(limiter.Check(ctx, key))(t).Allowed {
		t.Fatal("denied")
	}
	failed := make(chan error, 8)
	for range 8 {
		go func() {
			_, err := limiter.Acquire(ctx, key, 1000*time.Hour)
			failed <- err
		}()
	}
	limiter.Close()
	limiter.Close()
	for range 8 {
		if err := <-failed; !errors.Is(err, polylimit.ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := limiter.Check(ctx, key); !errors.Is(err, polylimit.ErrClosed) {
		t.Error(err)
	}
	if _, err := limiter.Headers(polylimit.HeaderSettings{}); !errors.Is(err, polylimit.ErrClosed) {
		t.Error(err)
	}
}

// Close ends checks that wait for a suspended server, long before their deadline.
func TestCloseEndsChecksThatWaitForAStoppedServer(t *testing.T) {
	for _, checks := range []int{1, 8} {
		t.Run(fmt.Sprint(checks), func(t *testing.T) {
			url, process := server(t)
			limiter := open(t, url, polylimit.WithPolicy("api", "1000000/hour"), polylimit.WithOption("deadline", "20s"),
				polylimit.WithOption("doctor_after", "0"))
			if source := must(limiter.Check(ctx, polylimit.Key("k")))(t).Source; source != "store" {
				t.Fatal(source)
			}
			_ = process.Process.Signal(syscall.SIGSTOP)
			failed := make(chan error, checks)
			for range checks {
				go func() {
					decision, err := limiter.Check(ctx, polylimit.Key("k"))
					if err == nil {
						err = fmt.Errorf("decided: %+v", decision)
					}
					failed <- err
				}()
			}
			select {
			case err := <-failed:
				t.Fatal("it did not wait: ", err)
			case <-time.After(500 * time.Millisecond):
			}
			began := time.Now()
			limiter.Close()
			for range checks {
				if err := <-failed; !errors.Is(err, polylimit.ErrClosed) {
					t.Error(err)
				}
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("closing took %v", took)
			}
		})
	}
}
