//! The state that the clones of a limiter share, and how a caller's request becomes a request to the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::limiter::configured::Configured;
use crate::limiter::degradation_watch::DegradationWatch;
use crate::limiter::event::DegradedEvent;
use crate::limiter::observed::Observed;
use crate::limiter::registry::Registry;
use crate::limiter::renewal::Renewals;
use crate::limiter::tally::Tally;
use crate::limiter::wait_queue::WaitQueues;
use crate::store::Store;
use polylimit_rules::decision::{Decision, Usage};
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::list::{AS_RESERVED, Hold, ReservationTerms};
use polylimit_rules::transition::Operation;
use polylimit_rules::units::micros;
use polylimit_runtime::close_signal::{CloseSignal, closed};
use polylimit_runtime::driver::Driver;
use polylimit_runtime::fork::{self, ProcessGeneration};
use polylimit_store::charge::{Action, Charge, PolicyOptions, StoreAnswer, StoreAnswers, Wait, only};
use polylimit_store::stats::Stats;

/// The state that a limiter's clones in one process share.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    /// The configuration and its state.
    pub(crate) configured: Configured,
    pub(crate) store: Store,
    pub(crate) tally: Tally,
    /// The waiting callers of `acquire`, by key.
    pub(crate) wait_queues: WaitQueues,
    /// The reservations that are renewed while their handles live.
    pub(crate) renewals: Arc<Renewals>,
    /// Detects whether the store decides.
    pub(crate) watch: Arc<DegradationWatch>,
    /// Ends waits for anything but the store's answer when the limiter is closed.
    pub(crate) closing: CloseSignal,
    /// Counts keys, if the limiter is built to do so.
    pub(crate) observed: Option<Box<Observed>>,
    /// Drives the timers of waiting callers for a store that needs no runtime itself.
    timers: OnceLock<Arc<Driver>>,
    pub(crate) generation: ProcessGeneration,
    /// Whether this process has leaked this because it belongs to its parent.
    is_left: AtomicBool,
    /// The replacement in a process that was forked from this one.
    after_fork: OnceLock<Box<Shared>>,
}

impl Shared {
    pub(crate) fn new(store: Store, watch: Arc<DegradationWatch>, observe_keys: usize) -> Self {
        if let Store::Local(store) = &store {
            let watch = Arc::downgrade(&watch);
            store.report_to(move |finding| {
                if let Some(watch) = watch.upgrade() {
                    watch.publish(DegradedEvent::Finding(finding));
                }
            });
        }
        Self {
            registry: Registry::default(),
            configured: Configured::default(),
            store,
            tally: Tally::new(),
            watch,
            wait_queues: WaitQueues::default(),
            renewals: Arc::default(),
            closing: CloseSignal::default(),
            observed: Observed::new(observe_keys).map(Box::new),
            timers: OnceLock::new(),
            generation: ProcessGeneration::here(),
            is_left: AtomicBool::new(false),
            after_fork: OnceLock::new(),
        }
    }

    /// This, or its replacement in a forked child.
    #[inline]
    pub(crate) fn here(&self) -> &Self {
        if self.generation.is_here() { self } else { self.after_fork() }
    }

    /// The replacement in a forked child. It uses nothing that the parent has open or locked.
    #[cold]
    fn after_fork(&self) -> &Self {
        let after_fork = self.after_fork.get().unwrap_or_else(|| {
            let store = self.store.after_fork(&self.registry.policies());
            let registry = self.registry.after_fork();
            let configured = self.configured.after_fork();
            let observed = self.observed.as_ref().map_or(0, |observed| observed.keys());
            let made = Self::new(store, self.watch.after_fork(), observed);
            let made = Box::new(Self { registry, configured, ..made });
            fork::once(&self.after_fork, || made)
        });
        after_fork.go_on_following(self);
        // The replacement may itself belong to the parent, when this process is a grandchild.
        after_fork.here()
    }

