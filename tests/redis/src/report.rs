//! The decisions that the callers of a load saw.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use polylimit::Decision;
use polylimit::decision::{Degradation, Source};
use polylimit_test_servers::Row;

/// How much longer than its deadline a decision may take on an idle machine.
pub const SLACK: Duration = Duration::from_millis(5);

/// A decision as its caller saw it.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    at_us: u32,
    took_us: u32,
    key: u16,
    /// Whether the request may proceed.
    pub allowed: bool,
    /// What made the decision.
    pub source: Source,
    /// Why a healthy store did not make it.
    pub degraded: Option<Degradation>,
    /// Whether the caller was a thread that blocks, and not a task.
    pub blocking: bool,
}

impl Observation {
    pub(crate) fn new(at: Duration, took: Duration, key: usize, decision: &Decision, blocking: bool) -> Self {
        let us = |duration: Duration| u32::try_from(duration.as_micros()).expect("less than an hour");
        Self {
            at_us: us(at),
            took_us: us(took),
            key: u16::try_from(key).expect("a key number of 16 bits"),
            allowed: decision.allowed(),
            source: decision.source(),
            degraded: decision.degraded(),
            blocking,
        }
    }

    /// When the request was made, since the start of the load.
    pub fn at(&self) -> Duration {
        Duration::from_micros(self.at_us.into())
    }

    /// How long the decision took.
    pub fn took(&self) -> Duration {
        Duration::from_micros(self.took_us.into())
    }

    /// When the decision was there, since the start of the load.
    pub fn answered_at(&self) -> Duration {
        self.at() + self.took()
    }

    /// The number of its key.
    pub fn key(&self) -> usize {
        self.key.into()
    }

    /// Whether a healthy store made the decision.
    pub fn is_healthy(&self) -> bool {
        !self.source.is_outage() && self.degraded.is_none()
    }
}

/// All decisions of a load.
#[derive(Debug)]
pub struct LoadReport {
    /// The decisions, in the order in which callers received them.
    pub observations: Vec<Observation>,
    /// How late the system ran threads meanwhile.
    pub noise: Duration,
}

impl LoadReport {
    /// How many decisions match.
    pub fn count(&self, matches: impl Fn(&Observation) -> bool) -> u64 {
        self.observations.iter().filter(|seen| matches(seen)).count() as u64
    }

    /// The decisions that began after `from` and were there before `to`.
    pub fn between(&self, from: Duration, to: Duration) -> Vec<Observation> {
        let within = |seen: &&Observation| seen.at() > from && seen.answered_at() < to;
        self.observations.iter().filter(within).copied().collect()
    }

    /// How many requests were admitted, by the store or the outage policy.
    pub fn admitted(&self) -> u64 {
        self.count(|seen| seen.allowed)
    }

    /// How many requests the store admitted.
    pub fn admitted_by_store(&self) -> u64 {
        self.count(|seen| seen.allowed && !seen.source.is_outage())
    }

    /// How many requests of one key were admitted, by the store or the outage policy.
    pub fn admitted_of(&self, key: usize) -> u64 {
        self.count(|seen| seen.allowed && seen.key() == key)
    }

    /// How many requests were admitted of the key of which most were.
    pub fn most_admitted(&self) -> usize {
        let mut admitted = HashMap::<usize, usize>::new();
        for seen in self.observations.iter().filter(|seen| seen.allowed) {
            *admitted.entry(seen.key()).or_default() += 1;
        }
        admitted.into_values().max().unwrap_or(0)
    }

    /// How many decisions were degraded for this reason.
    pub fn with_reason(&self, reason: Degradation) -> u64 {
        self.count(|seen| seen.degraded == Some(reason))
    }

    /// The longest time that a decision took.
    pub fn slowest(&self) -> Duration {
        self.observations.iter().map(Observation::took).max().unwrap_or_default()
    }

    /// The longest time between two answers of the store.
    pub fn longest_gap(&self) -> Duration {
        let stored = self.observations.iter().filter(|seen| !seen.source.is_outage());
        let answered: Vec<Duration> = stored.map(Observation::answered_at).collect();
        answered.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(Duration::MAX)
    }

    /// When the store decided again after a moment. Tasks and threads are looked at separately; the later of the two
    /// counts.
    pub fn recovered_at(&self, moment: Duration) -> Duration {
        let first = |blocking| {
            let mine = self.observations.iter().filter(|seen| seen.blocking == blocking);
            mine.filter(|seen| seen.at() >= moment && seen.is_healthy()).map(Observation::answered_at).min()
        };
        let has_callers = |face: &bool| self.observations.iter().any(|seen| seen.blocking == *face);
        let faces = [false, true].into_iter().filter(has_callers);
        let recovered = faces.map(|face| {
            first(face).unwrap_or_else(|| panic!("the store did not recover: {}", self.summary()))
        });
        recovered.max().expect("a caller")
    }

    /// Asserts that every decision was there by its deadline.
    pub fn assert_deadlines(&self, deadline: Duration) {
        let slowest = self.observations.iter().max_by_key(|seen| seen.took_us).expect("a decision");
        let most = deadline + SLACK + self.noise;
        assert!(slowest.took() <= most, "{slowest:?} took longer than {most:?}; {}", self.summary());
    }

    /// Asserts that a healthy store made every decision.
    pub fn assert_healthy(&self) {
        assert!(self.observations.iter().all(Observation::is_healthy), "{}", self.summary());
    }

    /// Asserts that exactly the decisions without the store give a reason.
    pub fn assert_reasons(&self) {
        let has_reason = |seen: &Observation| seen.source.is_outage() == seen.degraded.is_some();
        assert!(self.observations.iter().all(has_reason), "{}", self.summary());
    }

    /// Asserts that the server has stored what it admitted. Operations whose outcome is unknown may have been applied.
    pub fn assert_stored(&self, stored: u64, unknown: u64) {
        let admitted = self.admitted_by_store();
        assert!(
            (admitted..=admitted + unknown).contains(&stored),
            "{stored} stored, {admitted} admitted, {unknown} unknown; {}",
            self.summary()
        );
    }

    /// A record of this load for a row of `docs/faults.md`; see [`Row`].
    #[track_caller]
    pub fn row(&self, id: &str, case: impl Into<String>, deadline: Duration) -> Row {
        Row::new(id, case)
            .decisions(self.observations.len() as u64)
            .admitted(self.admitted())
            .slowest(self.slowest(), deadline)
            .noise(self.noise)
    }

    /// The report in a line.
    pub fn summary(&self) -> String {
        let mut counts = BTreeMap::<(&str, &str), u64>::new();
        for seen in &self.observations {
            let reason = seen.degraded.map_or("", Degradation::name);
            *counts.entry((seen.source.name(), reason)).or_default() += 1;
        }
        format!(
            "{} decisions, {} admitted, slowest {:?}, noise {:?}, {counts:?}",
            self.observations.len(),
            self.admitted(),
            self.slowest(),
            self.noise
        )
    }
}
