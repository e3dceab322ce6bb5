package polylimit_test

import (
	"errors"
	"strings"
	"testing"

	"polylimit.dev/polylimit"
)

func familyOf(t *testing.T, limiter *polylimit.Limiter, name string) polylimit.MetricFamily {
	t.Helper()
	for _, family := range must(limiter.Metrics())(t) {
		if family.Name == name {
			return family
		}
	}
	t.Fatal(name)
	return polylimit.MetricFamily{}
}

func TestMetricsAreValuesAndText(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url, withPrefix(t, url, polylimit.WithPolicy("api", "2/hour fixed_window"))...)
			for range 3 {
				_ = must(limiter.Check(ctx, polylimit.Key("k")))(t)
			}
			decisions := familyOf(t, limiter, "polylimit_decisions_total")
			counts := map[string]float64{}
			for _, sample := range decisions.Samples {
				if sample.Labels["policy"] != "api" || sample.Histogram != nil {
					t.Errorf("%+v", sample)
				}
				counts[sample.Labels["result"]] += sample.Value
			}
			if decisions.Kind != "counter" || decisions.Help == "" || counts["allowed"] != 2 || counts["denied"] != 1 {
				t.Errorf("%+v", decisions)
			}
			if limit := familyOf(t, limiter, "polylimit_quota_limit_units"); limit.Kind != "gauge" || limit.Samples[0].Value != 2 {
				t.Errorf("%+v", limit)
			}
			durations := familyOf(t, limiter, "polylimit_store_duration_seconds")
			if isRedis := name == "redis"; (len(durations.Samples) == 1) != isRedis || durations.Kind != "histogram" {
				t.Errorf("%+v", durations)
			} else if isRedis {
				histogram := durations.Samples[0].Histogram
				last := histogram.Buckets[len(histogram.Buckets)-1]
				if histogram.Count == 0 || histogram.Sum <= 0 || last.UpperBound != 1 || last.Count > histogram.Count {
					t.Errorf("%+v", histogram)
				}
			}
			for format, ends := range map[string]bool{"prometheus": false, "openmetrics": true} {
				text := must(limiter.MetricsText(format))(t)
				counted := "\npolylimit_decisions_total{policy=\"api\",result=\"allowed\",source=\"store\"} 2\n"
				if !strings.Contains(text, counted) || strings.HasSuffix(text, "# EOF\n") != ends {
					t.Error(format, text)
				}
			}
		})
	}
}

func TestMetricsRefuseWhatIsNotKnown(t *testing.T) {
	limiter := open(t, "memory:")
	for _, format := range []string{"graphite", "", "a\x00b"} {
		if _, err := limiter.MetricsText(format); !errors.Is(err, polylimit.ErrInvalidArgument) {
			t.Error(format, err)
		}
	}
}
