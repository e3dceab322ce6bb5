//! The cache against the transition: what it answers is what the states give that the store has replied with.

use super::*;
use polylimit_rules::history::Change;
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_runtime::clock::ManualClock;

const ID: PolicyId = PolicyId(5);
const START_US: u64 = 1_700_000_000_000_000;
const LONG: Duration = Duration::from_secs(1_000_000);

/// A cache, and a store's replies to it.
struct World {
    cache: DenialCache,
    clock: ManualClock,
    call: Arc<PolicyCall>,
    channel: Channel,
}

impl World {
    fn of_policy(policy: &Policy, longest: Duration) -> Self {
        let clock = ManualClock::new(START_US).unwrap();
        let call = Arc::new(PolicyCall::new(policy, Change::NONE));
        Self { cache: DenialCache::new(longest, clock.clone().into()), clock, call, channel: channel(1) }
    }

    fn of(quotas: &str) -> Self {
        Self::of_policy(&Policy::parse("p", quotas).unwrap(), LONG)
    }

    /// The states of a key of which some units were spent at the start.
    fn spent(&self, units: u64) -> SeenStates {
        let mut states =
            self.call.policy.quotas().iter().map(State::fresh).collect::<polylimit_rules::codec::States>();
        let charge = KeyOperation {
            now_us: START_US,
            operation: Operation::Charge,
            cost: units,
            headroom: 0,
            hold: None,
        };
        let _ = self.call.rules.decide(&mut states, charge, None);
        SeenStates { states, now_us: START_US }
    }

    fn learn(&self, charge: Charge<'_>, denied: SeenStates) -> bool {
        let Some(version) = self.cache.read_version(charge) else { return false };
        self.cache.learn(charge, version, self.channel, &self.call, Arc::new(denied))
    }

    fn set(&self, after_us: u64) {
        self.clock.set(START_US + after_us).unwrap();
    }
}

/// The channel with this number.
fn channel(number: usize) -> Channel {
    let mut all = ChannelSet::default();
    (0..4_000_u32).for_each(|seed| all.insert(Channel::of(&seed.to_be_bytes())));
    all.iter().nth(number).unwrap()
}

fn check(key: &[u8], cost: u64) -> Charge<'_> {
    Charge::new(ID, key, Action::Apply(Operation::Check), cost)
}

