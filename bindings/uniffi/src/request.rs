//! Requests, policies and quotas.

use std::fmt;

use polylimit::Quota;
use polylimit::quota::Algorithm;

use crate::error::{PolylimitError, Result, guarded};
use crate::number::{Span, percent, unsigned};

/// A key, the policy that is applied to it, and the units that the request spends. Its text form omits the key.
#[derive(Clone, PartialEq, Eq, uniffi::Record)]
#[uniffi::export(Debug, Display)]
pub struct Request {
    /// The key, such as a user or an address: up to 1 MiB.
    pub key: Vec<u8>,
    /// A policy's name, or quotas such as `100/minute`; it may be left out where the limiter has only one policy.
    #[uniffi(default)]
    pub policy: Option<String>,
    /// The units that the request spends, 0 to 10^12; 1 by default.
    #[uniffi(default)]
    pub cost: Option<i64>,
    /// Percent of every quota's capacity that the request leaves for others, 0 to 99; 0 by default. For a check, a peek and a
    /// reserve.
    #[uniffi(default)]
    pub headroom: Option<i32>,
    /// The plan of the key, for a limiter with a configuration: its quotas decide where the policy has it. A calendar may follow, as in
    /// `gold from=15`.
    #[uniffi(default)]
    pub plan: Option<String>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("policy", &self.policy)
            .field("cost", &self.cost)
            .field("headroom", &self.headroom)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Request {
    pub(crate) fn to_core(&self) -> Result<polylimit::Request<'_>> {
        let mut request = polylimit::Request::new(&self.key);
        if let Some(policy) = &self.policy {
            request = request.policy(policy);
        }
        if let Some(cost) = self.cost {
            request = request.cost(unsigned("cost", cost)?);
        }
        if let Some(headroom) = self.headroom {
            request = request.headroom(percent(headroom)?);
        }
        if let Some(plan) = &self.plan {
            request = request.plan(plan);
        }
        Ok(request)
    }
}

/// A named list of quotas: a request is admitted by all of them, or nothing is taken from any.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Policy {
    /// 1 to 64 letters, digits and ``!#$%&'*+-.^_`|~``.
    pub name: String,
    /// 1 to 16 quotas as text, separated by `;`, such as `10/s; 1000/h`.
    pub quotas: String,
    /// The outage policy while the store is unavailable: `fallback`, `allow` or `deny`; the store's option by
    /// default.
    #[uniffi(default)]
    pub outage: Option<String>,
    /// The lease of busy keys, such as `auto` or `100/500ms`; none by default.
    #[uniffi(default)]
    pub lease: Option<String>,
}

impl Policy {
    pub(crate) fn of(policy: &polylimit::Policy) -> Self {
        Self { name: policy.name().to_owned(), quotas: quotas_text(policy), outage: None, lease: None }
    }

    pub(crate) fn parsed(&self) -> Result<polylimit::Policy> {
        Ok(polylimit::Policy::parse(&self.name, &self.quotas)?)
    }
}

/// The quotas of a policy as text.
pub(crate) fn quotas_text(policy: &polylimit::Policy) -> String {
    let quotas: Vec<_> = policy.quotas().iter().map(Quota::to_string).collect();
    quotas.join("; ")
}

/// The numbers of a quota. Omitted numbers have the defaults of the text form.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct QuotaNumbers {
    /// The units of a period.
    pub limit: i64,
    /// The period: 1 ms to 366 days. The algorithm `concurrency` has none, nor do windows by the calendar.
    #[uniffi(default)]
    pub period: Option<Span>,
    /// The algorithm's name, such as `sliding_window`.
    #[uniffi(default)]
    pub algorithm: Option<String>,
    /// The most units that can be spent at once.
    #[uniffi(default)]
    pub burst: Option<i64>,
    /// The units that are refilled together.
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
    /// Units beyond the limit or burst that are admitted as well, and reported as `over` in decisions.
    #[uniffi(default)]
    pub excess: Option<i64>,
    /// Windows by the calendar in place of a period, such as `month from=15 zone=Europe/Berlin`. The algorithm is `fixed_window`, which is
    /// the default with them.
    #[uniffi(default)]
    pub calendar: Option<String>,
}

/// The text of a quota of these numbers.
#[uniffi::export]
pub fn quota(numbers: QuotaNumbers) -> Result<String> {
    guarded(|| {
        let period = numbers.period.map(|period| period.duration("period")).transpose()?;
        let mut builder = Quota::builder(unsigned("limit", numbers.limit)?, period.unwrap_or_default());
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
                PolylimitError::InvalidArgument(format!("buckets is {buckets}: allowed is 1 to 60"))
            })?);
        }
        if let Some(aligned) = numbers.aligned {
            builder = builder.aligned(aligned);
        }
        if let Some(count_denied) = numbers.count_denied {
            builder = builder.count_denied(count_denied);
        }
        if let Some(excess) = numbers.excess {
            builder = builder.excess(unsigned("excess", excess)?);
        }
        if let Some(calendar) = &numbers.calendar {
            builder = builder.calendar(calendar.parse()?);
        }
        Ok(builder.build()?.to_string())
    })
}

/// The text of a quota of at most `limit` reservations of a key at a time, such as `20 concurrent`.
#[uniffi::export]
pub fn concurrent(limit: i64) -> Result<String> {
    guarded(|| Ok(Quota::concurrent(unsigned("limit", limit)?)?.to_string()))
}
