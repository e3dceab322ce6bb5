//! The hub: connections, runtime and thread that limiters of this process with the same settings share.
//!
//! Limiters of one store need no more connections than a single limiter: their operations share batches. So there is
//! one hub for each combination of URL, options and credentials, created by its first limiter and closed with its last.
//! Everything else belongs to each limiter: policies, cached denials, leases, fallback states and counts.
//!
//! A limiter with a manual clock has its own hub, since its calls carry its time. A forked child has its own hubs.
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::config::Settings;
use crate::config::target::Credentials;
use crate::pipeline::pending::{Member, PendingOperation, PendingReply, QueuedCharge, ScriptRequest};
use crate::pipeline::server::Context;
use crate::routing::invalidation::Subscriber;
use crate::routing::runtimes::{Runtimes, Topology};
use crate::script::call::PolicyCall;
use crate::transport::cluster_slots::slot;
use crate::transport::failure::Failure;
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::Error;
use polylimit_rules::reservation::list::Hold;
use polylimit_runtime::clock::{Clock, ManualClock};
use polylimit_runtime::close_signal::closed;
use polylimit_runtime::fork::ProcessGeneration;
use polylimit_store::charge::Action;
use polylimit_store::stats::Stats;

#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) context: Arc<Context>,
    pub(crate) runtimes: Runtimes,
    pub(crate) subscriber: Arc<Subscriber>,
}

impl Hub {
    fn new(settings: &Settings, manual: Option<ManualClock>) -> Result<Arc<Self>, Error> {
        Ok(Self::of(settings, Context::new(settings, manual)?))
    }

    fn of(settings: &Settings, context: Context) -> Arc<Self> {
        let context = Arc::new(context);
        let endpoints = &settings.target.endpoints;
        let runtimes = Runtimes::new(endpoints.clone(), Arc::clone(&context));
        let subscriber = Subscriber::new(settings, Arc::clone(&context));
        Arc::new(Self { context, runtimes, subscriber })
    }

    /// A hub for one limiter in a forked child. Files that the parent has read are not read again: the child may lack
    /// the permission.
    fn after_fork(&self, settings: &Arc<Settings>) -> Arc<Self> {
        let made = || Self::of(settings, self.context.after_fork());
        if self.context.manual.is_some() {
            return made();
        }
        let Ok(hub) = Hubs::here().join_or(settings, || Ok::<_, Infallible>(made()));
        hub
    }

    /// Joins the hub of these settings for one more limiter, which [leaves](Self::leave) it later.
    fn join(settings: &Arc<Settings>, clock: &Clock) -> Result<Arc<Self>, Error> {
        match clock.manual() {
            Some(manual) => Self::new(settings, Some(manual.clone())),
            None => Hubs::here().join_or(settings, || Self::new(settings, None)),
        }
    }

    /// Leaves the hub for one limiter; the last one closes it.
    fn leave(self: &Arc<Self>, settings: &Arc<Settings>) {
        let mut shared = Hubs::here().shared.lock();
        if let Some((known, users)) = shared.get_mut(settings)
            && Arc::ptr_eq(known, self)
        {
            *users -= 1;
            if *users > 0 {
                return;
            }
            shared.remove(settings);
        }
        drop(shared);
        self.subscriber.close();
        self.context.switches.close();
        self.runtimes.close();
    }

    /// Moves one limiter to other settings, which differ only in these credentials. Other limiters keep theirs: so the
    /// limiter moves to another hub, unless it is the only limiter of this one.
    fn renew(
        self: &Arc<Self>,
        settings: &Arc<Settings>,
        renewed: &Arc<Settings>,
    ) -> Result<Arc<Self>, Error> {
        let hubs = Hubs::here();
        if hubs.rename(self, settings, renewed) {
            self.context.connector.credentials.store(renewed.target.credentials.clone().map(Arc::new));
            return Ok(Arc::clone(self));
        }
        let other = hubs.join_or(renewed, || Self::new(renewed, None))?;
        self.leave(settings);
        Ok(other)
    }
}

/// A hub, and the number of its limiters.
type Used = (Arc<Hub>, usize);

struct Hubs {
    generation: ProcessGeneration,
    /// Hubs by the settings of their limiters.
    shared: Mutex<HashMap<Arc<Settings>, Used, RandomState>>,
    /// The hubs of a forked child: the parent's lock may be held by a thread that does not exist in the child.
    after_fork: OnceLock<Box<Self>>,
}