    /// Leaks what belongs to the parent process, by one clone that is never dropped.
    #[cold]
    pub(crate) fn leave(self: &Arc<Self>) {
        if !self.is_left.swap(true, Ordering::Relaxed) {
            fork::leave(Arc::clone(self));
        }
    }

    /// A runtime of our own with a thread that drives it permanently, for futures that other executors poll.
    pub(crate) fn driver(&self) -> Result<Arc<Driver>, Error> {
        let driver = match &self.store {
            Store::Redis(store) => store.driver()?,
            Store::Memory(_) | Store::Local(_) | Store::Custom(_) => Arc::clone(self.timers()?),
        };
        driver.run_for_good()?;
        Ok(driver)
    }

    /// A runtime of our own, for a thread that blocks on it.
    pub(crate) fn driver_to_wait_on(&self) -> Result<Arc<Driver>, Error> {
        match &self.store {
            Store::Redis(store) => store.driver_to_wait_on(),
            Store::Memory(_) | Store::Local(_) | Store::Custom(_) => self.timers().cloned(),
        }
    }

    fn timers(&self) -> Result<&Arc<Driver>, Error> {
        let driver = if let Some(driver) = self.timers.get() {
            driver
        } else {
            let driver = Arc::new(Driver::new()?);
            self.timers.get_or_init(|| driver)
        };
        if self.closing.is_closed() {
            // The limiter may have been closed while the driver was made.
            driver.close();
            return Err(closed());
        }
        Ok(driver)
    }

