package polylimit

// #include "shim.h"
import "C"

import (
	"encoding/json"
	"runtime"
)

// MetricFamily is samples of one kind, under one name.
type MetricFamily struct {
	// Name is the name, such as "polylimit_decisions_total". That of a counter ends in "_total".
	Name string `json:"name"`
	// Help is what is counted or measured, in one sentence.
	Help string `json:"help"`
	// Kind is what the samples are: "counter", "gauge" or "histogram".
	Kind string `json:"kind"`
	// Samples are the samples, which differ in their labels; none where the family does not apply to the limiter.
	Samples []MetricSample `json:"samples"`
}

// MetricSample is one number or histogram.
type MetricSample struct {
	// Labels are names with values, which are any text. No value is a key.
	Labels map[string]string
	// Value is the number of a counter, which is rounded beyond 2^53, or of a gauge.
	Value float64
	// Histogram is that of a family of histograms; otherwise nil.
	Histogram *MetricHistogram
}

// MetricHistogram is how many observations were at most some numbers.
type MetricHistogram struct {
	// Buckets are upper bounds, in rising order. The last bound, infinity, is left out: its count is Count.
	Buckets []MetricBucket `json:"buckets"`
	// Sum is the sum of the observations, and Count their number.
	Sum   float64 `json:"sum"`
	Count uint64  `json:"count"`
}

// MetricBucket is the number of observations up to a bound.
type MetricBucket struct {
	UpperBound float64
	Count      uint64
}

// UnmarshalJSON reads a sample of a report, whose value is a number or a histogram.
func (s *MetricSample) UnmarshalJSON(text []byte) error {
	var read struct {
		Labels map[string]string `json:"labels"`
		Value  json.RawMessage   `json:"value"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = MetricSample{Labels: read.Labels}
	if len(read.Value) > 0 && read.Value[0] == '{' {
		return json.Unmarshal(read.Value, &s.Histogram)
	}
	return json.Unmarshal(read.Value, &s.Value)
}

// UnmarshalJSON reads a bound and its count from an array of two.
func (b *MetricBucket) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&b.UpperBound, &b.Count})
}

// Metrics are what this limiter has decided since it was opened, and the state of its store and of its configuration. No key is in them. The
// families are always the same; docs/metrics.md describes each. It takes some microseconds, and 20 ns for each 1,000 keys in the memory store.
//
// The packages polylimitprometheus and polylimitotel hand them to client_golang and to OpenTelemetry.
func (l *Limiter) Metrics() ([]MetricFamily, error) {
	defer runtime.KeepAlive(l)
	return made[[]MetricFamily](func(report **C.polylimit_report, failure *message) C.polylimit_status {
		return C.polylimit_limiter_metrics(l.limiter, report, &failure[0], C.size_t(len(failure)))
	})
}

// MetricsText is Metrics as text, for an endpoint that a monitoring system reads. The format is "prometheus" (version 0.0.4, media type
// "text/plain; version=0.0.4; charset=utf-8") or "openmetrics" (version 1.0.0, media type
// "application/openmetrics-text; version=1.0.0; charset=utf-8").
func (l *Limiter) MetricsText(format string) (string, error) {
	defer runtime.KeepAlive(l)
	name, err := cText(format, "format")
	if err != nil {
		return "", err
	}
	defer free(name)
	return rendered(func(buffer *C.char, capacity C.size_t, length *C.size_t, failure *message) C.polylimit_status {
		return C.polylimit_limiter_metrics_text(l.limiter, name, buffer, capacity, length, &failure[0], C.size_t(len(failure)))
	})
}
