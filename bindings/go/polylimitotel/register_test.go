package polylimitotel_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/polylimitotel"
)

// open opens a limiter on a store, which decides about three requests.
func open(t *testing.T, url string) *polylimit.Limiter {
	t.Helper()
	options := []polylimit.Option{polylimit.WithPolicy("api", "2/hour fixed_window; 9/day fixed_window")}
	if strings.HasPrefix(url, "redis") {
		// Nothing but the test asks the server.
		options = append(options, polylimit.WithOption("prefix", fmt.Sprint(t.Name(), os.Getpid())),
			polylimit.WithOption("doctor_after", "0"), polylimit.WithOption("deadline", "30s"))
	}
	limiter, err := polylimit.Open(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limiter.Close() })
	for range 3 {
		if _, err := limiter.Check(context.Background(), polylimit.Key("k")); err != nil {
			t.Fatal(err)
		}
	}
	return limiter
}

func redisURL(t *testing.T) string {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		t.Fatal("REDIS_URL names no server: bindings/go/test starts one")
	}
	return url
}

// pointsOf are the values of data points, by the instrument's name and attributes.
func pointsOf[N int64 | float64](points []metricdata.DataPoint[N], name string, found map[string]float64) {
	for _, point := range points {
		var labels []string
		for _, pair := range point.Attributes.ToSlice() {
			labels = append(labels, string(pair.Key)+"="+pair.Value.AsString())
		}
		slices.Sort(labels)
		found[name+fmt.Sprint(labels)] = float64(point.Value)
	}
}

// collected are the values that a reader collects, and the instruments by name.
func collected(t *testing.T, reader *sdk.ManualReader) (map[string]float64, map[string]metricdata.Metrics) {
	t.Helper()
	var resource metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &resource); err != nil {
		t.Fatal(err)
	}
	found, instruments := map[string]float64{}, map[string]metricdata.Metrics{}
	for _, scope := range resource.ScopeMetrics {
		for _, metric := range scope.Metrics {
			instruments[metric.Name] = metric
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				pointsOf(data.DataPoints, metric.Name, found)
			case metricdata.Sum[float64]:
				pointsOf(data.DataPoints, metric.Name, found)
			case metricdata.Gauge[float64]:
				pointsOf(data.DataPoints, metric.Name, found)
			default:
				t.Fatalf("%s: %T", metric.Name, data)
			}
		}
	}
	return found, instruments
}

var (
	sampleLine = regexp.MustCompile(`^(polylimit_\w+?)(?:_total|_seconds(_bucket|_sum|_count)?)?(?:\{(.*)\})? (\S+)$`)
	label      = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// readings are the values of the limiter's own text, by the names that instruments have.
func readings(t *testing.T, limiter *polylimit.Limiter) map[string]float64 {
	t.Helper()
	text, err := limiter.MetricsText("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	expected := map[string]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		sample := sampleLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if sample == nil {
			t.Fatal(line)
		}
		var labels []string
		for _, pair := range label.FindAllStringSubmatch(sample[3], -1) {
			labels = append(labels, pair[1]+"="+pair[2])
		}
		slices.Sort(labels)
		value, err := strconv.ParseFloat(sample[4], 64)
		if err != nil {
			t.Fatal(line, err)
		}
		name := strings.Replace(sample[1], "polylimit_", "polylimit.", 1) + strings.Replace(sample[2], "_", ".", 1)
		expected[name+fmt.Sprint(labels)] = value
	}
	return expected
}

func TestReaderCollectsTheNumbersOfTheText(t *testing.T) {
	for name, url := range map[string]string{"memory": "memory:", "redis": redisURL(t)} {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url)
			reader := sdk.NewManualReader()
			provider := sdk.NewMeterProvider(sdk.WithReader(reader))
			if _, err := polylimitotel.Register(limiter, provider.Meter("polylimit")); err != nil {
				t.Fatal(err)
			}
			expected := readings(t, limiter)
			found, instruments := collected(t, reader)
			if !maps.Equal(found, expected) {
				t.Errorf("%v\nin place of\n%v", found, expected)
			}
			if counted := found["polylimit.decisions[policy=api result=allowed source=store]"]; counted != 2 {
				t.Error(counted)
			}
			_, hasBucket := found["polylimit.store_duration.bucket[le=1.0]"]
			if hasBucket != (name == "redis") {
				t.Error(found)
			}
			units := map[string]string{"polylimit.decisions": "", "polylimit.quota_period": "s", "polylimit.store_duration.sum": "s", "polylimit.store_duration.count": ""}
			for name, unit := range units {
				if instrument, has := instruments[name]; has && (instrument.Unit != unit || instrument.Description == "") {
					t.Errorf("%+v", instrument)
				}
			}
			if decisions := instruments["polylimit.decisions"].Data.(metricdata.Sum[int64]); !decisions.IsMonotonic {
				t.Error("decisions are no counter")
			}
			if _, isGauge := instruments["polylimit.quota_period"].Data.(metricdata.Gauge[float64]); !isGauge {
				t.Error("the period is no gauge")
			}
		})
	}
}

func TestAttributesTellLimitersApart(t *testing.T) {
	reader := sdk.NewManualReader()
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("polylimit")
	if _, err := polylimitotel.Register(open(t, "memory:"), meter); err != nil {
		t.Fatal(err)
	}
	registration, err := polylimitotel.Register(open(t, "memory:"), meter, attribute.String("limiter", "edge"))
	if err != nil {
		t.Fatal(err)
	}
	const ofFirst, ofEdge = "polylimit.near_limit[policy=api]", "polylimit.near_limit[limiter=edge policy=api]"
	if found, _ := collected(t, reader); found[ofFirst] != 1 || found[ofEdge] != 1 {
		t.Error(found)
	}
	if err := registration.Unregister(); err != nil {
		t.Error(err)
	}
	found, _ := collected(t, reader)
	if _, isThere := found[ofEdge]; isThere || found[ofFirst] != 1 {
		t.Error(found)
	}
}

func TestClosedLimiterKeepsItsObservations(t *testing.T) {
	reader := sdk.NewManualReader()
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("polylimit")
	limiter := open(t, "memory:")
	if _, err := polylimitotel.Register(limiter, meter); err != nil {
		t.Fatal(err)
	}
	before, _ := collected(t, reader)
	limiter.Close()
	after, _ := collected(t, reader)
	const admitted = "polylimit.decisions[policy=api result=allowed source=store]"
	if before[admitted] != 2 || after[admitted] != before[admitted] {
		t.Error(before, after)
	}
}
