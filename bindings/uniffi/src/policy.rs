//! Policies and quotas, in their text form.

use polylimit::{Algorithm, Quota};

use crate::error::{PolylimitError, Result, guarded};
use crate::number::unsigned;
use crate::span::Span;

/// A named list of quotas: a request is admitted by all of them, or nothing is taken from any.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Policy {
    /// 1 to 64 letters, digits and ``!#$%&'*+-.^_`|~``.
    pub name: String,
    /// 1 to 16 quotas as text, separated by `;`, such as `10/s; 1000/h`.
    pub quotas: String,
    /// What it answers while the store cannot be asked: `fallback`, `allow` or `deny`; otherwise what the store's options
    /// say.
    #[uniffi(default)]
    pub outage: Option<String>,
    /// That its busy keys may be leased, such as `auto` or `100/500ms`; otherwise they are not.
    #[uniffi(default)]
    pub lease: Option<String>,
}

impl Policy {
    pub(crate) fn of(policy: &polylimit::Policy) -> Self {
        let quotas: Vec<_> = policy.quotas().iter().map(Quota::to_string).collect();
        Self { name: policy.name().to_owned(), quotas: quotas.join("; "), outage: None, lease: None }
    }

    pub(crate) fn parsed(&self) -> Result<polylimit::Policy> {
        Ok(polylimit::Policy::parse(&self.name, &self.quotas)?)
    }
}

/// The numbers of a quota; those that are left out are as in its text form.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct QuotaNumbers {
    /// How many units in a period.
    pub limit: i64,
    /// How long a period is: 1 ms to 366 days.
    pub period: Span,
    /// The algorithm's name, such as `sliding_window`.
    #[uniffi(default)]
    pub algorithm: Option<String>,
    /// The most units that can be spent at once.
    #[uniffi(default)]
    pub burst: Option<i64>,
    /// The units that come back together.
    #[uniffi(default)]
    pub step: Option<i64>,
    /// The sub-windows of a sliding window.
    #[uniffi(default)]
    pub buckets: Option<i64>,
    /// Whether fixed windows start at multiples of the period.
    #[uniffi(default)]
    pub aligned: Option<bool>,
    /// Whether denied requests count as well.
    #[uniffi(default)]
    pub count_denied: Option<bool>,
}

/// The text of a quota of these numbers.
#[uniffi::export]
pub fn quota(numbers: QuotaNumbers) -> Result<String> {
    guarded(|| {
        let mut builder =
            Quota::builder(unsigned("limit", numbers.limit)?, numbers.period.duration("period")?);
        if let Some(name) = &numbers.algorithm {
            builder = builder.algorithm(name.parse::<Algorithm>()?);
        }
        if let Some(burst) = numbers.burst {
            builder = builder.burst(unsigned("burst", burst)?);
        }
        if let Some(step) = numbers.step {
            builder = builder.step(unsigned("step", step)?);
        }
        if let Some(buckets) = numbers.buckets {
            builder = builder.buckets(u32::try_from(buckets).map_err(|_| {
                PolylimitError::InvalidArgument(format!("buckets is {buckets}: that many cannot be"))
            })?);
        }
        if let Some(aligned) = numbers.aligned {
            builder = builder.aligned(aligned);
        }
        if let Some(count_denied) = numbers.count_denied {
            builder = builder.count_denied(count_denied);
        }
        Ok(builder.build()?.to_string())
    })
}
