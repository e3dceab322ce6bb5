//! The format of the cases; see ../../README.md.

use std::time::Duration;

use polylimit::quota::Algorithm;
use polylimit::{Error, Policy, Quota};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) format: u32,
    pub(crate) cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) quotas: Vec<QuotaNumbers>,
    pub(crate) ops: Vec<Operation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaNumbers {
    algorithm: String,
    limit: u64,
    /// Concurrency has none.
    #[serde(default)]
    period_us: u64,
    burst: Option<u64>,
    step: Option<u64>,
    buckets: Option<u32>,
    excess: Option<u64>,
    #[serde(default)]
    aligned: bool,
    #[serde(default)]
    count_denied: bool,
    /// Only in format 4: a quota by the calendar in parts, and as the text that has them.
    #[serde(rename = "calendar")]
    _calendar: Option<serde_json::Value>,
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operation {
    pub(crate) at_us: u64,
    pub(crate) op: Kind,
    pub(crate) cost: Option<u64>,
    pub(crate) id: Option<String>,
    pub(crate) ttl_us: Option<u64>,
    pub(crate) remember_us: Option<u64>,
    pub(crate) quotas: Option<Vec<QuotaNumbers>>,
    pub(crate) expect: Option<Answer>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
    Reserve,
    Commit,
    Cancel,
    Renew,
    Change,
}

/// What an operation answers, or is expected to; which fields there are depends on the operation.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    pub(crate) allowed: Option<bool>,
    pub(crate) remaining: Option<u64>,
    #[serde(default, deserialize_with = "wait")]
    pub(crate) retry_after_us: Option<Wait>,
    pub(crate) reset_after_us: Option<u64>,
    pub(crate) delay_us: Option<u64>,
    pub(crate) taken: Option<u64>,
    pub(crate) found: Option<bool>,
    /// Only in `commits.json`, of a commit.
    pub(crate) repeated: Option<bool>,
    /// Only in format 2.
    pub(crate) over: Option<u64>,
}

/// How long until a request would be admitted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Microseconds(u64),
    Never,
}

impl From<Option<u64>> for Wait {
    fn from(wait_us: Option<u64>) -> Self {
        wait_us.map_or(Self::Never, Self::Microseconds)
    }
}

/// A field that is there, where null is never, as opposed to one that is not.
pub(crate) fn wait<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Wait>, D::Error> {
    Option::<u64>::deserialize(deserializer).map(|wait_us| Some(wait_us.into()))
}

/// The policy of a case.
pub(crate) fn policy(quotas: &[QuotaNumbers]) -> Result<Policy, Error> {
    policy_of("case", quotas)
}

pub(crate) fn policy_of(name: &str, quotas: &[QuotaNumbers]) -> Result<Policy, Error> {
    let quotas = quotas.iter().map(QuotaNumbers::quota).collect::<Result<Vec<_>, _>>()?;
    Policy::new(name, quotas)
}

impl QuotaNumbers {
    fn quota(&self) -> Result<Quota, Error> {
        if let Some(text) = &self.text {
            return text.parse();
        }
        let mut builder = Quota::builder(self.limit, Duration::from_micros(self.period_us))
            .algorithm(self.algorithm.parse::<Algorithm>()?)
            .aligned(self.aligned)
            .count_denied(self.count_denied);
        if let Some(burst) = self.burst {
            builder = builder.burst(burst);
        }
        if let Some(step) = self.step {
            builder = builder.step(step);
        }
        if let Some(buckets) = self.buckets {
            builder = builder.buckets(buckets);
        }
        if let Some(excess) = self.excess {
            builder = builder.excess(excess);
        }
        builder.build()
    }
}
