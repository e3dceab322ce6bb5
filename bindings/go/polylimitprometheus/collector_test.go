package polylimitprometheus_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/polylimitprometheus"
)

// open opens a limiter on a store, which decides about three requests.
func open(t *testing.T, url string) *polylimit.Limiter {
	t.Helper()
	options := []polylimit.Option{polylimit.WithPolicy("api", "2/hour fixed_window; 9/day fixed_window"), polylimit.WithPolicy("other", "5/minute")}
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
		if _, err := limiter.Check(context.Background(), polylimit.Key("k").Policy("api")); err != nil {
			t.Fatal(err)
		}
	}
	return limiter
}

func stores(t *testing.T) map[string]string {
	redis := os.Getenv("REDIS_URL")
	if redis == "" {
		t.Fatal("REDIS_URL names no server: bindings/go/test starts one")
	}
	return map[string]string{"memory": "memory:", "redis": redis}
}

// values are all numbers of families, by name and labels, and the kind and the help of each family.
func values(families map[string]*dto.MetricFamily) map[string]string {
	values := map[string]string{}
	for name, family := range families {
		values[name] = family.GetType().String() + " " + family.GetHelp()
		for _, metric := range family.Metric {
			var labels []string
			for _, label := range metric.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			slices.Sort(labels)
			place := name + fmt.Sprint(labels)
			switch {
			case metric.Counter != nil:
				values[place] = fmt.Sprint(metric.Counter.GetValue())
			case metric.Gauge != nil:
				values[place] = fmt.Sprint(metric.Gauge.GetValue())
			case metric.Histogram != nil:
				values[place] = fmt.Sprint(metric.Histogram.GetSampleCount(), metric.Histogram.GetSampleSum())
				for _, bucket := range metric.Histogram.Bucket {
					values[place+fmt.Sprint(bucket.GetUpperBound())] = fmt.Sprint(bucket.GetCumulativeCount())
				}
			}
		}
	}
	return values
}

// valuesOf are the numbers of a text in the format of Prometheus.
func valuesOf(t *testing.T, text string) map[string]string {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, family := range families {
		for _, metric := range family.Metric {
			if metric.Histogram == nil {
				continue
			}
			// The bucket of everything is the count, which every registry adds.
			buckets := metric.Histogram.Bucket
			if last := buckets[len(buckets)-1]; last.GetCumulativeCount() != metric.Histogram.GetSampleCount() {
				t.Error(name, last)
			}
			metric.Histogram.Bucket = buckets[:len(buckets)-1]
		}
	}
	return values(families)
}

func gathered(t *testing.T, gatherer prometheus.Gatherer) map[string]string {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, family := range families {
		byName[family.GetName()] = family
	}
	return values(byName)
}

func get(t *testing.T, handler http.Handler, accept string) (int, string, string) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	request, err := http.NewRequest(http.MethodGet, server.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Content-Type"), string(body)
}

func TestRegistryHasTheNumbersOfTheText(t *testing.T) {
	for name, url := range stores(t) {
		t.Run(name, func(t *testing.T) {
			limiter := open(t, url)
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(polylimitprometheus.NewCollector(limiter))
			text, err := limiter.MetricsText("prometheus")
			if err != nil {
				t.Fatal(err)
			}
			expected := valuesOf(t, text)
			if counted := expected[`polylimit_decisions_total[policy="api" result="allowed" source="store"]`]; counted != "2" {
				t.Errorf("%q in\n%s", counted, text)
			}
			if _, has := expected["polylimit_store_duration_seconds[]0.0001"]; has != (name == "redis") {
				t.Error(text)
			}
			if found := gathered(t, registry); !maps.Equal(found, expected) {
				t.Errorf("%v\nin place of\n%v", found, expected)
			}
			status, mediaType, body := get(t, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), "text/plain")
			if found := valuesOf(t, body); status != http.StatusOK || !strings.HasPrefix(mediaType, "text/plain") || !maps.Equal(found, expected) {
				t.Errorf("%d %s: %v\nin place of\n%v", status, mediaType, found, expected)
			}
		})
	}
}

func TestHandlerRespondsInOpenMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(polylimitprometheus.NewCollector(open(t, stores(t)["redis"])))
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	status, mediaType, body := get(t, handler, "application/openmetrics-text; version=1.0.0")
	if status != http.StatusOK || !strings.HasPrefix(mediaType, "application/openmetrics-text") {
		t.Error(status, mediaType)
	}
	for _, line := range []string{
		"# TYPE polylimit_decisions counter\n",
		"polylimit_decisions_total{policy=\"api\",result=\"denied\",source=\"store\"} 1.0\n",
		"# TYPE polylimit_store_duration_seconds histogram\n",
		"polylimit_quota_period_seconds{policy=\"api\",quota=\"2/hour fixed_window\"} 3600.0\n",
	} {
		if !strings.Contains(body, line) {
			t.Errorf("%q is not in\n%s", line, body)
		}
	}
}

func TestLabelsTellLimitersApart(t *testing.T) {
	registry := prometheus.NewRegistry()
	first, second := open(t, "memory:"), open(t, "memory:")
	if _, err := second.Check(context.Background(), polylimit.Key("k").Policy("other")); err != nil {
		t.Fatal(err)
	}
	registry.MustRegister(polylimitprometheus.NewCollector(first))
	edge := prometheus.WrapRegistererWith(prometheus.Labels{"limiter": "edge"}, registry)
	edge.MustRegister(polylimitprometheus.NewCollector(second))
	found := gathered(t, registry)
	for place, expected := range map[string]string{
		`polylimit_decisions_total[policy="other" result="allowed" source="store"]`:                "0",
		`polylimit_decisions_total[limiter="edge" policy="other" result="allowed" source="store"]`: "1",
	} {
		if found[place] != expected {
			t.Errorf("%s: %q", place, found[place])
		}
	}
}

func TestRegistryRefusesSamplesOfTwoLimitersWithTheSameLabels(t *testing.T) {
	registry := prometheus.NewRegistry()
	for range 2 {
		registry.MustRegister(polylimitprometheus.NewCollector(open(t, "memory:")))
	}
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "was collected before") {
		t.Error(err)
	}
}

func TestClosedLimiterKeepsItsSamples(t *testing.T) {
	registry := prometheus.NewRegistry()
	limiter := open(t, "memory:")
	registry.MustRegister(polylimitprometheus.NewCollector(limiter))
	const admitted = `polylimit_decisions_total[policy="api" result="allowed" source="store"]`
	before := gathered(t, registry)[admitted]
	limiter.Close()
	if after := gathered(t, registry)[admitted]; before != "2" || after != before {
		t.Error(before, after)
	}
}
