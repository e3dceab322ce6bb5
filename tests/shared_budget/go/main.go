// Callers in Go: shared-budget-go URL CALLERS ATTEMPTS. For each line of the input, a key and quotas with a tab between
// them, all callers ask at the same time, each in a goroutine; the answer is how many were admitted.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"polylimit.dev/polylimit"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: shared-budget-go URL CALLERS ATTEMPTS")
	}
	limiter, err := polylimit.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	callers, attempts := number(os.Args[2]), number(os.Args[3])
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		key, quotas, _ := strings.Cut(lines.Text(), "\t")
		request := polylimit.Key(key).Policy(quotas)
		var admitted atomic.Int64
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				for range attempts {
					if isAdmitted(limiter, request) {
						admitted.Add(1)
					}
				}
			})
		}
		group.Wait()
		fmt.Println(admitted.Load())
	}
}

func isAdmitted(limiter *polylimit.Limiter, request polylimit.Request) bool {
	decision, err := limiter.Check(context.Background(), request)
	if err != nil {
		log.Fatal(err)
	}
	// What the store did not decide would say nothing about a shared budget.
	if decision.Degraded != "" {
		log.Fatalf("a decision is degraded: %s", decision.Degraded)
	}
	return decision.Allowed
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return value
}