impl Hubs {
    fn new() -> Self {
        Self { generation: ProcessGeneration::here(), shared: Mutex::default(), after_fork: OnceLock::new() }
    }

    fn here() -> &'static Self {
        static HUBS: OnceLock<Hubs> = OnceLock::new();
        let mut hubs = HUBS.get_or_init(Self::new);
        while !hubs.generation.is_here() {
            hubs = hubs.after_fork.get_or_init(|| Box::new(Self::new()));
        }
        hubs
    }

    /// Joins the hub of these settings; creates it if there is none.
    fn join_or<E>(
        &self,
        settings: &Arc<Settings>,
        made: impl FnOnce() -> Result<Arc<Hub>, E>,
    ) -> Result<Arc<Hub>, E> {
        let mut shared = self.shared.lock();
        if let Some((hub, users)) = shared.get_mut(settings) {
            *users += 1;
            return Ok(Arc::clone(hub));
        }
        let hub = made()?;
        shared.insert(Arc::clone(settings), (Arc::clone(&hub), 1));
        Ok(hub)
    }

    /// Changes the settings of a hub with a single limiter, if no other hub has the new settings.
    fn rename(&self, hub: &Arc<Hub>, settings: &Arc<Settings>, renamed: &Arc<Settings>) -> bool {
        let mut shared = self.shared.lock();
        match shared.get(settings) {
            Some((known, users)) if Arc::ptr_eq(known, hub) => {
                let is_alone = *users == 1 && !shared.contains_key(renamed);
                if is_alone && let Some(entry) = shared.remove(settings) {
                    shared.insert(Arc::clone(renamed), entry);
                }
                is_alone || settings == renamed
            }
            // A hub of a limiter with a manual clock.
            _ => true,
        }
    }
}

/// A limiter's access to the hub.
pub(crate) struct Access {
    pub(crate) member: Arc<Member>,
    pub(crate) deadline: Duration,
    /// The time within which an operation sent now may still arrive at a server.
    pub(crate) may_arrive_for: Duration,
    pub(crate) clock: Clock,
    settings: ArcSwap<Settings>,
    /// `None` once the limiter is closed.
    hub: ArcSwapOption<Hub>,
    /// Whether the limiter takes its configuration from this store.
    pub(crate) follows_configuration: AtomicBool,
    /// The hub's counts that the limiter has added to its own, or that are not its own; locked while the hub changes.
    before: Mutex<Stats>,
}

impl Access {
    pub(crate) fn new(settings: Settings, clock: Clock) -> Result<Arc<Self>, Error> {
        let settings = Arc::new(settings);
        let hub = Hub::join(&settings, &clock)?;
        Ok(Self::of(settings, clock, Some(hub)))
    }

    pub(crate) fn after_fork(&self) -> Arc<Self> {
        let settings = self.settings.load_full();
        let hub = self.hub.load_full().map(|hub| hub.after_fork(&settings));
        Self::of(settings, self.clock.clone(), hub)
    }

