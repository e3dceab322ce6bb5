//go:build recipe

package recipe

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"
)

func TestJobsBeyondTheSlotsGoBackToTheQueue(t *testing.T) {
	limiter, err := open(os.Getenv("REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	nothing := func() {}
	try := func(tenant string, job func()) bool {
		ran, err := run(context.Background(), limiter, tenant, job, 0)
		if err != nil {
			t.Error(err)
		}
		return ran
	}
	var outcomes []bool
	second := func() {
		outcomes = append(outcomes, try("acme", nothing), try("globex", nothing))
		// A worker that shuts down does not wait for a slot.
		ctx, stop := context.WithCancel(context.Background())
		stop()
		if ran, err := run(ctx, limiter, "acme", nothing, time.Hour); ran || err == nil {
			t.Errorf("a job of a worker that shuts down: %v, %v", ran, err)
		}
	}
	first := func() { outcomes = append(outcomes, try("acme", second)) }
	outcomes = append(outcomes, try("acme", first))
	if expected := []bool{false, true, true, true}; !slices.Equal(outcomes, expected) {
		t.Errorf("%v, not %v", outcomes, expected)
	}
	// Slots come back in the background.
	if ran, err := run(context.Background(), limiter, "acme", nothing, time.Minute); err != nil || !ran {
		t.Errorf("the slots did not come back: %v", err)
	}
}
