// Callers of redis_rate with go-redis and its usual settings: see drive.py.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// A bucket that refills nothing during the test, so that what it lacks is what was counted.
var limit = redis_rate.Limit{Rate: 1_000_000, Period: 100_000 * time.Hour, Burst: 1_000_000}

func main() {
	limiter := redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]}))
	ctx := context.Background()
	var stopped atomic.Bool
	var callers sync.WaitGroup
	keys := []string{"k0", "k1", "k2", "k3"}
	for _, key := range keys {
		callers.Go(func() {
			for !stopped.Load() {
				at := time.Now()
				result, err := limiter.Allow(ctx, key, limit)
				outcome := "D"
				if err != nil {
					outcome = "E"
				} else if result.Allowed > 0 {
					outcome = "A"
				}
				fmt.Println(at.UnixMicro(), time.Since(at).Microseconds(), outcome)
				time.Sleep(time.Millisecond)
			}
		})
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	stopped.Store(true)
	callers.Wait()
	used := 0
	for _, key := range keys {
		result, err := limiter.AllowN(ctx, key, limit, 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		used += limit.Burst - result.Remaining
	}
	fmt.Println("used", used)
}
