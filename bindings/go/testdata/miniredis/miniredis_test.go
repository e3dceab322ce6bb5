// Package miniredis tests limiters on miniredis, which tests of Go services use in place of Redis. It is a module of its own, so that
// programs that use polylimit do not depend on it.
package miniredis

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"polylimit.dev/polylimit"
)

// Decisions by the time of the machine, with what tests of services do: units that are given back, and a state that is reset.
func TestLimiterDecidesOnMiniredis(t *testing.T) {
	server := miniredis.RunT(t)
	ctx := context.Background()
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"} {
		t.Run(algorithm, func(t *testing.T) {
			limiter, err := polylimit.Open("redis://"+server.Addr()+"?deadline=10s&prefix="+algorithm,
				polylimit.WithPolicy("api", "3/day "+algorithm), polylimit.WithOption("doctor_after", "0"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = limiter.Close() }()
			if err := limiter.Ready(ctx, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			checks := func() (allowed []bool) {
				for range 4 {
					decision, err := limiter.Check(ctx, polylimit.Key("k"))
					// The store, or this process by what the store has said.
					if err != nil || decision.Degraded != "" {
						t.Fatalf("%+v %v", decision, err)
					}
					allowed = append(allowed, decision.Allowed)
				}
				return allowed
			}
			if got := fmt.Sprint(checks()); got != "[true true true false]" {
				t.Error(got)
			}
			if _, err := limiter.Refund(ctx, polylimit.Key("k")); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(checks()); got != "[true false false false]" {
				t.Error(got)
			}
			if _, err := limiter.Reset(ctx, polylimit.Key("k")); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(checks()); got != "[true true true false]" {
				t.Error(got)
			}
			findings, err := limiter.Admin().Doctor(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, finding := range findings {
				if strings.HasPrefix(finding, "problem") {
					t.Error(finding)
				}
			}
		})
	}
}

// Decisions, reservations and what documents of limits do, by the runner of Go.
func TestConformanceCasesAgreeOnMiniredis(t *testing.T) {
	server := miniredis.RunT(t)
	cases := "../../../../tests/conformance"
	for _, file := range []string{"named.json", "policies.json", "reservations.json"} {
		command := exec.Command(cases+"/run", "--languages", "go", cases+"/"+file, "redis://"+server.Addr())
		output, err := command.CombinedOutput()
		if err != nil || !strings.Contains(string(output), " cases agree") {
			t.Errorf("%v\n%s", err, output)
		}
	}
}
