//! Metrics of limiters as observable instruments of OpenTelemetry, with the feature `opentelemetry`.

use std::sync::{Arc, Weak};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::limiter::Limiter;
use crate::limiter::operations::Shared;
use polylimit_store::families::{Family, FamilyKind, Sample, SampleValue};

/// Observes the metrics of a limiter at each collection of the meter's provider, until the last handle of the limiter is dropped.
///
/// The instrument of the family `polylimit_decisions_total` is `polylimit.decisions`, and the labels of its samples are
/// attributes; docs/metrics.md describes each family. `name` becomes the attribute `limiter`, which distinguishes
/// several limiters of a meter; one of them may have none. Register a limiter only once: a second registration would
/// observe everything twice.
///
/// The meter must come from a provider that is already set: instruments of a meter that was created before do nothing.
///
/// ```
/// use opentelemetry::metrics::MeterProvider as _;
/// use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
/// use polylimit::{Limiter, Policy};
///
/// let exporter = InMemoryMetricExporter::default();
/// let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
/// let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute")?).build()?;
/// polylimit::metrics::opentelemetry::register(&limiter, &provider.meter("polylimit"), None);
///
/// let _ = limiter.blocking().check("user:42")?;
/// provider.force_flush().unwrap();
/// let collected = exporter.get_finished_metrics().unwrap();
/// let mut metrics = collected[0].scope_metrics().flat_map(|scope| scope.metrics());
/// assert!(metrics.any(|metric| metric.name() == "polylimit.decisions"));
/// # Ok::<(), polylimit::Error>(())
/// ```
pub fn register(limiter: &Limiter, meter: &Meter, name: Option<&str>) {
    let attribute = name.map(|name| KeyValue::new("limiter", name.to_owned()));
    for Family { name, help, kind, .. } in limiter.metrics() {
        let instrument = Instrument { meter, limiter, attribute: &attribute, family: name, help };
        let (text, unit) = name_and_unit(name);
        match kind {
            FamilyKind::Gauge => instrument.gauge(text, unit),
            FamilyKind::Counter => instrument.counter(text, unit, observe_number),
            // Histograms: OpenTelemetry has none that are observable, so their parts are counters.
            _ => {
                instrument.counter(format!("{text}.bucket"), "", observe_buckets);
                instrument.counter(format!("{text}.count"), "", observe_count);
                instrument.counter(format!("{text}.sum"), unit, observe_sum);
            }
        }
    }
}

/// The name of an instrument and its unit, which an instrument has apart from its name.
fn name_and_unit(family: &str) -> (String, &'static str) {
    let name = family.strip_prefix("polylimit_").unwrap_or(family);
    let name = name.strip_suffix("_total").unwrap_or(name);
    let (name, unit) = name.strip_suffix("_seconds").map_or((name, ""), |name| (name, "s"));
    (format!("polylimit.{name}"), unit)
}

/// Observes a sample whose attributes are these.
type Observe = fn(&SampleValue, &[KeyValue], &dyn AsyncInstrument<f64>);

/// The parts of an instrument.
struct Instrument<'a> {
    meter: &'a Meter,
    limiter: &'a Limiter,
    attribute: &'a Option<KeyValue>,
    family: &'static str,
    help: &'static str,
}

impl Instrument<'_> {
    fn gauge(&self, name: String, unit: &'static str) {
        let builder = self.meter.f64_observable_gauge(name).with_description(self.help).with_unit(unit);
        builder.with_callback(self.callback(observe_number)).build();
    }

    fn counter(&self, name: String, unit: &'static str, observe: Observe) {
        let builder = self.meter.f64_observable_counter(name).with_description(self.help).with_unit(unit);
        builder.with_callback(self.callback(observe)).build();
    }

    /// Instruments cannot be removed, so the callback does not keep the limiter.
    fn callback(&self, observe: Observe) -> impl Fn(&dyn AsyncInstrument<f64>) + Send + Sync + use<> {
        let (limiter, family) = (Arc::downgrade(&self.limiter.shared), self.family);
        let attribute = self.attribute.clone();
        move |observer| {
            for Sample { labels, value, .. } in samples(&limiter, family) {
                let labels = labels.into_iter().map(|(name, value)| KeyValue::new(name, String::from(value)));
                let attributes: Vec<KeyValue> = labels.chain(attribute.clone()).collect();
                observe(&value, &attributes, observer);
            }
        }
    }
}

fn samples(limiter: &Weak<Shared>, family: &str) -> Vec<Sample> {
    let Some(shared) = limiter.upgrade() else { return Vec::new() };
    let families = Limiter { shared }.metrics();
    families.into_iter().find(|known| known.name == family).map(|known| known.samples).unwrap_or_default()
}

fn observe_number(value: &SampleValue, attributes: &[KeyValue], observer: &dyn AsyncInstrument<f64>) {
    match value {
        SampleValue::Count(count) => observer.observe(number(*count), attributes),
        SampleValue::Number(number) => observer.observe(*number, attributes),
        SampleValue::Histogram { .. } => {}
    }
}

fn observe_buckets(value: &SampleValue, attributes: &[KeyValue], observer: &dyn AsyncInstrument<f64>) {
    let SampleValue::Histogram { buckets, count, .. } = value else { return };
    let buckets = buckets.iter().map(|(bound, count)| (format!("{bound:?}"), *count));
    for (bound, count) in buckets.chain([("+Inf".to_owned(), *count)]) {
        let mut attributes = attributes.to_vec();
        attributes.push(KeyValue::new("le", bound));
        observer.observe(number(count), &attributes);
    }
}

fn observe_count(value: &SampleValue, attributes: &[KeyValue], observer: &dyn AsyncInstrument<f64>) {
    if let SampleValue::Histogram { count, .. } = value {
        observer.observe(number(*count), attributes);
    }
}

fn observe_sum(value: &SampleValue, attributes: &[KeyValue], observer: &dyn AsyncInstrument<f64>) {
    if let SampleValue::Histogram { sum, .. } = value {
        observer.observe(*sum, attributes);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric need not be exact beyond 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}
