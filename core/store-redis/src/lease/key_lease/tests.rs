//! The life of a key's lease: how much it takes, what it spends, and what it gives back.

use super::*;
use crate::lease::tests::admitted;
use polylimit_rules::transition::Operation;
use polylimit_store::charge::Action;

/// Grants of it last for their age.
const VAST: &str = "1000000/day fixed_window";
const DAY_US: u64 = 86_400_000_000;
const AGE_US: u64 = 1_000_000;
/// The number of resets before, so that one more differs from one less and from none.
const RESETS: u64 = 2;

fn policy(quotas: &str) -> Policy {
    Policy::parse("p", quotas).unwrap()
}

/// A lease since the time 0.
fn lease(policy: &Policy) -> KeyLease {
    let lease_key = LeaseKey { id: PolicyId(7), key: b"key".as_slice().into(), hash: 0 };
    let holding = KeyLease::new(lease_key, Channel::of(b"main key"), 1_000, AGE_US, policy.quotas(), 0);
    KeyLease { resets: RESETS, ..holding }
}

fn usage(remaining: u64, reset_after_us: u64) -> QuotaUsage {
    QuotaUsage { limit: 1_000_000, remaining, reset_after_us, over: 0 }
}

fn replied(spent: u64, views: &[QuotaUsage]) -> ScriptDecision {
    admitted(spent, 0, views)
}

/// Takes units that the store has in full, at that time.
fn take(holding: &mut KeyLease, quotas: &str, units: u64, now_us: u64) {
    holding.refused();
    let mut take = holding.begin_taking(now_us).unwrap();
    take.units = units;
    let views = policy(quotas).quotas().iter().map(|_| usage(900_000, DAY_US)).collect::<Vec<_>>();
    let size = holding.size;
    assert_eq!(holding.granted(take, &replied(units, &views), &policy(quotas), now_us, now_us), 0);
    holding.size = size;
}

/// Two grants of these numbers of units, taken now.
fn holding(front: u64, back: u64) -> KeyLease {
    let mut holding = lease(&policy(VAST));
    take(&mut holding, VAST, front, 0);
    if back > 0 {
        take(&mut holding, VAST, back, 0);
    }
    assert_eq!((holding.front.units(), holding.back.units()), (front, back));
    holding
}

#[test]
fn lease_is_of_one_key_of_one_policy() {
    let holding = lease(&policy(VAST));
    let is_of = |id, key| holding.is_of(Charge::new(PolicyId(id), key, Action::Apply(Operation::Check), 1));
    assert!(is_of(7, b"key") && !is_of(8, b"key") && !is_of(7, b"kez"));
}

/// How long the last grant lasted decides the size of the next one.
#[test]
fn grants_last_for_a_good_time() {
    // Eight grants in a step of 100 ms.
    let stepped = "500/s token_bucket step=50";
    for (quotas, lasted_us, size, units, expected) in [
        (VAST, 0, 8, 8, 16),
        (VAST, 49_999, 8, 8, 16),
        (VAST, 50_000, 8, 8, 8),
        (VAST, 100_000, 8, 8, 8),
        (VAST, 100_001, 8, 8, 4),
        (VAST, 100_001, 5, 5, 3),
        // One that was reduced says nothing about the size.
        (VAST, 0, 8, 7, 8),
        (VAST, 100_001, 8, 7, 8),
        (stepped, 12_499, 8, 8, 16),
        (stepped, 12_500, 8, 8, 8),
        (stepped, 25_000, 8, 8, 8),
        (stepped, 25_001, 8, 8, 4),
        // At most as many as one may take, and a sixteenth of what remains.
        (VAST, 0, 600, 600, 1_000),
        (VAST, 50_000, 1_000, 1_000, 1_000),
    ] {
        let policy = policy(quotas);
        let mut holding = KeyLease { size, granted_at_us: 70, ..lease(&policy) };
        let take = Take { units, ..holding.begin_taking(70).unwrap() };
        let (asked_us, reply) = (70 + lasted_us, replied(units, &[usage(900_000, DAY_US)]));
        assert_eq!(holding.granted(take, &reply, &policy, asked_us, asked_us), 0);
        assert_eq!(
            (holding.size, holding.granted_at_us),
            (expected, asked_us),
            "{quotas} {lasted_us} {size}"
        );
    }
    let mut holding = KeyLease { size: 8, ..lease(&policy(VAST)) };
    let take = holding.begin_taking(0).unwrap();
    holding.granted(take, &replied(8, &[usage(100, DAY_US)]), &policy(VAST), 0, 0);
    assert_eq!(holding.size, 6);
}

