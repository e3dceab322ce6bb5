package polylimit_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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
	if _, err := limiter.Headers(""); !errors.Is(err, polylimit.ErrClosed) {
		t.Error(err)
	}
}

// What only describes a limiter can be read after Close; what decides, changes or asks the store fails.
func TestClosedLimiterDescribesItself(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			document := `{"polylimit": 1, "policies": {"api": {"quotas": "9/hour fixed_window"}}}`
			limiter := open(t, url, polylimit.WithDocument(document), polylimit.WithObserveKeys(16))
			_ = must(limiter.Check(ctx, polylimit.Key("k")))(t)
			var closer io.Closer = limiter
			if err := closer.Close(); err != nil {
				t.Fatal(err)
			}
			if quotas := must(limiter.Policy("api"))(t); quotas != "9/hour fixed_window" {
				t.Error(quotas)
			}
			if text := must(limiter.MetricsText("prometheus"))(t); !strings.Contains(text, "polylimit_decisions_total{policy=\"api\",") {
				t.Error(text)
			}
			if families := must(limiter.Metrics())(t); len(families) == 0 {
				t.Error("no metrics")
			}
			if stats := must(limiter.Stats())(t); len(stats) == 0 {
				t.Error("no counters")
			}
			if status, has := limiter.Admin().Configuration(); !has || status.Source != "document" {
				t.Error(status, has)
			}
			if top := must(limiter.Admin().TopKeys(9))(t); top.Counters == 0 {
				t.Error(top)
			}
			if text := fmt.Sprint(limiter); !strings.HasPrefix(text, "closed limiter on ") || strings.Contains(text, "//") {
				t.Error(text)
			}
			key := polylimit.Key("k")
			operations := map[string]func() error{
				"check":   func() error { _, err := limiter.Check(ctx, key); return err },
				"acquire": func() error { _, err := limiter.Acquire(ctx, key, time.Hour); return err },
				"reserve": func() error { _, err := limiter.Reserve(ctx, key); return err },
				"block":   func() error { _, err := limiter.Admin().Block(ctx, key, time.Second); return err },
				"list":    func() error { _, err := limiter.Admin().List(ctx, polylimit.ListOptions{}); return err },
				"explain": func() error { _, err := limiter.Admin().Explain(ctx, key); return err },
				"ready":   func() error { return limiter.Ready(ctx, time.Second) },
				"doctor":  func() error { _, err := limiter.Admin().Doctor(ctx); return err },
				"policies": func() error {
					_, err := limiter.PolicyFor("5/minute", "")
					return err
				},
				"set policy": func() error { return limiter.SetPolicy("api", "5/hour") },
				"set document": func() error {
					_, err := limiter.Admin().SetDocument(document)
					return err
				},
			}
			for operation, run := range operations {
				if err := run(); !errors.Is(err, polylimit.ErrClosed) {
					t.Error(operation, err)
				}
			}
		})
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
