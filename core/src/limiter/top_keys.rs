//! The keys that a limiter denies and admits most often, as users see them.

use serde::Serialize;

use crate::limiter::observed::{Counted, HALF_LIFE};
use crate::limiter::{Admin, Shared};
use polylimit_rules::units::micros;
use polylimit_store::charge::PolicyId;
use polylimit_store::scan::KeyName;

/// The keys that a limiter has denied and admitted most often in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TopKeys {
    /// The keys that were denied, the most often denied first.
    pub denied: Vec<TopKey>,
    /// The keys that were admitted, the most often admitted first.
    pub admitted: Vec<TopKey>,
    /// The time in which every count is halved, in microseconds.
    pub half_life_us: u64,
    /// The maximum number of keys with a counter; 0 when keys are not counted.
    pub counters: u64,
}

/// How often a key was denied or admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TopKey {
    /// The policy's name.
    pub policy: Box<str>,
    /// The key.
    #[serde(flatten)]
    pub key: KeyName,
    /// How often, in requests: estimated from a sample of them.
    pub count: u64,
    /// The most by which the count is too high, because another key had its counter before.
    pub error: u64,
}

impl Shared {
    /// How often a key was denied recently, and the most by which that is too high.
    pub(crate) fn observed_denials(&self, id: PolicyId, key: &[u8]) -> Option<(u64, u64)> {
        self.observed.as_ref()?.denials(id, key)
    }
}

impl Admin<'_> {
    /// The keys that this limiter has denied and admitted most often in this process recently, at most `most` of each.
    /// It needs [`observe_keys`](crate::LimiterBuilder::observe_keys); without it, there are none.
    ///
    /// One of 16 denials and one of 64 admissions are counted, on average, and all counts are halved once a minute. No
    /// store is called, and denials that never reach a store are counted, too: no list of the store's keys can show
    /// them.
    ///
    /// ```
    /// use polylimit::{Limiter, Policy};
    ///
    /// let limiter = Limiter::builder().policy(Policy::parse("api", "2/minute")?).observe_keys(256).build()?;
    /// for _ in 0..10_000 {
    ///     let _ = limiter.blocking().check("user:42")?;
    /// }
    /// let top = limiter.admin().top_keys(10);
    /// assert_eq!(top.denied[0].key.bytes(), Some(&b"user:42"[..]));
    /// assert!((8_000..12_000).contains(&top.denied[0].count) && top.denied[0].error == 0);
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn top_keys(self, most: usize) -> TopKeys {
        let shared = self.limiter.shared();
        let Some(observed) = &shared.observed else { return TopKeys::default() };
        TopKeys {
            denied: named(shared, observed.top_denied(most)),
            admitted: named(shared, observed.top_admitted(most)),
            half_life_us: micros(HALF_LIFE),
            counters: observed.keys() as u64,
        }
    }
}

/// The counts with the names of their policies.
fn named(shared: &Shared, counted: Vec<Counted>) -> Vec<TopKey> {
    let named = |Counted { id, key, count, error }| {
        let policy = shared.registry.policy_of(id)?;
        Some(TopKey { policy: policy.name().into(), key, count, error })
    };
    counted.into_iter().filter_map(named).collect()
}
