package polylimitprometheus_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/polylimitprometheus"
)

// exampleOfTheMetricsPage is the first example of Go in docs/metrics.md, word for word.
func exampleOfTheMetricsPage() (string, error) {
	limiter, err := polylimit.Open("memory:", polylimit.WithPolicy("api", "100/minute; 1000/hour"))
	if err != nil {
		return "", err
	}
	// What GET /metrics responds with, when only the limiter has metrics.
	body, err := limiter.MetricsText("openmetrics")

	// With all other metrics of the program.
	prometheus.MustRegister(polylimitprometheus.NewCollector(limiter))
	http.Handle("/metrics", promhttp.Handler())
	return body, err
}

func TestExampleOfTheMetricsPageRespondsWithMetrics(t *testing.T) {
	body, err := exampleOfTheMetricsPage()
	if err != nil || !strings.HasSuffix(body, "# EOF\n") {
		t.Error(body, err)
	}
	status, _, all := get(t, http.DefaultServeMux, "text/plain")
	if status != http.StatusOK {
		t.Error(status)
	}
	for _, name := range []string{"polylimit_decisions_total{", "go_goroutines "} {
		if !strings.Contains(all, "\n"+name) {
			t.Errorf("no %s in\n%s", name, all)
		}
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
		if !strings.Contains(block, "polylimitprometheus.") {
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