/// At every time, of every cost and headroom, the cache answers with the store's denial, or not at all where the store admits.
#[test]
fn cached_denial_is_the_stores_at_any_time() {
    for quotas in [
        "10/10s token_bucket",
        "10/10s leaky_bucket burst=4",
        "10/10s fixed_window; 20/20s token_bucket",
        "10/10s",
        "8/10s token_bucket excess=2",
        "10/10s buckets=1",
    ] {
        for headroom in [0, 20] {
            for asked in [1, 2, 4] {
                let world = World::of(quotas);
                let of_cost = |cost| Charge { headroom, ..check(b"k", cost) };
                assert!(world.learn(of_cost(asked), world.spent(40)));
                let states = world.spent(40).states;
                for step in 0..100 {
                    world.set(step * 250_000);
                    for cost in [asked, asked + 1, asked.saturating_sub(1).max(1)] {
                        let context = format!("{quotas} {headroom} {asked} {cost} {step}");
                        let (operation, now_us) = (Operation::Check, START_US + step * 250_000);
                        let operation = KeyOperation { now_us, operation, cost, headroom, hold: None };
                        let (stores, _) = world.call.rules.decide(&mut states.clone(), operation, None);
                        let denies = world.cache.denies(of_cost(cost));
                        let answered = world.cache.answer(of_cost(cost));
                        if stores.allowed {
                            assert!(answered.is_none() && !denies, "{context}");
                            // Where a cost fits that is no smaller than the one that was denied, the denial is over.
                            let is_over = cost >= asked;
                            let known = world.cache.known.load(Ordering::Relaxed);
                            assert_eq!(known, usize::from(!is_over), "{context}");
                            if is_over {
                                assert!(world.learn(of_cost(asked), world.spent(40)));
                            }
                        } else {
                            assert!(denies, "{context}");
                            let expected = Decision { source: Source::DenialCache, ..stores };
                            assert_eq!(answered, Some(expected), "{context}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn headroom_of_a_request_decides_whether_a_denial_is_over() {
    let world = World::of("10/10s token_bucket");
    let of_headroom = |headroom| Charge { headroom, ..check(b"k", 1) };
    assert!(world.learn(of_headroom(50), world.spent(6)));
    assert!(world.cache.answer(of_headroom(50)).is_some());
    // It fits without headroom, which the denial does not contradict.
    assert!(world.cache.answer(of_headroom(0)).is_none());
    assert!(world.cache.answer(of_headroom(50)).is_some());
    world.set(3_000_000);
    assert!(world.cache.answer(of_headroom(50)).is_none());
    assert!(world.cache.known.load(Ordering::Relaxed) == 0);
}

#[test]
fn only_checks_that_cost_something_are_answered() {
    let world = World::of("10/10s token_bucket");
    assert!(world.cache.answer(check(b"k", 1)).is_none() && !world.cache.denies(check(b"k", 1)));
    assert!(world.learn(check(b"k", 1), world.spent(10)));
    let peek = check(b"k", 1).peek();
    let other = Charge { id: PolicyId(6), ..check(b"k", 1) };
    for charge in [check(b"k", 0), peek, check(b"l", 1), other] {
        assert!(world.cache.answer(charge).is_none() && !world.cache.denies(charge), "{charge:?}");
    }
    assert!(world.cache.read_version(peek).is_none() && world.cache.read_version(check(b"k", 0)).is_none());
    assert_eq!(world.cache.answered(), 0);
    assert!(world.cache.answer(check(b"k", 1)).is_some() && world.cache.denies(check(b"k", 1)));
    assert_eq!(world.cache.answered(), 1);
    assert!(world.cache.answer(check(b"k", 2)).is_some());
    assert_eq!(world.cache.answered(), 2);
    assert!(world.cache.after_fork().answer(check(b"k", 1)).is_none());
    assert!(world.cache.after_fork().read_version(check(b"k", 1)).is_some());
}

#[test]
fn refund_or_reset_removes_the_key_and_refuses_denials_of_earlier_requests() {
    let world = World::of("10/10s token_bucket");
    let before = world.cache.read_version(check(b"k", 1)).unwrap();
    let learn = |version| {
        world.cache.learn(check(b"k", 1), version, world.channel, &world.call, Arc::new(world.spent(10)))
    };
    assert!(learn(before));
    world.cache.forget(check(b"k", 1), None);
    assert!(world.cache.answer(check(b"k", 1)).is_none() && world.cache.known.load(Ordering::Relaxed) == 0);
    assert!(!learn(before));
    assert!(learn(world.cache.read_version(check(b"k", 1)).unwrap()));
    // One that may still arrive at the store refuses the denials of requests made until then.
    world.cache.forget(check(b"k", 1), Some(LONG));
    assert!(world.cache.answer(check(b"k", 1)).is_none());
    assert!(world.cache.read_version(check(b"k", 1)).is_none());
    // A shorter time does not end that.
    world.cache.forget(check(b"k", 1), Some(Duration::ZERO));
    assert!(world.cache.read_version(check(b"k", 1)).is_none());
    let world = World::of("10/10s token_bucket");
    world.cache.forget(check(b"k", 1), Some(Duration::ZERO));
    let hash = world.cache.hash(check(b"k", 1));
    let until = world.cache.shard(hash).lock().unsure_until.unwrap();
    let is_sure = |at| world.cache.version_at(hash, at).is_some();
    assert!(!is_sure(until) && is_sure(until + Duration::from_nanos(1)));
}

#[test]
fn spending_removes_the_denial_and_does_not_refuse_others() {
    let world = World::of("10/10s token_bucket");
    let before = world.cache.read_version(check(b"k", 1)).unwrap();
    assert!(world.learn(check(b"k", 1), world.spent(10)) && world.learn(check(b"l", 1), world.spent(10)));
    world.cache.outdated(check(b"k", 1));
    assert!(world.cache.answer(check(b"k", 1)).is_none() && world.cache.answer(check(b"l", 1)).is_some());
    assert_eq!(world.cache.known.load(Ordering::Relaxed), 1);
    assert!(world.cache.learn(check(b"k", 1), before, world.channel, &world.call, Arc::new(world.spent(10))));
    assert!(world.cache.answer(check(b"k", 1)).is_some());
}

#[test]
fn invalidations_remove_the_keys_that_they_name() {
    let world = World::of("10/10s token_bucket");
    let learn = |key: &[u8], number| {
        let version = world.cache.read_version(check(key, 1)).unwrap();
        world.cache.learn(check(key, 1), version, channel(number), &world.call, Arc::new(world.spent(10)))
    };
    let is_cached = |key: &[u8]| world.cache.answer(check(key, 1)).is_some();
    let learn_all = || assert!(learn(b"a", 1) && learn(b"b", 2) && learn(b"c", 70));
    let known = || world.cache.known.load(Ordering::Relaxed);
    learn_all();
    assert_eq!(known(), 3);
    let channels = world.cache.channels();
    assert_eq!(channels.iter().collect::<Vec<_>>(), [channel(1), channel(2), channel(70)]);
    let before = world.cache.read_version(check(b"b", 1)).unwrap();
    world.cache.forget_where(|key| key == b"b");
    assert!(is_cached(b"a") && !is_cached(b"b") && is_cached(b"c") && known() == 2);
    // Any key may be meant by a message that a request has crossed.
    assert!(!world.cache.learn(check(b"b", 1), before, channel(2), &world.call, Arc::new(world.spent(10))));
    learn_all();
    let mut some = ChannelSet::default();
    some.insert(channel(70));
    world.cache.forget_channels(some);
    assert!(is_cached(b"a") && is_cached(b"b") && !is_cached(b"c") && known() == 2);
    learn_all();
    let before = world.cache.read_version(check(b"b", 1)).unwrap();
    world.cache.forget_all();
    assert!(!is_cached(b"a") && !is_cached(b"b") && !is_cached(b"c") && known() == 0);
    let learn_late =
        || world.cache.learn(check(b"b", 1), before, channel(2), &world.call, Arc::new(world.spent(10)));
    assert!(!learn_late());
    // Nor after one more.
    world.cache.forget_where(|_| false);
    assert!(!learn_late());
    assert!(world.cache.channels().is_empty());
}

#[test]
fn later_request_knows_more() {
    let world = World::of("10/10s token_bucket");
    let early = world.cache.read_version(check(b"k", 1)).unwrap();
    let late = ReadVersion { at: early.at + Duration::from_micros(1), ..early };
    let learn = |version, cost| {
        world.cache.learn(check(b"k", cost), version, world.channel, &world.call, Arc::new(world.spent(10)))
    };
    let cost = || {
        let shard = world.cache.shard(early.hash).lock();
        shard.table.iter().map(|known| known.cost).collect::<Vec<_>>()
    };
    assert!(learn(late, 1) && learn(early, 2));
    assert_eq!(cost(), [1]);
    assert!(learn(late, 3));
    assert_eq!(cost(), [3]);
    assert_eq!(world.cache.known.load(Ordering::Relaxed), 1);
}

#[test]
fn denial_expires() {
    let world = World::of("10/10s token_bucket");
    assert!(world.learn(check(b"k", 1), world.spent(10)));
    // Before the time of the reply the clock has gone back.
    world.clock.set(START_US - 1).unwrap();
    assert!(!world.cache.denies(check(b"k", 1)) && world.cache.answer(check(b"k", 1)).is_none());
    assert_eq!(world.cache.known.load(Ordering::Relaxed), 0);
    let world =
        World { cache: DenialCache::new(Duration::from_nanos(1), world.clock.clone().into()), ..world };
    world.set(0);
    assert!(world.learn(check(b"k", 1), world.spent(10)));
    std::thread::sleep(Duration::from_millis(1));
    assert!(!world.cache.denies(check(b"k", 1)));
    assert!(world.cache.channels().is_empty() && world.cache.known.load(Ordering::Relaxed) == 0);
    assert!(world.learn(check(b"k", 1), world.spent(10)));
    std::thread::sleep(Duration::from_millis(1));
    assert!(world.cache.answer(check(b"k", 1)).is_none() && world.cache.known.load(Ordering::Relaxed) == 0);
    // At its longest age it is over.
    let (younger, longest) = (Duration::from_nanos(2_999), Duration::from_micros(3));
    let world = World { cache: DenialCache::new(longest, world.clock.clone().into()), ..world };
    let version = world.cache.read_version(check(b"k", 1)).unwrap();
    assert!(world.learn(check(b"k", 1), world.spent(10)));
    let mut shard = world.cache.shard(version.hash).lock();
    shard.table.iter_mut().for_each(|known| known.asked = version.at);
    world.cache.drop_old(&mut shard, version.at + younger);
    assert_eq!(shard.table.len(), 1);
    world.cache.drop_old(&mut shard, version.at + longest);
    assert_eq!(shard.table.len(), 0);
    drop(shard);
    // Without an age there is no cache.
    let world = World { cache: DenialCache::new(Duration::ZERO, world.clock.clone().into()), ..world };
    assert!(world.cache.read_version(check(b"k", 1)).is_none());
    world.cache.forget(check(b"k", 1), None);
    assert!(world.cache.shards.iter().all(|shard| shard.lock().changes == 0));
}

/// The system's clock is not read: the time passes from the reply on.
#[test]
fn without_a_manual_clock_time_passes_from_the_reply_on() {
    let world = World::of("10/10s token_bucket");
    let cache = DenialCache::new(LONG, Clock::system());
    let version = cache.read_version(check(b"k", 1)).unwrap();
    let learn = |at| {
        let version = ReadVersion { at, ..version };
        cache.learn(check(b"k", 1), version, world.channel, &world.call, Arc::new(world.spent(10)))
    };
    assert!(learn(version.at));
    let decision = cache.answer(check(b"k", 1)).unwrap();
    assert!((1..=1_000_000).contains(&decision.wait_us), "{decision:?}");
    // Of a request that was made long before, the denial is over.
    if let Some(at) = version.at.checked_sub(Duration::from_micros(1)) {
        assert!(learn(at));
    }
}

#[test]
fn log_answers_the_denied_request_only() {
    let world = World::of("10/10s sliding_log");
    assert!(!world.learn(check(b"k", 2), world.spent(10)));
    assert!(world.learn(check(b"k", 1), world.spent(10)));
    let of_headroom = Charge { headroom: 10, ..check(b"k", 1) };
    assert!(world.cache.answer(check(b"k", 2)).is_none() && world.cache.answer(of_headroom).is_none());
    assert!(world.cache.answer(check(b"k", 1)).is_some());
    // A block of a key with an excess does not say how much of it is in use.
    let blocked = |world: &World| {
        let mut seen = world.spent(2);
        let hold = polylimit_rules::reservation::list::Hold::of_block(60_000_000);
        let operation = Operation::Block;
        let block = KeyOperation { now_us: START_US, operation, cost: 0, headroom: 0, hold: Some(&hold) };
        let _ = world.call.rules.decide(&mut seen.states, block, None);
        seen
    };
    assert!(world.learn(check(b"k", 1), blocked(&world)));
    let world = World::of("10/10s sliding_log excess=2");
    assert!(!world.learn(check(b"k", 1), blocked(&world)));
    assert!(world.learn(check(b"k", 1), world.spent(12)));
    let world = World::of("10/10s fixed_window excess=2");
    assert!(world.learn(check(b"k", 1), blocked(&world)) && world.learn(check(b"l", 2), world.spent(12)));
}

#[test]
fn of_a_policy_that_counts_denials_only_blocks_are_answered() {
    let minute_us = 60_000_000;
    let penalty = Penalty {
        denials: 1,
        within_us: minute_us,
        block_us: 1_000_000,
        max_us: minute_us,
        forget_us: minute_us,
    };
    let policy = Policy::parse("p", "2/hour fixed_window").unwrap().with_penalty(Some(penalty));
    let world = World::of_policy(&policy, LONG);
    let mut seen = world.spent(2);
    assert!(world.learn(check(b"k", 1), world.spent(2)));
    assert!(world.cache.answer(check(b"k", 1)).is_none() && world.cache.known.load(Ordering::Relaxed) == 0);
    let operation = Operation::Check;
    let denied = KeyOperation { now_us: START_US, operation, cost: 1, headroom: 0, hold: None };
    let _ = world.call.rules.decide(&mut seen.states, denied, None);
    assert!(world.learn(check(b"k", 1), seen));
    let decision = world.cache.answer(check(b"k", 1)).unwrap();
    assert_eq!(decision.cause, Some(polylimit_rules::decision::Cause::Blocked));
    world.set(999_999);
    assert!(world.cache.answer(check(b"k", 1)).is_some());
    world.set(1_000_000);
    assert!(world.cache.answer(check(b"k", 1)).is_none() && world.cache.known.load(Ordering::Relaxed) == 0);
}

#[test]
fn denial_by_other_quotas_of_the_key_is_no_answer() {
    let keys = crate::keys::KeyEncoder::new("polylimit", None);
    let prepare = |quotas: &str| {
        let (policy, outage) = (Policy::parse("p", quotas).unwrap(), polylimit_store::outage::Outage::Deny);
        let policy = Arc::new(crate::policies::RedisPolicy::of_keys(ID, &policy, &[], outage, &keys));
        let call = Arc::clone(&policy.call);
        (call, PreparedQuotas::new(RedisQuotas { policy, fallback: PreparedQuotas::new(()) }))
    };
    let (call, same) = prepare("10/10s token_bucket");
    let (_, other) = prepare("20/10s token_bucket");
    let world = World { call, ..World::of("10/10s token_bucket") };
    assert!(world.learn(check(b"k", 1), world.spent(10)));
    let by = |effective| Charge { effective: Some(effective), ..check(b"k", 1) };
    assert!(world.cache.answer(by(&same)).is_some() && world.cache.denies(by(&same)));
    assert!(world.cache.answer(by(&other)).is_none() && !world.cache.denies(by(&other)));
    assert_eq!(world.cache.known.load(Ordering::Relaxed), 1);
}

#[test]
fn shards_of_many_denials_keep_a_half_of_them() {
    let world = World::of("10/10s token_bucket");
    let denied = Arc::new(world.spent(10));
    let known = || world.cache.known.load(Ordering::Relaxed);
    let lengths = || world.cache.shards.iter().map(|shard| shard.lock().table.len()).collect::<Vec<_>>();
    let mut version = world.cache.read_version(check(b"k", 1)).unwrap();
    let mut learn = |number: u64, at| {
        // All in one shard, each of them found by a hash of its own.
        version = ReadVersion { hash: number, at, ..version };
        let key = number.to_be_bytes();
        assert!(world.cache.learn(check(&key, 1), version, world.channel, &world.call, Arc::clone(&denied)));
    };
    let now = monotonic::ticks();
    (0..1_024).for_each(|number| learn(number, now));
    assert_eq!((known(), lengths().into_iter().max().unwrap()), (1_024, 1_024));
    learn(1_024, now);
    assert_eq!((known(), lengths().into_iter().sum::<usize>()), (513, 513));
    // Those that are too old go first, and then nothing else has to.
    let world =
        World { cache: DenialCache::new(Duration::from_secs(3_600), world.clock.clone().into()), ..world };
    let version = world.cache.read_version(check(b"k", 1)).unwrap();
    let learn = |number: u64, at| {
        let version = ReadVersion { hash: number, at, ..version };
        let key = number.to_be_bytes();
        assert!(world.cache.learn(check(&key, 1), version, world.channel, &world.call, Arc::clone(&denied)));
    };
    let later = now + Duration::from_secs(3_600);
    (0..512).for_each(|number| learn(number, now));
    (512..1_024).for_each(|number| learn(number, later));
    learn(1_024, later);
    assert_eq!(world.cache.known.load(Ordering::Relaxed), 513);
    // The places of keys, and of a hash.
    let hash = |key: &[u8]| world.cache.hash(check(key, 1));
    assert!(hash(b"k") != hash(b"l") && hash(b"k") == hash(b"k"));
    let shard = |hash: u64| std::ptr::from_ref(world.cache.shard(hash));
    assert!(std::ptr::eq(shard(0), &raw const world.cache.shards[0]));
    assert!(std::ptr::eq(shard(3 << 48), &raw const world.cache.shards[3]));
    assert!(std::ptr::eq(shard(67 << 48), &raw const world.cache.shards[3]));
}
