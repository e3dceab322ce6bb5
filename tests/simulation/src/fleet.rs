//! The fleet: thousands of real limiters in one thread, on a simulated network with one model server.
//!
//! Everything is in tokio's paused time, and a seed decides everything. The server runs the real scripts; its queue and its times of
//! service are a model (`server.rs`), so that its CPU is that of a measured server, whatever this machine takes for the run. docs/fleet.md
//! has the results.

mod admissions;
pub mod arguments;
pub mod events;
mod network;
pub mod report;
mod server;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use hdrhistogram::Histogram;
use polylimit::clock::Clock;
use polylimit::testing::simulation;
use polylimit::{Decision, Limiter, Policy, Request};
use polylimit_simulation::OpenLoop;
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::fleet::admissions::Admissions;
use crate::fleet::events::{Event, What};
use crate::fleet::network::{Delivery, FleetMachine, Network, SharedNetwork};
use crate::fleet::report::{Report, Shares};
use crate::fleet::server::{ENTRY_NS, FleetServer, LONE_NS};
use crate::world::START_US;

/// How often the timers of the limiters are looked at where nothing else happens; they count milliseconds.
const TICK_US: u64 = 1_000;
/// How long answers are waited for at the end.
const DRAIN_US: u64 = 500_000;
/// How often it is looked how many units are idle in leases.
const SAMPLE_US: u64 = 1_000_000;

/// Limiters with equal options share connections, also with those of another run in this process: so each has a number.
static MADE: AtomicU64 = AtomicU64::new(0);

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of processes, each with a limiter of its own.
    pub processes: usize,
    /// The policy of all requests.
    pub policy: Policy,
    /// The requests of the whole fleet, as `polylimit simulate --traffic` takes them. Each request goes to a process by chance.
    pub traffic: String,
    /// How long requests come.
    pub lasts: Duration,
    /// The lease of the policy, such as `auto`.
    pub lease: Option<polylimit::redis::Lease>,
    /// Decides everything that is random.
    pub seed: u64,
    /// What happens meanwhile.
    pub events: Vec<Event>,
    /// Refunds of one unit in a second, of clients and by processes by chance.
    pub refunds_each_second: u32,
    /// The time to the server and back, without its queue.
    pub round_trip: Duration,
}

/// What processes have received.
struct Tally {
    sources: BTreeMap<&'static str, u64>,
    admitted: Vec<u64>,
    requests: Vec<u64>,
    /// The first failure; a run without defects has none.
    error: Option<String>,
    latencies: Histogram<u64>,
    admissions: Admissions,
    /// When an outage policy last answered.
    last_outage_us: Option<u64>,
    held: (u64, u64),
    samples: u64,
}

#[derive(Clone)]
struct SharedTally(Arc<Mutex<Tally>>);

impl SharedTally {
    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn fail(&mut self, error: &polylimit::Error) {
        self.error.get_or_insert_with(|| error.to_string());
    }

    fn tell(
        &mut self,
        process: usize,
        client: usize,
        cost: u64,
        decision: &Decision,
        from_us: u64,
        now_us: u64,
    ) {
        *self.sources.entry(decision.source().name()).or_default() += 1;
        let _ = self.latencies.record((now_us - from_us).max(1));
        self.requests[process] += 1;
        if decision.source().is_outage() {
            self.last_outage_us = Some(now_us);
        }
        if decision.allowed() {
            self.admitted[process] += cost;
            self.admissions.admit(client, now_us, cost);
        }
    }
}

/// Runs a fleet.
///
/// # Errors
/// The traffic cannot be read, a limiter cannot be made, or an operation fails.
pub fn run(settings: &Settings) -> Result<Report, String> {
    let end_us = settings.lasts.as_micros() as u64;
    let arrivals =
        OpenLoop::new(&settings.traffic, settings.seed, end_us).map_err(|error| error.to_string())?;
    let began = std::time::Instant::now();
    // `yield_now` of the run then returns only when no task of the fleet is ready any more.
    let runtime =
        Builder::new_current_thread().enable_all().start_paused(true).event_interval(1 << 30).build();
    let runtime = runtime.map_err(|error| format!("no runtime can be made: {error}"))?;
    let mut report = runtime.block_on(Fleet::run(settings, arrivals))?;
    report.wall_seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// A fleet that runs.
struct Fleet<'a> {
    settings: &'a Settings,
    began: Instant,
    network: SharedNetwork,
    server: FleetServer,
    limiters: Vec<Limiter>,
    keys: Vec<Arc<str>>,
    tally: SharedTally,
    random: Rng,
    /// For each outage when it ended and, once known, when the last answer of an outage policy came after that.
    recoveries_us: Vec<(u64, u64)>,
}

