//! What a simulation has found, as plain values; its JSON has these names.
//!
//! Times end in `_us` and are microseconds. Clients and keys are the same but for the rules of a document, which make their own keys.

use serde::Serialize;

use crate::key::Key;

/// Everything that a simulation has found.
#[derive(Clone, Debug, Serialize)]
pub struct Simulation {
    /// Where the requests come from.
    pub traffic: Traffic,
    /// What each client would send without any limit.
    pub demand: Demand,
    /// The active limits.
    pub live: Course,
    /// Other limits, each under the same requests.
    pub candidates: Vec<Candidate>,
}

impl Simulation {
    /// Whether no candidate decides any request otherwise than the active limits.
    pub fn is_same(&self) -> bool {
        self.candidates.iter().all(|candidate| candidate.agreement.is_full())
    }

    /// What the active limits have done, and then each candidate.
    pub fn courses(&self) -> impl Iterator<Item = &Course> {
        std::iter::once(&self.live).chain(self.candidates.iter().map(|candidate| &candidate.course))
    }
}

/// Where the requests come from.
#[derive(Clone, Debug, Serialize)]
pub struct Traffic {
    /// `generated` or `log`.
    pub source: &'static str,
    /// The time of the start, as in RFC 3339.
    pub start: String,
    /// How long it takes.
    pub duration_us: u64,
    /// The seed of generated traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How the log was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogReading>,
}

/// How a log was read.
#[derive(Clone, Debug, Serialize)]
pub struct LogReading {
    /// Lines that are not empty.
    pub lines: u64,
    /// Lines that are not of the format, and were left out.
    pub malformed: u64,
    /// What was wrong with the first of them.
    pub malformed_examples: Vec<String>,
    /// Lines in which a variable of the key has no value, and that were left out.
    pub without_key: u64,
    /// Whether the log has whole seconds only, so that the requests of each second were spread evenly inside of it.
    pub spread_inside_seconds: bool,
}

/// What clients would send without any limit.
#[derive(Clone, Debug, Serialize)]
pub struct Demand {
    /// Clients with requests.
    pub clients: u64,
    /// Their requests.
    pub requests: u64,
    /// The units of all requests.
    pub units: u64,
    /// The units of each client in its busiest second, any span of that length.
    pub busiest_second: Percentiles,
    /// In its busiest minute.
    pub busiest_minute: Percentiles,
    /// In its busiest hour.
    pub busiest_hour: Percentiles,
    /// The requests over time.
    pub timeline: Timeline,
}

/// Exact percentiles: the least of the values that at least this many percent do not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Percentiles {
    /// Those of some values; all 0 when there are none.
    pub(crate) fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |thousandths: usize| {
            let rank = (values.len() * thousandths).div_ceil(1_000).max(1);
            values.get(rank - 1).copied().unwrap_or(0)
        };
        Self { p50: at(500), p90: at(900), p95: at(950), p99: at(990), p999: at(999), max: at(1_000) }
    }
}

/// Counts in equal slots of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// The length of a slot.
    pub slot_us: u64,
    /// Admitted attempts in each slot.
    pub admitted: Vec<u64>,
    /// Denied attempts in each slot.
    pub denied: Vec<u64>,
}

/// What some limits have done.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// What the limits are called.
    pub label: String,
    /// Counts of all requests, by clients.
    pub total: Counts,
    /// How long admitted requests had to wait, from the first attempt on and with the delay of a leaky bucket.
    pub waits: Waits,
    /// Clients with the most denials, at most 10.
    pub most_denied: Vec<KeyCounts>,
    /// Requests over time.
    pub timeline: Timeline,
    /// Denied requests by their causes, where rules of a document decide.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseCount>,
    /// Each policy.
    pub policies: Vec<PolicyCourse>,
}

