//! Runs a seed: processes with callers, the faults of its schedule, and the checks at the end.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use polylimit::clock::Clock;
use polylimit::decision::{Degradation, Source, Usage};
use polylimit::testing::simulation;
use polylimit::{Decision, Error, ErrorKind, Limiter, Request};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::FIRST_PORT;
use crate::ledger::{Action, DEADLINE, DENIAL_CACHE_MAX, Identity, Told};
use crate::network::Shared;
use crate::policies::{KEYS, ROWS};
use crate::schedule::{CALM_LASTS, FAULTS_LAST, Fault, Injection, Schedule};
use crate::world::{START_US, SimulatedMachine, World};

/// What a seed has shown.
#[derive(Debug)]
pub struct Report {
    /// What the seed makes the machine do.
    pub schedule: Schedule,
    /// What did not hold; empty if all is well.
    pub violations: Vec<String>,
    /// Everything that happened, as one number.
    pub trace: u64,
    /// How many operations the servers executed.
    pub executed: u64,
    /// How many operations were answered by each source.
    pub sources: Vec<(&'static str, u64)>,
}

/// A process: a limiter with callers.
struct Process {
    number: usize,
    limiter: Limiter,
    is_dead: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
}

/// Limiters with equal options share connections, also with those of a run of the same seed on another thread: so each has a number.
static MADE: AtomicU64 = AtomicU64::new(0);

/// By then a half-open connection that is used is replaced: two missed deadlines, the longest pause of a circuit breaker between them,
/// and a second for the new connection.
const HALF_OPEN_ENDS_AFTER: Duration = Duration::from_millis(2 * DEADLINE.as_millis() as u64 + 800 + 1_000);

/// Costs that were not used yet: each operation of more than one unit has a cost of its own.
type Costs = Arc<std::sync::Mutex<BTreeSet<(usize, usize, Action, u64)>>>;

/// Runs a seed.
pub fn run(seed: u64) -> Report {
    run_schedule(Schedule::of(seed))
}

/// Runs a schedule.
pub fn run_schedule(schedule: Schedule) -> Report {
    let seed = schedule.seed;
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let shared = runtime.block_on(async {
        let shared = Shared::new(World::new(&schedule));
        let _entered = simulation::enter(Rc::new(SimulatedMachine::new(shared.clone(), seed)));
        simulate(&schedule, &shared).await;
        shared
    });
    drop(runtime);
    let mut world = shared.lock();
    let ledger = &mut world.ledger;
    Report {
        schedule,
        violations: std::mem::take(&mut ledger.violations),
        trace: ledger.trace,
        executed: ledger.executed,
        sources: ledger.sources.iter().map(|(name, count)| (*name, *count)).collect(),
    }
}

async fn simulate(schedule: &Schedule, shared: &Shared) {
    let began = Instant::now();
    let ends = began + FAULTS_LAST + CALM_LASTS;
    let costs = Costs::default();
    let mut made = 0;
    let mut start = || {
        made += 1;
        Process::start(made - 1, schedule, shared, &costs, ends)
    };
    let mut processes: Vec<Process> = (0..schedule.processes).map(|_| start()).collect();
    let mut ended = Vec::new();
    for Injection { at, fault } in &schedule.faults {
        sleep_until(began + *at).await;
        let numbers: Vec<usize> = processes.iter().map(|process| process.number).collect();
        shared.lock().inject(*fault, &numbers);
        if let Fault::Kill { process } = fault {
            let killed = std::mem::replace(&mut processes[*process], start());
            killed.is_dead.store(true, Ordering::Relaxed);
            // The world has cut the process off; this only ends its tasks.
            killed.limiter.close();
            ended.extend(killed.callers);
        }
    }
    sleep_until(began + FAULTS_LAST).await;
    shared.lock().heal();
    sleep_until(ends).await;
    ended.extend(processes.iter_mut().flat_map(|process| std::mem::take(&mut process.callers)));
    for caller in ended {
        caller.await.unwrap();
    }
    for process in &processes {
        let identity = |policy| {
            let key = KEYS.len() - 1;
            Identity { process: process.number, policy, key, action: Action::Check, cost: 1 }
        };
        if schedule.nodes > 1 {
            // No operation may have used the key's node since the faults, so its connection may still be half open.
            let until = Instant::now() + HALF_OPEN_ENDS_AFTER;
            while Instant::now() < until
                && ask(&process.limiter, shared, identity(0)).await.is_some_and(Source::is_outage)
            {
                sleep(Duration::from_millis(20)).await;
            }
        }
        for policy in 0..ROWS.len() {
            let identity = identity(policy);
            if let Some(source) = ask(&process.limiter, shared, identity).await {
                shared.lock().ledger.recovered(process.number, policy, source);
            }
        }
        // Leased units go back when they are too old.
        sleep(Duration::from_millis(400)).await;
        let stats = process.limiter.stats();
        shared.lock().ledger.count(process.number, &stats);
        process.limiter.close();
    }
    shared.lock().ledger.finish(made);
}

impl Process {
    fn start(number: usize, schedule: &Schedule, shared: &Shared, costs: &Costs, ends: Instant) -> Self {
        let seed = schedule.seed;
        let first = schedule.first_connect_max.as_millis();
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let host = format!("seed-{seed}-{number}");
        let servers = match schedule.nodes {
            1 => format!("redis://{host}"),
            _ => format!("redis-cluster://{host}:{FIRST_PORT},{host}:{}", FIRST_PORT + 1),
        };
        let url = format!(
            "{servers}?client_name=limiter-{made:012}&deadline={}ms&denial_cache_max={}ms&first_connect_max={first}ms&doctor_after=0",
            DEADLINE.as_millis(),
            DENIAL_CACHE_MAX.as_millis(),
        );
        let mut builder = Limiter::builder().store(&url).clock(Clock::of_paused_time(START_US));
        for row in &ROWS {
            builder = builder.policy(row.policy()).outage(row.name, row.outage);
            if let Some(lease) = row.lease {
                builder = builder.lease(row.name, lease.parse().unwrap());
            }
        }
        let limiter = builder.build().unwrap();
        let is_dead = Arc::new(AtomicBool::new(false));
        let callers = (0..schedule.callers).map(|caller| {
            let random = Rng::with_seed(seed.wrapping_mul(1_000_003) ^ (number * 16 + caller + 1) as u64);
            let caller = Caller {
                process: number,
                limiter: limiter.clone(),
                shared: shared.clone(),
                costs: Arc::clone(costs),
                is_dead: Arc::clone(&is_dead),
                random,
                pause: schedule.pause,
            };
            tokio::spawn(caller.work(ends))
        });
        Self { number, callers: callers.collect(), limiter, is_dead }
    }
}

/// Asks one operation after the other.
struct Caller {
    process: usize,
    limiter: Limiter,
    shared: Shared,
    costs: Costs,
    is_dead: Arc<AtomicBool>,
    random: Rng,
    pause: Duration,
}

impl Caller {
    async fn work(mut self, ends: Instant) {
        let calm_from = ends - CALM_LASTS + Duration::from_millis(100);
        loop {
            let is_calm = Instant::now() > calm_from;
            sleep(self.pause.mul_f64(self.random.f64() * if is_calm { 8.0 } else { 1.0 })).await;
            if self.is_dead.load(Ordering::Relaxed) || Instant::now() >= ends {
                return;
            }
            let identity = self.choose();
            // A burst of equal checks, which can share an entry or be paid for by a lease.
            let times = match ROWS[identity.policy] {
                row if row.lease.is_some() => self.random.usize(1..=16),
                row if row.single_units => self.random.usize(1..=4),
                _ => 1,
            };
            let asked: Vec<_> = (0..times).map(|_| ask(&self.limiter, &self.shared, identity)).collect();
            for source in together(asked).await {
                if source.is_none() {
                    return;
                }
            }
        }
    }

