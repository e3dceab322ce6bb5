//! The reports of the processes that share a store, in Redis.
//!
//! ```text
//! P                    = prefix ":1:{fleet}"     the braces are literal: all keys share a slot
//! P:report:<instance>  the report of a process as JSON, for three times its interval
//! P:instances          sorted set: each instance, by the time of its last report in milliseconds
//! ```
//!
//! A report is written every few seconds, over a connection that stays open; a read opens its own.

use std::time::Duration;

use redis::Cmd;

use crate::RedisStore;
use crate::configuration::{ConfigurationConnection, ConfigurationFailure, RedisConfiguration};
use polylimit_rules::error::{Error, ErrorKind};

/// How long an instance that no longer reports stays listed.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// The maximum number of instances whose reports are read.
const MAX_INSTANCES: usize = 10_000;
/// How many reports are read at once.
const PAGE: usize = 100;

/// The reports in the store of one limiter.
pub struct FleetStore {
    store: RedisConfiguration,
    head: String,
}

/// A connection to the server that has the reports.
pub struct FleetConnection {
    connection: ConfigurationConnection,
    head: String,
}

impl RedisStore {
    /// The reports of all processes that share this store.
    pub fn fleet(&self) -> FleetStore {
        let head = format!("{}:1:{{fleet}}", self.access.settings().prefix);
        FleetStore { store: self.configuration(), head }
    }
}

impl FleetStore {
    pub async fn connect(&self) -> Result<FleetConnection, Error> {
        let connection = self.store.connect_for(None, self.head.as_bytes()).await.map_err(failed)?;
        Ok(FleetConnection { connection, head: self.head.clone() })
    }
}

impl FleetConnection {
    /// Writes the report of an instance, which expires after this time.
    pub async fn write(
        &mut self,
        instance: &str,
        report: &str,
        at_ms: u64,
        lasts: Duration,
    ) -> Result<(), Error> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut set = redis::cmd("SET");
        set.arg(format!("{}:report:{instance}", self.head)).arg(report).arg("PX").arg(ms(lasts));
        self.ask::<()>(&set).await?;
        let instances = format!("{}:instances", self.head);
        let mut add = redis::cmd("ZADD");
        add.arg(&instances).arg(at_ms).arg(instance);
        self.ask::<u64>(&add).await?;
        let mut forget = redis::cmd("ZREMRANGEBYSCORE");
        forget.arg(&instances).arg("-inf").arg(at_ms.saturating_sub(ms(REMEMBERED)));
        self.ask::<u64>(&forget).await?;
        Ok(())
    }

    /// The texts of all reports, of at most 10,000 instances.
    pub async fn read(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(format!("{}:instances", self.head)).arg(0).arg(MAX_INSTANCES - 1).arg("REV");
        let instances: Vec<String> = self.ask(&range).await?;
        let mut reports = Vec::new();
        for page in instances.chunks(PAGE) {
            let mut command = redis::cmd("MGET");
            for instance in page {
                command.arg(format!("{}:report:{instance}", self.head));
            }
            let found: Vec<Option<Vec<u8>>> = self.ask(&command).await?;
            reports.extend(found.into_iter().flatten());
        }
        Ok(reports)
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Error> {
        self.connection.ask_once(command).await.map_err(failed)
    }
}

fn failed(failure: ConfigurationFailure) -> Error {
    let kind = failure.error.kind();
    match kind {
        ErrorKind::StoreUnavailable => {
            Error::new(kind, "the reports of the fleet cannot be reached in Redis: run the doctor")
        }
        ErrorKind::StoreFailed => Error::new(
            kind,
            "the user may not do this with the reports of the fleet: grant ~{prefix}:1:{fleet}* with +set +zadd +zremrangebyscore to write \
             them, +zrange +mget to read them (docs/redis.md)",
        )
        .of_missing_right(),
        _ => failure.error,
    }
}
