//! The processes that share a store: each writes a report about itself every few seconds, and all reports can be read.

pub(crate) mod report;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::limiter::fleet::report::{DeniedKey, ProcessReport};
use crate::limiter::{Admin, Limiter, Shared, blocking};
use crate::store::Store;
use crate::store::redis::fleet::{FleetConnection, FleetStore};
use polylimit_rules::error::Error;
use polylimit_rules::reservation::id::random_hex;
use polylimit_rules::zone::DATABASE;
use polylimit_runtime::clock::Clock;
use polylimit_store::finding::{Finding, Severity};
use polylimit_store::option::{OptionKind, StoreOption};

pub(crate) const REPORT: StoreOption = StoreOption {
    name: "report",
    kind: OptionKind::Text,
    about: "How often the process reports its counts to the others that share its Redis; by default never.",
    allowed: "1s to 1h",
    default: None,
    secret: false,
};
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3_600);
/// A report is kept for this many intervals.
const LASTS: u32 = 3;

/// Rejects an interval that is out of bounds.
pub(crate) fn check_interval(every: Duration) -> Result<Duration, Error> {
    if (SHORTEST..=LONGEST).contains(&every) {
        return Ok(every);
    }
    Err(Error::invalid_argument(format!("report is {every:?}: allowed is 1s to 1h")))
}

impl Admin<'_> {
    /// The latest reports of the processes that share this limiter's Redis, ordered by host and process number: of
    /// those that report, by the option [`report`](crate::LimiterBuilder::report), and did not end more than three of
    /// their intervals ago. At most 10,000 are read.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the store is not in Redis;
    /// [`StoreUnavailable`](crate::ErrorKind::StoreUnavailable) when Redis does not answer;
    /// [`StoreFailed`](crate::ErrorKind::StoreFailed) when the user lacks the right.
    pub async fn fleet(self) -> Result<Vec<ProcessReport>, Error> {
        let shared = self.limiter.shared();
        shared.registry.check_open()?;
        let Some(store) = store(shared) else {
            return Err(Error::invalid_argument(
                "only processes that share a store in Redis report to each other: this limiter has another store",
            ));
        };
        let texts = store.connect().await?.read().await?;
        let mut reports: Vec<_> = texts.iter().filter_map(|text| ProcessReport::read(text)).collect();
        reports.sort_by(|a, b| (&a.host, a.pid, &a.instance).cmp(&(&b.host, b.pid, &b.instance)));
        Ok(reports)
    }
}

impl Admin<'_> {
    /// The version of the time zone database in this process, and in the processes that report.
    pub(crate) async fn examine_time_zones(self) -> Finding {
        // Without reports, there is nothing to compare with.
        let others = if store(self.limiter.shared()).is_some() { self.fleet().await } else { Ok(Vec::new()) };
        compare_time_zones(&others.unwrap_or_default())
    }
}

fn compare_time_zones(reports: &[ProcessReport]) -> Finding {
    let is_other = |report: &&ProcessReport| !report.time_zones.is_empty() && report.time_zones != DATABASE;
    let others: Vec<_> = reports.iter().filter(is_other).collect();
    let (severity, message) = match others.first() {
        None => {
            (Severity::Fine, format!("the time zone database of this version is that of IANA, {DATABASE}"))
        }
        Some(ProcessReport { time_zones, host, pid, version, .. }) => (
            Severity::Advice,
            format!(
                "this process has the time zone database {DATABASE}, and {} of {} processes that report have another one, such as {time_zones} \
                 in process {pid} on {host} with version {version}: where a government has changed its clocks in between, windows by the \
                 calendar start at different moments; use one version of polylimit",
                others.len(),
                reports.len()
            ),
        ),
    };
    Finding::new(severity, "time_zones", message)
}

impl blocking::Admin<'_> {
    /// See [`Admin::fleet`].
    ///
    /// # Errors
    /// See [`Admin::fleet`].
    pub fn fleet(self) -> Result<Vec<ProcessReport>, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().fleet())?
    }
}

