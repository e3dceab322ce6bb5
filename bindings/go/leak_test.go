//go:build !race && !polylimit_static

package polylimit_test

// These tests measure memory, and the race detector uses memory of its own.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"polylimit.dev/polylimit"
)

// openCheckClose returns limiters that were opened, used and closed.
func openCheckClose(t *testing.T, url string, times int) []*polylimit.Limiter {
	t.Helper()
	closed := make([]*polylimit.Limiter, times)
	for at := range closed {
		limiter := must(polylimit.Open(url, polylimit.WithPolicy("life", "1000000/hour")))(t)
		if decision := must(limiter.Check(ctx, polylimit.Key("life")))(t); !decision.Allowed {
			t.Fatalf("%+v", decision)
		}
		limiter.Close()
		closed[at] = limiter
	}
	return closed
}

// held counts the open resources of the process.
func held(t *testing.T) map[string]int {
	maps := string(must(os.ReadFile("/proc/self/maps"))(t))
	return map[string]int{
		"goroutines":  runtime.NumGoroutine(),
		"descriptors": len(must(os.ReadDir("/proc/self/fd"))(t)),
		"threads":     threads(t),
		// The name of the store's file contains this text.
		"mappings": strings.Count(maps, "/store"),
	}
}

func residentBytes(t *testing.T) int {
	var pages, resident int
	_ = must(fmt.Sscan(string(must(os.ReadFile("/proc/self/statm"))(t)), &pages, &resident))(t)
	return resident * os.Getpagesize()
}

func TestClosedLimitersLeakNothing(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			times := 2_000
			if os.Getenv("POLYLIMIT_FAULTS") != "" {
				times = 10_000
			}
			openCheckClose(t, url, times/10)
			runtime.GC()
			before, resident := held(t), residentBytes(t)
			// Some limiters stay referenced until the end. The collector frees the others, of which it does not know the memory in C.
			closed := openCheckClose(t, url, times/10)
			for range 9 {
				openCheckClose(t, url, times/10)
				runtime.GC()
			}
			// The allowance covers threads that Go keeps after concurrent calls to C, and is far less than one for each limiter. A
			// resource that was just released may be counted a moment longer.
			before["threads"] += 4
			until(t, fmt.Sprintf("as little is held as before: %v", before), func() bool {
				for what, count := range held(t) {
					if count > before[what] {
						return false
					}
				}
				return true
			})
			until(t, "at most 40 MiB more are resident", func() bool {
				runtime.GC()
				return residentBytes(t)-resident <= 40<<20
			})
			record(t, "bindings/go/leak_test.go", "F69", "Go, "+name, fmt.Sprintf("measured=%d limiters, before: %v", times, before))
			if _, err := closed[0].Check(ctx, polylimit.Key("life")); !errors.Is(err, polylimit.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// A limiter that is neither closed nor referenced gives back what it holds.
func TestForgottenLimitersAreClosed(t *testing.T) {
	before := held(t)
	for range 100 {
		limiter := must(polylimit.Open("memory:", polylimit.WithPolicy("life", "9/hour")))(t)
		_ = must(limiter.Check(ctx, polylimit.Key("life")))(t)
	}
	until(t, fmt.Sprintf("as little is held as before: %v", before), func() bool {
		runtime.GC()
		now := held(t)
		return now["goroutines"] <= before["goroutines"] && now["descriptors"] <= before["descriptors"]
	})
}

// A local store has a limited number of slots for processes; more closed limiters than that must not lock a process out.
func TestClosedLimitersReleaseTheirSlotInALocalStore(t *testing.T) {
	url := stores(t)["local"]
	closed := openCheckClose(t, url, 1025)
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), otherProcess+"="+url)
	if printed, err := other.CombinedOutput(); err != nil || string(printed) != "store <nil>" {
		t.Errorf("%v: %s", err, printed)
	}
	runtime.KeepAlive(closed)
}