/// The last grant of a step or window is reduced to the time that is left, because the rest of it could not be refunded.
#[test]
fn grant_is_reduced_to_the_time_that_is_left() {
    let holding = KeyLease {
        size: 100,
        span: Some((1_010_000, 100_000)),
        good_time_us: 12_500,
        ..lease(&policy(VAST))
    };
    for (now_us, expected) in [
        (910_000, 100),
        (997_500, 100),
        (997_501, 99),
        (1_003_750, 50),
        (1_009_999, 1),
        // Of the spans after that.
        (1_010_000, 100),
        (1_103_750, 50),
        (1_203_750, 50),
    ] {
        assert_eq!(holding.units_to_take(now_us), expected, "{now_us}");
    }
    assert_eq!(KeyLease { span: None, ..holding }.units_to_take(1_009_999), 100);
}

#[test]
fn spending_starts_the_next_take_at_half_of_a_grant() {
    let mut holding = KeyLease { size: 8, ..holding(10, 0) };
    let mut spend = |cost| holding.spend(cost, 0).map(|(_, take)| take.map(|take| take.units));
    assert_eq!([spend(11), spend(5), spend(1), spend(1)], [None, Some(None), Some(Some(8)), Some(None)]);
    assert!(holding.takes());
    // One that was refused is tried again.
    holding.refused();
    assert!(!holding.takes());
    assert_eq!(holding.spend(1, 0).unwrap().1.map(|take| (take.units, take.resets)), Some((8, RESETS)));
    // A newer grant is there already; the older one is spent first.
    let mut holding = KeyLease { size: 8, ..self::holding(2, 3) };
    assert!(holding.spend(1, 0).unwrap().1.is_none());
    assert_eq!((holding.front.units(), holding.back.units()), (1, 3));
    assert!(holding.spend(2, 0).unwrap().1.is_none());
    assert_eq!((holding.front.units(), holding.back.units()), (0, 2));
    assert!(holding.spend(1, 0).unwrap().1.is_some());
    assert_eq!((holding.front.units(), holding.back.units()), (1, 0));
}

#[test]
fn expired_units_are_not_spent() {
    assert!(holding(10, 0).spend(1, AGE_US - 1).is_some());
    assert!(holding(10, 0).spend(1, AGE_US).is_none());
}

/// Of a bucket: the grant shrinks while nothing is repaid that this process has spent.
#[test]
fn idle_time_takes_units_of_a_bucket() {
    // A unit is repaid in nearly a millisecond, and all debt in half a second.
    let quotas = "1000/s token_bucket";
    let busy = || {
        let policy = policy(quotas);
        let mut holding = KeyLease { size: 100, ..lease(&policy) };
        let take = holding.begin_taking(0).unwrap();
        assert_eq!(holding.granted(take, &replied(100, &[usage(900_000, 500_000)]), &policy, 0, 0), 0);
        holding
    };
    let mut idle = busy();
    assert!(idle.spend(60, 250_000).is_none());
    assert!((45..=50).contains(&idle.units()), "{}", idle.units());
    // Those that were spent by a check, and by the store for one, are repaid until then.
    let mut spends = busy();
    assert!(spends.spend(50, 0).is_some());
    spends.has_spent(250, 0);
    assert!(spends.spend(50, 299_000).is_some());
    let mut misses = busy();
    misses.is_taking = true;
    assert!(misses.missed(300, 900_000, 0, 0).is_none());
    assert!(misses.spend(100, 299_000).is_some());
    // A refund of them makes the key idle.
    let mut refunded = busy();
    refunded.has_spent(300, 0);
    refunded.has_spent_nothing(0);
    assert!(refunded.spend(60, 250_000).is_none());
    // The store's newer view is that the debt is repaid later.
    let mut later = busy();
    later.is_taking = true;
    assert!(later.missed(0, 900_000, 2_500_000, 0).is_none());
    assert!(later.spend(85, 250_000).is_some());
    // A grant that arrives late has shrunk on its way.
    let mut late = KeyLease { size: 100, ..lease(&policy(quotas)) };
    let take = late.begin_taking(0).unwrap();
    late.granted(take, &replied(100, &[usage(900_000, 500_000)]), &policy(quotas), 0, 250_000);
    assert!((45..=50).contains(&late.units()), "{}", late.units());
}

