//! Metrics as values, and as the text that monitoring systems read. `Limiter::metrics` fills them.

pub mod durations;
mod text;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use polylimit_rules::names::named_enum;

named_enum! {
    /// What the samples of a [`Family`] are.
    FamilyKind {
        /// Counts that only ever rise, from 0 when the limiter was made.
        Counter = "counter",
        /// Numbers that rise and fall.
        Gauge = "gauge",
        /// How many observations were at most some numbers.
        Histogram = "histogram",
    }
}

named_enum! {
    /// A text that monitoring systems read.
    TextFormat, parsed as "format" {
        /// The text format of Prometheus, version 0.0.4.
        Prometheus = "prometheus",
        /// The text format of `OpenMetrics`, version 1.0.0.
        OpenMetrics = "openmetrics",
    }
}

impl TextFormat {
    /// The media type of the text, for the field `Content-Type` of an HTTP response.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Samples of one kind, under one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Family {
    /// The name, such as `polylimit_decisions_total`. That of a counter ends in `_total`.
    pub name: &'static str,
    /// What is counted or measured, in one sentence.
    pub help: &'static str,
    /// What the samples are.
    pub kind: FamilyKind,
    /// The samples, which differ in their labels.
    pub samples: Vec<Sample>,
}

/// One number or histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// The labels: names with values, which are any text. No value is a key.
    #[serde(serialize_with = "as_map")]
    pub labels: Vec<(&'static str, Box<str>)>,
    /// The value.
    pub value: SampleValue,
}

/// The value of a [`Sample`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SampleValue {
    /// A count.
    Count(u64),
    /// Any number.
    Number(f64),
    /// A histogram.
    Histogram {
        /// Upper bounds, in rising order, each with the number of observations up to it. The last bound, infinity, is left out:
        /// its number is `count`.
        buckets: Vec<(f64, u64)>,
        /// The sum of the observations.
        sum: f64,
        /// The number of observations.
        count: u64,
    },
}

impl Family {
    /// A family without samples, for a program that adds its own to those of a limiter.
    pub const fn new(name: &'static str, kind: FamilyKind, help: &'static str) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    /// Adds a sample with these labels.
    pub fn add<const N: usize>(&mut self, labels: [(&'static str, &str); N], value: SampleValue) {
        let labels = labels.into_iter().map(|(name, value)| (name, value.into())).collect();
        self.samples.push(Sample { labels, value });
    }

    /// Adds a count. One of 0 is left out: the labels have more values than ever occur.
    #[doc(hidden)]
    pub fn add_seen<const N: usize>(&mut self, labels: [(&'static str, &str); N], count: u64) {
        if count > 0 {
            self.add(labels, SampleValue::Count(count));
        }
    }
}

fn as_map<S: Serializer>(labels: &[(&'static str, Box<str>)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(labels.len()))?;
    for (name, value) in labels {
        map.serialize_entry(name, value)?;
    }
    map.end()
}
