//! What each policy has decided lately: a point for every ten seconds of the last two hours, in the memory of the server.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use polylimit::Limiter;
use polylimit::admin::{PolicyCounts, TopKey};
use serde::Serialize;

/// The time of a point.
pub(crate) const EVERY: Duration = Duration::from_secs(10);
/// How many points there are.
const POINTS: usize = 720;
/// How many policies a point distinguishes; those that decide less are counted together.
const POLICIES: usize = 100;
/// How many denied keys are followed, how many of them are listed, and for how long a key stays among them whose denials have not
/// increased.
const FOLLOWED: usize = 256;
const LISTED: usize = 20;
const DENIED_FOR_MS: u64 = 60_000;
/// The name of those that are counted together.
const OTHER: &str = "other";

/// What a policy has decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Decided {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// How many of both the outage policies have decided.
    pub(crate) outage: u64,
}

/// The name of each policy with what it has decided.
pub(crate) type ByPolicy = BTreeMap<Box<str>, Decided>;

/// What was decided in the time before a point.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    /// Milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    /// Only policies that have decided something.
    pub(crate) policies: ByPolicy,
}

/// A key that is being denied.
#[derive(Clone, Debug)]
pub(crate) struct DeniedNow {
    pub(crate) denied: TopKey,
    /// When it was first seen, in milliseconds since the Unix epoch.
    pub(crate) since_ms: u64,
    /// When its denials have last become more.
    rose_ms: u64,
}

/// The points of the last two hours.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    points: VecDeque<Arc<Point>>,
    /// The counts at the last point.
    before: HashMap<Box<str>, Decided>,
    /// The keys that are being denied, most often first.
    denied: Vec<DeniedNow>,
}

impl Traffic {
    /// Takes a point.
    pub(crate) fn take(&self, limiter: &Limiter) {
        let now = by_policy(limiter);
        let denied = limiter.admin().top_keys(FOLLOWED).denied;
        let mut taken = self.taken.lock();
        taken.denied = denied_now(denied, &taken.denied, now_ms());
        let mut policies = ByPolicy::new();
        for (name, counted) in &now {
            let before = taken.before.get(name).copied().unwrap_or_default();
            let since = counted.since(before);
            if since != Decided::default() {
                policies.insert(name.clone(), since);
            }
        }
        taken.before = now.into_iter().collect();
        if taken.points.len() == POINTS {
            taken.points.pop_front();
        }
        taken.points.push_back(Arc::new(Point { at_ms: now_ms(), policies: bounded(policies) }));
    }

    pub(crate) fn points(&self) -> Vec<Arc<Point>> {
        self.taken.lock().points.iter().cloned().collect()
    }

    /// The keys that are denied most often of those that are being denied.
    pub(crate) fn denied(&self) -> Vec<DeniedNow> {
        self.taken.lock().denied.iter().take(LISTED).cloned().collect()
    }

    /// How many keys are being denied, as far as they are followed.
    pub(crate) fn denied_keys(&self) -> usize {
        self.taken.lock().denied.len()
    }

    pub(crate) fn newest(&self) -> Option<Arc<Point>> {
        self.taken.lock().points.back().cloned()
    }
}

/// The keys whose denials have become more lately. Counts come from a sample and are halved now and then, so that one that stays the same
/// for a while is still being denied.
fn denied_now(counted: Vec<TopKey>, before: &[DeniedNow], now_ms: u64) -> Vec<DeniedNow> {
    let followed = counted.into_iter().map(|denied| {
        let known = before
            .iter()
            .find(|known| known.denied.policy == denied.policy && known.denied.key == denied.key);
        let has_risen = known.is_none_or(|known| denied.count > known.denied.count);
        let since_ms = known.map_or(now_ms, |known| known.since_ms);
        let rose_ms = known.filter(|_| !has_risen).map_or(now_ms, |known| known.rose_ms);
        DeniedNow { denied, since_ms, rose_ms }
    });
    followed.filter(|denied| now_ms.saturating_sub(denied.rose_ms) < DENIED_FOR_MS).collect()
}

impl Decided {
    fn since(self, before: Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(before.allowed),
            denied: self.denied.saturating_sub(before.denied),
            outage: self.outage.saturating_sub(before.outage),
        }
    }

    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.outage += other.outage;
    }
}

/// What each policy has decided since the server started.
pub(crate) fn by_policy(limiter: &Limiter) -> ByPolicy {
    let counted = limiter.policy_counts().into_iter();
    counted
        .map(|PolicyCounts { policy, allowed, denied, outage, .. }| {
            (policy.into(), Decided { allowed, denied, outage })
        })
        .collect()
}

/// The policies that have decided most, with the rest counted together.
fn bounded(policies: ByPolicy) -> ByPolicy {
    if policies.len() <= POLICIES {
        return policies;
    }
    let mut sorted: Vec<_> = policies.into_iter().collect();
    sorted.sort_by_key(|(_, decided)| std::cmp::Reverse(decided.allowed + decided.denied));
    let mut rest = Decided::default();
    for (_, decided) in sorted.drain(POLICIES..) {
        rest.add(decided);
    }
    let mut bounded: ByPolicy = sorted.into_iter().collect();
    bounded.entry(OTHER.into()).or_default().add(rest);
    bounded
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use polylimit::Policy;

    use super::*;

    #[test]
    fn points_tell_what_has_happened_since_the_one_before() {
        let limiter = Limiter::builder().policy(Policy::parse("api", "2/hour").unwrap()).build().unwrap();
        let traffic = Traffic::default();
        for _ in 0..3 {
            let _ = limiter.blocking().check("k").unwrap();
        }
        traffic.take(&limiter);
        let _ = limiter.blocking().check("k").unwrap();
        traffic.take(&limiter);
        traffic.take(&limiter);
        let decided: Vec<_> = traffic
            .points()
            .iter()
            .map(|point| point.policies.get("api").copied().unwrap_or_default())
            .collect();
        let told = |allowed, denied| Decided { allowed, denied, outage: 0 };
        assert_eq!(decided, [told(2, 1), told(0, 1), told(0, 0)]);
        for _ in 0..POINTS {
            traffic.take(&limiter);
        }
        assert_eq!(traffic.points().len(), POINTS);
    }

    #[test]
    fn denied_key_is_told_until_its_denials_stay_the_same() {
        let limiter = Limiter::builder()
            .policy(Policy::parse("api", "1/hour").unwrap())
            .observe_keys(8)
            .build()
            .unwrap();
        for _ in 0..2_000 {
            let _ = limiter.blocking().check("k").unwrap();
        }
        let counted = limiter.admin().top_keys(5).denied;
        let first = denied_now(counted.clone(), &[], 1_000);
        assert_eq!((first.len(), first[0].since_ms), (1, 1_000));
        let same = denied_now(counted.clone(), &first, 60_999);
        assert_eq!((same.len(), same[0].since_ms), (1, 1_000));
        assert!(denied_now(counted, &same, 61_000).is_empty());
    }

    #[test]
    fn policies_beyond_the_hundredth_are_counted_together() {
        let one = Decided { allowed: 1, ..Decided::default() };
        let policies = (0..POLICIES + 5).map(|at| (Box::from(format!("p{at}")), one)).collect();
        let bounded = bounded(policies);
        assert_eq!((bounded.len(), bounded[OTHER].allowed), (POLICIES + 1, 5));
    }
}
