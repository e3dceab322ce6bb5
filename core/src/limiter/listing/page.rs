//! The arguments and the results of listing keys.

use serde::Serialize;

use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::transition::PolicyRules;
use polylimit_store::scan::{KeyName, Look};

/// Selects the keys of a list: all by default.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct KeyFilter<'a> {
    /// The name of a policy, or its quotas as text.
    pub policy: Option<&'a str>,
    /// The prefix of the key. A key of which only the digest is known matches the empty prefix only.
    pub key_prefix: &'a [u8],
    /// The minimum [`used_percent`](ListedKey::used_percent). Keys of unknown policies have none, and are listed with 0 only.
    pub at_least_used: u8,
}

impl<'a> KeyFilter<'a> {
    /// Keys of the policy with this name, or with these quotas.
    #[must_use]
    pub fn policy(mut self, policy: &'a str) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Keys that begin with these bytes.
    #[must_use]
    pub fn key_prefix(mut self, prefix: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.key_prefix = prefix.as_ref();
        self
    }

    /// Keys of which at least this much is used, in percent.
    #[must_use]
    pub fn at_least_used(mut self, percent: u8) -> Self {
        self.at_least_used = percent;
        self
    }
}

/// Does not show the prefix: it is part of keys.
impl std::fmt::Debug for KeyFilter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyFilter")
            .field("policy", &self.policy)
            .field("key_prefix", &format_args!("{} bytes", self.key_prefix.len()))
            .field("at_least_used", &self.at_least_used)
            .finish()
    }
}

/// When a page ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListBudget {
    /// The page ends once it has this many keys, 1 or more. The last step may add some more: about a thousand at most. Default 1,000.
    pub entries: usize,
    /// The page ends once the store has examined this many keys, 1 or more, whether they are in the page or not. Default 100,000.
    pub examined: u64,
    /// The share of one server's time that a list in Redis may take, 1 to 100: with 10, the default, each call is followed by a pause of
    /// nine times its duration.
    pub pace_percent: u8,
}

impl Default for ListBudget {
    fn default() -> Self {
        Self { entries: 1_000, examined: 100_000, pace_percent: 10 }
    }
}

impl ListBudget {
    /// A page of about this many keys.
    #[must_use]
    pub fn entries(mut self, entries: usize) -> Self {
        self.entries = entries;
        self
    }

    /// A page for which the store examines this many keys.
    #[must_use]
    pub fn examined(mut self, examined: u64) -> Self {
        self.examined = examined;
        self
    }

    /// A list that takes at most this share of one server's time, in percent.
    #[must_use]
    pub fn pace_percent(mut self, percent: u8) -> Self {
        self.pace_percent = percent;
        self
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let refused = |name: &str, read: u64, allowed: &str| {
            Err(Error::invalid_argument(format!("{name} of a list is {read}: allowed is {allowed}")))
        };
        match self {
            Self { entries: 0, .. } => refused("entries", 0, "1 or more"),
            Self { examined: 0, .. } => refused("examined", 0, "1 or more"),
            Self { pace_percent: 1..=100, .. } => Ok(()),
            Self { pace_percent, .. } => refused("pace_percent", (*pace_percent).into(), "1 to 100"),
        }
    }
}

/// A page of a list of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyPage {
    /// The keys, in no particular order; for [`scan_top`](crate::admin::Admin::scan_top), the most used first.
    pub keys: Vec<ListedKey>,
    /// Approximately how many keys the store examined; in Redis including those of other programs.
    pub examined: u64,
    /// Where the list continues; `None` when this was the last page. A page without keys may have one.
    pub cursor: Option<String>,
}

/// The result of resetting a page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ResetPage {
    /// The number of keys that were reset.
    pub reset: u64,
    /// The number of keys that were kept because this limiter does not know their policies.
    pub unknown: u64,
    /// Approximately how many keys the store examined.
    pub examined: u64,
    /// Where the list continues; `None` when this was the last page.
    pub cursor: Option<String>,
}

/// A key with the usage of its quotas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedKey {
    /// The policy's name.
    pub policy: Box<str>,
    /// The key.
    #[serde(flatten)]
    pub key: KeyName,
    /// The effective quotas of the key, in order; none for a policy that this limiter does not know.
    pub quotas: Vec<ListedQuota>,
    /// The share of a quota's capacity that is used or set aside, in percent, the highest of all quotas: above 100 for
    /// units beyond the capacity, and at least 100 for a blocked key.
    pub used_percent: u64,
    /// The number of reservations.
    pub reservations: u64,
    /// The units that they set aside.
    pub reserved_units: u64,
    /// How much longer the key is blocked, in microseconds; 0 when it is not.
    pub blocked_for_us: u64,
    /// How long until the key is as if it had never been used, in microseconds. `None` when it stays, and where the store does not
    /// report it.
    pub expires_after_us: Option<u64>,
}

/// The usage of one quota of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedQuota {
    /// The quota as text, such as `100/minute`.
    pub quota: Box<str>,
    /// The limit, in units per period, or in reservations.
    pub limit: u64,
    /// The most that can be used at once, without an [`excess`](Quota::excess).
    pub capacity: u64,
    /// Units that count now, including those beyond the capacity; for concurrency, reservations.
    pub used: u64,
    /// Whole units that the quota would still admit now.
    pub remaining: u64,
    /// How long until nothing counts as used under this quota, in microseconds.
    pub reset_after_us: u64,
}

impl ListedKey {
    /// `None` for a key of which nothing counts any longer.
    pub(super) fn of(key: &KeyName, policy: &Policy, look: &Look) -> Option<Self> {
        let seen = PolicyRules::new(policy).inspect(&look.states, look.now_us, 0, 0);
        if seen.expires_after_us == Some(0) {
            return None;
        }
        let quotas: Vec<ListedQuota> = policy
            .quotas()
            .iter()
            .zip(&seen.quotas)
            .map(|(quota, seen)| ListedQuota {
                quota: quota.to_string().into(),
                limit: quota.limit(),
                capacity: capacity_of(quota),
                used: seen.used,
                remaining: seen.usage.remaining,
                reset_after_us: seen.usage.reset_after_us,
            })
            .collect();
        let used = policy.quotas().iter().zip(&quotas).map(|(quota, listed)| {
            let held = if quota.algorithm() == Algorithm::Concurrency { 0 } else { seen.held.units };
            ((listed.used + held) * 100).checked_div(listed.capacity).unwrap_or(0)
        });
        let blocked = if seen.blocked_for_us > 0 { 100 } else { 0 };
        Some(Self {
            policy: policy.name().into(),
            key: key.clone(),
            used_percent: used.fold(blocked, u64::max),
            quotas,
            reservations: seen.held.alive,
            reserved_units: seen.held.units,
            blocked_for_us: seen.blocked_for_us,
            expires_after_us: seen.expires_after_us,
        })
    }

    /// A key of an unknown policy.
    pub(super) fn of_unknown(policy: Box<str>, key: KeyName, expires_after_us: Option<u64>) -> Self {
        Self {
            policy,
            key,
            quotas: Vec::new(),
            used_percent: 0,
            reservations: 0,
            reserved_units: 0,
            blocked_for_us: 0,
            expires_after_us,
        }
    }
}

/// The capacity of a quota as clients see it.
pub(crate) fn capacity_of(quota: &Quota) -> u64 {
    if quota.algorithm() == Algorithm::Concurrency { quota.limit() } else { quota.regular_capacity() }
}
