//! A schedule: what a seed makes the processes and the machine do.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::policies::KEYS;

/// How long faults are injected.
pub const FAULTS_LAST: Duration = Duration::from_millis(800);
/// How long the processes work on after that, before they have to be decided by the store again.
pub const CALM_LASTS: Duration = Duration::from_millis(2_200);

/// A fault. Processes are numbered from 0. As text, times are in milliseconds where the name has no other unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fault", deny_unknown_fields)]
#[expect(missing_docs, reason = "the descriptions of the faults name their numbers")]
pub enum Fault {
    /// What a process sends and receives takes this long from now on: the least, and what is added at random.
    Delay {
        process: usize,
        #[serde(with = "ms")]
        least: Duration,
        #[serde(with = "ms")]
        jitter: Duration,
    },
    /// The connections of a process break. Of what is on its way, a random part arrives.
    Cut { process: usize, resets: bool },
    /// Nothing arrives from or at a process for a time, and then everything.
    Stall {
        process: usize,
        #[serde(with = "ms")]
        lasts: Duration,
    },
    /// Nothing arrives over the present connections of a process any more.
    HalfOpen { process: usize },
    /// A socket takes so few bytes at once, and holds so few that the server has not read.
    PartialWrites { process: usize, bytes: usize, window: usize },
    /// The next reply of a script ends after this number of bytes, and with it the connection.
    CutReply { process: usize, after: usize },
    /// The next reply of a script comes twice.
    DuplicateReply { process: usize },
    /// The next `NOSCRIPT` comes twice. It has no nonce, so seeds leave it out: a test shows what holds.
    DuplicateNoScript { process: usize },
    /// The server stands still, and then goes on with everything that it was sent.
    Stop {
        #[serde(with = "ms")]
        lasts: Duration,
    },
    /// The server ends, and starts again after a time, without its scripts.
    Restart {
        #[serde(with = "ms")]
        lasts: Duration,
        keeps_data: bool,
    },
    /// The server forgets its scripts.
    FlushScripts,
    /// Another server becomes the primary, without the last writes and with another clock; the old one becomes its replica.
    Failover { lost_writes: usize, clock_us: i64 },
    /// The clock of the server is set.
    StepClock { us: i64 },
    /// The server refuses everything with an error.
    Refuse {
        error: Refusal,
        #[serde(with = "ms")]
        lasts: Duration,
    },
    /// A process dies, and another one takes its place.
    Kill { process: usize },
    /// In a cluster, the slot of a key moves to another node, its keys one by one.
    MoveSlot {
        key: usize,
        #[serde(with = "ms")]
        lasts: Duration,
    },
    /// In a cluster, the node of a key dies. Its replica, which lacks the last writes, is promoted after half of the time, and the node
    /// comes back after it.
    KillNode {
        key: usize,
        lost_writes: usize,
        #[serde(with = "ms")]
        lasts: Duration,
    },
}

/// Why a server refuses everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the errors of Redis")]
pub enum Refusal {
    Loading,
    Busy,
    OutOfMemory,
    Misconfigured,
    NoReplicas,
}

impl Refusal {
    const ALL: [Self; 5] =
        [Self::Loading, Self::Busy, Self::OutOfMemory, Self::Misconfigured, Self::NoReplicas];

    /// The error as Redis writes it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Loading => "LOADING Redis is loading the dataset in memory",
            Self::Busy => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::Misconfigured => {
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
            }
            Self::NoReplicas => "NOREPLICAS Not enough good replicas to write.",
        }
    }
}

/// A fault and when it comes, since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// When it comes.
    #[serde(with = "ms", rename = "at_ms")]
    pub at: Duration,
    /// What it is.
    #[serde(flatten)]
    pub fault: Fault,
}

/// Everything that a seed decides in advance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The seed.
    pub seed: u64,
    /// The number of primaries in the cluster; with 1 it is a single server.
    pub nodes: usize,
    /// The number of processes.
    pub processes: usize,
    /// The number of callers in each process.
    pub callers: usize,
    /// The longest pause of a caller between two operations.
    #[serde(with = "ms", rename = "pause_ms")]
    pub pause: Duration,
    /// The option `first_connect_max`.
    #[serde(with = "ms", rename = "first_connect_max_ms")]
    pub first_connect_max: Duration,
    /// The faults in the order in which they come.
    pub faults: Vec<Injection>,
}

fn ms(random: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(random.u64(from..=to))
}

impl Schedule {
    /// The schedule of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let processes = random.usize(1..=3);
        // Two of three seeds have a single server.
        let nodes = [1, 1, 1, 1, 2, 3][random.usize(..6)];
        let mut faults: Vec<_> = (0..random.usize(0..=5))
            .map(|_| Injection {
                at: ms(&mut random, 5, 700),
                fault: Fault::of(&mut random, processes, nodes > 1),
            })
            .collect();
        faults.sort_by_key(|injection| injection.at);
        Self {
            seed,
            nodes,
            processes,
            callers: random.usize(1..=3),
            pause: ms(&mut random, 20, 120),
            first_connect_max: if random.bool() { Duration::ZERO } else { ms(&mut random, 50, 300) },
            faults,
        }
    }
}

impl Fault {
    fn of(random: &mut Rng, processes: usize, has_nodes: bool) -> Self {
        let process = random.usize(..processes);
        let key = random.usize(..KEYS.len());
        if has_nodes && random.bool() {
            let lasts = ms(random, 10, 500);
            return match random.u32(0..3) {
                0 => Self::KillNode { key, lost_writes: random.usize(0..=20), lasts },
                _ => Self::MoveSlot { key, lasts },
            };
        }
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
                let error = Refusal::ALL[random.usize(..Refusal::ALL.len())];
                Self::Refuse { error, lasts: ms(random, 5, 400) }
            }
            _ => Self::Kill { process },
        }
    }
}

/// The schedule as a failing seed prints it, and as `failures` keeps it: TOML.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Schedule {
    type Err = toml::de::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        toml::from_str(text)
    }
}

/// Durations as milliseconds.
mod ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(time.as_millis() as u64)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_millis(u64::deserialize(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_schedule_gives_the_same_schedule() {
        for seed in 0..1_000 {
            let schedule = Schedule::of(seed);
            let text = schedule.to_string();
            assert_eq!(text.parse(), Ok(schedule), "{text}");
        }
    }
}
