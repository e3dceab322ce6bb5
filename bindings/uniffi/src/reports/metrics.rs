//! Metrics as records.

use std::collections::HashMap;

use polylimit::metrics::{Family, Sample, SampleValue};

use crate::number::signed;

/// Samples of one kind, under one name.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct MetricFamily {
    /// The name, such as `polylimit_decisions_total`. That of a counter ends in `_total`.
    pub name: String,
    /// What is counted or measured, in one sentence.
    pub help: String,
    /// What the samples are: `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The samples, which differ in their labels.
    pub samples: Vec<MetricSample>,
}

/// One number or histogram.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct MetricSample {
    /// The labels: names with values, which are any text. No value is a key.
    pub labels: HashMap<String, String>,
    /// The value.
    pub value: MetricValue,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq, uniffi::Enum)]
pub enum MetricValue {
    /// A count.
    Count {
        /// The count.
        count: i64,
    },
    /// Any number.
    Number {
        /// The number.
        number: f64,
    },
    /// A histogram.
    Histogram {
        /// The observations up to each bound, in rising order, without the last bound, infinity.
        buckets: Vec<MetricBucket>,
        /// The sum of the observations.
        sum: f64,
        /// The number of observations.
        count: i64,
    },
}

/// The observations of a histogram up to a bound.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct MetricBucket {
    /// The upper bound.
    pub bound: f64,
    /// The number of observations up to it.
    pub count: i64,
}

impl From<Family> for MetricFamily {
    fn from(family: Family) -> Self {
        Self {
            name: family.name.to_owned(),
            help: family.help.to_owned(),
            kind: family.kind.name().to_owned(),
            samples: family.samples.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Sample> for MetricSample {
    fn from(sample: Sample) -> Self {
        let label = |(name, value): (&str, Box<str>)| (name.to_owned(), value.into_string());
        Self { labels: sample.labels.into_iter().map(label).collect(), value: sample.value.into() }
    }
}

impl From<SampleValue> for MetricValue {
    fn from(value: SampleValue) -> Self {
        match value {
            SampleValue::Count(count) => Self::Count { count: signed(count) },
            SampleValue::Number(number) => Self::Number { number },
            SampleValue::Histogram { buckets, sum, count } => Self::Histogram {
                buckets: buckets
                    .into_iter()
                    .map(|(bound, count)| MetricBucket { bound, count: signed(count) })
                    .collect(),
                sum,
                count: signed(count),
            },
        }
    }
}
