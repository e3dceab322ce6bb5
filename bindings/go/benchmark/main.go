// Measures decisions through the Go module compared with redis_rate and throttled, in interleaved rounds of one run.
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
	// Whether the context can be cancelled, as that of an HTTP request.
	cancellable bool
}

// sampling is how often each contender has its turn, and for how long.
type sampling struct {
	rounds int
	span   time.Duration
}

// Of 10^9 a minute every request is admitted here, of one nearly none.
const (
	plenty = 1_000_000_000
	scarce = 1
)

func main() {
	quick := flag.Bool("quick", false, "a short run that only shows that it works")
	flag.Parse()
	many, lone := sampling{5, 300 * time.Millisecond}, sampling{101, 20 * time.Millisecond}
	if *quick {
		many, lone = sampling{1, 30 * time.Millisecond}, sampling{3, 10 * time.Millisecond}
	}
	if err := run(os.Getenv("REDIS_URL"), many, lone); err != nil {
		fmt.Fprintln(os.Stderr, "bindings/go/bench:", err)
		os.Exit(1)
	}
}

func run(url string, many, lone sampling) error {
	if url == "" {
		return errors.New("REDIS_URL names no server")
	}
	// First, because the library starts a thread for the goroutines below, which also reads the replies for a lone one.
	fmt.Printf("A lone caller, one goroutine, Redis on loopback: microseconds a decision, medians of %d interleaved rounds of %v each.\n\n",
		lone.rounds, lone.span)
	fmt.Println("| keys | context | polylimit | redis_rate | ratio | throttled | ratio |")
	fmt.Println("|---:|---|---:|---:|---:|---:|---:|")
	for _, scenario := range []scenario{
		{store: "redis", keys: 1, goroutines: 1}, {store: "redis", keys: 1, goroutines: 1, cancellable: true},
		{store: "redis", keys: 100_000, goroutines: 1}, {store: "redis", keys: 100_000, goroutines: 1, cancellable: true},
	} {
		context := "background"
		if scenario.cancellable {
			context = "can be cancelled"
		}
		fmt.Printf("| %d | %s |", scenario.keys, context)
		if err := scenario.run(url, lone); err != nil {
			return fmt.Errorf("%+v: %w", scenario, err)
		}
	}

	fmt.Printf("\nMicroseconds a decision (wall time over all goroutines), medians of %d interleaved rounds of %v each.\n\n", many.rounds, many.span)
	fmt.Println("| store | keys | goroutines | outcome | polylimit | redis_rate | ratio | throttled | ratio |")
	fmt.Println("|---|---:|---:|---|---:|---:|---:|---:|---:|")
	for _, scenario := range []scenario{
		{store: "memory", keys: 1, goroutines: 1}, {store: "memory", keys: 1, goroutines: 64},
		{store: "memory", keys: 1, goroutines: 1, denied: true}, {store: "memory", keys: 100_000, goroutines: 64},
		{store: "redis", keys: 1, goroutines: 64}, {store: "redis", keys: 1, goroutines: 64, denied: true},
		{store: "redis", keys: 100_000, goroutines: 64},
		{store: "redis", keys: 100_000, goroutines: 1},
	} {
		fmt.Printf("| %s | %d | %d | %s |", scenario.store, scenario.keys, scenario.goroutines, scenario.outcome())
		if err := scenario.run(url, many); err != nil {
			return fmt.Errorf("%+v: %w", scenario, err)
		}
	}
	fmt.Println("\nWhere throttled gives up on a key that many ask about, only what it decided counts.")
	fmt.Println("\nA ratio above 1 is how many times as fast polylimit is. To repeat it: bindings/go/bench")
	return nil
}

func (s scenario) outcome() string {
	if s.denied {
		return "denied"
	}
	return "allowed"
}

// run prints the rest of the scenario's row.
func (s scenario) run(url string, sampling sampling) error {
	limit := plenty
	if s.denied {
		limit = scarce
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
		keys[at] = fmt.Sprintf("%v:user:%d", s.outcome(), at)
	}
	measured := map[string][]float64{}
	for round := range sampling.rounds + 1 {
		for _, contender := range contenders {
			took, err := s.measure(contender, keys, sampling.span)
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
	fmt.Printf(" %s |", format(ours))
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
	if s.cancellable {
		cancellable, cancel := context.WithCancel(ctx)
		defer cancel()
		ctx = cancellable
	}
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
