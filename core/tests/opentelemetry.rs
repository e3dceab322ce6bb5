//! Metrics of limiters by the real SDK of OpenTelemetry: the same samples as in the text for Prometheus.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by a panic")]

use std::collections::BTreeSet;
use std::time::Duration;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use polylimit::metrics::TextFormat;
use polylimit::redis::RedisOptions;
use polylimit::{Limiter, Policy};
use polylimit_test_servers::{Kind, Server};

fn provider() -> (SdkMeterProvider, InMemoryMetricExporter) {
    let exporter = InMemoryMetricExporter::default();
    (SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build(), exporter)
}

/// The samples of one collection, in the form of the text's lines: `polylimit_decisions_total{policy="api",...} 1`.
fn collected(provider: &SdkMeterProvider, exporter: &InMemoryMetricExporter) -> BTreeSet<String> {
    exporter.reset();
    provider.force_flush().unwrap();
    exporter.get_finished_metrics().unwrap().iter().flat_map(lines).collect()
}

fn lines(collected: &ResourceMetrics) -> Vec<String> {
    let mut lines = Vec::new();
    for metric in collected.scope_metrics().flat_map(ScopeMetrics::metrics) {
        let AggregatedMetrics::F64(data) = metric.data() else { panic!("{} is no f64", metric.name()) };
        let mut add = |attributes: Vec<String>, value: f64| {
            lines.push(format!("{} [{}] {{{}}} {value}", metric.name(), metric.unit(), attributes.join(",")));
        };
        let of = |attributes: &mut dyn Iterator<Item = &opentelemetry::KeyValue>| {
            let mut named: Vec<_> = attributes.map(|pair| format!("{}={}", pair.key, pair.value)).collect();
            named.sort();
            named
        };
        match data {
            MetricData::Gauge(gauge) => {
                gauge.data_points().for_each(|point| add(of(&mut point.attributes()), point.value()));
            }
            MetricData::Sum(sum) => {
                assert!(sum.is_monotonic(), "{}", metric.name());
                sum.data_points().for_each(|point| add(of(&mut point.attributes()), point.value()));
            }
            _ => panic!("{} is neither a gauge nor a sum", metric.name()),
        }
    }
    lines
}

/// The samples of the text, under the names and units that instruments have.
fn expected(limiter: &Limiter, name: Option<&str>) -> BTreeSet<String> {
    let text = limiter.metrics_text(TextFormat::Prometheus);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|sample| instrument_line(sample, name)).collect()
}

fn instrument_line(sample: &str, limiter: Option<&str>) -> String {
    let (name, rest) = sample.split_at(sample.find(['{', ' ']).unwrap());
    let (labels, value) = rest.rsplit_once(' ').unwrap();
    let labels = labels.trim_matches(['{', '}']);
    let labels = labels.split_terminator("\",").map(|label| label.replace('"', ""));
    let mut labels: Vec<_> = labels.chain(limiter.map(|limiter| format!("limiter={limiter}"))).collect();
    labels.sort();
    let name = name.strip_prefix("polylimit_").unwrap();
    let (name, unit) = match name.strip_prefix("store_duration_seconds_") {
        Some("sum") => ("store_duration.sum".to_owned(), "s"),
        Some(part) => (format!("store_duration.{part}"), ""),
        None => {
            let name = name.strip_suffix("_total").unwrap_or(name);
            name.strip_suffix("_seconds").map_or((name.to_owned(), ""), |name| (name.to_owned(), "s"))
        }
    };
    let value: f64 = value.parse().unwrap();
    format!("polylimit.{name} [{unit}] {{{}}} {value}", labels.join(","))
}

fn policy() -> Policy {
    Policy::parse("api", "2/minute; 1000/hour token_bucket").unwrap()
}

#[test]
fn observations_are_the_samples_of_the_text() {
    let server = Server::start(Kind::Redis, &[]);
    let redis = RedisOptions::parse(&server.url()).unwrap().deadline(Duration::from_secs(30));
    for (store, builder) in [("memory", Limiter::builder()), ("Redis", Limiter::builder().redis(redis))] {
        let limiter = builder.policy(policy()).build().unwrap();
        let (provider, exporter) = provider();
        polylimit::metrics::opentelemetry::register(&limiter, &provider.meter("polylimit"), None);
        for _ in 0..3 {
            let _ = limiter.blocking().check("user").unwrap();
        }
        let observed = collected(&provider, &exporter);
        assert_eq!(observed, expected(&limiter, None), "{store}");
        assert!(
            observed.contains("polylimit.decisions [] {policy=api,result=denied,source=store} 1"),
            "{observed:#?}"
        );
    }
}

#[test]
fn limiters_of_one_meter_are_told_apart_by_their_names() {
    let build = || Limiter::builder().policy(policy()).build().unwrap();
    let (edge, inner) = (build(), build());
    let (provider, exporter) = provider();
    let meter = provider.meter("polylimit");
    polylimit::metrics::opentelemetry::register(&edge, &meter, Some("edge"));
    polylimit::metrics::opentelemetry::register(&inner, &meter, None);
    let _ = edge.blocking().check("user").unwrap();
    let both: BTreeSet<_> = expected(&edge, Some("edge")).union(&expected(&inner, None)).cloned().collect();
    assert_eq!(collected(&provider, &exporter), both);
}

#[test]
fn registered_limiter_ends_with_its_last_handle() {
    let limiter = Limiter::builder().policy(policy()).build().unwrap();
    let (provider, exporter) = provider();
    polylimit::metrics::opentelemetry::register(&limiter, &provider.meter("polylimit"), None);
    assert!(!collected(&provider, &exporter).is_empty());
    drop(limiter);
    assert!(collected(&provider, &exporter).is_empty());
}