impl<'a> Fleet<'a> {
    async fn run(settings: &'a Settings, arrivals: OpenLoop) -> Result<Report, String> {
        let round_trip_us = settings.round_trip.as_micros() as u64;
        let network = SharedNetwork::new(Network::new(settings.processes, round_trip_us, settings.seed));
        let _entered = simulation::enter(Rc::new(FleetMachine::new(network.clone(), settings.seed)));
        let keys: Vec<Arc<str>> = arrivals.keys().map(Arc::from).collect();
        let limiters: Result<Vec<_>, _> =
            (0..settings.processes).map(|number| limiter(settings, number)).collect();
        let latencies = Histogram::new(3).map_err(|error| error.to_string())?;
        let tally = Tally {
            sources: BTreeMap::new(),
            admitted: vec![0; settings.processes],
            requests: vec![0; settings.processes],
            error: None,
            latencies,
            admissions: Admissions::new(&settings.policy, keys.len()),
            last_outage_us: None,
            held: (0, 0),
            samples: 0,
        };
        let mut fleet = Self {
            settings,
            began: Instant::now(),
            network,
            server: FleetServer::new(),
            limiters: limiters.map_err(|error| error.to_string())?,
            keys,
            tally: SharedTally(Arc::new(Mutex::new(tally))),
            random: Rng::with_seed(settings.seed),
            recoveries_us: Vec::new(),
        };
        fleet.drive(arrivals).await;
        if let Some(error) = &fleet.tally.lock().error {
            return Err(format!("an operation failed: {error}"));
        }
        if let Some(error) = &fleet.server.error {
            return Err(format!("the model server replied an error: {error}"));
        }
        Ok(fleet.report())
    }

    /// Takes one thing after the other, in the order of their times.
    async fn drive(&mut self, arrivals: OpenLoop) {
        let mut arrivals = arrivals.peekable();
        let end_us = self.settings.lasts.as_micros() as u64;
        let mut changes = changes(&self.settings.events);
        let refund_us = 1_000_000_u64.checked_div(u64::from(self.settings.refunds_each_second));
        let (mut tick_us, mut sample_us) = (TICK_US, SAMPLE_US);
        let mut next_refund_us = refund_us;
        loop {
            let delivered_us = self.network.lock().next_at_us();
            let arrival_us = arrivals.peek().map(|arrival| arrival.time_us);
            let change_us = changes.first().map(|(at_us, ..)| *at_us);
            let all = [delivered_us, arrival_us, change_us, next_refund_us, Some(tick_us)];
            let now_us = all.into_iter().flatten().min().unwrap_or(tick_us);
            if now_us > end_us + DRAIN_US {
                break;
            }
            self.advance(now_us).await;
            while let Some((_, event, begins)) =
                changes.first().copied().filter(|(at_us, ..)| *at_us <= now_us)
            {
                changes.remove(0);
                self.change(&event, begins, now_us);
            }
            self.deliver(now_us);
            while let Some(arrival) = arrivals.next_if(|arrival| arrival.time_us <= now_us) {
                self.ask(arrival.client as usize, arrival.cost);
            }
            if let Some(at_us) = next_refund_us.filter(|at_us| *at_us <= now_us) {
                self.refund();
                next_refund_us = refund_us.map(|every_us| at_us + every_us).filter(|at_us| *at_us < end_us);
            }
            if tick_us <= now_us {
                tick_us = now_us + TICK_US;
            }
            if sample_us <= now_us {
                sample_us += SAMPLE_US;
                self.sample();
            }
            // Until every task waits again.
            tokio::task::yield_now().await;
        }
    }

    async fn advance(&self, now_us: u64) {
        self.network.lock().now_us = now_us;
        let passed = Instant::now() - self.began;
        let left = Duration::from_micros(now_us).saturating_sub(passed);
        if !left.is_zero() {
            tokio::time::advance(left).await;
        }
    }

    fn deliver(&mut self, now_us: u64) {
        let mut network = self.network.lock();
        while let Some((_, delivery)) = network.next_until(now_us) {
            match delivery {
                Delivery::ToServer(id, bytes) => {
                    // What is on its way to a server that is down is lost.
                    if !network.is_down {
                        self.server.receive(&mut network, id, &bytes);
                    }
                }
                Delivery::ToClient(id, bytes) => network.receive(id, &bytes),
                Delivery::ServerEnds(id) => {
                    self.server.leave(id);
                    network.close(id);
                }
                Delivery::Connects(process, told) => network.accept(process, told),
            }
        }
    }

    /// Begins or ends an event.
    fn change(&mut self, event: &Event, begins: bool, now_us: u64) {
        let mut network = self.network.lock();
        match (event.what, begins) {
            (What::Down, true) => {
                network.is_down = true;
                network.reset_all();
                self.server.end();
            }
            (What::Down, false) => network.is_down = false,
            (What::Partitioned(part), true) => {
                let processes = (part * self.settings.processes as f64).ceil() as usize;
                network.partition(processes, event.to.as_micros() as u64);
            }
            (What::Partitioned(_), false) => {}
            (What::Slower(by), true) => network.slower_us += by.as_micros() as u64,
            (What::Slower(by), false) => network.slower_us -= by.as_micros() as u64,
        }
        drop(network);
        if event.what.is_outage() {
            if begins {
                self.note_recovery();
            } else {
                self.recoveries_us.push((now_us, now_us));
            }
        }
    }