    /// An operation with a cost that was not used yet.
    fn choose(&mut self) -> Identity {
        let process = self.process;
        let policy = self.random.usize(..ROWS.len());
        // The first key gets half of the operations, so that it is denied often.
        let key = if self.random.bool() { 0 } else { self.random.usize(..KEYS.len() - 1) };
        if ROWS[policy].single_units {
            return Identity { process, policy, key, action: Action::Check, cost: 1 };
        }
        let action = match self.random.u32(0..20) {
            0 => Action::Peek,
            1 => Action::Charge,
            2 | 3 => Action::Refund,
            _ => Action::Check,
        };
        let mut costs = self.costs.lock().unwrap();
        loop {
            let cost = self.random.u64(2..=250);
            if costs.insert((policy, key, action, cost)) {
                return Identity { process, policy, key, action, cost };
            }
        }
    }
}

/// Awaits several futures that were started together.
async fn together<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut is_ready = true;
        for (future, output) in &mut futures {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(ready) => *output = Some(ready),
                    std::task::Poll::Pending => is_ready = false,
                }
            }
        }
        if is_ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

/// Asks an operation and records it in the log. Returns the source of the answer; nothing when the limiter is closed.
async fn ask(limiter: &Limiter, shared: &Shared, identity: Identity) -> Option<Source> {
    let number = shared.lock().ledger.issue(identity);
    let request = Request::new(KEYS[identity.key]).policy(ROWS[identity.policy].name).cost(identity.cost);
    let answer = match identity.action {
        Action::Check => limiter.check(request).await.map(|decision| of_decision(&decision)),
        Action::Peek => limiter.peek(request).await.map(|decision| of_decision(&decision)),
        Action::Charge => limiter.charge(request).await.map(|usage| of_usage(&usage)),
        Action::Refund => limiter.refund(request).await.map(|usage| of_usage(&usage)),
        Action::Take | Action::Reset => unreachable!("no caller asks for it"),
    };
    tell(shared, identity.process, number, answer)
}

type Answer = (Told, Source, Option<Degradation>);

fn of_decision(decision: &Decision) -> Answer {
    let told = Told { allowed: decision.allowed(), quotas: decision.quotas().to_vec() };
    (told, decision.source(), decision.degraded())
}

fn of_usage(usage: &Usage) -> Answer {
    let told = Told { allowed: true, quotas: usage.quotas().to_vec() };
    (told, usage.source(), usage.degraded())
}

fn tell(shared: &Shared, process: usize, number: usize, answer: Result<Answer, Error>) -> Option<Source> {
    let mut world = shared.lock();
    if world.dead.contains(&process) {
        // Its callers receive nothing any more.
        world.ledger.close(number);
        return None;
    }
    match answer {
        Ok((told, source, degraded)) => {
            world.ledger.answer(number, &told, source, degraded);
            Some(source)
        }
        Err(error) if error.kind() == ErrorKind::Closed => {
            world.ledger.close(number);
            None
        }
        Err(error) => {
            world.ledger.violations.push(format!("an operation failed: {error}"));
            world.ledger.close(number);
            None
        }
    }
}
