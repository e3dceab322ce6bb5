// Package polylimitprometheus hands out the metrics of limiters by client_golang, with the other metrics of the program.
//
//	prometheus.MustRegister(polylimitprometheus.NewCollector(limiter))
//
// docs/metrics.md describes each metric.
package polylimitprometheus

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"polylimit.dev/polylimit"
)

// Collector collects the metrics of a limiter whenever its registry is asked for them. NewCollector makes it.
//
// Several limiters of a registry are distinguished by a label, which the registry adds:
//
//	edge := prometheus.WrapRegistererWith(prometheus.Labels{"limiter": "edge"}, registry)
//	edge.MustRegister(polylimitprometheus.NewCollector(limiter))
//
// Without it, samples of two limiters have the same labels, and the registry responds with an error. The samples of a
// limiter that was closed stay as they were.
type Collector struct {
	limiter *polylimit.Limiter
}

// NewCollector makes the collector of a limiter.
func NewCollector(limiter *polylimit.Limiter) *Collector {
	return &Collector{limiter}
}

// Describe sends nothing, so that a registry takes whichever metrics are collected: some have no sample, and so no labels, before something
// happens.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of the limiter.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	families, err := c.limiter.Metrics()
	if err != nil {
		metrics <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	for _, family := range families {
		for _, sample := range family.Samples {
			metrics <- metricOf(family, sample)
		}
	}
}

func metricOf(family polylimit.MetricFamily, sample polylimit.MetricSample) prometheus.Metric {
	names := slices.Sorted(maps.Keys(sample.Labels))
	values := make([]string, len(names))
	for at, name := range names {
		values[at] = sample.Labels[name]
	}
	desc := prometheus.NewDesc(family.Name, family.Help, names, nil)
	metric, err := constMetric(desc, family.Kind, sample, values)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return metric
}

func constMetric(desc *prometheus.Desc, kind string, sample polylimit.MetricSample, labels []string) (prometheus.Metric, error) {
	if histogram := sample.Histogram; histogram != nil {
		buckets := make(map[float64]uint64, len(histogram.Buckets))
		for _, bucket := range histogram.Buckets {
			buckets[bucket.UpperBound] = bucket.Count
		}
		return prometheus.NewConstHistogram(desc, histogram.Count, histogram.Sum, buckets, labels...)
	}
	if kind == "counter" {
		return prometheus.NewConstMetric(desc, prometheus.CounterValue, sample.Value, labels...)
	}
	return prometheus.NewConstMetric(desc, prometheus.GaugeValue, sample.Value, labels...)
}