    /// Notes the last answer of an outage policy since the last outage ended.
    fn note_recovery(&mut self) {
        let last_us = self.tally.lock().last_outage_us;
        if let Some((ended_us, recovered_us)) = self.recoveries_us.last_mut() {
            *recovered_us = last_us.unwrap_or(0).max(*ended_us);
        }
    }

    fn ask(&mut self, client: usize, cost: u64) {
        let process = self.random.usize(..self.limiters.len());
        let (limiter, key) = (self.limiters[process].clone(), Arc::clone(&self.keys[client]));
        let (tally, network, began) = (self.tally.clone(), self.network.clone(), self.began);
        let from_us = self.network.lock().now_us;
        tokio::spawn(async move {
            let answer = limiter.check(Request::new(&*key).cost(cost)).await;
            let now_us = (Instant::now() - began).as_micros() as u64;
            let now_us = now_us.max(network.lock().now_us);
            let mut tally = tally.lock();
            match answer {
                Ok(decision) => tally.tell(process, client, cost, &decision, from_us, now_us),
                Err(error) => tally.fail(&error),
            }
        });
    }

    fn refund(&mut self) {
        let process = self.random.usize(..self.limiters.len());
        let (limiter, tally) = (self.limiters[process].clone(), self.tally.clone());
        let client = self.random.usize(..self.keys.len());
        let key = Arc::clone(&self.keys[client]);
        tally.lock().admissions.refund(client);
        tokio::spawn(async move {
            if let Err(error) = limiter.refund(Request::new(&*key)).await {
                tally.lock().fail(&error);
            }
        });
    }

    /// Counts the units that are idle in leases.
    fn sample(&mut self) {
        if self.settings.lease.is_some() {
            let held: u64 = self.limiters.iter().map(|limiter| limiter.stats().lease_units_held).sum();
            let mut tally = self.tally.lock();
            tally.held = (tally.held.0 + held, tally.held.1.max(held));
            tally.samples += 1;
        }
    }

    fn report(mut self) -> Report {
        self.note_recovery();
        let (network, tally, work) = (self.network.lock(), self.tally.lock(), self.server.work);
        let seconds = self.settings.lasts.as_secs_f64();
        let decisions: u64 = tally.sources.values().sum();
        let has_outage = self.settings.events.iter().any(|event| event.what.is_outage());
        let of = |source: &str| tally.sources.get(source).copied().unwrap_or(0);
        let each_ns = (LONE_NS * work.calls + ENTRY_NS * (work.entries - work.calls)) as f64
            / work.entries.max(1) as f64;
        let asked = decisions - of("denial_cache") - of("lease") - of("fallback") - of("allow") - of("deny");
        let publishing = work.publishing_ns as f64;
        let refunds = work.published as f64;
        Report {
            processes: self.settings.processes,
            seconds,
            wall_seconds: 0.0,
            decisions,
            sources: tally.sources.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            excess_units: tally.admissions.excess,
            most_excess_units: if has_outage {
                Admissions::most_of_outage(&self.settings.policy, self.settings.processes)
            } else {
                0
            },
            leased_idle_mean: tally.held.0 as f64 / tally.samples.max(1) as f64,
            leased_idle_most: tally.held.1,
            latency_p50_us: tally.latencies.value_at_quantile(0.5),
            latency_p99_us: tally.latencies.value_at_quantile(0.99),
            latency_max_us: tally.latencies.max(),
            server_cpu_percent: work.busy_ns as f64 / seconds / 1e7,
            formula_cpu_percent: (asked as f64 * each_ns + publishing + refunds * each_ns) / seconds / 1e7,
            one_channel_cpu_percent: (work.busy_ns as f64 - publishing + work.publishing_to_all_ns as f64)
                / seconds
                / 1e7,
            decision_server_us: each_ns / 1e3,
            calls: work.calls,
            entries: work.entries,
            other_commands: work.other_commands,
            published: work.published,
            messages: work.messages,
            connections_most: network.most_open,
            connections_opened: network.opened,
            listeners_most: self.server.most_subscribed as u64,
            admitted_units: Shares::of(&tally.admitted),
            requests: Shares::of(&tally.requests),
            recovered_after_ms: self
                .recoveries_us
                .iter()
                .map(|(from, to)| (to - from) as f64 / 1e3)
                .collect(),
        }
    }
}

fn limiter(settings: &Settings, number: usize) -> Result<Limiter, polylimit::Error> {
    let seed = settings.seed;
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let url = format!("redis://fleet-{seed}-{number}?client_name=limiter-{made:012}&doctor_after=0");
    let mut builder = Limiter::builder().store(&url).clock(Clock::of_paused_time(START_US));
    builder = builder.policy(settings.policy.clone());
    if let Some(lease) = settings.lease {
        builder = builder.lease(settings.policy.name(), lease);
    }
    builder.build()
}

/// When events begin and end, in the order of time.
fn changes(events: &[Event]) -> Vec<(u64, Event, bool)> {
    let both = |event: &Event| {
        [(event.from.as_micros() as u64, *event, true), (event.to.as_micros() as u64, *event, false)]
    };
    let mut changes: Vec<_> = events.iter().flat_map(both).collect();
    changes.sort_by_key(|(at_us, ..)| *at_us);
    changes
}
