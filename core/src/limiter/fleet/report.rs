//! The report of a process to the others that share its store.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limiter::Limiter;
use polylimit_rules::decision::Source;
use polylimit_rules::report::hex;
use polylimit_rules::zone::DATABASE;
use polylimit_runtime::fork::process_id;
use polylimit_store::families::{Family, SampleValue};
use polylimit_store::scan::KeyName;

/// The maximum size of a report.
pub(crate) const MAX_BYTES: usize = 16 << 10;
/// The most policies and denied keys in a report.
const POLICIES: usize = 64;
const KEYS: usize = 32;

/// The decisions of a policy in a process since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PolicyCounts {
    /// The policy's name; `other` for those that are counted together.
    pub policy: String,
    /// Decisions that admitted.
    pub allowed: u64,
    /// Decisions that denied.
    pub denied: u64,
    /// How many of both were made by outage policies.
    pub outage: u64,
}

/// A key that a process denies often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeniedKey {
    /// The policy's name.
    pub policy: String,
    /// The key.
    #[serde(flatten)]
    pub key: KeyName,
    /// How often it was denied recently, estimated from a sample.
    pub count: u64,
}

/// The report of a process about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProcessReport {
    /// The limiter in its process: 16 hexadecimal digits that were drawn when it was built.
    pub instance: String,
    /// The name of the host; empty where the system does not report it.
    pub host: String,
    /// The process id on its host.
    pub pid: u32,
    /// The version of polylimit.
    pub version: String,
    /// The release of its time zone database, such as `2026f`; empty for a version that does not report it.
    pub time_zones: String,
    /// When the limiter was built, in milliseconds since the Unix epoch, by its host's clock.
    pub started_at_ms: u64,
    /// When the report was written.
    pub at_ms: u64,
    /// The time between two reports, in milliseconds.
    pub every_ms: u64,
    /// The version of the active configuration; 0 without one.
    pub configuration_version: u64,
    /// The digest of its document; empty without one.
    pub configuration_digest: String,
    /// Why a newer document is not active.
    pub configuration_error: Option<String>,
    /// Whether the store answers, as far as the process knows.
    pub store_up: bool,
    /// The counters of the store's operations, as in [`Stats`](crate::metrics::Stats).
    pub stats: Map<String, Value>,
    /// The policies that decide most.
    pub policies: Vec<PolicyCounts>,
    /// The keys that are denied most often, where the process counts them.
    pub denied: Vec<DeniedKey>,
}

/// A report as stored in Redis. Fields that are missing were unknown to the version that wrote it.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Written {
    instance: String,
    host: String,
    pid: u32,
    version: String,
    time_zones: String,
    started_at_ms: u64,
    at_ms: u64,
    every_ms: u64,
    configuration_version: u64,
    configuration_digest: String,
    configuration_error: Option<String>,
    store_up: bool,
    stats: Map<String, Value>,
    policies: Vec<PolicyCounts>,
    denied: Vec<WrittenKey>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct WrittenKey {
    policy: String,
    /// Hexadecimal digits.
    key: String,
    is_digest: bool,
    count: u64,
}

impl ProcessReport {
    /// As JSON of at most 16 KiB: to fit, the keys and policies with the lowest counts are left out.
    pub(crate) fn written(&self) -> String {
        let mut written = Written {
            instance: self.instance.clone(),
            host: self.host.clone(),
            pid: self.pid,
            version: self.version.clone(),
            time_zones: self.time_zones.clone(),
            started_at_ms: self.started_at_ms,
            at_ms: self.at_ms,
            every_ms: self.every_ms,
            configuration_version: self.configuration_version,
            configuration_digest: self.configuration_digest.clone(),
            configuration_error: self.configuration_error.clone(),
            store_up: self.store_up,
            stats: self.stats.clone(),
            policies: self.policies.clone(),
            denied: self.denied.iter().map(WrittenKey::of).collect(),
        };
        loop {
            let text = serde_json::to_string(&written).unwrap_or_default();
            if text.len() <= MAX_BYTES || (written.denied.is_empty() && written.policies.is_empty()) {
                return text;
            }
            written.denied.truncate(written.denied.len() / 2);
            if written.denied.is_empty() {
                written.policies.truncate(written.policies.len() / 2);
            }
        }
    }

    /// `None` for a text that is not a report.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let read: Written =
            serde_json::from_slice(text).ok().filter(|read: &Written| !read.instance.is_empty())?;
        Some(Self {
            instance: read.instance,
            host: read.host,
            pid: read.pid,
            version: read.version,
            time_zones: read.time_zones,
            started_at_ms: read.started_at_ms,
            at_ms: read.at_ms,
            every_ms: read.every_ms,
            configuration_version: read.configuration_version,
            configuration_digest: read.configuration_digest,
            configuration_error: read.configuration_error,
            store_up: read.store_up,
            stats: read.stats,
            policies: read.policies,
            denied: read.denied.into_iter().filter_map(WrittenKey::read).collect(),
        })
    }
}

