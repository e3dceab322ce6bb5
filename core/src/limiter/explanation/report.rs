//! What an explanation tells.

use crate::configuration::compiled::statements::Statement;
use crate::configuration::model::Mode;
use crate::limiter::configured::status::ConfigurationStatus;
use crate::names::named_enum;
use crate::report::report;
use crate::rules::decision::{Cause, Degradation};
use crate::store::scan::KeyName;

named_enum! {
    /// What has decided which numbers a key has.
    NumbersSource {
        /// The policy's own quotas.
        Quotas = "quotas",
        /// An override of the key.
        Override = "override",
        /// The plan of the request.
        Plan = "plan",
        /// The candidate of the policy, which decides about some keys.
        Candidate = "candidate",
    }
}

named_enum! {
    /// Whether a policy decides.
    PolicyMode {
        /// It decides.
        On = "on",
        /// It admits everything without the store.
        Off = "off",
        /// It counts as when it decides, and admits everything.
        Shadow = "shadow",
    }
}

impl From<Mode> for PolicyMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::On => Self::On,
            Mode::Off => Self::Off,
            Mode::Shadow => Self::Shadow,
        }
    }
}

/// Why a request with this key would be admitted or denied now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is an answer of its own")]
pub struct KeyExplanation {
    /// The policy's name.
    pub policy: Box<str>,
    /// The key.
    pub key: KeyName,
    /// The units that the request would spend.
    pub cost: u64,
    /// Percent of the capacity that the request leaves for others.
    pub headroom: u8,
    /// Whether a check, or a reserve where the policy counts concurrency, would be admitted now.
    pub allowed: bool,
    /// Why it would be denied, or admitted without the store.
    pub cause: Option<Cause>,
    /// How long until it would be admitted, in microseconds; 0 when allowed. `None` means never.
    pub retry_after_us: Option<u64>,
    /// Whether the pool of an elastic policy would admit it.
    pub elastic: bool,
    /// Whether it would be denied if the policy were not in shadow.
    pub shadowed: bool,
    /// Whether the policy decides.
    pub mode: PolicyMode,
    /// The number of the rule that applies the policy, among those of the document, from 1 up; `None` for a request by its key.
    pub rule: Option<u32>,
    /// What has decided which quotas the key has.
    pub numbers: NumbersSource,
    /// The plan whose quotas these are.
    pub plan: Option<Box<str>>,
    /// The override that gives the key these quotas.
    pub override_entry: Option<EntryExplanation>,
    /// The item of a list that names the key.
    pub list_entry: Option<EntryExplanation>,
    /// What each quota says, in their order.
    pub quotas: Vec<QuotaExplanation>,
    /// How many reservations there are.
    pub reservations: u64,
    /// The units that they set aside.
    pub reserved_units: u64,
    /// How long until the last of them ends, in microseconds.
    pub reservations_end_after_us: u64,
    /// How much longer the key is blocked, in microseconds; 0 when it is not.
    pub blocked_for_us: u64,
    /// What is counted against the key under the policy's penalty; `None` for a policy that has none.
    pub penalty: Option<PenaltyExplanation>,
    /// How long until the key is as if it had never been used, in microseconds; `None` when it stays.
    pub expires_after_us: Option<u64>,
    /// Why the states may not be the key's own.
    pub degraded: Option<Degradation>,
    /// Units that this process holds in a lease; the store counts them as used.
    pub leased_units: u64,
    /// Whether this process would deny the request without asking the store.
    pub denial_cached: bool,
    /// How often this process has denied the key lately, and by how much that is too high at most; `None` for a key without a counter.
    /// See [`top_keys`](crate::Limiter::top_keys).
    pub denials: Option<u64>,
    /// By how much [`denials`](Self::denials) is too high at most.
    pub denials_error: Option<u64>,
    /// What the pool of an elastic policy says about a request that the policy denies.
    pub pool: Option<Box<KeyExplanation>>,
    /// The configuration in force; `None` for a limiter without one.
    pub configuration: Option<ConfigurationExplanation>,
}