    /// Closes the limiter: callers that wait get an error, and its resources are released.
    pub(crate) fn close(&self) {
        if !self.registry.close() {
            return;
        }
        self.closing.close();
        self.renewals.changed.notify_one();
        self.watch.close();
        self.configured.close();
        self.store.close();
        if let Some(timers) = self.timers.get() {
            timers.close();
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The number of keys with a state in a store of this process or host.
    pub(crate) fn keys(&self) -> Option<usize> {
        match &self.store {
            Store::Memory(store) => Some(store.keys()),
            Store::Local(store) => store.keys(),
            Store::Redis(_) | Store::Custom(_) => None,
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = match &self.store {
            Store::Memory(_) => Stats::default(),
            Store::Local(store) => store.stats(),
            Store::Custom(store) => store.stats(),
            // It counts what it answers itself.
            Store::Redis(store) => return store.stats(),
        };
        stats.applied = self.tally.read().answered_by_store();
        stats
    }

    /// Checks a request's bounds and finds its policy.
    #[inline]
    pub(crate) fn request<'a>(&self, action: Action, request: Request<'a>) -> Result<Charge<'a>, Error> {
        let request = request.checked()?;
        let id = self.registry.id(request.policy, &self.store)?;
        if self.registry.has_concurrency() {
            self.registry.refuse_unreserved(id, action)?;
        }
        let (Request { key, cost, .. }, headroom) = (request, headroom_of(action, &request));
        Ok(Charge { headroom, ..Charge::new(id, key, action, cost) })
    }

    /// Checks the bounds of a request that may concern a reservation, and finds its policy.
    pub(crate) fn key_request<'a>(&self, call: &'a KeyCall<'a>) -> Result<Charge<'a>, Error> {
        let KeyCall { action, request, hold } = call;
        let Some(hold) = hold else { return self.request(*action, *request) };
        check_hold(*action, request, hold)?;
        let id = self.registry.id(request.policy, &self.store)?;
        if *action != BLOCK {
            self.registry.refuse_reserved(id, &self.store)?;
        }
        let (Request { key, cost, .. }, headroom) = (*request, headroom_of(*action, request));
        Ok(Charge { headroom, hold: Some(hold), ..Charge::new(id, key, *action, cost) })
    }

    /// The answer of a store in this process or on this host; `None`, before any effect, where the caller has to wait. The caller counts the
    /// decision of a check or a reserve.
    #[inline]
    pub(crate) fn try_start(&self, charge: Charge<'_>) -> Result<Option<StoreAnswer>, Error> {
        let answer = self.store.try_start(charge).transpose()?;
        if let Some(answer) = &answer {
            self.answered(charge, answer);
        }
        Ok(answer)
    }

    /// The store's answers to charges, of which all are applied or none. The caller counts the decisions of checks and reserves.
    pub(crate) async fn start(&self, charges: &[Charge<'_>], wait: Wait) -> Result<StoreAnswers, Error> {
        let answers = self.store.start(charges, wait).await?;
        for (charge, answer) in charges.iter().zip(&answers) {
            self.answered(*charge, answer);
        }
        Ok(answers)
    }

    /// [`start`](Self::start) for one charge.
    pub(crate) async fn start_one(&self, charge: Charge<'_>, wait: Wait) -> Result<StoreAnswer, Error> {
        match self.try_start(charge)? {
            Some(answer) => Ok(answer),
            None => only(self.start(&[charge], wait).await?),
        }
    }

    /// Records an answer of the store, and counts it if it is not a decision. A refund, a reset, the end of a
    /// reservation and that of a block may admit waiting callers sooner, so it wakes them.
    #[inline]
    pub(crate) fn answered(&self, charge: Charge<'_>, answer: &StoreAnswer) {
        self.see(&answer.0);
        self.count_operation(charge.id, charge.action, charge.cost, answer);
        let gives_back = matches!(
            charge.action,
            Action::Apply(Operation::Refund | Operation::Commit | Operation::Cancel | Operation::Block)
                | Action::Reset
        );
        if gives_back {
            self.wait_queues.wake(charge.id, charge.key);
        }
    }

    /// Records whether the store decided, and starts the doctor when it is time.
    #[inline]
    fn see(&self, decision: &Decision) {
        if self.watch.see(decision, &self.store)
            && let Some(doctor) = self.store.doctor_for_all()
        {
            self.watch.examine(doctor);
        }
    }

    /// The shortest path of a check: the policy is found without a lookup, and the memory store or a cache answers.
    /// `None` for every other check.
    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than deciding"
    )]
    #[inline(always)]
    pub(crate) fn check_known(&self, request: Request<'_>) -> Option<Decision> {
        if !request.is_valid() || !request.is_plain() {
            return None;
        }
        let Request { key, policy, cost, .. } = request;
        let id = self.registry.known_id(policy);
        match &self.store {
            Store::Memory(store) => {
                let id = id?;
                let decision = store.check_known(id, key, cost)?;
                self.count_known(id, key, cost, &decision);
                Some(decision)
            }
            Store::Redis(store) if !self.registry.is_configured() => {
                let id = id.or_else(|| self.registry.find(policy))?;
                let (decision, _) = store.ask_caches(Charge::new(id, key, CHECK, cost))?;
                let decision = decision.by_fields();
                self.count_known(id, key, cost, &decision);
                Some(decision)
            }
            Store::Redis(_) | Store::Local(_) | Store::Custom(_) => None,
        }
    }

    /// The caches' answer to each check, and the checks that they do not answer, for the store.
    pub(crate) fn ask_caches<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> (Vec<Result<Option<StoreAnswer>, Error>>, Vec<Charge<'a>>) {
        let requests = requests.into_iter();
        let mut asked = Vec::with_capacity(requests.size_hint().0);
        let ask = |request: R| {
            let charge = self.request(CHECK, request.into())?;
            let cached = self.store.ask_caches(charge);
            match &cached {
                Some(answer) => self.count_decision(&charge, answer),
                None => asked.push(charge),
            }
            Ok(cached)
        };
        (requests.map(ask).collect(), asked)
    }