impl WrittenKey {
    fn of(DeniedKey { policy, key, count }: &DeniedKey) -> Self {
        let (bytes, is_digest) = match key {
            KeyName::Bytes(bytes) => (bytes, false),
            KeyName::Digest(digest) => (digest, true),
        };
        Self { policy: policy.clone(), key: hex(bytes), is_digest, count: *count }
    }

    fn read(self) -> Option<DeniedKey> {
        let digits = self.key.as_bytes();
        let bytes: Option<Vec<u8>> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let key = if self.is_digest { KeyName::Digest(bytes?) } else { KeyName::Bytes(bytes?) };
        Some(DeniedKey { policy: self.policy, key, count: self.count })
    }
}

impl Limiter {
    /// The decisions of each policy in this process since the limiter was built, policies with the most decisions first.
    pub fn policy_counts(&self) -> Vec<PolicyCounts> {
        of_families(&self.metrics())
    }

    /// The current report of this process, without the fields that its reporter fills in.
    pub(super) fn process_report(&self) -> ProcessReport {
        let families = self.metrics();
        let up = families.iter().find(|family| family.name == "polylimit_store_up");
        let up = up.and_then(|family| family.samples.first());
        let mut policies = of_families(&families);
        policies.truncate(POLICIES);
        let denied = self.admin().top_keys(KEYS).denied.into_iter();
        let configuration = self.admin().configuration();
        ProcessReport {
            instance: String::new(),
            host: host(),
            pid: u32::try_from(process_id()).unwrap_or(0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time_zones: DATABASE.to_owned(),
            started_at_ms: 0,
            at_ms: 0,
            every_ms: 0,
            configuration_version: configuration.as_ref().map_or(0, |status| status.version),
            configuration_digest: configuration
                .as_ref()
                .map_or_else(String::new, |status| status.digest.to_string()),
            configuration_error: configuration.and_then(|status| status.error).map(Into::into),
            store_up: up.is_some_and(|sample| sample.value == SampleValue::Number(1.0)),
            stats: self.stats().iter().map(|(name, count)| (name.to_owned(), Value::from(count))).collect(),
            policies,
            denied: denied
                .map(|top| DeniedKey { policy: top.policy.into(), key: top.key, count: top.count })
                .collect(),
        }
    }
}

fn of_families(families: &[Family]) -> Vec<PolicyCounts> {
    let mut policies: Vec<PolicyCounts> = Vec::new();
    let decisions = families.iter().find(|family| family.name == "polylimit_decisions_total");
    for sample in decisions.into_iter().flat_map(|family| &family.samples) {
        let label = |name| {
            let found = sample.labels.iter().find(|(label, _)| *label == name);
            found.map_or("", |(_, value)| &**value)
        };
        let SampleValue::Count(count) = sample.value else { continue };
        let name = label("policy");
        // The samples of one policy are adjacent.
        if policies.last().is_none_or(|last| last.policy != name) {
            policies.push(PolicyCounts { policy: name.to_owned(), ..PolicyCounts::default() });
        }
        if let Some(counts) = policies.last_mut() {
            *(if label("result") == "allowed" { &mut counts.allowed } else { &mut counts.denied }) += count;
            if Source::ALL.iter().any(|source| source.is_outage() && source.name() == label("source")) {
                counts.outage += count;
            }
        }
    }
    policies.sort_by_key(|counts| std::cmp::Reverse(counts.allowed + counts.denied));
    policies
}

/// The name of this host, as the system reports it.
fn host() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    told.unwrap_or_default().trim().chars().take(255).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use polylimit_rules::policy::Policy;

    #[test]
    fn report_is_read_as_it_was_written() {
        let limiter = Limiter::builder()
            .policy(Policy::parse("api", "2/hour").unwrap())
            .observe_keys(16)
            .build()
            .unwrap();
        for _ in 0..200 {
            let _ = limiter.blocking().check(b"\xff<k>").unwrap();
        }
        let mut report = limiter.process_report();
        report.instance = "0123456789abcdef".to_owned();
        assert_eq!((report.policies[0].allowed, report.policies[0].denied), (2, 198));
        assert_eq!(report.denied[0].key.bytes(), Some(&b"\xff<k>"[..]));
        assert_eq!(ProcessReport::read(report.written().as_bytes()), Some(report));
        for text in ["", "{}", "[1]", r#"{"instance":1}"#] {
            assert_eq!(ProcessReport::read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn report_has_no_more_bytes_than_allowed() {
        let mut report = Limiter::builder().build().unwrap().process_report();
        report.instance = "a".to_owned();
        let key = || KeyName::Bytes(vec![7; 1_000]);
        report.denied = vec![DeniedKey { policy: "p".to_owned(), key: key(), count: 1 }; 32];
        let name = "p".repeat(200);
        report.policies = vec![PolicyCounts { policy: name, ..PolicyCounts::default() }; 200];
        let written = report.written();
        assert!(written.len() <= MAX_BYTES);
        assert!(!ProcessReport::read(written.as_bytes()).unwrap().policies.is_empty());
    }
}
