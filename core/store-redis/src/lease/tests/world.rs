//! The leases of a process, by a manual clock, on a server of the tests.

use std::thread;

use super::server::Server;
use crate::config::RedisOptions;
use crate::lease::*;
use polylimit_rules::algorithm::State;
use polylimit_rules::codec::States;
use polylimit_rules::policy::Policy;
use polylimit_runtime::clock::{Clock, ManualClock};
use polylimit_runtime::park;
use polylimit_store::charge::{PolicyId, PolicyOptions};
use polylimit_store::lease_size::Lease;
use polylimit_store::share::Ppm;

pub(super) const START_US: u64 = 1_700_000_000_000_000;
pub(super) const ID: PolicyId = PolicyId(0);
pub(super) const OTHER: PolicyId = PolicyId(1);
pub(super) const AGE: Duration = Duration::from_millis(100);
/// The deadline of operations, and the age of denials.
pub(super) const LONG: Duration = Duration::from_secs(20);
/// How long a loaded machine may take for what happens in the background.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// Units of it neither expire nor are repaid in these tests.
pub(super) const YEAR: &str = "100000/52w fixed_window";

/// The leases of a process.
pub(super) struct World {
    pub(super) server: Server,
    pub(super) clock: ManualClock,
    pub(super) leases: Arc<Leases>,
}

pub(super) fn deps(url: &str, clock: Clock) -> LeaseDeps {
    let settings = RedisOptions::parse(url).unwrap().settings().unwrap();
    LeaseDeps {
        policies: Arc::new(Policies::new(Outage::Deny)),
        keys: KeyEncoder::new(&settings.prefix, None),
        outage: Arc::new(Fallback::new(Ppm::ALL, clock.clone(), 100, |_| None)),
        denial_cache: Arc::new(DenialCache::new(LONG, clock.clone())),
        access: Access::new(settings, clock).unwrap(),
    }
}

impl World {
    pub(super) fn new(quotas: &str) -> Self {
        Self::with_options(quotas, "")
    }

    pub(super) fn with_options(quotas: &str, options: &str) -> Self {
        let (server, port) = Server::start();
        let clock = ManualClock::new(START_US).unwrap();
        let url = format!("redis://127.0.0.1:{port}?deadline=20s&doctor_after=0{options}");
        let world = Self { server, leases: Leases::new(deps(&url, clock.clone().into())), clock };
        world.set_policy(ID, quotas, Some(Lease::new(1_000, AGE).unwrap()));
        world
    }

    /// A process whose operations all fail at once.
    pub(super) fn without_server() -> Self {
        let world = Self::new(YEAR);
        world.leases.deps.access.leave();
        world
    }

    pub(super) fn set_policy(&self, id: PolicyId, quotas: &str, lease: Option<Lease>) -> Arc<RedisPolicy> {
        let LeaseDeps { policies, keys, access, .. } = &self.leases.deps;
        let policy = Policy::parse(&format!("p{}", id.0), quotas).unwrap();
        policies.set(id, &policy, PolicyOptions { lease, ..PolicyOptions::default() }, keys, &access.clock);
        self.policy(id)
    }

    pub(super) fn policy(&self, id: PolicyId) -> Arc<RedisPolicy> {
        self.leases.deps.policies.get(id).unwrap()
    }

    /// Changes the quotas of a policy as a store does.
    pub(super) fn change_policy(&self, id: PolicyId, quotas: &str) {
        let before = self.policy(id);
        self.leases.renumbered(id, &before.policy, &self.set_policy(id, quotas, None));
    }

    /// The decision on a key that was never seen.
    pub(super) fn fresh(&self) -> Decision {
        let policy = self.policy(ID);
        let states = policy.policy.quotas().iter().map(State::fresh).collect::<States>();
        policy.call.rules.view(&states, START_US)
    }

    /// Begins a take of a key that is leased.
    pub(super) fn begin_take(&self, charge: Charge<'_>, units: u64) {
        let missed = |it: &mut KeyLease| it.missed(0, 100_000, 0, self.leases.now_us());
        let mut take = self.leases.with_lease(charge, missed).flatten().unwrap();
        take.units = units;
        self.leases.take(self.lease_key(charge), take);
    }

    pub(super) fn ask(&self, charge: Charge<'_>) -> OperationResult {
        let until = self.leases.deadline();
        let reply = self.leases.submit(&self.lease_key(charge), charge.action, charge.cost, until);
        park::block_on(reply.unwrap())
    }

    pub(super) fn lease_key(&self, charge: Charge<'_>) -> LeaseKey {
        LeaseKey::of(charge, self.leases.hash(charge))
    }

    /// The units of a key that the store counts.
    pub(super) fn used(&self, charge: Charge<'_>) -> u64 {
        100_000 - self.ask(charge.peek()).unwrap().decision.remaining()
    }

    /// The store admitted a check.
    pub(super) fn admitted(&self, charge: Charge<'_>) -> Option<Channel> {
        let asked_us = self.leases.now_us();
        let decision = self.ask(charge).unwrap().decision;
        assert!(decision.allowed);
        self.leases.admitted(charge, &self.policy(charge.id), &decision, asked_us)
    }

    /// Checks, and waits for the take that follows. Returns whether a lease paid for it.
    pub(super) fn check(&self, charge: Charge<'_>) -> bool {
        let is_leased = self.leases.answer(charge).is_some();
        if !is_leased {
            self.admitted(charge);
        }
        self.settle();
        is_leased
    }

    pub(super) fn settle(&self) {
        until("no take is in flight", || self.leases.taking.load(Ordering::Acquire) == 0);
    }

    /// Gives a key a lease of this many units at least; returns how many checks that took.
    pub(super) fn lease(&self, charge: Charge<'_>, units: u64) -> u64 {
        let is_leased = |_: &u64| {
            self.check(charge);
            self.leases.units(charge) >= units
        };
        (1..1_000).find(is_leased).unwrap()
    }

    /// The units that are held, returned and lost.
    pub(super) fn units(&self) -> [u64; 3] {
        let LeaseStats { held, returned, lost, .. } = self.leases.stats();
        [held, returned, lost]
    }

    pub(super) fn until_units(&self, expected: [u64; 3]) {
        until(&format!("the units are {expected:?}"), || self.units() == expected);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.heal();
        self.leases.deps.access.leave();
    }
}

pub(super) fn check(key: &str) -> Charge<'_> {
    Charge::new(ID, key.as_bytes(), Action::Apply(Operation::Check), 1)
}

pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WAIT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Gives the units of a key back on a thread of its own.
pub(super) fn give_back(world: &World, key: &'static str) -> thread::JoinHandle<()> {
    let (leases, until) = (Arc::clone(&world.leases), Instant::now() + LONG);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(leases.give_back(check(key), until));
    })
}
