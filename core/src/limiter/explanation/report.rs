//! The parts of an explanation.

use serde::Serialize;

use crate::limiter::configured::status::ConfigurationStatus;
use polylimit_document::compiled::statements::Statement;
use polylimit_document::model::Mode;
use polylimit_rules::decision::{Cause, Degradation};
use polylimit_rules::names::named_enum;
use polylimit_store::scan::KeyName;

named_enum! {
    /// Where the effective quotas of a key come from.
    QuotasSource {
        /// The policy's own quotas.
        Quotas = "quotas",
        /// An override of the key.
        Override = "override",
        /// The plan of the request.
        Plan = "plan",
        /// The candidate of the policy, which decides for some keys.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is an answer of its own")]
pub struct KeyExplanation {
    /// The policy's name.
    pub policy: Box<str>,
    /// The key.
    #[serde(flatten)]
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
    /// Where the effective quotas of the key come from.
    pub quotas_source: QuotasSource,
    /// The plan whose quotas these are.
    pub plan: Option<Box<str>>,
    /// The override that gives the key these quotas.
    pub override_entry: Option<EntryExplanation>,
    /// The item of a list that names the key.
    pub list_entry: Option<EntryExplanation>,
    /// Each quota and what it would decide, in order.
    pub quotas: Vec<QuotaExplanation>,
    /// The number of reservations.
    pub reservations: u64,
    /// The units that they set aside.
    pub reserved_units: u64,
    /// How long until the last of them ends, in microseconds.
    pub reservations_end_after_us: u64,
    /// How much longer the key is blocked, in microseconds; 0 when it is not.
    pub blocked_for_us: u64,
    /// The denials that are counted under the policy's penalty; `None` for a policy that has none.
    pub penalty: Option<PenaltyExplanation>,
    /// How long until the key is as if it had never been used, in microseconds; `None` when it stays.
    pub expires_after_us: Option<u64>,
    /// Why the states may not be the key's own.
    pub degraded: Option<Degradation>,
    /// Units that this process holds in a lease; the store counts them as used.
    pub leased_units: u64,
    /// Whether this process would deny the request without calling the store.
    pub denial_cached: bool,
    /// How often this process has denied the key recently; `None` for a key without a counter. See
    /// [`top_keys`](crate::admin::Admin::top_keys).
    pub denials: Option<u64>,
    /// The most by which [`denials`](Self::denials) is too high.
    pub denials_error: Option<u64>,
    /// The explanation of an elastic policy's pool for a request that the policy denies.
    pub pool: Option<Box<KeyExplanation>>,
    /// The active configuration; `None` for a limiter without one.
    pub configuration: Option<ConfigurationExplanation>,
}

/// One quota and what it would decide on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// Units that count now, including those beyond the capacity; for concurrency, reservations.
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

/// The penalty of a key that is denied too often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PenaltyExplanation {
    /// The number of denials that count now.
    pub denials: u16,
    /// The number of denials that block the key.
    pub blocks_at: u16,
    /// The blocks in a row until now: each is twice as long as the one before it.
    pub level: u8,
    /// How long the next block would last, in microseconds.
    pub next_block_us: u64,
}

/// An item of a list or an override: an entry, or a line of the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EntryExplanation {
    /// As [`set_entry`](crate::admin::Admin::set_entry) takes it, such as `deny client 192.0.2.0/24`.
    pub entry: String,
    /// Whether it is a line of the document.
    pub in_document: bool,
    /// From this time on it has no effect, in microseconds since the Unix epoch; `None` means never.
    pub until_us: Option<u64>,
    /// The author's name, if known.
    pub by: Option<Box<str>>,
    /// The reason, if known.
    pub why: Option<Box<str>>,
}

impl EntryExplanation {
    pub(super) fn of(statement: Statement) -> Self {
        let Statement { text, is_in_document, until_us, by, why, plan: _ } = statement;
        Self { entry: text, in_document: is_in_document, until_us, by, why }
    }
}

/// The configuration by which a request is explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigurationExplanation {
    /// The source of the configuration.
    pub source: Box<str>,
    /// Its version.
    pub version: u64,
    /// SHA-256 of the canonical document, as hexadecimal digits.
    pub digest: Box<str>,
}

impl ConfigurationExplanation {
    pub(super) fn of(status: ConfigurationStatus) -> Self {
        let ConfigurationStatus { source, version, digest, .. } = status;
        Self { source, version, digest }
    }
}

/// Why a request would be admitted or denied now, by the configuration's lists, rules and policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RequestExplanation {
    /// Whether the request would be admitted.
    pub allowed: bool,
    /// Why it would be denied: of several causes the first in the order of [`Cause`]; or admitted without the store.
    pub cause: Option<Cause>,
    /// How long until it would be admitted, in microseconds: the longest over the policies that deny; 0 when allowed. `None` means never.
    pub retry_after_us: Option<u64>,
    /// The item of a list of attributes that decides; then no policy decides.
    pub list_entry: Option<EntryExplanation>,
    /// The policies that the rules apply, in their order.
    pub policies: Vec<KeyExplanation>,
    /// The active configuration.
    pub configuration: Option<ConfigurationExplanation>,
}
