//! What became of the requests of some keys under one policy, counted while it happens.

use hdrhistogram::Histogram;

use crate::attempt::{Attempt, Verdict};
use crate::busiest::Busiest;
use crate::error::SimulationError;

/// Counts of all keys, and of each.
pub(crate) struct Tally {
    /// The lengths of the spans in which admitted units are counted.
    pub(crate) lengths_us: Vec<u64>,
    pub(crate) keys: Vec<KeyTally>,
    pub(crate) counts: Counts,
    /// How long admitted requests waited that had to wait.
    pub(crate) waits: Histogram<u64>,
    pub(crate) longest_wait_us: u64,
    pub(crate) timeline: Timeline,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests, without their repetitions.
    pub(crate) requests: u64,
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    pub(crate) admitted_units: u64,
    pub(crate) denied_units: u64,
    /// Admitted only because a policy is in shadow.
    pub(crate) shadowed: u64,
}

/// Counts of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyTally {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    /// When the first of the denials was that go on; `None` while requests are admitted.
    denied_since_us: Option<u64>,
    /// The longest time from a denial to the next admission, or to the last denial.
    pub(crate) longest_block_us: u64,
    /// The most admitted units.
    pub(crate) busiest: Busiest,
}

/// Counts in equal slots of time.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub(crate) slot_us: u64,
    /// Admitted and denied attempts.
    pub(crate) slots: Vec<(u64, u64)>,
}

impl Timeline {
    const SLOTS: u64 = 120;

    /// At most 120 slots that cover this time.
    pub(crate) fn new(duration_us: u64) -> Self {
        let slot_us = duration_us.div_ceil(Self::SLOTS).max(1);
        let count = usize::try_from(duration_us.div_ceil(slot_us)).unwrap_or(usize::MAX);
        Self { slot_us, slots: vec![(0, 0); count.max(1)] }
    }

    /// The slot of a time.
    #[inline]
    pub(crate) fn slot_of(&self, time_us: u64) -> usize {
        let last = self.slots.len() - 1;
        usize::try_from(time_us / self.slot_us).unwrap_or(last).min(last)
    }

    #[inline]
    pub(crate) fn count(&mut self, time_us: u64, allowed: bool) {
        let at = self.slot_of(time_us);
        let (admitted, denied) = &mut self.slots[at];
        *(if allowed { admitted } else { denied }) += 1;
    }
}

impl Tally {
    /// No counts yet, for keys with these numbers; further ones are added as they come.
    pub(crate) fn new(lengths_us: Vec<u64>, keys: usize, duration_us: u64) -> Result<Self, SimulationError> {
        let waits = Histogram::new(3);
        Ok(Self {
            lengths_us,
            keys: vec![KeyTally::default(); keys],
            counts: Counts::default(),
            waits: waits.map_err(|error| SimulationError::Internal(error.to_string()))?,
            longest_wait_us: 0,
            timeline: Timeline::new(duration_us),
        })
    }

    /// Counts an attempt of a key.
    #[inline]
    pub(crate) fn count(&mut self, key: usize, attempt: &Attempt, verdict: Verdict) {
        let Attempt { time_us, cost, .. } = *attempt;
        if key >= self.keys.len() {
            self.keys.resize(key + 1, KeyTally::default());
        }
        let (of_key, counts) = (&mut self.keys[key], &mut self.counts);
        counts.requests += u64::from(!attempt.is_repeated);
        counts.shadowed += u64::from(verdict.shadowed);
        self.timeline.count(time_us, verdict.allowed);
        if verdict.allowed {
            counts.admitted += 1;
            counts.admitted_units += cost;
            of_key.admitted += 1;
            if let Some(since_us) = of_key.denied_since_us.take() {
                of_key.longest_block_us = of_key.longest_block_us.max(time_us - since_us);
            }
            of_key.busiest.add(&self.lengths_us, time_us, cost);
            let wait_us = time_us - attempt.first_us + verdict.delay_us;
            if wait_us > 0 {
                // It grows as needed, so it takes every wait.
                let _ = self.waits.record(wait_us);
                self.longest_wait_us = self.longest_wait_us.max(wait_us);
            }
        } else {
            counts.denied += 1;
            counts.denied_units += cost;
            of_key.denied += 1;
            let since_us = *of_key.denied_since_us.get_or_insert(time_us);
            of_key.longest_block_us = of_key.longest_block_us.max(time_us - since_us);
        }
    }

