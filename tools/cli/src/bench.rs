//! Measures how fast a store decides.
//!
//! The checks have keys and a policy of their own: the quotas in a scope with a random name, so that nothing that services count
//! is touched, and that no right is needed which services do not have. What was written is reset at the end, also after an interrupt;
//! after a kill it expires.

mod load;
mod zipf;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use polylimit::Quota;
use serde::Serialize;

use crate::arguments::{BenchArguments, GlobalOptions};
use crate::bench::load::{Load, Seen};
use crate::bench::zipf::KeyChoice;
use crate::exit::{Exit, Failure};
use crate::progress::Progress;
use crate::terminal::Terminal;

#[derive(Serialize)]
struct BenchReport {
    quotas: String,
    keys: u32,
    zipf: f64,
    callers: u32,
    rate: Option<u32>,
    seconds: f64,
    checks: u64,
    checks_per_second: f64,
    /// Checks of the rate that had to start and could not, since all callers were waiting.
    not_started: u64,
    allowed: u64,
    denied: u64,
    undecided: u64,
    keys_reset: u64,
    latency: Latency,
}

/// In microseconds: with a rate from when a check was to start, otherwise from its start.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "each name ends with the unit")]
struct Latency {
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
    p99_99_us: f64,
    max_us: f64,
}

impl Latency {
    fn of(seen: &Seen) -> Self {
        let us = |quantile: f64| number(seen.latencies.value_at_quantile(quantile)) / 1_000.0;
        Self {
            mean_us: seen.latencies.mean() / 1_000.0,
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            p99_9_us: us(0.999),
            p99_99_us: us(0.9999),
            max_us: us(1.0),
        }
    }

    fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("mean", self.mean_us),
            ("p50", self.p50_us),
            ("p90", self.p90_us),
            ("p99", self.p99_us),
            ("p99.9", self.p99_9_us),
            ("p99.99", self.p99_99_us),
            ("max", self.max_us),
        ]
    }
}

pub(crate) fn run(
    options: &GlobalOptions,
    arguments: &BenchArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    if !(0.0..=5.0).contains(&arguments.zipf) {
        return Err(Failure::usage(format!("--zipf is {}: allowed is 0 to 5", arguments.zipf)));
    }
    let (limiter, policy) = options.limiter_for(&arguments.policy)?;
    let limiter = limiter.asynchronous().clone();
    let quotas = policy.quotas().iter().map(Quota::to_string).collect::<Vec<_>>().join("; ");
    let scope = format!("bench-{:016x}", fastrand::u64(..));
    let policy = limiter.policy_for(Some(&quotas), Some(&scope))?;
    let words = arguments.keys.div_ceil(64) as usize;
    let load = Arc::new(Load {
        limiter,
        policy: policy.name().to_owned(),
        keys: KeyChoice::new(arguments.keys, arguments.zipf),
        callers: arguments.callers,
        rate: arguments.rate,
        lasts: Duration::from_secs(arguments.seconds.into()),
        interrupted: AtomicBool::new(false),
        asked: (0..words).map(|_| AtomicU64::new(0)).collect(),
    });
    let (started, seconds) = (Instant::now(), u64::from(arguments.seconds));
    let progress = Progress::new(terminal, "checking {bar:40} {pos}/{len} s", Some(seconds))
        .following(move || started.elapsed().as_secs().min(seconds));
    let seen = load.run()?;
    drop(progress);
    let keys_reset = load.clean_up()?;
    if let Some(error) = seen.error {
        return Err(error.into());
    }
    let exit = if seen.undecided > 0 || load.is_interrupted() { Exit::Undecided } else { Exit::Fine };
    let report = BenchReport {
        quotas,
        keys: arguments.keys,
        zipf: arguments.zipf,
        callers: arguments.callers,
        rate: arguments.rate,
        seconds: seen.took.as_secs_f64(),
        checks: seen.checks(),
        not_started: arguments
            .rate
            .map_or(0, |rate| (u64::from(rate) * u64::from(arguments.seconds)).saturating_sub(seen.checks())),
        checks_per_second: number(seen.checks()) / seen.took.as_secs_f64(),
        allowed: seen.allowed,
        denied: seen.denied,
        undecided: seen.undecided,
        keys_reset,
        latency: Latency::of(&seen),
    };
    if options.json {
        terminal.json(&report)?;
    } else {
        show(&report, terminal)?;
    }
    Ok(exit)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "latencies in nanoseconds and numbers of checks are below 2^53"
)]
fn number(whole: u64) -> f64 {
    whole as f64
}

fn show(report: &BenchReport, terminal: &mut Terminal) -> Result<(), Failure> {
    let BenchReport { checks, seconds, checks_per_second, allowed, denied, undecided, .. } = report;
    terminal.line(format_args!("{checks} checks in {seconds:.1} s: {checks_per_second:.0} a second"))?;
    terminal.line(format_args!("{allowed} allowed, {denied} denied, {undecided} undecided"))?;
    if report.not_started > 0 {
        terminal.line(format_args!(
            "{} could not start in time: more --callers, or a lower --rate",
            report.not_started
        ))?;
    }
    let from = if report.rate.is_some() { "from the intended start" } else { "from the start" };
    terminal.line(format_args!("latency {from}, in microseconds"))?;
    for (name, us) in report.latency.named() {
        terminal.line(format_args!("  {name:<7}{us:>12.1}"))?;
    }
    Ok(())
}
