//! The options of the command line, and what `run` puts into the environment.

use std::env;
use std::error::Error;
use std::time::Duration;

pub(crate) struct Options {
    pub(crate) rounds: usize,
    /// How long a service is measured in a round.
    pub(crate) slice: Duration,
    /// How many requests a service handles before it is measured.
    pub(crate) warm_up: u64,
    pub(crate) connections: usize,
    /// The only framework to measure.
    only: Option<String>,
    /// The folder of the services' sources.
    pub(crate) services: String,
    /// The folder of what was built for the services.
    pub(crate) build: String,
    /// A revision to compare with, and the same folder for it.
    pub(crate) before: Option<(String, String)>,
    pub(crate) python: String,
    /// Whether the services get a core of their own.
    pub(crate) pins: bool,
}

impl Options {
    pub(crate) fn read() -> Result<Self, Box<dyn Error>> {
        let (mut quick, mut rounds, mut connections, mut only) = (false, None, 16, None);
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--quick" => quick = true,
                "--rounds" => rounds = Some(value()?.parse()?),
                "--connections" => connections = value()?.parse()?,
                "--only" => only = Some(value()?),
                _ => {
                    return Err(format!(
                        "no option {argument}: there are --quick, --rounds, --connections, --only"
                    )
                    .into());
                }
            }
        }
        let set =
            |name: &str| env::var(name).map_err(|_| format!("{name} is not set: start benches/http/run"));
        Ok(Self {
            rounds: rounds.unwrap_or(if quick { 1 } else { 25 }),
            slice: Duration::from_millis(if quick { 20 } else { 300 }),
            warm_up: if quick { 1 } else { 3_000 },
            connections,
            only,
            services: set("SERVICES")?,
            build: set("BUILD")?,
            before: env::var("BEFORE_BUILD")
                .ok()
                .map(|build| (env::var("BEFORE").unwrap_or_default(), build)),
            python: set("PYTHON")?,
            pins: !quick && std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1),
        })
    }

    /// Whether a framework is measured.
    pub(crate) fn includes(&self, framework: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == framework)
    }
}
