// Package polylimitotel observes the metrics of limiters as instruments of OpenTelemetry.
//
//	registration, err := polylimitotel.Register(limiter, otel.Meter("polylimit"))
//
// The instrument of the family polylimit_decisions_total is polylimit.decisions, and the labels of its samples are attributes;
// docs/metrics.md describes each family.
package polylimitotel

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"polylimit.dev/polylimit"
)

// observe passes the samples of a family to its instruments.
type observe func(observer metric.Observer, sample polylimit.MetricSample, attributes []attribute.KeyValue)

// Register observes the metrics of a limiter whenever the readers of the meter's provider collect, until Unregister of the result is called.
// The observations of a limiter that was closed stay as they were.
//
// Every observation has the attributes. Limiters that share a meter need an attribute that distinguishes them, such as
// attribute.String("limiter", "edge"): a provider adds up observations with the same attributes.
//
// It fails with the errors of the meter.
func Register(limiter *polylimit.Limiter, meter metric.Meter, attributes ...attribute.KeyValue) (metric.Registration, error) {
	families, err := limiter.Metrics()
	if err != nil {
		return nil, err
	}
	observes := make(map[string]observe, len(families))
	var instruments []metric.Observable
	for _, family := range families {
		made, observe, err := instrumentsOf(meter, family)
		if err != nil {
			return nil, err
		}
		instruments = append(instruments, made...)
		observes[family.Name] = observe
	}
	return meter.RegisterCallback(func(_ context.Context, observer metric.Observer) error {
		families, err := limiter.Metrics()
		for _, family := range families {
			for _, sample := range family.Samples {
				observes[family.Name](observer, sample, attributesOf(sample, attributes))
			}
		}
		return err
	}, instruments...)
}

func attributesOf(sample polylimit.MetricSample, own []attribute.KeyValue) []attribute.KeyValue {
	attributes := make([]attribute.KeyValue, 0, len(own)+len(sample.Labels)+1)
	attributes = append(attributes, own...)
	for name, value := range sample.Labels {
		attributes = append(attributes, attribute.String(name, value))
	}
	return attributes
}

func instrumentsOf(meter metric.Meter, family polylimit.MetricFamily) ([]metric.Observable, observe, error) {
	// The name of an instrument has no part for its unit.
	name, isTime := strings.CutSuffix(strings.TrimSuffix(family.Name, "_total"), "_seconds")
	name = "polylimit." + strings.TrimPrefix(name, "polylimit_")
	unit := ""
	if isTime {
		unit = "s"
	}
	help, inUnit := metric.WithDescription(family.Help), metric.WithUnit(unit)
	switch family.Kind {
	case "counter":
		counter, err := meter.Int64ObservableCounter(name, help, inUnit)
		return []metric.Observable{counter}, func(observer metric.Observer, sample polylimit.MetricSample, attributes []attribute.KeyValue) {
			observer.ObserveInt64(counter, int64(sample.Value), metric.WithAttributes(attributes...))
		}, err
	case "gauge":
		gauge, err := meter.Float64ObservableGauge(name, help, inUnit)
		return []metric.Observable{gauge}, func(observer metric.Observer, sample polylimit.MetricSample, attributes []attribute.KeyValue) {
			observer.ObserveFloat64(gauge, sample.Value, metric.WithAttributes(attributes...))
		}, err
	default:
		return histogramOf(meter, name, help, inUnit)
	}
}

// histogramOf makes counters of the parts of a histogram: OpenTelemetry has no histogram that is observed.
func histogramOf(meter metric.Meter, name string, help, inUnit metric.InstrumentOption) ([]metric.Observable, observe, error) {
	buckets, err := meter.Int64ObservableCounter(name+".bucket", help)
	count, countErr := meter.Int64ObservableCounter(name+".count", help)
	sum, sumErr := meter.Float64ObservableCounter(name+".sum", help, inUnit)
	observe := func(observer metric.Observer, sample polylimit.MetricSample, attributes []attribute.KeyValue) {
		histogram := sample.Histogram
		upTo := func(bound string, count uint64) {
			observer.ObserveInt64(buckets, int64(count), metric.WithAttributes(append(attributes, attribute.String("le", bound))...))
		}
		for _, bucket := range histogram.Buckets {
			upTo(textOf(bucket.UpperBound), bucket.Count)
		}
		upTo("+Inf", histogram.Count)
		observer.ObserveInt64(count, int64(histogram.Count), metric.WithAttributes(attributes...))
		observer.ObserveFloat64(sum, histogram.Sum, metric.WithAttributes(attributes...))
	}
	return []metric.Observable{buckets, count, sum}, observe, errors.Join(err, countErr, sumErr)
}

// textOf is a bound as the text formats of metrics write it: a whole number has ".0".
func textOf(bound float64) string {
	text := strconv.FormatFloat(bound, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