#[test]
fn miss_takes_units_for_a_busy_key_only() {
    let missed = |holding: &mut KeyLease, remaining, now_us| {
        holding.missed(1, remaining, 0, now_us).map(|take| take.units)
    };
    let mut new = lease(&policy(VAST));
    assert_eq!(missed(&mut new, 900_000, AGE_US - 1), Some(1));
    assert_eq!(missed(&mut new, 900_000, AGE_US - 1), None, "a take is under way");
    // The last request was too long ago, or too few units remain for others.
    let mut rare = lease(&policy(VAST));
    assert_eq!(missed(&mut rare, 900_000, AGE_US), None);
    assert_eq!(missed(&mut rare, 15, AGE_US), None);
    assert_eq!(missed(&mut rare, 16, AGE_US), Some(1));
    let mut grown = KeyLease { size: 50, ..lease(&policy(VAST)) };
    assert_eq!(missed(&mut grown, 160, 0), Some(10));
    // There is no room for a third grant.
    assert_eq!(missed(&mut holding(2, 3), 900_000, 0), None);
    assert_eq!(missed(&mut holding(2, 0), 900_000, 0), Some(1));
}

#[test]
fn units_of_a_take_before_a_reset_are_void() {
    let ends: [fn(&mut KeyLease) -> u64; 3] =
        [|it| it.reset(0), |it| it.block().len() as u64, |it| it.renew(9).len() as u64];
    for end in ends {
        let mut holding = KeyLease { size: 5, ..lease(&policy(VAST)) };
        let take = holding.begin_taking(0).unwrap();
        assert_eq!(end(&mut holding), 0);
        let void = holding.granted(take, &replied(4, &[usage(900_000, DAY_US)]), &policy(VAST), 0, 0);
        assert_eq!((void, holding.units(), holding.takes(), holding.resets), (4, 0, false, RESETS + 1));
    }
}

#[test]
fn all_units_are_given_up() {
    type Way = fn(&mut KeyLease) -> SmallVec<[Grant; 2]>;
    let given = |holding: &mut KeyLease, give: Way| {
        let given = give(holding).iter().map(Grant::units).collect::<Vec<_>>();
        assert_eq!(holding.units(), 0);
        given
    };
    let ways: [Way; 3] = [KeyLease::give_up, KeyLease::block, |it| it.renew(60)];
    for give in ways {
        assert_eq!(given(&mut holding(2, 3), give), [2, 3]);
        assert_eq!(given(&mut holding(2, 0), give), [2]);
        assert!(given(&mut lease(&policy(VAST)), give).is_empty());
    }
    assert_eq!(holding(2, 3).reset(0), 5);
    // Quotas of another capacity bound the next grants.
    let mut renewed = KeyLease { size: 100, ..lease(&policy(VAST)) };
    renewed.renew(60);
    assert_eq!((renewed.size, renewed.most), (60, 60));
    renewed.renew(90);
    assert_eq!((renewed.size, renewed.most), (60, 90));
}

#[test]
fn oldest_grant_expires_first() {
    let mut holding = KeyLease { size: 9, ..lease(&policy(VAST)) };
    take(&mut holding, VAST, 2, 0);
    take(&mut holding, VAST, 3, 500);
    let over = |holding: &mut KeyLease, now_us| holding.over(now_us).map(|held| held.units());
    assert_eq!((over(&mut holding, AGE_US - 1), holding.size), (None, 9));
    assert_eq!((over(&mut holding, AGE_US), holding.size), (Some(2), 5));
    assert_eq!((over(&mut holding, AGE_US), holding.units()), (None, 3));
    assert_eq!((over(&mut holding, AGE_US + 500), holding.units()), (Some(3), 0));
    // A fraction of a unit is not refunded, and makes room all the same.
    let quotas = policy("1000/s token_bucket");
    let mut shrunk = lease(&quotas);
    let take = shrunk.begin_taking(0).unwrap();
    shrunk.granted(take, &replied(1, &[usage(900_000, 4 * AGE_US)]), &quotas, 0, 0);
    assert_eq!((over(&mut shrunk, AGE_US), shrunk.front.is_over(AGE_US, AGE_US)), (None, false));
}

