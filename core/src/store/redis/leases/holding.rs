//! What is held of one key, and how much is to be taken next.

use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::micros;
use crate::decision::{Decision, QuotaUsage, Several, Source};
use crate::policy::Policy;
use crate::quota::{Algorithm, Quota};
use crate::store::redis::ticket::Replied;
use crate::store::{PolicyId, Question};

/// A lease that lasts for less than this is too small, and one that lasts for more than twice as long is too large.
const GOOD_TIME: Duration = Duration::from_millis(50);
/// No more than this part of what remains is taken, so that others find something, too.
const PART_OF_REMAINING: u64 = 16;

/// Which key, by the number of its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whose {
    pub(super) id: PolicyId,
    pub(super) key: Box<[u8]>,
    pub(super) hash: u64,
}

#[derive(Debug)]
pub(super) struct Holding {
    pub(super) whose: Whose,
    /// The units that were taken first.
    front: Held,
    /// Those that were taken while there were some.
    back: Held,
    /// How many are taken next.
    size: u64,
    most: u64,
    max_age: Duration,
    is_taking: bool,
    /// How often the store was told to forget the key: what was taken before that is void.
    resets: u64,
    granted_at: quanta::Instant,
    used_at: quanta::Instant,
    /// What each quota said when something was last taken.
    views: SmallVec<[QuotaUsage; 1]>,
}

/// Units that were taken together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) units: u64,
    taken: Option<Taken>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    at: quanta::Instant,
    /// For how long they are the newest of their window: after that, others' would be given back in their place.
    refundable: Option<Duration>,
}

/// Units to be taken now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Take {
    pub(super) units: u64,
    resets: u64,
}

impl Held {
    /// Whether giving them back, within a deadline from now, gives back these and not others'.
    pub(super) fn may_be_refunded(&self, deadline: Duration) -> bool {
        self.taken
            .and_then(|taken| Some((taken.at.elapsed() + deadline) < taken.refundable?))
            .unwrap_or(false)
    }

    fn is_over(&self, now: quanta::Instant, max_age: Duration) -> bool {
        self.taken.is_some_and(|taken| now.saturating_duration_since(taken.at) >= max_age)
    }
}

impl Holding {
    pub(super) fn new(whose: Whose, most: u64, max_age: Duration, now: quanta::Instant) -> Self {
        Self {
            whose,
            front: Held::default(),
            back: Held::default(),
            size: 1,
            most,
            max_age,
            is_taking: false,
            resets: 0,
            granted_at: now,
            used_at: now,
            views: SmallVec::new(),
        }
    }

    pub(super) fn is_of(&self, question: Question<'_>) -> bool {
        self.whose.id == question.id && *self.whose.key == *question.key
    }

    pub(super) fn units(&self) -> u64 {
        self.front.units + self.back.units
    }

    /// Whether there are units, or will be.
    pub(super) fn has_or_takes(&self) -> bool {
        self.units() > 0 || self.is_taking
    }

    /// Whether some are being taken.
    pub(super) fn takes(&self) -> bool {
        self.is_taking
    }

    /// Pays for a check, if that is possible, and says what to take now.
    pub(super) fn spend(&mut self, cost: u64, now: quanta::Instant) -> Option<(Decision, Option<Take>)> {
        self.used_at = now;
        if self.front.units == 0 {
            self.front = std::mem::take(&mut self.back);
        }
        // What has reached its age is about to be given back.
        if self.units() < cost || self.front.is_over(now, self.max_age) {
            return None;
        }
        let of_front = cost.min(self.front.units);
        self.front.units -= of_front;
        self.back.units -= cost - of_front;
        let is_low = self.units() <= self.size / 2 && self.back.units == 0;
        let take = if is_low { self.begin_taking() } else { None };
        Some((self.decision(now), take))
    }

    /// A check was admitted by the store, because what is held does not pay for it. Says what to take now.
    pub(super) fn missed(&mut self, remaining: u64, now: quanta::Instant) -> Option<Take> {
        let is_busy = now.saturating_duration_since(self.used_at) < self.max_age;
        self.used_at = now;
        // The last units are asked for one by one.
        self.size = self.size.max(1).min(remaining / PART_OF_REMAINING);
        // Where some stand behind others, what is taken would have no place: the check costs more than all of them, or those
        // in front are about to be given back.
        if is_busy && self.back.units == 0 { self.begin_taking() } else { None }
    }

    fn begin_taking(&mut self) -> Option<Take> {
        if self.size == 0 || std::mem::replace(&mut self.is_taking, true) {
            return None;
        }
        Some(Take { units: self.size, resets: self.resets })
    }

