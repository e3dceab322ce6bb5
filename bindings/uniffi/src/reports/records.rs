//! The records of reports.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// The key of a client or resource, as a store has it: one of the three. Its text form shows none of them.
#[derive(Clone, PartialEq, Eq, Deserialize, uniffi::Record)]
#[uniffi::export(Debug, Display)]
pub struct KeyName {
    /// The key, when it is text in UTF-8.
    #[serde(rename = "key")]
    pub text: Option<String>,
    /// The key in base64 (RFC 4648, with padding), when it is other bytes.
    #[serde(rename = "key_base64")]
    pub base64: Option<String>,
    /// The digest of the key in hexadecimal digits, when the store has no more, since the key is long.
    #[serde(rename = "key_digest")]
    pub digest: Option<String>,
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = if self.text.is_some() {
            "text"
        } else if self.base64.is_some() {
            "bytes"
        } else {
            "a digest"
        };
        write!(f, "KeyName({form})")
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A part of a list of keys.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct KeyPage {
    /// The keys, in no particular order; in that of use for `scan_top`.
    pub keys: Vec<ListedKey>,
    /// How many keys the store went over, about; in Redis those of other programs, too.
    pub examined: i64,
    /// Where the list goes on; nothing when this was the last page. A page without keys may have one.
    pub cursor: Option<String>,
}

/// What became of a page of keys that were to be reset.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct ResetPage {
    /// How many keys were reset.
    pub reset: i64,
    /// How many keys stay, because their policies are not known here.
    pub unknown: i64,
    /// How many keys the store went over, about.
    pub examined: i64,
    /// Where the list goes on; nothing when this was the last page.
    pub cursor: Option<String>,
}

/// A key with what is used of its quotas.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct ListedKey {
    /// The policy's name.
    pub policy: String,
    /// The key.
    #[serde(flatten)]
    pub key: KeyName,
    /// Each of the effective quotas of the key, in their order; none for a policy that this limiter does not know.
    pub quotas: Vec<ListedQuota>,
    /// Which part of the most that can be used at once is used or set aside, in percent, the most over the quotas: above 100 for
    /// units beyond it, and at least 100 for a blocked key.
    pub used_percent: i64,
    /// How many reservations there are.
    pub reservations: i64,
    /// The units that they set aside.
    pub reserved_units: i64,
    /// How much longer the key is blocked, in microseconds; 0 when it is not.
    pub blocked_for_us: i64,
    /// How long until the key is as if it had never been used, in microseconds. Nothing when it stays, and where the store does
    /// not report it.
    pub expires_after_us: Option<i64>,
}

/// What is used of one quota of a key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct ListedQuota {
    /// The quota as text, such as `100/minute`.
    pub quota: String,
    /// The limit, in units per period, or in reservations.
    pub limit: i64,
    /// The most that can be used at once, without an excess.
    pub capacity: i64,
    /// Units that count now, also those beyond the capacity; for concurrency, reservations.
    pub used: i64,
    /// Whole units that the quota would still admit now.
    pub remaining: i64,
    /// How long until nothing counts as used under this quota, in microseconds.
    pub reset_after_us: i64,
}

/// Why a request with this key would be admitted or denied now.
#[expect(clippy::struct_excessive_bools, reason = "each is an answer of its own")]
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct KeyExplanation {
    /// The policy's name.
    pub policy: String,
    /// The key.
    #[serde(flatten)]
    pub key: KeyName,
    /// The units that the request would spend.
    pub cost: i64,
    /// Percent of the capacity that the request leaves for others.
    pub headroom: i32,
    /// Whether a check, or a reserve where the policy counts concurrency, would be admitted now.
    pub allowed: bool,
    /// Why it would be denied, or admitted without the store; as in a decision.
    pub cause: Option<String>,
    /// How long until it would be admitted, in microseconds; 0 when allowed. Nothing means never.
    pub retry_after_us: Option<i64>,
    /// Whether the pool of an elastic policy would admit it.
    pub elastic: bool,
    /// Whether it would be denied if the policy were not in shadow.
    pub shadowed: bool,
    /// Whether the policy decides: `on`, `off` or `shadow`.
    pub mode: String,
    /// The number of the rule that applies the policy, among those of the document, from 1 up; nothing for a request by its key.
    pub rule: Option<i64>,
    /// Where the effective quotas of the key come from: `quotas`, `override`, `plan` or `candidate`.
    pub quotas_source: String,
    /// The plan whose quotas these are.
    pub plan: Option<String>,
    /// The override that gives the key these quotas.
    pub override_entry: Option<EntryExplanation>,
    /// The item of a list that names the key.
    pub list_entry: Option<EntryExplanation>,
    /// What each quota says, in their order.
    pub quotas: Vec<QuotaExplanation>,
    /// How many reservations there are.
    pub reservations: i64,
    /// The units that they set aside.
    pub reserved_units: i64,
    /// How long until the last of them ends, in microseconds.
    pub reservations_end_after_us: i64,
    /// How much longer the key is blocked, in microseconds; 0 when it is not.
    pub blocked_for_us: i64,
    /// What is counted against the key under the policy's penalty; nothing for a policy that has none.
    pub penalty: Option<PenaltyExplanation>,
    /// How long until the key is as if it had never been used, in microseconds; nothing when it stays.
    pub expires_after_us: Option<i64>,
    /// Why the states may not be the key's own.
    pub degraded: Option<String>,
    /// Units that this process holds in a lease; the store counts them as used.
    pub leased_units: i64,
    /// Whether this process would deny the request without asking the store.
    pub denial_cached: bool,
    /// How often this process has denied the key lately; nothing for a key without a counter. See `top_keys`.
    pub denials: Option<i64>,
    /// By how much `denials` is too high at most.
    pub denials_error: Option<i64>,
    /// What the pool of an elastic policy says about a request that the policy denies: one explanation, or none.
    #[serde(deserialize_with = "one_or_none")]
    pub pool: Vec<KeyExplanation>,
    /// The active configuration; nothing for a limiter without one.
    pub configuration: Option<ConfigurationExplanation>,
}