/// The keys that these processes deny most often, over all of them, at most `most`. A key that is not among those most
/// denied by a process is not counted for that process.
pub fn top_denied(reports: &[ProcessReport], most: usize) -> Vec<DeniedKey> {
    let mut sums: HashMap<(&str, &[u8], bool), DeniedKey> = HashMap::new();
    for denied in reports.iter().flat_map(|report| &report.denied) {
        let (bytes, is_digest) = denied.key.parts();
        let sum = sums.entry((&denied.policy, bytes, is_digest));
        sum.and_modify(|sum| sum.count += denied.count).or_insert_with(|| denied.clone());
    }
    let mut keys: Vec<_> = sums.into_values().collect();
    keys.sort_by(|a, b| (b.count, &a.policy, a.key.parts()).cmp(&(a.count, &b.policy, b.key.parts())));
    keys.truncate(most);
    keys
}

impl Shared {
    /// Reports at this interval, until the limiter is closed or dropped.
    pub(crate) fn start_reporting(self: &Arc<Self>, every: Duration) -> Result<(), Error> {
        let reporter =
            Reporter { instance: random_hex::<8>()?, started_at_ms: now_ms(), every, connection: None };
        self.driver()?.spawn(reporter.run(Arc::downgrade(self)));
        Ok(())
    }
}

/// The parts that are the same in every report.
struct Reporter {
    instance: String,
    started_at_ms: u64,
    every: Duration,
    connection: Option<FleetConnection>,
}

impl Reporter {
    async fn run(mut self, shared: Weak<Shared>) {
        // Nothing of the limiter is held while this waits, so that its last user can drop it.
        while let Some((store, report)) = shared.upgrade().and_then(|shared| self.make(&Limiter { shared })) {
            // A report that could not be written is not retried: the next one replaces it.
            if self.write(&store, &report).await.is_err() {
                self.connection = None;
            }
            sleep(self.every).await;
        }
    }

    /// The current report; `None` once the limiter is closed.
    fn make(&self, limiter: &Limiter) -> Option<(FleetStore, ProcessReport)> {
        limiter.shared().registry.check_open().ok()?;
        let mut report = limiter.process_report();
        report.instance.clone_from(&self.instance);
        report.started_at_ms = self.started_at_ms;
        report.every_ms = u64::try_from(self.every.as_millis()).unwrap_or(u64::MAX);
        report.at_ms = now_ms();
        Some((store(limiter.shared())?, report))
    }

    async fn write(&mut self, store: &FleetStore, report: &ProcessReport) -> Result<(), Error> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => store.connect().await?,
        };
        connection.write(&self.instance, &report.written(), report.at_ms, self.every * LASTS).await?;
        self.connection = Some(connection);
        Ok(())
    }
}

#[cfg_attr(
    not(feature = "redis"),
    expect(unreachable_code, reason = "a store that is left out has no values")
)]
fn store(shared: &Shared) -> Option<FleetStore> {
    match &shared.store {
        Store::Redis(store) => Some(store.fleet()),
        Store::Memory(_) | Store::Local(_) | Store::Custom(_) => None,
    }
}

fn now_ms() -> u64 {
    Clock::system().now_us() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_with_another_time_zone_database_are_found() {
        let report = |time_zones: &str| {
            let text = format!(
                r#"{{"instance":"a","host":"h","pid":7,"version":"0.9.0","time_zones":"{time_zones}"}}"#
            );
            ProcessReport::read(text.as_bytes()).unwrap()
        };
        // A version without the field says nothing.
        let same = compare_time_zones(&[report(DATABASE), report("")]);
        assert_eq!((same.severity, same.message.contains(DATABASE)), (Severity::Fine, true));
        let other = compare_time_zones(&[report(DATABASE), report("2019a")]);
        assert_eq!(other.severity, Severity::Advice);
        let about = "1 of 2 processes that report have another one, such as 2019a in process 7 on h with version 0.9.0";
        assert!(other.message.contains(about), "{other}");
    }
}
