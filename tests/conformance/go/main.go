// Runs a file of conformance cases through the Go module, and prints how many cases agree.
//
// Usage: run FILE STORE, where STORE is "memory" or the URL of a store.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"polylimit.dev/polylimit"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: run FILE STORE")
		os.Exit(2)
	}
	allAgree, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance-go:", err)
		os.Exit(2)
	}
	if !allAgree {
		os.Exit(1)
	}
}

func run(path, store string) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	switch format(text) {
	case 3:
		return runPolicies(path, text, store)
	case 5:
		return runTogether(path, text, store)
	}
	cases, err := read(path, text)
	if err != nil {
		return false, err
	}
	agreed := 0
	started := time.Now().UnixNano()
	for number, item := range cases.Cases {
		if len(item.Ops) == 0 {
			return false, fmt.Errorf("%s: case %q has no operations", path, item.Name)
		}
		// A store that outlives this process has never seen such a key.
		key := fmt.Sprintf("go %d %d", started, number)
		at, err := runCase(item, key, store)
		if err != nil {
			fmt.Printf("go %s: case %q, operation %d: %v\n", store, item.Name, at, err)
			continue
		}
		agreed++
	}
	if len(cases.Cases) == 0 {
		return false, errors.New(path + ": it has no case")
	}
	fmt.Printf("go %s: %d of %d cases agree\n", store, agreed, len(cases.Cases))
	return agreed == len(cases.Cases), nil
}

// runPolicies runs a file of format 3.
func runPolicies(path string, text []byte, store string) (bool, error) {
	cases, err := readPolicies(text)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if len(cases) == 0 {
		return false, errors.New(path + ": it has no case")
	}
	agreed := 0
	for number, item := range cases {
		if at, err := runPoliciesCase(item, number, store); err != nil {
			fmt.Printf("go %s: case %q, operation %d: %v\n", store, item.Name, at, err)
			continue
		}
		agreed++
	}
	fmt.Printf("go %s: %d of %d cases agree\n", store, agreed, len(cases))
	return agreed == len(cases), nil
}

// runCase runs a case up to the first difference, after which the operations mean nothing: at is the difference's operation.
func runCase(item caseItem, key, store string) (at int, err error) {
	quotas, err := quotasText(item.Quotas)
	if err != nil {
		return 0, err
	}
	clock, err := polylimit.NewManualClock(time.UnixMicro(0))
	if err != nil {
		return 0, err
	}
	if store == "memory" {
		store = "memory:"
	}
	// What the store does not answer must not look as if it did.
	options := []polylimit.Option{polylimit.WithPolicy("case", quotas), polylimit.WithClock(clock)}
	if strings.HasPrefix(store, "redis") {
		options = append(options, polylimit.WithOutage("case", "deny"))
	}
	limiter, err := polylimit.Open(store, options...)
	if err != nil {
		return 0, err
	}
	defer limiter.Close()
	// A manual clock's keys do not expire.
	defer func() {
		if _, failed := answer(limiter, operation{Op: "reset"}, polylimit.Key(key)); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	for ; at < len(item.Ops); at++ {
		if err := step(item.Ops[at], key, limiter, clock); err != nil {
			return at, err
		}
	}
	return at, nil
}

func step(operation operation, key string, limiter *polylimit.Limiter, clock *polylimit.ManualClock) error {
	if err := clock.Set(time.UnixMicro(operation.AtUs)); err != nil {
		return err
	}
	if operation.Op == "change" {
		quotas, err := quotasText(operation.Quotas)
		if err != nil {
			return err
		}
		return limiter.SetPolicy("case", quotas)
	}
	got, err := answer(limiter, operation, polylimit.Key(key).Cost(operation.cost()))
	if err != nil {
		return fmt.Errorf("refused: %w", err)
	}
	agree, err := agrees(operation.Expect, got)
	if err == nil && !agree {
		err = fmt.Errorf("it differs\n  expected %s\n  got      %v", operation.Expect, got)
	}
	return err
}