    fn of(settings: Arc<Settings>, clock: Clock, hub: Option<Arc<Hub>>) -> Arc<Self> {
        let most = usize::try_from(settings.max_in_flight).unwrap_or(usize::MAX);
        let before = hub.as_ref().map_or_else(Stats::default, |hub| hub.context.counters.read());
        Arc::new(Self {
            member: Member::new(most, settings.max_outstanding_bytes),
            deadline: settings.deadline,
            may_arrive_for: 2 * settings.deadline + settings.first_connect_max,
            clock,
            settings: ArcSwap::new(settings),
            hub: ArcSwapOption::new(hub),
            follows_configuration: AtomicBool::new(false),
            before: Mutex::new(before),
        })
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    pub(crate) fn hub(&self) -> Result<Arc<Hub>, Error> {
        self.hub.load_full().ok_or_else(closed)
    }

    /// Uses the hub in place. Unlike [`hub`](Self::hub) this counts no reference, which would take 20 ns on the path of every check.
    #[inline]
    pub(crate) fn with_hub<T>(&self, use_hub: impl FnOnce(&Hub) -> Result<T, Error>) -> Result<T, Error> {
        self.hub.load().as_deref().map_or_else(|| Err(closed()), use_hub)
    }

    /// Uses other credentials for this limiter's new connections; other limiters keep theirs.
    pub(crate) fn set_credentials(&self, credentials: Credentials) -> Result<(), Error> {
        let mut before = self.before.lock();
        let (hub, settings) = (self.hub()?, self.settings());
        let mut renewed = Settings::clone(&settings);
        (renewed.target.credentials, renewed.target.changing) = (Some(credentials), None);
        let renewed = Arc::new(renewed);
        let other = hub.renew(&settings, &renewed)?;
        self.settings.store(renewed);
        if !Arc::ptr_eq(&hub, &other) {
            self.settle(&hub, &mut before);
            *before = other.context.counters.read();
            self.hub.store(Some(other));
        }
        Ok(())
    }

    /// Submits an operation on a main key to the connections, or refuses it when too many are pending. It is answered by
    /// its deadline.
    pub(crate) fn submit(
        &self,
        topology: &Topology,
        call: &Arc<PolicyCall>,
        key: Vec<u8>,
        (action, cost, headroom, hold): (Action, u64, u8, Option<&Hold>),
        until: Until,
    ) -> PendingReply {
        let charge = QueuedCharge { call: Arc::clone(call), key, action, cost, headroom, decides: true };
        self.submit_charges(topology, charge, Box::default(), hold, until)
    }

    /// Submits the charges of a request, whose keys have one slot, as one operation.
    pub(crate) fn submit_charges(
        &self,
        topology: &Topology,
        first: QueuedCharge,
        others: Box<[QueuedCharge]>,
        hold: Option<&Hold>,
        until: Until,
    ) -> PendingReply {
        let keys = first.key.len() + others.iter().map(|other| other.key.len()).sum::<usize>();
        let Some(permit) = self.member.permit(keys) else {
            self.member.counters.shed.add(1);
            return PendingReply(Err(Failure::not_applied(Degradation::Shed)));
        };
        let slot = if topology.is_cluster() { slot(&first.key) } else { 0 };
        let (until, is_first, in_background) = match until {
            Until::Deadline(until) => (until, false, true),
            Until::DeadlineOrFirst(deadline) => match topology.first_connect_until(slot) {
                Some(first) => (deadline.max(first + self.deadline), true, false),
                None => (deadline, false, false),
            },
        };
        let QueuedCharge { call, key, action, cost, headroom, decides } = first;
        let hold = hold.map(|hold| Box::new(*hold));
        let wanted = ScriptRequest {
            call,
            key,
            slot,
            action,
            cost,
            headroom,
            hold,
            decides,
            others,
            until,
            is_first,
            in_background,
        };
        let operation = PendingOperation::new(wanted, permit);
        topology.submit(Arc::clone(&operation));
        operation.end_if_closed();
        PendingReply(Ok(operation))
    }

    /// Answers the pending operations of this limiter, which is closed.
    pub(crate) fn end_waiting(&self) {
        self.member.close();
        if let Some(hub) = self.hub.load_full() {
            hub.runtimes.end_waiting(&self.member);
        }
    }

    pub(crate) fn leave(&self) {
        let mut before = self.before.lock();
        if let Some(hub) = self.hub.swap(None) {
            self.settle(&hub, &mut before);
            hub.leave(&self.settings());
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut before = self.before.lock();
        if let Some(hub) = self.hub.load_full() {
            self.settle(&hub, &mut before);
        }
        self.member.counters.read()
    }

    /// Adds what the hub has counted since it was last added to the limiter's counts.
    fn settle(&self, hub: &Hub, before: &mut Stats) {
        let (now, counters) = (hub.context.counters.read(), &self.member.counters);
        counters.connections.add(now.connections - before.connections);
        counters.connections_lost.add(now.connections_lost - before.connections_lost);
        counters.breaker_opened.add(now.breaker_opened - before.breaker_opened);
        *before = now;
    }
}

/// Does not show settings: they contain secrets.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("member", &self.member).finish_non_exhaustive()
    }
}

/// The time limit of an operation.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    /// This moment: for background operations, which continue while the limiter is being closed.
    Deadline(Instant),
    /// This deadline, or longer while a server has never been connected to: for operations of callers.
    DeadlineOrFirst(Instant),
}