/// In a list, since a struct of Swift cannot contain itself otherwise.
fn one_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<KeyExplanation>, D::Error> {
    Option::deserialize(deserializer).map(|pool| pool.into_iter().collect())
}

/// What one quota says about a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct QuotaExplanation {
    /// The quota as text, such as `100/minute token_bucket`.
    pub quota: String,
    /// The limit, in units per period, or in reservations.
    pub limit: i64,
    /// The most that can be used at once, without an excess.
    pub capacity: i64,
    /// The period, in microseconds; 0 for concurrency.
    pub period_us: i64,
    /// Units that count now, also those beyond the capacity; for concurrency, reservations.
    pub used: i64,
    /// Whole units that the quota would still admit now.
    pub remaining: i64,
    /// Units of an excess that are in use.
    pub over: i64,
    /// Whether this quota alone admits the request.
    pub admits: bool,
    /// How long until this quota alone admits it, in microseconds; nothing means never.
    pub retry_after_us: Option<i64>,
    /// How long until nothing counts as used under this quota, in microseconds.
    pub reset_after_us: i64,
    /// The same in the words of the algorithm, such as `debt 12.4 of 100, repays 1.67/s`.
    pub words: String,
}

/// What is counted against a key that is denied too often.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct PenaltyExplanation {
    /// How many denials count now.
    pub denials: i64,
    /// This many of them block the key.
    pub blocks_at: i64,
    /// The blocks in a row until now: each is twice as long as the one before it.
    pub level: i64,
    /// How long the next block would last, in microseconds.
    pub next_block_us: i64,
}

/// An item of a list or an override: an entry, or a line of the document.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct EntryExplanation {
    /// As `set_entry` takes it, such as `deny client 192.0.2.0/24`.
    pub entry: String,
    /// Whether it is a line of the document.
    pub in_document: bool,
    /// From this time on it has no effect, in microseconds since the Unix epoch; nothing means never.
    pub until_us: Option<i64>,
    /// The author's name, where that is known.
    pub by: Option<String>,
    /// The reason, where that is known.
    pub why: Option<String>,
}

/// Which configuration an explanation is by.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct ConfigurationExplanation {
    /// Where it comes from.
    pub source: String,
    /// Its version.
    pub version: i64,
    /// SHA-256 of the canonical document, as hexadecimal digits.
    pub digest: String,
}

/// Why a request would be admitted or denied now, by the configuration's lists, rules and policies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct RequestExplanation {
    /// Whether the request would be admitted.
    pub allowed: bool,
    /// Why it would be denied, or admitted without the store; as in a decision.
    pub cause: Option<String>,
    /// How long until it would be admitted, in microseconds: the longest over the policies that deny; 0 when allowed. Nothing means
    /// never.
    pub retry_after_us: Option<i64>,
    /// The item of a list of attributes that decides; then no policy is asked.
    pub list_entry: Option<EntryExplanation>,
    /// The policies that the rules apply, in their order.
    pub policies: Vec<KeyExplanation>,
    /// The active configuration.
    pub configuration: Option<ConfigurationExplanation>,
}

/// The keys that a limiter has denied and admitted most often in this process.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct TopKeys {
    /// The keys that were denied, the most often denied first.
    pub denied: Vec<TopKey>,
    /// The keys that were admitted, the most often admitted first.
    pub admitted: Vec<TopKey>,
    /// The time in which every count is halved, in microseconds.
    pub half_life_us: i64,
    /// How many keys have a counter at most; 0 when keys are not counted.
    pub counters: i64,
}

/// How often a key was denied or admitted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, uniffi::Record)]
pub struct TopKey {
    /// The policy's name.
    pub policy: String,
    /// The key.
    #[serde(flatten)]
    pub key: KeyName,
    /// How often, in requests: estimated from a sample of them.
    pub count: i64,
    /// By how much the count is too high at most, because another key has had its counter before.
    pub error: i64,
}
