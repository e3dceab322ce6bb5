//! Any policies, operations and clock times: nothing panics, and the laws that are visible from outside hold.
//!
//! The bytes are two policies, each a line of quotas as text, and operations of four bytes each. Operations change the
//! first policy to the second and back; if the second line is no policy, nothing changes.

use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::decision::Usage;
use polylimit::{Decision, Limiter, Policy, Request, blocking};

/// The most operations of one input, so that an input runs quickly.
const MAX_OPERATIONS: usize = 64;

/// Reads the policies and runs the operations.
pub fn run(bytes: &[u8]) {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let mut policy = || Policy::parse("p", str::from_utf8(lines.next()?).ok()?).ok();
    let (Some(first), second) = (policy(), policy()) else { return };
    // The last operation may be truncated; then its cost is 0.
    let operations = lines.next().unwrap_or_default().chunks(4).take(MAX_OPERATIONS);
    let mut world = World::new(first, second);
    for operation in operations {
        let byte = |at: usize| operation.get(at).copied().unwrap_or_default();
        world.go(byte(1), byte(2));
        world.operate(byte(0), byte(3));
    }
}

struct World {
    clock: ManualClock,
    limiter: blocking::Limiter,
    policy: Policy,
    other: Option<Policy>,
}

impl World {
    fn new(policy: Policy, other: Option<Policy>) -> Self {
        let clock = ManualClock::new(1_700_000_000_000_000).expect("it is before 2255");
        let builder = Limiter::builder().clock(clock.clone()).policy(policy.clone()).max_keys(4);
        let limiter = builder.build().expect("there is a policy").blocking();
        Self { clock, limiter, policy, other }
    }

    /// Moves the clock by a number of microseconds or of periods, or to a time that a decision named. It may go back.
    fn go(&mut self, how: u8, far: u8) {
        let (now_us, far) = (self.clock.now_us(), u64::from(far));
        let period = self.policy.quotas()[0].period();
        let period_us = u64::try_from(period.as_micros()).expect("a period is at most 366 days");
        let told = self.peek(far);
        let there_us = match how % 8 {
            0 => now_us,
            1 => now_us + far,
            2 => now_us + period_us / 64 * far,
            3 => now_us.saturating_add(told.retry_after_us().unwrap_or(0)),
            4 => now_us.saturating_add(told.retry_after_us().unwrap_or(0).saturating_sub(1)),
            5 => now_us.saturating_add(told.reset_after_us()),
            6 => (now_us / period_us + 1) * period_us - far % 2,
            _ => now_us.saturating_sub(period_us / 64 * far + 1),
        };
        // The clock refuses times that it cannot show.
        let moved = self.clock.set(there_us).is_ok();
        assert_eq!(self.clock.now_us(), if moved { there_us } else { now_us });
    }

    fn operate(&mut self, what: u8, size: u8) {
        let capacity = self.capacity();
        let cost = match size {
            0..=31 => u64::from(size),
            // From nothing to 8 times the capacity.
            32..=254 => (capacity / 28).saturating_mul(u64::from(size) - 31),
            255 => capacity + 1,
        };
        let cost = cost.min(Request::MAX_COST);
        let before = self.peek(cost);
        self.explained(&before, cost);
        match what % 8 {
            0..=2 => self.check(cost, &before),
            3 => {
                let usage = self.limiter.take(request(cost)).expect("the cost is in bounds");
                assert_eq!(usage.taken(), cost.min(before.remaining()));
                assert_spent(&before, &usage, usage.taken());
            }
            4 => {
                let usage = self.limiter.charge(request(cost)).expect("the cost is in bounds");
                assert_spent(&before, &usage, cost);
            }
            5 => {
                let usage = self.limiter.refund(request(cost)).expect("the cost is in bounds");
                for (was, is) in before.quotas().iter().zip(usage.quotas()) {
                    assert!((was.remaining..=was.remaining + cost).contains(&is.remaining));
                }
            }
            6 => {
                let usage = self.limiter.reset(request(cost)).expect("the cost is in bounds");
                assert_eq!((usage.remaining(), usage.reset_after_us()), (capacity, 0));
            }
            _ => self.change(),
        }
        self.explained(&self.peek(cost), cost);
        self.headroom_is_kept(cost, size % 100);
        self.block_denies_and_ends(cost);
        self.a_stranger_is_not_concerned(cost);
    }

    fn check(&self, cost: u64, peeked: &Decision) {
        let decision = self.limiter.check(request(cost)).expect("the cost is in bounds");
        let counted = self.policy.quotas().iter().any(polylimit::Quota::count_denied);
        assert_eq!(decision.allowed(), cost <= peeked.remaining());
        if decision.allowed() {
            assert_eq!(decision.remaining(), peeked.remaining() - cost);
            assert_eq!(decision.delay_us(), peeked.delay_us());
        } else if !counted {
            assert_eq!(&decision, peeked);
        }
        // Now the state is written at this clock time, and not ahead of it.
        if cost > 0 && cost <= self.capacity() {
            self.told_the_truth(&decision, cost);
        }
    }

