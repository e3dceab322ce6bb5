//! What was admitted of each key, against what its quotas admit at most.

use std::collections::VecDeque;
use std::time::Duration;

use polylimit::Policy;

/// The span that is looked at: an admission is reported up to this long after the store decided, so a span of answers that is shorter than
/// a period by this has been decided within the period.
const TOLD_WITHIN: Duration = Duration::from_millis(50);

/// One quota: how many units a span admits at most.
struct Bound {
    span_us: u64,
    most: u64,
}

/// The admissions of all keys.
pub(super) struct Admissions {
    bounds: Vec<Bound>,
    keys: Vec<Vec<Span>>,
    /// The refunds of each key, which may all be admitted again.
    refunded: Vec<u64>,
    /// The most units that a span had above its bound and the key's refunds.
    pub(super) excess: u64,
}

/// The admissions of a key within the last span of a quota.
#[derive(Default)]
struct Span {
    admitted: VecDeque<(u64, u64)>,
    units: u64,
}

impl Admissions {
    pub(super) fn new(policy: &Policy, keys: usize) -> Self {
        let bounds = policy.quotas().iter().map(|quota| Bound {
            span_us: quota.period().saturating_sub(TOLD_WITHIN).as_micros() as u64,
            most: quota.most_admitted(quota.period()),
        });
        let bounds: Vec<Bound> = bounds.filter(|bound| bound.span_us > 0).collect();
        let refunded = vec![0; keys];
        let keys = (0..keys).map(|_| bounds.iter().map(|_| Span::default()).collect()).collect();
        Self { bounds, keys, refunded, excess: 0 }
    }

    /// A unit of a key is refunded from now on.
    pub(super) fn refund(&mut self, key: usize) {
        self.refunded[key] += 1;
    }

    pub(super) fn admit(&mut self, key: usize, at_us: u64, cost: u64) {
        for (bound, span) in self.bounds.iter().zip(&mut self.keys[key]) {
            while let Some((first_us, units)) = span.admitted.front()
                && at_us - first_us > bound.span_us
            {
                span.units -= units;
                span.admitted.pop_front();
            }
            span.admitted.push_back((at_us, cost));
            span.units += cost;
            self.excess = self.excess.max(span.units.saturating_sub(bound.most + self.refunded[key]));
        }
    }

    /// The most that processes without the server may admit in a span, each up to its share of the limit.
    pub(super) fn most_of_outage(policy: &Policy, processes: usize) -> u64 {
        let most = policy.quotas().iter().map(|quota| quota.most_admitted(quota.period())).max();
        most.unwrap_or(0).saturating_mul(processes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_is_what_a_span_admits_above_its_bound() {
        let policy = Policy::parse("p", "3/s sliding_log").unwrap();
        let mut admissions = Admissions::new(&policy, 2);
        for at_us in [0, 1, 2] {
            admissions.admit(0, at_us, 1);
            admissions.admit(1, at_us, 1);
        }
        assert_eq!(admissions.excess, 0);
        admissions.admit(0, 950_000, 2);
        assert_eq!(admissions.excess, 2);
        admissions.admit(1, 950_003, 3);
        assert_eq!(admissions.excess, 2, "the first ones are out of the span");
    }
}