report! {
    KeyExplanation {
        policy, key, cost, headroom, allowed, cause, retry_after_us, elastic, shadowed, mode, rule, numbers, plan, override_entry,
        list_entry, quotas, reservations, reserved_units, reservations_end_after_us, blocked_for_us, penalty, expires_after_us,
        degraded, leased_units, denial_cached, denials, denials_error, pool, configuration,
    }
}

/// What one quota says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaExplanation {
    /// The quota as text, such as `100/minute token_bucket`.
    pub quota: Box<str>,
    /// The limit, in units per period, or in reservations.
    pub limit: u64,
    /// The most that can be used at once, without an [`excess`](crate::Quota::excess).
    pub capacity: u64,
    /// The period, in microseconds; 0 for concurrency.
    pub period_us: u64,
    /// Units that count now, also those beyond the capacity; for concurrency, reservations.
    pub used: u64,
    /// Whole units that the quota would still admit now.
    pub remaining: u64,
    /// Units of an excess that are in use.
    pub over: u64,
    /// Whether this quota alone admits the request.
    pub admits: bool,
    /// How long until this quota alone admits it, in microseconds; `None` means never.
    pub retry_after_us: Option<u64>,
    /// How long until nothing counts as used under this quota, in microseconds.
    pub reset_after_us: u64,
    /// The same in the words of the algorithm, such as `debt 12.4 of 100, repays 1.67/s`.
    pub words: String,
}

report! {
    QuotaExplanation {
        quota, limit, capacity, period_us, used, remaining, over, admits, retry_after_us, reset_after_us, words,
    }
}

/// What is counted against a key that is denied too often.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PenaltyExplanation {
    /// How many denials count now.
    pub denials: u16,
    /// So many of them block the key.
    pub blocks_at: u16,
    /// The blocks in a row until now: each is twice as long as the one before it.
    pub level: u8,
    /// How long the next block would last, in microseconds.
    pub next_block_us: u64,
}

report! { PenaltyExplanation { denials, blocks_at, level, next_block_us } }

/// An item of a list or an override: an entry, or a line of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryExplanation {
    /// As [`set_entry`](crate::Limiter::set_entry) takes it, such as `deny client 192.0.2.0/24`.
    pub entry: String,
    /// Whether it is a line of the document.
    pub in_document: bool,
    /// From this time on it has no effect, in microseconds since the Unix epoch; `None` means never.
    pub until_us: Option<u64>,
    /// The author's name, where that is known.
    pub by: Option<Box<str>>,
    /// The reason, where that is known.
    pub why: Option<Box<str>>,
}

report! { EntryExplanation { entry, in_document, until_us, by, why } }

impl EntryExplanation {
    pub(super) fn of(statement: Statement) -> Self {
        let Statement { text, is_in_document, until_us, by, why, plan: _ } = statement;
        Self { entry: text, in_document: is_in_document, until_us, by, why }
    }
}

/// Which configuration an explanation is by.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigurationExplanation {
    /// Where it comes from.
    pub source: Box<str>,
    /// Its version.
    pub version: u64,
    /// SHA-256 of the canonical document, as hexadecimal digits.
    pub digest: Box<str>,
}

report! { ConfigurationExplanation { source, version, digest } }

impl ConfigurationExplanation {
    pub(super) fn of(status: ConfigurationStatus) -> Self {
        let ConfigurationStatus { source, version, digest, .. } = status;
        Self { source, version, digest }
    }
}

/// Why a request would be admitted or denied now, by the configuration's lists, rules and policies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestExplanation {
    /// Whether the request would be admitted.
    pub allowed: bool,
    /// Why it would be denied: of several causes the first in the order of [`Cause`]; or admitted without the store.
    pub cause: Option<Cause>,
    /// How long until it would be admitted, in microseconds: the longest over the policies that deny; 0 when allowed. `None` means never.
    pub retry_after_us: Option<u64>,
    /// The item of a list of attributes that decides; then no policy is asked.
    pub list_entry: Option<EntryExplanation>,
    /// The policies that the rules apply, in their order.
    pub policies: Vec<KeyExplanation>,
    /// The configuration in force.
    pub configuration: Option<ConfigurationExplanation>,
}

report! { RequestExplanation { allowed, cause, retry_after_us, list_entry, policies, configuration } }
