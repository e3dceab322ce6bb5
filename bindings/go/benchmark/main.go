// Measures decisions through the Go module beside redis_rate and throttled, in interleaved rounds of one run.
//
// Usage: bindings/go/bench [--quick]. REDIS_URL names the server that all of them use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// scenario is how the contenders are asked.
type scenario struct {
	store      string
	keys       int
	goroutines int
	denied     bool
}

// Of 10^9 a minute every request is admitted here, of one nearly none.
const (
	plenty = 1_000_000_000
	scarce = 1
)

func main() {
	quick := flag.Bool("quick", false, "a short run that only shows that it works")
	flag.Parse()
	rounds, span := 5, 300*time.Millisecond
	if *quick {
		rounds, span = 1, 30*time.Millisecond
	}
	if err := run(os.Getenv("REDIS_URL"), rounds, span); err != nil {
		fmt.Fprintln(os.Stderr, "bindings/go/bench:", err)
		os.Exit(1)
	}
}

func run(url string, rounds int, span time.Duration) error {
	if url == "" {
		return errors.New("REDIS_URL names no server")
	}
	fmt.Printf("Microseconds a decision (wall time over all goroutines), medians of %d interleaved rounds of %v each.\n\n", rounds, span)
	fmt.Println("| store | keys | goroutines | outcome | polylimit | redis_rate | ratio | throttled | ratio |")
	fmt.Println("|---|---:|---:|---|---:|---:|---:|---:|---:|")
	for _, scenario := range []scenario{
		{"memory", 1, 1, false}, {"memory", 1, 64, false}, {"memory", 1, 1, true}, {"memory", 100_000, 64, false},
		{"redis", 1, 1, false}, {"redis", 1, 64, false}, {"redis", 1, 64, true}, {"redis", 100_000, 1, false}, {"redis", 100_000, 64, false},
	} {
		if err := scenario.run(url, rounds, span); err != nil {
			return fmt.Errorf("%+v: %w", scenario, err)
		}
	}
	fmt.Println("\nWhere throttled gives up on a key that many ask about, only what it decided counts.")
	fmt.Println("A ratio above 1 is how many times as fast polylimit is. To repeat it: bindings/go/bench")
	return nil
}

func (s scenario) run(url string, rounds int, span time.Duration) error {
	limit, outcome := plenty, "allowed"
	if s.denied {
		limit, outcome = scarce, "denied"
	}
	contenders, err := inMemory(limit)
	if s.store == "redis" {
		contenders, err = onRedis(url, limit)
	}
	if err != nil {
		return err
	}
	keys := make([]string, s.keys)
	for at := range keys {
		keys[at] = fmt.Sprintf("%v:user:%d", outcome, at)
	}
	measured := map[string][]float64{}
	for round := range rounds + 1 {
		for _, contender := range contenders {
			took, err := s.measure(contender, keys, span)
			if err != nil {
				return fmt.Errorf("%s: %w", contender.name, err)
			}
			// The first round warms up.
			if round > 0 {
				measured[contender.name] = append(measured[contender.name], took)
			}
		}
	}
	ours := median(measured["polylimit"])
	fmt.Printf("| %s | %d | %d | %s | %s |", s.store, s.keys, s.goroutines, outcome, format(ours))
	for _, peer := range []string{"redis_rate", "throttled"} {
		if took := median(measured[peer]); took > 0 {
			fmt.Printf(" %s | %s |", format(took), strconv.FormatFloat(took/ours, 'f', 1, 64))
		} else {
			fmt.Print(" | |")
		}
	}
	fmt.Println()
	return nil
}

// measure says how many microseconds a decision takes.
func (s scenario) measure(contender contender, keys []string, span time.Duration) (float64, error) {
	var decisions, wrong atomic.Int64
	var failed atomic.Value
	var group sync.WaitGroup
	ctx := context.Background()
	started := time.Now()
	for worker := range s.goroutines {
		group.Add(1)
		go func() {
			defer group.Done()
			// Each goroutine goes its own way through the keys.
			at, count := uint64(worker+1)*0x9e3779b97f4a7c15, int64(0)
			for time.Since(started) < span {
				for range 8 {
					at = at*6364136223846793005 + 1442695040888963407
					allowed, err := contender.decide(ctx, keys[(at>>33)%uint64(len(keys))])
					switch {
					case errors.Is(err, errGaveUp):
						continue
					case err != nil:
						failed.Store(err)
						return
					case allowed == s.denied:
						wrong.Add(1)
					}
					count++
				}
			}
			decisions.Add(count)
		}()
	}
	group.Wait()
	took := time.Since(started)
	if err, has := failed.Load().(error); has {
		return 0, err
	}
	// The first of a denied key is admitted, and one more in each minute.
	if wrong.Load() > 2 {
		return 0, fmt.Errorf("%d of %d decisions came out otherwise", wrong.Load(), decisions.Load())
	}
	return float64(took.Nanoseconds()) / 1000 / float64(max(decisions.Load(), 1)), nil
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func format(us float64) string { return strconv.FormatFloat(us, 'f', 2, 64) }