    /// The most admitted units of each span, with the number of the key.
    pub(crate) fn most_admitted(&self) -> Vec<Option<(u64, usize)>> {
        let mut most = vec![None; self.lengths_us.len()];
        for (number, key) in self.keys.iter().enumerate() {
            for (best, units) in most.iter_mut().zip(key.busiest.most()) {
                if best.is_none_or(|(units_before, _)| units > units_before) {
                    *best = Some((units, number));
                }
            }
        }
        most
    }

    /// Keys with requests.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (usize, &KeyTally)> {
        self.keys.iter().enumerate().filter(|(_, key)| key.admitted + key.denied > 0)
    }
}

/// What became of the first attempt of each request of each client, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    by_client: Vec<Vec<bool>>,
}

impl Outcomes {
    pub(crate) fn new(clients: usize) -> Self {
        Self { by_client: vec![Vec::new(); clients] }
    }

    #[inline]
    pub(crate) fn count(&mut self, attempt: &Attempt, verdict: Verdict) {
        if !attempt.is_repeated
            && let Some(outcomes) = self.by_client.get_mut(attempt.client as usize)
        {
            outcomes.push(verdict.allowed);
        }
    }

    /// Pairs of what became of the same requests; those that only one side has are counted apart.
    pub(crate) fn compare(&self, other: &Self) -> Pairs {
        let mut pairs = Pairs::default();
        for (ours, theirs) in self.by_client.iter().zip(&other.by_client) {
            pairs.only_one += ours.len().abs_diff(theirs.len()) as u64;
            for (ours, theirs) in ours.iter().zip(theirs) {
                pairs.both[usize::from(*ours)][usize::from(*theirs)] += 1;
            }
        }
        pairs
    }
}

/// How often two policies admitted the same requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pairs {
    /// By whether the first admits, and whether the second does.
    pub(crate) both: [[u64; 2]; 2],
    /// Requests that were made under one of them only, since their clients waited or left under the other.
    pub(crate) only_one: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(time_us: u64, first_us: u64) -> Attempt {
        Attempt { time_us, client: 0, cost: 2, first_us, is_repeated: first_us < time_us, line: 0 }
    }

    const DENIED: Verdict = Verdict { allowed: false, shadowed: false, retry_after_us: Some(1), delay_us: 0 };

    #[test]
    fn a_block_lasts_from_the_first_denial_to_the_next_admission() {
        let mut tally = Tally::new(vec![10], 1, 100).unwrap();
        for (time_us, verdict) in [
            (0, Verdict::ADMITTED),
            (5, DENIED),
            (7, DENIED),
            (12, Verdict::ADMITTED),
            (90, DENIED),
            (95, DENIED),
        ] {
            tally.count(0, &attempt(time_us, time_us), verdict);
        }
        let key = &tally.keys[0];
        assert_eq!((key.admitted, key.denied, key.longest_block_us), (2, 4, 7));
        assert_eq!(tally.counts.admitted_units, 4);
        assert_eq!(tally.most_admitted(), [Some((2, 0))]);
        assert_eq!(tally.timeline.slots[5], (0, 1));
        assert_eq!(tally.timeline.slots.iter().map(|(_, denied)| denied).sum::<u64>(), 4);
    }

    #[test]
    fn a_wait_is_that_of_the_whole_request() {
        let mut tally = Tally::new(Vec::new(), 1, 100).unwrap();
        tally.count(0, &attempt(3, 3), Verdict::ADMITTED);
        tally.count(0, &attempt(10, 3), Verdict { delay_us: 5, ..Verdict::ADMITTED });
        assert_eq!((tally.waits.len(), tally.longest_wait_us), (1, 12));
        assert_eq!(tally.counts.requests, 1);
    }

    #[test]
    fn outcomes_are_compared_request_by_request() {
        let outcomes = |verdicts: &[bool]| {
            let mut outcomes = Outcomes::new(1);
            for allowed in verdicts {
                outcomes.count(&attempt(1, 1), Verdict { allowed: *allowed, ..DENIED });
            }
            outcomes
        };
        let pairs =
            outcomes(&[true, true, false, false, true]).compare(&outcomes(&[true, false, true, false]));
        assert_eq!(pairs, Pairs { both: [[1, 1], [1, 1]], only_one: 1 });
    }
}
