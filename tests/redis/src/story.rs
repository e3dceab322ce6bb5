//! What callers saw.

use std::collections::BTreeMap;
use std::time::Duration;

use polylimit::{Decision, Degradation, Source};

/// How much longer than its deadline a decision may take, on a machine with nothing else to do.
const SLACK: Duration = Duration::from_millis(5);

/// A decision as its caller saw it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    at_us: u32,
    took_us: u32,
    key: u16,
    /// Whether the request may proceed.
    pub allowed: bool,
    /// Where the answer came from.
    pub source: Source,
    /// Why it did not come from a store that is well.
    pub degraded: Option<Degradation>,
    /// Whether a thread asked that waits, and no task.
    pub blocking: bool,
}

impl Asked {
    pub(crate) fn new(at: Duration, took: Duration, key: usize, decision: &Decision, blocking: bool) -> Self {
        let us = |duration: Duration| u32::try_from(duration.as_micros()).expect("not an hour");
        Self {
            at_us: us(at),
            took_us: us(took),
            key: u16::try_from(key).expect("not that many keys"),
            allowed: decision.allowed(),
            source: decision.source(),
            degraded: decision.degraded(),
            blocking,
        }
    }

    /// When it was asked, from the start.
    pub fn at(&self) -> Duration {
        Duration::from_micros(self.at_us.into())
    }

    /// How long it took.
    pub fn took(&self) -> Duration {
        Duration::from_micros(self.took_us.into())
    }

    /// The number of its key.
    pub fn key(&self) -> usize {
        self.key.into()
    }

    /// Whether the store decided, and nothing was wrong.
    pub fn is_sound(&self) -> bool {
        !self.source.is_outage() && self.degraded.is_none()
    }
}

/// All that callers saw, in no particular order.
#[derive(Debug)]
pub struct Story {
    /// The decisions.
    pub asked: Vec<Asked>,
    /// How late the system let threads run meanwhile.
    pub noise: Duration,
}

impl Story {
    /// How many decisions are so.
    pub fn count(&self, is: impl Fn(&Asked) -> bool) -> u64 {
        self.asked.iter().filter(|asked| is(asked)).count() as u64
    }

    /// How many requests were admitted, by whomever.
    pub fn admitted(&self) -> u64 {
        self.count(|asked| asked.allowed)
    }

    /// How many requests the store admitted.
    pub fn admitted_by_store(&self) -> u64 {
        self.count(|asked| asked.allowed && !asked.source.is_outage())
    }

    /// How many requests of one key were admitted, by whomever.
    pub fn admitted_of(&self, key: usize) -> u64 {
        self.count(|asked| asked.allowed && asked.key() == key)
    }

    /// How many were given this reason.
    pub fn with_reason(&self, reason: Degradation) -> u64 {
        self.count(|asked| asked.degraded == Some(reason))
    }

    /// When the store first decided again, after a moment, as either face saw it: the later of the two counts.
    pub fn back_after(&self, moment: Duration) -> Duration {
        let first = |blocking| {
            let again = self
                .asked
                .iter()
                .filter(|asked| asked.blocking == blocking && asked.at() >= moment && asked.is_sound());
            again.map(|asked| asked.at() + asked.took()).min()
        };
        let faces = [false, true];
        let used = faces.into_iter().filter(|face| self.asked.iter().any(|asked| asked.blocking == *face));
        used.map(|face| first(face).unwrap_or_else(|| panic!("the store did not come back: {}", self.told())))
            .max()
            .expect("somebody who asked")
    }

    /// Every answer came by its deadline.
    pub fn assert_in_time(&self, deadline: Duration) {
        let slowest = self.asked.iter().max_by_key(|asked| asked.took_us).expect("a decision");
        let most = deadline + SLACK + self.noise;
        assert!(slowest.took() <= most, "{slowest:?} took longer than {most:?}; {}", self.told());
    }

    /// The store decided everything.
    pub fn assert_sound(&self) {
        assert!(self.asked.iter().all(Asked::is_sound), "{}", self.told());
    }

    /// Nobody was denied by anybody but the store without being told why.
    pub fn assert_explained(&self) {
        let explained = |asked: &Asked| asked.source.is_outage() == asked.degraded.is_some();
        assert!(self.asked.iter().all(explained), "{}", self.told());
    }

    /// The story in a line, for a failed test and for the curious.
    pub fn told(&self) -> String {
        let mut counts = BTreeMap::<(&str, &str), u64>::new();
        for asked in &self.asked {
            *counts
                .entry((asked.source.name(), asked.degraded.map_or("", Degradation::name)))
                .or_default() += 1;
        }
        let slowest = self.asked.iter().map(Asked::took).max().unwrap_or_default();
        format!(
            "{} decisions, {} admitted, slowest {slowest:?}, noise {:?}, {counts:?}",
            self.asked.len(),
            self.admitted(),
            self.noise
        )
    }
}