#[test]
fn lease_without_units_is_idle_when_it_was_not_used_for_long() {
    let empty = || lease(&policy(VAST));
    assert!(!empty().is_idle(AGE_US - 1) && empty().is_idle(AGE_US));
    assert!(!empty().has_or_takes() && !empty().takes());
    let mut takes = empty();
    assert!(takes.begin_taking(0).is_some());
    assert!(!takes.is_idle(AGE_US) && takes.has_or_takes() && takes.takes());
    assert!(!holding(1, 0).is_idle(AGE_US) && holding(1, 0).has_or_takes() && !holding(1, 0).takes());
}

/// The store has counted the units of the lease as spent.
#[test]
fn decision_counts_units_of_the_lease_as_remaining() {
    let quotas = policy("1000/s fixed_window; 5000/m fixed_window excess=5000");
    let mut holding = KeyLease { size: 7, ..lease(&quotas) };
    let take = holding.begin_taking(0).unwrap();
    let minute = QuotaUsage { limit: 5_000, remaining: 30, reset_after_us: 60_000_000, over: 4 };
    assert_eq!(holding.granted(take, &replied(7, &[usage(20, 900_000), minute]), &quotas, 100, 100), 0);
    let (decision, _) = holding.spend(2, 400_100).unwrap();
    assert_eq!((decision.allowed, decision.source), (true, Source::Lease));
    let expected =
        [usage(25, 500_000), QuotaUsage { remaining: 35, reset_after_us: 59_600_000, over: 0, ..minute }];
    assert_eq!(decision.quotas(), expected);
    // Of a single quota, also when its times have passed.
    let mut holding = self::holding(9, 0);
    holding.views = SmallVec::from_slice(&[QuotaUsage { over: 12, ..usage(0, 500) }]);
    let (decision, _) = holding.spend(2, 400).unwrap();
    assert_eq!(decision.quotas(), [QuotaUsage { over: 5, ..usage(7, 100) }]);
    let (decision, _) = holding.spend(1, 600).unwrap();
    assert_eq!(decision.quotas(), [QuotaUsage { over: 6, ..usage(6, 0) }]);
}

/// The reply to a take that the store has in full, at that time.
fn granted(holding: &mut KeyLease, take: Take, now_us: u64) {
    let reply = replied(take.units, &[usage(900_000, DAY_US / 10)]);
    assert_eq!(holding.granted(take, &reply, &policy(VAST), now_us, now_us), 0);
}

#[test]
fn held_units_are_kept_when_more_are_taken() {
    let now_us = 0;
    let mut holding = lease(&policy(VAST));
    let take = holding.missed(1, 900_000, 0, now_us).unwrap();
    granted(&mut holding, take, now_us);
    let (mut taken, mut spent) = (take.units, 0);
    // Until both grants have units.
    while holding.back.units() == 0 {
        let (_, take) = holding.spend(1, now_us).unwrap();
        spent += 1;
        if let Some(take) = take {
            granted(&mut holding, take, now_us);
            taken += take.units;
        }
    }
    // The store admits a check that costs more than all held units.
    assert!(holding.spend(taken + 1, now_us).is_none());
    if let Some(take) = holding.missed(1, 900_000, 0, now_us) {
        granted(&mut holding, take, now_us);
        taken += take.units;
    }
    assert_eq!(holding.units(), taken - spent);
}

#[test]
fn every_unit_expires_wherever_spending_ends() {
    for spends in 0..200 {
        let mut holding = lease(&policy(VAST));
        let take = holding.missed(1, 900_000, 0, 0).unwrap();
        granted(&mut holding, take, 0);
        for _ in 0..spends {
            let Some((_, take)) = holding.spend(1, 0) else { break };
            if let Some(take) = take {
                granted(&mut holding, take, 0);
            }
        }
        for _ in 0..2 {
            holding.over(AGE_US);
        }
        assert_eq!(holding.units(), 0, "after {spends} units");
    }
}
