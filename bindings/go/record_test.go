package polylimit_test

import (
	"os/exec"
	"testing"
)

// record writes what a test measured for a row of docs/faults.md: see tests/faults/record.
func record(t *testing.T, file, row, name string, measured ...string) {
	t.Helper()
	arguments := append([]string{file, row, name}, measured...)
	if printed, err := exec.Command("../../tests/faults/record", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
}
