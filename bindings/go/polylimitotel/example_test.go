package polylimitotel_test

import (
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/polylimitotel"
)

// exampleOfTheMetricsPage is the second example of Go in docs/metrics.md, word for word.
func exampleOfTheMetricsPage(limiter *polylimit.Limiter) (metric.Registration, error) {
	// Observed whenever a reader of the global MeterProvider collects.
	registration, err := polylimitotel.Register(limiter, otel.Meter("polylimit"))
	return registration, err
}

func TestExampleOfTheMetricsPageIsObserved(t *testing.T) {
	reader := sdk.NewManualReader()
	registration, err := exampleOfTheMetricsPage(open(t, "memory:"))
	if err != nil {
		t.Fatal(err)
	}
	// The global provider may be set later.
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	if found, _ := collected(t, reader); found["polylimit.near_limit[policy=api]"] != 1 {
		t.Error(found)
	}
	if err := registration.Unregister(); err != nil {
		t.Error(err)
	}
	if found, _ := collected(t, reader); len(found) != 0 {
		t.Error(found)
	}
}

func TestMetricsPageHasThatExample(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, rest := range strings.Split(string(page), "```go\n")[1:] {
		block, _, _ := strings.Cut(rest, "```")
		if !strings.Contains(block, "polylimitotel.") {
			continue
		}
		found++
		for line := range strings.Lines(block) {
			if !strings.Contains(string(source), line) {
				t.Errorf("example_test.go does not say: %s", line)
			}
		}
	}
	if found != 1 {
		t.Error(found)
	}
}
