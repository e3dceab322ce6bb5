// Records histories of concurrent operations of several processes on one store, and checks with Porcupine that each is linearizable with
// regard to an exact model; docs/linearizability.md says what is checked.
//
//	linearizability check STORE URL OPERATIONS SEED FOLDER
//	linearizability record URL POLICY=QUOTAS...
//
// The first one records and checks, and starts processes of the second one; FOLDER is that of the other recorders. Its last line is how
// many rows have passed and failed.
package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// A row may take this long, and in addition this long for each of its operations: many times what they need.
const (
	rowLimit       = time.Minute
	operationLimit = 20 * time.Millisecond
)

func main() {
	var err error
	switch {
	case len(os.Args) >= 3 && os.Args[1] == "record":
		err = recordMain(os.Args[2:])
	case len(os.Args) == 7 && os.Args[1] == "check":
		err = checkMain(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	default:
		err = errors.New("usage: linearizability check STORE URL OPERATIONS SEED FOLDER")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "linearizability:", err)
		os.Exit(2)
	}
}

func checkMain(store, url, operationsText, seedText, folder string) error {
	operations, err := strconv.Atoi(operationsText)
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(seedText, 10, 64)
	if err != nil {
		return err
	}
	rows, err := rowsOf(store, url)
	if err != nil {
		return err
	}
	defects, err := defectsOf(store, url)
	if err != nil {
		return err
	}
	passed, failed := 0, 0
	for at, row := range append(rows, defects...) {
		random := rand.New(rand.NewPCG(seed, uint64(at)))
		share := int(float64(operations) * row.share)
		// So that a row ends that never meets what it is for, or that hangs.
		limit := rowLimit + time.Duration(share)*operationLimit
		if row.defect != nil {
			share, limit = math.MaxInt, rowLimit
		}
		total, err := row.run(folder, share, random, limit)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		if row.report(&total, share) {
			passed++
		} else {
			failed++
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	return nil
}

// report prints what a row has done, and returns whether it has passed.
func (r *row) report(total *counts, wanted int) bool {
	fmt.Printf("%s: %d operations, %d keys, %d histories, %.0f s, %d refused", r.name, total.operations, total.keys, total.histories,
		total.seconds, total.refused)
	for _, count := range []struct {
		number int
		name   string
	}{
		{total.undecided, "not decided"},
		{total.overlapping, "overlapping operations"},
		{total.cached, "denials of the cache"},
		{total.unknown, "unknown outcomes"},
		{total.notApplied, "not applied"},
	} {
		if count.number > 0 {
			fmt.Printf(", %d %s", count.number, count.name)
		}
	}
	fmt.Println()
	isExpected := total.refused == 0 && total.undecided == 0 && total.operations >= wanted && !r.lacks(total)
	if r.defect != nil {
		isExpected = total.refused > 0
	}
	var smallest *history
	operations := 0
	for _, refused := range total.examples {
		if smaller := refused.shrink(); smallest == nil || len(smaller.records) < len(smallest.records) {
			smallest, operations = smaller, len(refused.records)
		}
	}
	if smallest != nil {
		fmt.Printf("  history %s is refused; %d of its %d operations show why:\n", smallest.name, len(smallest.records), operations)
		for _, line := range smallest.describe() {
			fmt.Println("    " + line)
		}
	}
	if !isExpected {
		fmt.Printf("FAILED: %s\n", r.name)
	}
	return isExpected
}
