//! The policies of every simulated process.

use std::sync::OnceLock;
use std::time::Duration;

use polylimit::Policy;
use polylimit::quota::Algorithm;
use polylimit::storage::Outage;

/// A policy, and what the simulation does with it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its quota as text.
    pub quota: &'static str,
    /// Its outage policy.
    pub outage: Outage,
    /// Whether every operation is a check of one unit, so that equal checks share an entry.
    pub single_units: bool,
    /// The lease as text.
    pub lease: Option<&'static str>,
}

const DENY: Row = Row { name: "", quota: "", outage: Outage::Deny, single_units: false, lease: None };

/// All policies.
pub const ROWS: [Row; 7] = [
    Row { name: "bucket", quota: "300/s token_bucket burst=400", ..DENY },
    Row { name: "window", quota: "400/s fixed_window aligned", ..DENY },
    Row { name: "sliding", quota: "400/s", ..DENY },
    Row { name: "allowing", quota: "300/s token_bucket burst=400", outage: Outage::Allow, ..DENY },
    Row { name: "falling-back", quota: "300/s token_bucket burst=400", outage: Outage::Fallback, ..DENY },
    Row { name: "single", quota: "20/s token_bucket burst=10", single_units: true, ..DENY },
    Row {
        name: "leased",
        quota: "150/s token_bucket burst=200",
        single_units: true,
        lease: Some("20/200ms"),
        ..DENY
    },
];

/// The maximum age of leased units.
pub const LEASE_MAX_AGE: Duration = Duration::from_millis(200);

/// The keys of each policy; the last one is for the check at the end. The first and the third share a slot.
pub const KEYS: [&str; 4] = ["a", "b", "k68769", "end"];

impl Row {
    /// The policy.
    pub fn policy(&self) -> Policy {
        Policy::parse(self.name, self.quota).unwrap()
    }
}

/// What a policy's quota admits.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    algorithm: Algorithm,
    limit: u64,
    period_us: u64,
    /// The most units that one loss of state adds.
    pub capacity: u64,
    buckets: u64,
}

/// The bounds of all policies.
pub fn bounds() -> &'static [Bound; ROWS.len()] {
    static BOUNDS: OnceLock<[Bound; ROWS.len()]> = OnceLock::new();
    BOUNDS.get_or_init(|| {
        ROWS.map(|row| {
            let policy = row.policy();
            let quota = &policy.quotas()[0];
            Bound {
                algorithm: quota.algorithm(),
                limit: quota.limit(),
                period_us: quota.period().as_micros() as u64,
                capacity: quota.capacity(),
                buckets: quota.buckets().unwrap_or(1).into(),
            }
        })
    })
}

impl Bound {
    /// The most units that the quota admits in any span of this number of microseconds: base(W) of the semantics.
    pub fn base(&self, span_us: u64) -> u64 {
        let Self { algorithm, limit, period_us, capacity, buckets } = *self;
        match algorithm {
            Algorithm::TokenBucket => capacity + self.repaid(span_us) + 1,
            // A span of any length begins in one window and may end in the next one.
            Algorithm::FixedWindow => (span_us / period_us + 2) * limit,
            _ => (span_us / (period_us - period_us / buckets).max(1) + 1) * limit,
        }
    }

    fn repaid(&self, span_us: u64) -> u64 {
        (span_us * self.limit).div_ceil(self.period_us)
    }

    /// What a step of the server's clock adds. A step back adds nothing to a bucket; a window may end sooner by a step in either
    /// direction.
    pub fn added_by_step(&self, us: i64) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket => self.capacity.min(self.repaid(us.max(0) as u64)),
            _ => self.capacity,
        }
    }
}
