//! A schedule: what a seed makes the processes and the machine do.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// How long faults are injected.
pub const FAULTS_LAST: Duration = Duration::from_millis(800);
/// How long the processes work on after that, before they have to be decided by the store again.
pub const CALM_LASTS: Duration = Duration::from_millis(2_200);

/// A fault. Processes are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the descriptions of the faults tell their numbers")]
pub enum Fault {
    /// What a process sends and receives takes this long from now on: the least, and what is added at random.
    Delay { process: usize, least: Duration, jitter: Duration },
    /// The connections of a process break. Of what is on its way, a random part arrives.
    Cut { process: usize, resets: bool },
    /// Nothing arrives from or at a process for a time, and then everything.
    Stall { process: usize, lasts: Duration },
    /// Nothing arrives over the present connections of a process any more.
    HalfOpen { process: usize },
    /// A socket takes so few bytes at once, and holds so few that the server has not read.
    PartialWrites { process: usize, bytes: usize, window: usize },
    /// The next reply of a script ends after so many bytes, and with it the connection.
    CutReply { process: usize, after: usize },
    /// The next reply of a script comes twice.
    DuplicateReply { process: usize },
    /// The next `NOSCRIPT` comes twice. It has no nonce, so seeds leave it out: a test shows what holds.
    DuplicateNoScript { process: usize },
    /// The server stands still, and then goes on with everything that it was sent.
    Stop { lasts: Duration },
    /// The server ends, and starts again after a time, without its scripts.
    Restart { lasts: Duration, keeps_data: bool },
    /// The server forgets its scripts.
    FlushScripts,
    /// Another server becomes the primary, without the last writes and with another clock; the old one becomes its replica.
    Failover { lost_writes: usize, clock_us: i64 },
    /// The clock of the server is set.
    StepClock { us: i64 },
    /// The server refuses everything with an error.
    Refuse { error: &'static str, lasts: Duration },
    /// A process dies, and another one takes its place.
    Kill { process: usize },
}

/// Everything that a seed decides in advance.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The seed.
    pub seed: u64,
    /// The number of processes.
    pub processes: usize,
    /// The number of callers in each process.
    pub callers: usize,
    /// The longest pause of a caller between two operations.
    pub pause: Duration,
    /// The option `first_connect_max`.
    pub first_connect_max: Duration,
    /// The faults and when they come, in that order.
    pub faults: Vec<(Duration, Fault)>,
}

fn ms(random: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(random.u64(from..=to))
}

impl Schedule {
    /// The schedule of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let processes = random.usize(1..=3);
        let mut faults: Vec<_> = (0..random.usize(0..=5))
            .map(|_| (ms(&mut random, 5, 700), Fault::of(&mut random, processes)))
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        Self {
            seed,
            processes,
            callers: random.usize(1..=3),
            pause: ms(&mut random, 20, 120),
            first_connect_max: if random.bool() { Duration::ZERO } else { ms(&mut random, 50, 300) },
            faults,
        }
    }

    /// Whether a fault makes the server's clock go back, after which a command may run late by as much.
    pub fn sets_clock_back(&self) -> bool {
        self.faults.iter().any(|(_, fault)| match fault {
            Fault::StepClock { us } | Fault::Failover { clock_us: us, .. } => *us < 0,
            _ => false,
        })
    }
}

impl Fault {
    fn of(random: &mut Rng, processes: usize) -> Self {
        let process = random.usize(..processes);
        match random.u32(0..20) {
            0 => Self::Delay { process, least: ms(random, 0, 60), jitter: ms(random, 0, 60) },
            1 => Self::Delay { process, least: ms(random, 0, 5), jitter: ms(random, 0, 20) },
            2 => Self::Cut { process, resets: false },
            3 => Self::Cut { process, resets: true },
            4 | 5 => Self::Stall { process, lasts: ms(random, 10, 800) },
            6 => Self::HalfOpen { process },
            7 => {
                let bytes = random.usize(1..=200);
                Self::PartialWrites { process, bytes, window: bytes * random.usize(1..=4) }
            }
            8 => Self::CutReply { process, after: random.usize(0..60) },
            9 | 10 => Self::DuplicateReply { process },
            11 => Self::Stop { lasts: ms(random, 10, 600) },
            12 => Self::Restart { lasts: ms(random, 0, 600), keeps_data: random.bool() },
            13 => Self::FlushScripts,
            14 | 15 => Self::Failover {
                lost_writes: random.usize(0..=20),
                clock_us: if random.bool() { 0 } else { random.i64(-200_000..=200_000) },
            },
            16 => Self::StepClock { us: random.i64(-2_000_000..=2_000_000) },
            17 | 18 => {
                let errors = [
                    "LOADING Redis is loading the dataset in memory",
                    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                    "OOM command not allowed when used memory > 'maxmemory'.",
                    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
                    "NOREPLICAS Not enough good replicas to write.",
                ];
                Self::Refuse { error: errors[random.usize(..errors.len())], lasts: ms(random, 5, 400) }
            }
            _ => Self::Kill { process },
        }
    }
}

/// The schedule as a failing seed prints it.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, processes, callers, pause, first_connect_max, faults } = self;
        writeln!(
            f,
            "seed {seed}: {processes} processes with {callers} callers, pauses up to {pause:?}, first_connect_max \
             {first_connect_max:?}"
        )?;
        for (at, fault) in faults {
            writeln!(f, "  {:>6} ms  {fault:?}", at.as_millis())?;
        }
        Ok(())
    }
}
