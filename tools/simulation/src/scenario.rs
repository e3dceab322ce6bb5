//! What happens: the requests of a time, by generated clients or from a log.

use std::sync::Arc;

use crate::attempt::{Attempt, Ends, Source, Verdict};
use crate::clients::Clients;
use crate::error::SimulationError;
use crate::facts::{Facts, Record};
use crate::judge::{DecidedByRules, Judge, Setting, periods_us};
use crate::limits::{Kind, Limits};
#[cfg(feature = "command")]
use crate::log::LogTraffic;
use crate::progress::Progress;
use crate::shares::Shares;
use crate::tally::{Outcomes, Tally};
use crate::traffic::Group;

/// The lengths of the spans for which the demand of each client is reported.
pub(crate) const DEMAND_SPANS_US: [u64; 3] = [1_000_000, 60_000_000, 3_600_000_000];

/// Requests of clients in a span of time.
pub(crate) struct Scenario {
    /// The start, in microseconds since the Unix epoch.
    pub(crate) start_us: u64,
    pub(crate) duration_us: u64,
    /// The keys of the clients.
    pub(crate) keys: Vec<Box<[u8]>>,
    pub(crate) requests: Requests,
    pub(crate) progress: Arc<Progress>,
}

pub(crate) enum Requests {
    /// What is known about the requests of each client, where rules decide.
    Generated {
        groups: Vec<Group>,
        seed: u64,
        facts: Vec<Facts>,
    },
    Logged {
        records: Vec<Record>,
        facts: Vec<Facts>,
    },
}

/// What the limits have done to the requests.
pub(crate) struct Course {
    pub(crate) tally: Tally,
    pub(crate) outcomes: Outcomes,
    pub(crate) ends: Ends,
    /// The policies of a document's rules, and the causes of denials.
    pub(crate) rules: Option<DecidedByRules>,
    /// What the groups of the only policy got.
    pub(crate) shares: Shares,
}

impl Scenario {
    /// Generated clients.
    pub(crate) fn generated(groups: Vec<Group>, seed: u64, start_us: u64, duration_us: u64) -> Self {
        let keys = groups.iter().flat_map(|group| (1..=group.clients).map(|number| group.key(number)));
        let keys = keys.map(|key| key.into_bytes().into()).collect();
        let requests = Requests::Generated { groups, seed, facts: Vec::new() };
        Self { start_us, duration_us, keys, requests, progress: Arc::default() }
    }

    /// Gives each client what rules can be about, from its group, its number in the group from 1, and its number among all from 0.
    pub(crate) fn give_facts(&mut self, of: impl Fn(&Group, u32, u32) -> Facts) {
        let Requests::Generated { groups, facts, .. } = &mut self.requests else { return };
        let clients = groups.iter().flat_map(|group| (1..=group.clients).map(move |number| (group, number)));
        *facts = (0..).zip(clients).map(|(client, (group, number))| of(group, number, client)).collect();
    }

    /// The groups of generated clients, one after the other.
    pub(crate) fn groups(&self) -> &[Group] {
        match &self.requests {
            Requests::Generated { groups, .. } => groups,
            Requests::Logged { .. } => &[],
        }
    }

    /// The requests of a log.
    #[cfg(feature = "command")]
    pub(crate) fn logged(log: LogTraffic, duration_us: Option<u64>) -> Self {
        let LogTraffic { start_us, mut records, keys, facts, .. } = log;
        if let Some(duration_us) = duration_us {
            records.truncate(records.partition_point(|record| record.time_us < duration_us));
        }
        let covered_us = records.last().map_or(1, |record| record.time_us + 1);
        let duration_us = duration_us.unwrap_or(covered_us).min(covered_us);
        let requests = Requests::Logged { records, facts };
        Self { start_us, duration_us, keys, requests, progress: Arc::default() }
    }

