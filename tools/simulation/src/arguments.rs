//! The arguments of `polylimit simulate`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;

use crate::error::{SimulationError, excerpt};
use crate::limits::read_limits;
use crate::log::{Format, LogOptions, LogSummary, Template, read_file};
use crate::progress::Progress;
use crate::results::{LogReading, Simulation, Traffic};
use crate::scenario::Scenario;
use crate::simulate::simulate;
use crate::traffic::{as_us, parse_traffic};

/// When generated traffic starts: the first second of 2026.
const START: &str = "2026-01-01T00:00:00Z";

/// Decides generated or logged requests by limits, without a store and as fast as the processor allows.
#[derive(Args, Clone, Debug)]
#[expect(clippy::doc_markdown, reason = "these are the words of --help")]
pub struct SimulateArguments {
    /// The policy: quotas such as 'api=100/minute', or with --policies the name of one in the document
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,

    /// Other quotas to compare, such as 'api=100/minute token_bucket burst=20'; may be given several times
    #[arg(long, value_name = "POLICY")]
    pub candidate: Vec<String>,

    /// Generated clients, such as '500 clients 2/s poisson zipf=1.1; bot: 1 client 50/s from=10m to=20m'
    #[arg(long, value_name = "GROUPS", conflicts_with = "log")]
    pub traffic: Option<String>,

    /// How long, such as 1h: by default one hour of generated traffic, or the whole log
    #[arg(long = "for", value_name = "DURATION")]
    pub duration: Option<String>,

    /// The number from which all random numbers follow
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "log")]
    pub seed: u64,

    /// The time at which generated traffic starts; windows may be aligned to it, and rules may depend on it
    #[arg(long, value_name = "TIME", default_value = START, conflicts_with = "log")]
    pub start: String,

    /// A log of a web server in place of --traffic; - is the standard input
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    /// The format of the log: combined, vhost_combined, common, caddy, traefik, envoy, json, or variables of nginx such as '$remote_addr [$time_local] "$request"'
    #[arg(long, value_name = "FORMAT", default_value = "combined", conflicts_with = "traffic")]
    pub format: String,

    /// The field of the time in a log of JSON, such as startedAt; by default the first of those that servers write
    #[arg(long, value_name = "FIELD", conflicts_with = "traffic")]
    pub time: Option<String>,

    /// Which clients the requests of a log belong to, by variables such as '$remote_addr' or '$http_x_api_key'
    #[arg(long, value_name = "TEMPLATE", default_value = "$remote_addr", conflicts_with = "traffic")]
    pub key: String,

    /// How many malformed lines of a log are left out before the simulation is refused
    #[arg(long, value_name = "COUNT", default_value_t = 0, conflicts_with = "traffic")]
    pub skip_malformed: u64,

    /// Write a picture of the requests over time, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Write the same picture as PNG
    #[cfg(feature = "png")]
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,

    /// Write a page with everything in one file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Do not plot in the terminal
    #[arg(long)]
    pub no_plot: bool,
}

impl SimulateArguments {
    /// Simulates, and returns what was found. `document` is the file of policies, if there is one.
    ///
    /// # Errors
    /// [`SimulationError::Usage`] when an argument, the document or the log is not allowed, [`SimulationError::File`] when one of
    /// them cannot be read.
    pub fn simulate(&self, document: Option<&Path>) -> Result<Simulation, SimulationError> {
        self.simulate_telling(document, &Arc::default())
    }

    /// As [`simulate`](Self::simulate), and reports its progress.
    ///
    /// # Errors
    /// As for [`simulate`](Self::simulate).
    pub fn simulate_telling(
        &self,
        document: Option<&Path>,
        progress: &Arc<Progress>,
    ) -> Result<Simulation, SimulationError> {
        let has_rules = self.log.is_some() && document.is_some() && self.policy.is_none();
        let limits = read_limits(self.policy.as_deref(), &self.candidate, document, has_rules)?;
        let duration_us = self.duration_us()?;
        let (traffic, mut scenario) = match (&self.log, &self.traffic) {
            (Some(log), None) => self.of_log(log, duration_us, has_rules)?,
            (None, Some(traffic)) => self.of_traffic(traffic, duration_us)?,
            (Some(_), Some(_)) => {
                return Err(SimulationError::usage("there are both --traffic and --log: give one of them"));
            }
            (None, None) => {
                return Err(SimulationError::usage(
                    "there are no requests: give --traffic '500 clients 2/s poisson' or --log access.log",
                ));
            }
        };
        scenario.progress = Arc::clone(progress);
        let (demand, live, candidates) = simulate(&scenario, &limits)?;
        Ok(Simulation { traffic, demand, live, candidates })
    }

    fn duration_us(&self) -> Result<Option<u64>, SimulationError> {
        let Some(text) = &self.duration else { return Ok(None) };
        let duration = polylimit::raw::parse_duration(text);
        let duration = duration.map_err(|error| {
            SimulationError::usage(format!("--for {}: {}", excerpt(text), error.message()))
        })?;
        Ok(Some(as_us(duration)))
    }

    fn of_traffic(
        &self,
        traffic: &str,
        duration_us: Option<u64>,
    ) -> Result<(Traffic, Scenario), SimulationError> {
        const HOUR_US: u64 = 3_600_000_000;
        let groups = parse_traffic(traffic)?;
        let duration_us = duration_us.unwrap_or(HOUR_US);
        let start_us = self
            .start
            .parse::<Timestamp>()
            .ok()
            .and_then(|start| u64::try_from(start.as_microsecond()).ok())
            .filter(|start_us| start_us + duration_us <= polylimit::clock::ManualClock::MAX_US)
            .ok_or_else(|| {
                SimulationError::usage(format!(
                    "read --start {}, allowed is a time from 1970 to 2254 such as {START}",
                    excerpt(&self.start)
                ))
            })?;
        let scenario = Scenario::generated(groups, self.seed, start_us, duration_us);
        let traffic = Traffic {
            source: "generated",
            start: written(start_us),
            duration_us,
            seed: Some(self.seed),
            log: None,
        };
        Ok((traffic, scenario))
    }

    fn of_log(
        &self,
        log: &Path,
        duration_us: Option<u64>,
        has_rules: bool,
    ) -> Result<(Traffic, Scenario), SimulationError> {
        let format = Format::parse(&self.format)?;
        let key = Template::parse(&self.key, "--key")?;
        format.check(&key, "--key")?;
        if self.time.is_some() && !matches!(format, Format::Json(_)) {
            return Err(SimulationError::usage(
                "--time names a field of a log of JSON: give --format json, caddy, traefik or envoy",
            ));
        }
        let options = LogOptions {
            format: &format,
            key: &key,
            time: self.time.as_deref(),
            skip_malformed: self.skip_malformed,
            has_rules,
        };
        let read = read_file(log, &options)?;
        let (start_us, reading) = (read.start_us, reading(&read.summary));
        let scenario = Scenario::logged(read, duration_us);
        let duration_us = scenario.duration_us;
        let traffic =
            Traffic { source: "log", start: written(start_us), duration_us, seed: None, log: Some(reading) };
        Ok((traffic, scenario))
    }
}

fn reading(summary: &LogSummary) -> LogReading {
    let LogSummary { lines, malformed, malformed_examples, without_key, is_spread } = summary.clone();
    LogReading { lines, malformed, malformed_examples, without_key, spread_inside_seconds: is_spread }
}

/// A time as in RFC 3339.
fn written(time_us: u64) -> String {
    let time = i64::try_from(time_us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    time.map_or_else(String::new, |time| time.to_string())
}
