//! Follows the configuration in Redis over a connection of its own.
//!
//! It loads everything once and then reads the log: the server answers as soon as there is a record. A record names the
//! previous one; when that is not the last known one, everything is loaded again. So no clock matters, and a trimmed log and a
//! failover to an older copy of the data need no special case.
//!
//! A load takes several commands, between which the database may be emptied. So it ends with a read of the log from the record that
//! was the last one at its beginning: if the log goes on from there, or the main hash is the same, what was read belongs together.
//! Otherwise nothing of it is applied, and whether anything is left is looked up first.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::configuration::log::{LogRead, Record, RecordedChange};
use crate::configuration::{ConfigurationConnection, ConfigurationFailure, RedisConfiguration};
use crate::pipeline::server::Context;
use polylimit_document::source::looking::Looks;
use polylimit_document::source::origin::{Changes, Ended, OriginFailure};
use polylimit_document::source::snapshot::{EntriesChange, Known, StoreChange};
use polylimit_runtime::monotonic;

/// How long the server holds a read of the log that finds no record. Then the main hash is checked: a database that was emptied
/// may have a log whose ids start again.
const READ_FOR: Duration = Duration::from_secs(1);
/// The minimum time between two loads of everything over one connection.
const LOAD_EVERY: Duration = Duration::from_millis(500);
/// The pause after the server refused to return the document.
const PAUSE_WHEN_REFUSED: Duration = Duration::from_secs(5);

/// Follows until the server fails, or nothing receives changes any more.
pub(super) async fn follow(
    store: &RedisConfiguration,
    changes: &Weak<dyn Changes>,
    mut failed: u32,
) -> Ended {
    let (mut has_read, mut moved_to, mut successor) = (false, None, None);
    loop {
        let (Some(looks), Ok(context)) = (looks_of(changes), store.context()) else {
            return Ended { has_read, failure: None, pause: LOAD_EVERY };
        };
        let mut events = context.switches.events();
        let connected = match successor.take() {
            Some(successor) => Ok(successor),
            None => store.connect(moved_to.take()).await,
        };
        let ended = match connected {
            Ok(connection) => {
                let moved = connection.moved(&mut events);
                let mut following = Following { changes, connection, looks, has_read: false };
                let ended = tokio::select! {
                    ended = following.run(store, &context) => ended.map(|open| successor = Some(open)),
                    named = moved => {
                        moved_to = Some(named);
                        Ok(())
                    }
                };
                has_read = following.has_read;
                ended
            }
            Err(failure) => {
                has_read = false;
                Err(failure)
            }
        };
        failed = if has_read { 0 } else { failed.saturating_add(1) };
        if let Err(ConfigurationFailure { error, is_unreachable, is_permanent }) = ended {
            let pause = if is_permanent { PAUSE_WHEN_REFUSED } else { context.pause_after(failed.max(1)) };
            return Ended { has_read, failure: Some(OriginFailure { error, is_unreachable }), pause };
        }
    }
}

fn looks_of(changes: &Weak<dyn Changes>) -> Option<Arc<Looks>> {
    changes.upgrade().map(|changes| Arc::clone(changes.looks()))
}

struct Following<'a> {
    changes: &'a Weak<dyn Changes>,
    connection: ConfigurationConnection,
    looks: Arc<Looks>,
    /// Whether everything in the store has been known at some time.
    has_read: bool,
}