    /// The decision on each check: the answer of a cache, or the next one of the store.
    pub(crate) fn decisions(
        &self,
        cached: Vec<Result<Option<StoreAnswer>, Error>>,
        asked: &[Charge<'_>],
        answers: Result<Vec<StoreAnswer>, Error>,
    ) -> Vec<Result<Decision, Error>> {
        let mut answers = answers.map(|answers| asked.iter().zip(answers));
        let decide = |cached: Result<Option<StoreAnswer>, Error>| {
            if let Some((decision, _)) = cached? {
                self.see(&decision);
                return Ok(decision);
            }
            let answers = answers.as_mut().map_err(|error| error.clone())?;
            let (charge, answer) = answers.next().ok_or_else(Error::no_answer)?;
            self.count_decision(charge, &answer);
            self.see(&answer.0);
            Ok(answer.0)
        };
        cached.into_iter().map(decide).collect()
    }

    pub(crate) fn set_policy(&self, policy: &Policy, options: PolicyOptions) -> Result<(), Error> {
        self.registry.check_open()?;
        let id = self.registry.set(policy, options, &self.store)?;
        self.wait_queues.wake_all(id);
        Ok(())
    }
}

/// The headroom of an operation that decides; 0 for all others.
#[inline]
pub(crate) fn headroom_of(action: Action, request: &Request<'_>) -> u8 {
    let decides = matches!(action, Action::Apply(Operation::Check | Operation::Peek | Operation::Reserve));
    if decides { request.headroom } else { 0 }
}

/// Rejects arguments that are out of bounds for an operation on a reservation.
pub(crate) fn check_hold(action: Action, request: &Request<'_>, hold: &Hold) -> Result<(), Error> {
    let has_ttl = matches!(action, Action::Apply(Operation::Reserve | Operation::Renew));
    if has_ttl {
        check_times(hold)?;
    }
    if action == BLOCK {
        check_block(hold.ttl_us)?;
    }
    // A commit of what was reserved has a cost of its own.
    let is_as_reserved = action == Action::Apply(Operation::Commit) && request.cost == AS_RESERVED;
    let cost = if is_as_reserved { 0 } else { request.cost };
    Request { cost, ..*request }.checked()?;
    Ok(())
}

/// Rejects times that are out of bounds for a reservation.
pub(crate) fn check_times(Hold { ttl_us, remember_us, .. }: &Hold) -> Result<(), Error> {
    let allowed = ReservationTerms::MIN_TTL_US..=ReservationTerms::MAX_TTL_US;
    if !allowed.contains(ttl_us) {
        return Err(Error::invalid_argument(format!(
            "the ttl of a reservation is {ttl_us} us: allowed is 1 ms to 48 h"
        )));
    }
    if *remember_us > 0 && !allowed.contains(remember_us) {
        return Err(Error::invalid_argument(format!(
            "a commit is remembered for {remember_us} us: allowed is 1 ms to 48 h, or 0 not to remember it"
        )));
    }
    Ok(())
}

fn check_block(time_us: u64) -> Result<(), Error> {
    if time_us == 0 || (Hold::MIN_BLOCK_US..=Hold::MAX_BLOCK_US).contains(&time_us) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "a key is blocked for {time_us} us: allowed is 1 ms to 366 days, or 0 to forget the block"
    )))
}

/// An operation on one key as a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCall<'a> {
    pub(crate) action: Action,
    pub(crate) request: Request<'a>,
    /// The reservation, for operations on one, or the time of a block.
    pub(crate) hold: Option<Hold>,
}

impl<'a> KeyCall<'a> {
    pub(crate) fn block(request: Request<'a>, time: Duration) -> Self {
        Self { action: BLOCK, request, hold: Some(Hold::of_block(micros(time))) }
    }
}

pub(crate) const CHECK: Action = Action::Apply(Operation::Check);
pub(crate) const PEEK: Action = Action::Apply(Operation::Peek);
pub(crate) const CHARGE: Action = Action::Apply(Operation::Charge);
pub(crate) const RESERVE: Action = Action::Apply(Operation::Reserve);
pub(crate) const BLOCK: Action = Action::Apply(Operation::Block);

pub(crate) fn usage((decision, spent): StoreAnswer) -> Usage {
    decision.into_usage(spent)
}
