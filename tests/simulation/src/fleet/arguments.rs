//! The arguments of `fleet`.

use std::time::Duration;

use clap::Parser;
use polylimit::Policy;
use polylimit::raw::parse_duration;
use polylimit::redis::Lease;

use crate::fleet::Settings;
use crate::fleet::events::parse_events;

/// Simulates many processes with the limiter and one server of Redis, by paused time: docs/fleet.md
#[derive(Debug, Parser)]
#[command(name = "fleet")]
pub struct Arguments {
    /// How many processes there are
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub processes: u32,
    /// The policy of all requests: a name and its quotas
    #[arg(long, default_value = "api=100/minute")]
    pub policy: String,
    /// The requests of the whole fleet, as `polylimit simulate --traffic` takes them; each goes to a process by chance
    #[arg(long, default_value = "10000 clients 1/s poisson")]
    pub traffic: String,
    /// How long requests come
    #[arg(long = "for", default_value = "10s", value_parser = duration)]
    pub lasts: Duration,
    /// The lease of the policy, such as auto
    #[arg(long, value_parser = lease)]
    pub lease: Option<Lease>,
    /// Refunds of one unit in each second, of clients and by processes by chance
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub refunds: u32,
    /// The time to the server and back, in microseconds, without its queue
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub round_trip_us: u32,
    /// Decides everything that is random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What happens meanwhile: 'redis down 6s..9s; 10% partitioned 120s..130s; redis +20ms 180s..240s'
    #[arg(long, default_value = "")]
    pub events: String,
    /// Runs with several numbers of processes: processes=100,1000,5000
    #[arg(long, value_parser = sweep)]
    pub sweep: Option<Sweep>,
    /// Prints one JSON object for each run in place of a table
    #[arg(long)]
    pub json: bool,
}

/// Several numbers of processes.
#[derive(Clone, Debug)]
pub struct Sweep(Vec<u32>);

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn lease(text: &str) -> Result<Lease, String> {
    text.parse().map_err(|error: polylimit::Error| error.to_string())
}

fn sweep(text: &str) -> Result<Sweep, String> {
    let numbers = text.strip_prefix("processes=").map(|numbers| {
        numbers
            .split(',')
            .map(|number| number.parse::<u32>().ok().filter(|number| (1..=100_000).contains(number)))
    });
    let numbers = numbers.and_then(Iterator::collect::<Option<Vec<u32>>>);
    numbers.map(Sweep).ok_or_else(|| {
        "allowed is processes= with numbers from 1 to 100000, such as processes=100,1000".into()
    })
}

impl Arguments {
    /// What the arguments say, for each number of processes.
    ///
    /// # Errors
    /// Policy or events cannot be read.
    pub fn settings(&self) -> Result<Vec<Settings>, String> {
        let (name, quotas) = self.policy.split_once('=').ok_or_else(|| {
            format!("policy {:?}: allowed is a name and quotas, such as api=100/minute", self.policy)
        })?;
        let settings = Settings {
            processes: self.processes as usize,
            policy: Policy::parse(name, quotas).map_err(|error| error.to_string())?,
            traffic: self.traffic.clone(),
            lasts: self.lasts,
            lease: self.lease,
            seed: self.seed,
            events: parse_events(&self.events)?,
            refunds_each_second: self.refunds,
            round_trip: Duration::from_micros(self.round_trip_us.into()),
        };
        let numbers = self.sweep.as_ref().map_or_else(|| vec![self.processes], |sweep| sweep.0.clone());
        let of = |processes: u32| Settings { processes: processes as usize, ..settings.clone() };
        Ok(numbers.into_iter().map(of).collect())
    }
}