    /// Units have been taken. Says how many of them are void.
    pub(super) fn granted(
        &mut self,
        take: Take,
        replied: &Replied,
        policy: &Policy,
        asked: quanta::Instant,
    ) -> u64 {
        self.is_taking = false;
        if take.resets != self.resets {
            return replied.spent;
        }
        let lasted = asked.saturating_duration_since(self.granted_at);
        self.granted_at = asked;
        let size = if lasted < GOOD_TIME {
            self.size.saturating_mul(2)
        } else if lasted > 2 * GOOD_TIME {
            self.size.div_ceil(2)
        } else {
            self.size
        };
        let decision = &replied.decision;
        self.size = size.min(self.most).min(decision.remaining() / PART_OF_REMAINING);
        self.views = decision.quotas().into();
        let views = policy.quotas().iter().zip(decision.quotas());
        let refundable = views.map(|(quota, view)| refundable(quota, view, replied.now_us)).min().flatten();
        let held = Held { units: replied.spent, taken: Some(Taken { at: asked, refundable }) };
        if self.front.units == 0 {
            self.front = held;
        } else {
            self.back = held;
        }
        0
    }

    /// None could be taken.
    pub(super) fn refused(&mut self) {
        self.is_taking = false;
    }

    /// Takes everything out.
    pub(super) fn give_up(&mut self) -> SmallVec<[Held; 2]> {
        let all = [std::mem::take(&mut self.front), std::mem::take(&mut self.back)];
        all.into_iter().filter(|held| held.units > 0).collect()
    }

    /// The store forgets the key. Says how many units are void.
    pub(super) fn reset(&mut self) -> u64 {
        self.resets += 1;
        self.give_up().iter().map(|held| held.units).sum()
    }

    /// The policy has other numbers, under which so many are held at most. Takes everything out, and what is being taken is
    /// void.
    pub(super) fn renew(&mut self, most: u64) -> SmallVec<[Held; 2]> {
        self.resets += 1;
        self.most = most;
        self.size = self.size.min(most);
        self.give_up()
    }

    /// Takes out what has reached its age.
    pub(super) fn over(&mut self, now: quanta::Instant) -> Option<Held> {
        if !self.front.is_over(now, self.max_age) {
            return None;
        }
        let over = std::mem::replace(&mut self.front, std::mem::take(&mut self.back));
        // It was too large.
        self.size = self.size.div_ceil(2);
        (over.units > 0).then_some(over)
    }

    /// Whether nothing would be missed without it.
    pub(super) fn is_idle(&self, now: quanta::Instant) -> bool {
        self.units() == 0 && !self.is_taking && now.saturating_duration_since(self.used_at) >= self.max_age
    }

    fn decision(&self, now: quanta::Instant) -> Decision {
        let passed_us = micros(now.saturating_duration_since(self.granted_at));
        let units = self.units();
        let view = |view: &QuotaUsage| QuotaUsage {
            limit: view.limit,
            remaining: view.remaining + units,
            reset_after_us: view.reset_after_us.saturating_sub(passed_us),
        };
        let (total, several) = if let [only] = &*self.views {
            (view(only), None)
        } else {
            let each: Box<[QuotaUsage]> = self.views.iter().map(view).collect();
            (QuotaUsage::of_all(&each), Some(Box::new(Several { each })))
        };
        Decision { total, several, wait_us: 0, allowed: true, source: Source::Lease, degraded: None }
    }
}

/// For how long units that were just taken are the newest of their quota: a bucket does not tell its units apart, a window
/// does once it has moved on, and in a log others stand behind them at any time.
fn refundable(quota: &Quota, view: &QuotaUsage, now_us: u64) -> Option<Duration> {
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => Some(Duration::MAX),
        Algorithm::FixedWindow => Some(Duration::from_micros(view.reset_after_us)),
        Algorithm::SlidingWindow => {
            let width_us = quota.period_us() / u64::from(quota.buckets().unwrap_or(1));
            Some(Duration::from_micros(width_us - now_us % width_us))
        }
        Algorithm::SlidingLog => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(holding: &mut Holding, take: Take, now: quanta::Instant) {
        let policy = Policy::parse("p", "1000000/day token_bucket").unwrap();
        let total = QuotaUsage { limit: 1_000_000, remaining: 900_000, reset_after_us: 0 };
        let decision = Decision {
            total,
            several: None,
            wait_us: 0,
            allowed: true,
            source: Source::Store,
            degraded: None,
        };
        let replied = Replied { decision, spent: take.units, now_us: 0, denied: None };
        assert_eq!(holding.granted(take, &replied, &policy, now), 0);
    }

    #[test]
    fn nothing_that_is_held_is_forgotten_when_more_is_taken() {
        let now = quanta::Instant::now();
        let whose = Whose { id: PolicyId(0), key: b"key".as_slice().into(), hash: 0 };
        let mut holding = Holding::new(whose, 1_000, Duration::from_secs(1), now);
        let take = holding.missed(900_000, now).unwrap();
        granted(&mut holding, take, now);
        let (mut taken, mut spent) = (take.units, 0);
        // Until there are some in front and some behind.
        while holding.back.units == 0 {
            let (_, take) = holding.spend(1, now).unwrap();
            spent += 1;
            if let Some(take) = take {
                granted(&mut holding, take, now);
                taken += take.units;
            }
        }
        // A check that costs more than all of them is admitted by the store.
        assert!(holding.spend(taken + 1, now).is_none());
        if let Some(take) = holding.missed(900_000, now) {
            granted(&mut holding, take, now);
            taken += take.units;
        }
        assert_eq!(holding.units(), taken - spent);
    }
}