    fn setting(&self) -> Setting<'_> {
        let facts: &[Facts] = match &self.requests {
            Requests::Generated { facts, .. } | Requests::Logged { facts, .. } => facts,
        };
        let (keys, groups) = (&self.keys, self.groups());
        Setting { start_us: self.start_us, duration_us: self.duration_us, keys, facts, groups }
    }

    /// What the clients would do without any limit.
    pub(crate) fn demand(&self) -> Result<Tally, SimulationError> {
        let mut tally = Tally::new(DEMAND_SPANS_US.to_vec(), self.keys.len(), self.duration_us)?;
        self.run(|attempt| {
            tally.count(attempt.client as usize, attempt, Verdict::ADMITTED);
            Ok(Verdict::ADMITTED)
        })?;
        Ok(tally)
    }

    /// What happens under these limits.
    pub(crate) fn course(&self, limits: &Limits) -> Result<Course, SimulationError> {
        self.course_observed(limits, |_, _| Ok(()))
    }

    /// The same, with a function that is called with each decision, and whose error ends the simulation.
    pub(crate) fn course_observed(
        &self,
        limits: &Limits,
        mut observe: impl FnMut(&Attempt, Verdict) -> Result<(), SimulationError>,
    ) -> Result<Course, SimulationError> {
        let mut judge = Judge::new(limits, self.setting())?;
        // Rules have keys of their own.
        let lengths_us = match &limits.kind {
            Kind::Document { policy: None, .. } => Vec::new(),
            _ => limits.policies()?.first().map(|named| periods_us(&named.policy)).unwrap_or_default(),
        };
        let mut tally = Tally::new(lengths_us, self.keys.len(), self.duration_us)?;
        let mut outcomes = Outcomes::new(self.keys.len());
        let ends = self.run(|attempt| {
            let verdict = judge.decide(attempt)?;
            tally.count(attempt.client as usize, attempt, verdict);
            outcomes.count(attempt, verdict);
            observe(attempt, verdict)?;
            Ok(verdict)
        })?;
        let (rules, shares) = judge.into_parts();
        Ok(Course { tally, outcomes, ends, rules, shares })
    }

    fn run(
        &self,
        decide: impl FnMut(&Attempt) -> Result<Verdict, SimulationError>,
    ) -> Result<Ends, SimulationError> {
        match &self.requests {
            Requests::Generated { groups, seed, .. } => {
                self.run_through(Clients::new(groups, *seed, self.duration_us), decide)
            }
            Requests::Logged { records, .. } => self.run_through(Replay { records, next: 0 }, decide),
        }
    }

    fn run_through(
        &self,
        mut source: impl Source,
        mut decide: impl FnMut(&Attempt) -> Result<Verdict, SimulationError>,
    ) -> Result<Ends, SimulationError> {
        // So rarely that reporting costs nothing.
        let step_us = (self.duration_us / 100).max(1);
        let (mut told_us, mut tells_at_us) = (0, step_us);
        while let Some(attempt) = source.next() {
            if attempt.time_us >= tells_at_us {
                self.progress.add(attempt.time_us - told_us);
                (told_us, tells_at_us) = (attempt.time_us, attempt.time_us + step_us);
            }
            let verdict = decide(&attempt)?;
            source.answer(&attempt, verdict);
        }
        self.progress.add(self.duration_us.saturating_sub(told_us));
        Ok(source.ends())
    }
}

/// The requests of a log, whose clients do not notice what is decided.
struct Replay<'a> {
    records: &'a [Record],
    next: usize,
}

impl Source for Replay<'_> {
    #[inline]
    fn next(&mut self) -> Option<Attempt> {
        let Record { time_us, client, facts } = *self.records.get(self.next)?;
        Some(Attempt { time_us, client, cost: 1, first_us: time_us, is_repeated: false, line: facts })
    }

    #[inline]
    fn answer(&mut self, _attempt: &Attempt, _verdict: Verdict) {
        self.next += 1;
    }
}

#[cfg(test)]
mod tests;
