//! Metrics: every store counts the same, and nothing is lost.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]

mod configured;
mod documented;
mod keys;
mod operations;
mod redis;
mod stores;
mod text;
mod threads;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use polylimit::clock::ManualClock;
use polylimit::metrics::SampleValue;
use polylimit::{Limiter, LimiterBuilder, Policy};
use polylimit_test_servers::{Kind, Server};

const NOW_US: u64 = 1_800_000_000_000_000;

/// A store of each kind, while this lives.
enum Place {
    Memory,
    Local(PathBuf),
    Redis(Box<Server>),
}

impl Place {
    fn all() -> [Self; 3] {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = format!("/dev/shm/polylimit-metrics-{}-{number}", std::process::id());
        [Self::Memory, Self::Local(file.into()), Self::redis()]
    }

    fn redis() -> Self {
        Self::Redis(Box::new(Server::start(Kind::Redis, &[])))
    }

    /// A limiter by a clock that stands still, with a deadline that a loaded machine meets.
    fn builder(&self) -> LimiterBuilder {
        let builder = Limiter::builder().clock(ManualClock::new(NOW_US).unwrap());
        match self {
            Self::Memory => builder.max_keys(1_000),
            Self::Local(path) => builder.store(&format!("file://{}", path.display())).local_size(1 << 20),
            Self::Redis(server) => builder.store(&format!("{}?deadline=10s", server.url())),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Local(_) => "local",
            Self::Redis(_) => "redis",
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Local(path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn policy(name: &str, quotas: &str) -> Policy {
    Policy::parse(name, quotas).unwrap()
}

/// The samples of a family that are not 0, as text without its prefix: labels in braces, then the value.
fn samples(limiter: &Limiter, family: &str) -> Vec<String> {
    let families = limiter.metrics();
    let family = families.iter().find(|known| known.name == format!("polylimit_{family}")).unwrap();
    let mut samples = Vec::new();
    for sample in &family.samples {
        let labels: Vec<_> = sample.labels.iter().map(|(_, value)| &**value).collect();
        let value = match &sample.value {
            SampleValue::Number(number) => number.to_string(),
            SampleValue::Count(count) | SampleValue::Histogram { count, .. } => count.to_string(),
        };
        if value != "0" {
            samples.push(format!("{} {value}", labels.join(",")).trim().to_owned());
        }
    }
    samples
}

/// The sum of a family's counts whose labels have these values, in this order, as far as they are given.
fn count(limiter: &Limiter, family: &str, labels: &[&str]) -> u64 {
    let families = limiter.metrics();
    let family = families.iter().find(|known| known.name == format!("polylimit_{family}")).unwrap();
    let counts = family.samples.iter().filter(|sample| {
        labels.iter().zip(&sample.labels).all(|(wanted, (_, value))| wanted.is_empty() || **wanted == **value)
    });
    counts.map(|sample| if let SampleValue::Count(count) = sample.value { count } else { 0 }).sum()
}