    /// The parts of a decision are consistent.
    fn explained(&self, decision: &Decision, cost: u64) {
        let quotas = self.policy.quotas().iter().zip(decision.quotas());
        for (quota, view) in quotas {
            assert_eq!(view.limit, quota.limit());
            assert!(view.remaining <= quota.capacity());
            assert_eq!(view.remaining == quota.capacity(), view.reset_after_us == 0);
        }
        assert_eq!(decision.allowed(), cost <= decision.remaining());
        assert_eq!(decision.retry_after_us() == Some(0), decision.allowed());
        assert_eq!(decision.retry_after_us().is_none(), cost > self.capacity());
        assert!(decision.retry_after_us().is_none_or(|wait_us| wait_us <= decision.reset_after_us()));
        assert!(decision.delay_us() <= decision.reset_after_us());
        assert!(decision.degraded().is_none());
    }

    /// What a request leaves for others counts as if it were spent, and is not.
    fn headroom_is_kept(&self, cost: u64, percent: u8) {
        let kept = |quota: &polylimit::Quota| (quota.capacity() * u64::from(percent)).div_ceil(100);
        let peeked = self.peek(0);
        let quotas = self.policy.quotas().iter().zip(peeked.quotas());
        let left = quotas.map(|(quota, view)| view.remaining.saturating_sub(kept(quota))).min();
        let decision = self.limiter.peek(request(cost).headroom(percent)).expect("all is in bounds");
        assert_eq!(Some(decision.remaining()), left);
        assert_eq!(decision.allowed(), cost == 0 || cost <= decision.remaining());
        let fits = |quota: &polylimit::Quota| cost + kept(quota) <= quota.capacity();
        let is_never = !decision.allowed() && decision.retry_after_us().is_none();
        assert_eq!(is_never, cost > 0 && !self.policy.quotas().iter().all(fits));
    }

    /// A blocked key is denied whatever is left, and what is left is the same afterwards.
    fn block_denies_and_ends(&self, cost: u64) {
        let block = |time| self.limiter.admin().block(request(cost), time).expect("the time is in bounds");
        let blocked = block(Duration::from_secs(1));
        let before = self.peek(cost);
        assert_eq!((blocked.remaining(), before.remaining(), before.allowed()), (0, 0, cost == 0));
        assert!(before.reset_after() >= Duration::from_secs(1));
        assert_eq!(before.cause(), (cost > 0).then_some(polylimit::decision::Cause::Blocked));
        block(Duration::ZERO);
        assert!(self.peek(cost).cause() != Some(polylimit::decision::Cause::Blocked));
    }

    /// The waits of a decision are exact. Peeks have no effect.
    fn told_the_truth(&self, decision: &Decision, cost: u64) {
        let now_us = self.clock.now_us();
        if let Some(wait_us @ 1..) = decision.retry_after_us()
            && self.clock.set(now_us.saturating_add(wait_us)).is_ok()
        {
            assert!(self.peek(cost).allowed(), "not admitted at retry_after");
            self.clock.set(now_us + wait_us - 1).expect("it is earlier");
            assert_eq!(self.peek(cost).retry_after_us(), Some(1), "admitted before retry_after");
        }
        if let reset_us @ 1.. = decision.reset_after_us()
            && self.clock.set(now_us.saturating_add(reset_us)).is_ok()
        {
            assert_eq!((self.peek(0).remaining(), self.peek(0).reset_after_us()), (self.capacity(), 0));
            self.clock.set(now_us + reset_us - 1).expect("it is earlier");
            assert_eq!(self.peek(0).reset_after_us(), 1, "nothing counts before reset_after");
        }
        self.clock.set(now_us).expect("it showed that before");
    }

    fn change(&mut self) {
        if let Some(other) = self.other.take() {
            self.limiter.asynchronous().set_policy(other.clone()).expect("there is one policy");
            self.other = Some(std::mem::replace(&mut self.policy, other));
        }
    }

    /// A request for a new key makes the store remove expired states, and finds its own quotas unused.
    fn a_stranger_is_not_concerned(&self, cost: u64) {
        let decision = self.limiter.peek(Request::new("stranger").cost(cost)).expect("the cost is in bounds");
        assert_eq!((decision.remaining(), decision.reset_after()), (self.capacity(), Duration::ZERO));
    }

    fn peek(&self, cost: u64) -> Decision {
        self.limiter.peek(request(cost)).expect("the cost is in bounds")
    }

    fn capacity(&self) -> u64 {
        self.policy.quotas().iter().map(polylimit::Quota::capacity).min().unwrap_or(0)
    }
}

fn request(cost: u64) -> Request<'static> {
    Request::new("key").cost(cost)
}

/// `units` units were spent from every quota, or all that were left.
fn assert_spent(before: &Decision, usage: &Usage, units: u64) {
    for (was, is) in before.quotas().iter().zip(usage.quotas()) {
        assert_eq!(is.remaining, was.remaining.saturating_sub(units));
    }
}