/// Counts of requests. An attempt is a request or a repetition of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests without repetitions.
    pub requests: u64,
    /// Admitted attempts.
    pub admitted: u64,
    /// Denied attempts.
    pub denied: u64,
    /// The units of admitted attempts.
    pub admitted_units: u64,
    /// The units of denied attempts.
    pub denied_units: u64,
    /// Attempts that were admitted only because a policy is in shadow.
    pub shadowed: u64,
    /// Keys with requests.
    pub keys: u64,
    /// Keys that were denied at least once.
    pub keys_denied: u64,
    /// Keys that were never admitted.
    pub keys_never_admitted: u64,
    /// The longest time from a denial of a key to its next admission, or to its last denial when there is none.
    pub longest_block_us: u64,
    /// Clients that left after a denial.
    pub left: u64,
    /// Requests that no wait would help.
    pub given_up: u64,
    /// Requests that were still to be repeated at the end.
    pub unfinished: u64,
}

/// Waits of admitted requests that had to wait; but for the longest they are rounded to three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Waits {
    pub waited: u64,
    pub p50_us: u64,
    pub p90_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

/// What became of the requests of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyCounts {
    /// The key: `key` when it is UTF-8, otherwise `key_base64`.
    #[serde(flatten)]
    pub key: Key,
    /// Admitted attempts.
    pub admitted: u64,
    /// Denied attempts.
    pub denied: u64,
    /// The longest time from a denial to the next admission, or to the last denial.
    pub longest_block_us: u64,
}

/// How many requests were denied for a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CauseCount {
    /// The name of the cause, as in decisions.
    pub cause: &'static str,
    /// Denied requests.
    pub denied: u64,
}

/// What one policy has decided.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyCourse {
    /// The name.
    pub policy: String,
    /// The quotas as text, in canonical form.
    pub quotas: Vec<QuotaCourse>,
    /// Counts by the policy's keys.
    pub counts: Counts,
    /// What the groups got that share the policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupCourse>,
}

/// What one group of a policy got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupCourse {
    /// The name of the group; `*` is that of requests that name none of the others.
    pub group: String,
    /// The units of admitted attempts.
    pub admitted_units: u64,
    /// The units of denied attempts.
    pub denied_units: u64,
    /// The units of admitted attempts in each slot of the course's timeline.
    pub timeline: Vec<u64>,
}

/// What one quota has admitted.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaCourse {
    /// The quota as text.
    pub quota: String,
    /// Its period.
    pub period_us: u64,
    /// The most units that the policy has admitted to a key in any span of the period.
    pub most_admitted: u64,
    /// The key of that span.
    #[serde(flatten)]
    pub key: Option<Key>,
    /// The most that the quota can admit in such a span; none where other quotas decide about some keys.
    pub bound: Option<u64>,
}

/// Other limits under the same requests.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// What they have done.
    #[serde(flatten)]
    pub course: Course,
    /// How often they agree with the active limits.
    pub agreement: Agreement,
    /// Clients that only the candidate denies.
    pub newly_denied: Changed,
    /// Clients that only the active limits deny.
    pub newly_admitted: Changed,
}

/// How often two limits agree about the first attempt of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Both admit.
    pub both_allow: u64,
    /// The active limits deny, and the candidate admits.
    pub only_live_denies: u64,
    /// The active limits admit, and the candidate denies.
    pub only_candidate_denies: u64,
    /// Both deny.
    pub both_deny: u64,
    /// Requests that were made under one of them only, since clients waited or left under the other.
    pub only_made_once: u64,
}

impl Agreement {
    /// Whether they never differ.
    pub fn is_full(&self) -> bool {
        self.only_live_denies == 0 && self.only_candidate_denies == 0 && self.only_made_once == 0
    }
}

/// Clients about which a candidate decides otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// How many.
    pub clients: u64,
    /// Those with the most denials, at most 10; their counts are those of the limits that deny them.
    pub examples: Vec<KeyCounts>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact() {
        let of = |values: std::ops::RangeInclusive<u64>| Percentiles::of(values.rev().collect());
        assert_eq!(
            of(1..=1_000),
            Percentiles { p50: 500, p90: 900, p95: 950, p99: 990, p999: 999, max: 1_000 }
        );
        assert_eq!(of(1..=10), Percentiles { p50: 5, p90: 9, p95: 10, p99: 10, p999: 10, max: 10 });
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }
}