impl Following<'_> {
    /// Follows over this connection until it ends, or until it is old and another one is open, which is returned.
    async fn run(
        &mut self,
        store: &RedisConfiguration,
        context: &Context,
    ) -> Result<ConfigurationConnection, ConfigurationFailure> {
        let mut load_from = monotonic::now();
        let mut replace_at = context.retires_at(load_from);
        let looks = Arc::clone(&self.looks);
        let mut looking = looks.begin();
        let mut is_known = self.is_newest().await?;
        loop {
            if replace_at.is_some_and(|at| at <= monotonic::now()) {
                if let Ok(successor) = store.connect(None).await {
                    return Ok(successor);
                }
                replace_at = Some(monotonic::now() + Context::pause_before_replacing());
            }
            if !is_known {
                sleep(load_from.saturating_duration_since(monotonic::now())).await;
                load_from = monotonic::now() + LOAD_EVERY;
                if !self.load().await? {
                    is_known = self.is_newest().await?;
                    continue;
                }
            }
            self.has_read = true;
            drop(looking);
            looking = looks.begin();
            is_known = self.read().await?;
        }
    }

    /// Waits for changes and applies them; `false` when some are missing.
    async fn read(&mut self) -> Result<bool, ConfigurationFailure> {
        let Some(Known { last, .. }) = self.known() else { return Ok(false) };
        let mut read = self.connection.records(&last, Some(READ_FOR)).await?;
        if read == LogRead::Records(Vec::new()) {
            if self.is_newest().await? {
                return Ok(true);
            }
            // A record may have been added in between.
            read = self.connection.records(&last, None).await?;
        }
        match read {
            LogRead::Records(records) if !records.is_empty() => {
                self.take(records).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether everything that the store has is known. What is gone counts as known: then the last configuration stays.
    async fn is_newest(&mut self) -> Result<bool, ConfigurationFailure> {
        let head = self.connection.head().await?;
        let (Some(follower), Some(known)) = (self.changes.upgrade(), self.known()) else { return Ok(false) };
        let lost = |what: &str| {
            let lost = format!("the {what} in Redis is gone, and the last one stays: publish it again");
            follower.missed(&ConfigurationFailure::refused(lost).error, false);
        };
        match head {
            Some(head) if (head.version, &head.last) == (known.version, &known.last) => {
                if head.document_version == known.document_version || !self.has_document() {
                    follower.reached();
                } else if head.document_version == 0 {
                    lost("document");
                } else {
                    return Ok(false);
                }
            }
            None if known.version == 0 && known.last.is_empty() => follower.reached(),
            None => lost("configuration"),
            Some(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Loads everything, and applies it; `false` when it may not belong together. Changes during the load are in the log after the
    /// record that is read first.
    async fn load(&mut self) -> Result<bool, ConfigurationFailure> {
        let head = self.connection.head().await?;
        if head.is_none() && self.known().is_some_and(|known| known.version > 0) {
            return Ok(false);
        }
        let entries = self.connection.entries().await?;
        let document = if self.has_document() { self.connection.document().await? } else { None };
        if head.is_none() && !(entries.is_empty() && document.is_none()) {
            // It was empty, and may have been emptied since.
            return Ok(false);
        }
        let (version, last) = head.as_ref().map(|head| (head.version, head.last.clone())).unwrap_or_default();
        let records = match self.connection.records(&last, None).await? {
            LogRead::Records(records) if !records.is_empty() => records,
            LogRead::Records(_) if self.connection.head().await? == head => Vec::new(),
            _ => return Ok(false),
        };
        self.change(StoreChange { version, last, document, entries: EntriesChange::All(entries) });
        self.take(records).await?;
        Ok(true)
    }

    async fn take(&mut self, records: Vec<Record>) -> Result<(), ConfigurationFailure> {
        let Some(Record { version, id: last, .. }) = records.last().cloned() else { return Ok(()) };
        let (mut changes, mut is_published) = (Vec::new(), false);
        for record in records {
            match record.change {
                RecordedChange::Document(_) => is_published = true,
                RecordedChange::Entries(some) => changes.extend(some),
            }
        }
        let is_wanted = is_published && self.has_document();
        let document = if is_wanted { self.connection.document().await? } else { None };
        self.change(StoreChange { version, last, document, entries: EntriesChange::Some(&changes) });
        Ok(())
    }

    fn change(&self, change: StoreChange<'_>) {
        if let Some(follower) = self.changes.upgrade() {
            follower.take_change(change);
            follower.reached();
        }
    }

    fn known(&self) -> Option<Known> {
        self.changes.upgrade()?.known()
    }

    /// Whether the document also comes from the store.
    fn has_document(&self) -> bool {
        self.changes.upgrade().is_some_and(|changes| changes.wants_document())
    }
}
