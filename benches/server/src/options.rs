//! The options of the command line, and what `benches/server/run` puts into the environment.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// The cores of the servers, and of the load generators with the Redis that servers keep their states in.
pub(crate) const SERVERS: usize = 0;
pub(crate) const GENERATORS: usize = 1;

pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    /// How long a server is loaded in a round.
    pub(crate) slice: Duration,
    /// How many keys requests are about.
    pub(crate) keys: usize,
    /// The only table to measure.
    only: Option<String>,
    /// Whether servers and generators get a core each.
    pub(crate) pins: bool,
    pub(crate) polylimit: PathBuf,
    pub(crate) bare_axum: PathBuf,
    pub(crate) throttlecrab: PathBuf,
    pub(crate) ratelimit: PathBuf,
    /// The script for wrk.
    pub(crate) script: PathBuf,
}

impl Options {
    pub(crate) fn read() -> Result<Self, Box<dyn Error>> {
        let (mut quick, mut rounds, mut slice, mut only) = (false, None, None, None);
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--quick" => quick = true,
                "--rounds" => rounds = Some(value()?.parse::<usize>()?.max(1)),
                "--slice-ms" => slice = Some(value()?.parse::<u64>()?.max(100)),
                "--only" => only = Some(value()?),
                _ => {
                    let known = "--quick, --rounds N, --slice-ms N and --only TABLE";
                    return Err(format!("no option {argument}: there are {known}").into());
                }
            }
        }
        let path = |name: &str| {
            env::var(name)
                .map(PathBuf::from)
                .map_err(|_| format!("{name} is not set: start benches/server/run"))
        };
        Ok(Self {
            quick,
            rounds: rounds.unwrap_or(if quick { 1 } else { 7 }),
            slice: Duration::from_millis(slice.unwrap_or(if quick { 300 } else { 2_000 })),
            keys: if quick { 1_000 } else { 100_000 },
            only,
            pins: std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1),
            polylimit: path("POLYLIMIT")?,
            bare_axum: path("BARE_AXUM")?,
            throttlecrab: path("THROTTLECRAB")?,
            ratelimit: path("RATELIMIT")?,
            script: path("WRK_SCRIPT")?,
        })
    }

    /// Whether a table is measured.
    pub(crate) fn includes(&self, table: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == table)
    }

    /// The core of servers, where they get one.
    pub(crate) fn server_core(&self) -> Option<usize> {
        self.pins.then_some(SERVERS)
    }
}
