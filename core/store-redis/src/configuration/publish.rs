//! Changes the configuration in Redis: documents and entries, with their history.
//!
//! Operators and programs that manage limits call these a few times a day, so each call opens its own connection and sends the source of
//! its script.

use redis::{Cmd, Value};
use sha2::{Digest as _, Sha256};

use crate::configuration::log::{Record, RecordedChange, read_range};
use crate::configuration::{
    ConfigurationConnection, ConfigurationFailure, REPLY_TIMEOUT, RedisConfiguration,
};
use polylimit_document::source::changes::{
    check_changes, check_size, refuse_lost_policies, too_many_entries, unknown_document,
};
use polylimit_document::source::publication::{Author, PastChange, PastDocument, PastKind, Published};
use polylimit_document::source::snapshot::{Entries, EntryChange, Snapshot};
use polylimit_rules::error::Error;
use polylimit_rules::report::hex;

const PUBLISH: &str = include_str!("lua/publish.lua");
const ENTRIES: &str = include_str!("lua/entries.lua");

/// How many records of the log are read at once for the history.
const PAGE: usize = 200;

impl RedisConfiguration {
    pub(super) async fn publish_document(
        &self,
        document: &str,
        text: &str,
        expected_version: u64,
        author: Author<'_>,
    ) -> Result<Published, Error> {
        author.check()?;
        check_size(document, text)?;
        let mut connection = self.connect_patiently().await?;
        // The document of a version never changes, and the script replaces only this version: so the document compared here is the one that
        // is replaced.
        match connection.document().await? {
            Some(there) if there.version != expected_version => {
                return Ok(Published::Conflict { document_version: there.version });
            }
            Some(there) => refuse_lost_policies(document, &there.text)?,
            None => {}
        }
        let keys = &connection.keys;
        let mut command = script(PUBLISH, &[&keys.head, &keys.documents, &keys.log]);
        command
            .arg(expected_version)
            .arg(document)
            .arg(digest(document))
            .arg(author.by)
            .arg(author.why)
            .arg(text);
        match *connection.ask::<Vec<u64>>(&command, REPLY_TIMEOUT).await? {
            [1, version, document_version] => Ok(Published::Done { version, document_version }),
            [0, document_version] => Ok(Published::Conflict { document_version }),
            _ => Err(ConfigurationFailure::malformed().error),
        }
    }

    pub(super) async fn put_entries(
        &self,
        changes: &[EntryChange],
        author: Author<'_>,
    ) -> Result<u64, Error> {
        author.check()?;
        check_changes(changes)?;
        let mut connection = self.connect_patiently().await?;
        let keys = &connection.keys;
        let mut command = script(ENTRIES, &[&keys.head, &keys.entries, &keys.log]);
        command.arg(author.by).arg(author.why).arg(Snapshot::MAX_ENTRIES);
        for EntryChange { entry, value } in changes {
            command.arg(&**entry).arg(value.as_deref().unwrap_or_default());
        }
        match *connection.ask::<Vec<u64>>(&command, REPLY_TIMEOUT).await? {
            [1, version] => Ok(version),
            [0, count] => Err(too_many_entries(count)),
            _ => Err(ConfigurationFailure::malformed().error),
        }
    }

    /// The current content, for tests: the texts of document and entries, with their versions.
    ///
    /// # Errors
    /// Redis does not answer, or refuses.
    #[cfg(feature = "testing")]
    pub async fn load(&self) -> Result<Snapshot, Error> {
        let mut connection = self.connect_patiently().await?;
        let head = connection.head().await?;
        let (version, last) = head.map(|head| (head.version, head.last)).unwrap_or_default();
        let document = connection.document().await?;
        Ok(Snapshot { version, last, document, entries: connection.entries().await? })
    }

    pub(super) async fn read_document(
        &self,
        document_version: Option<u64>,
    ) -> Result<Option<(u64, PastDocument)>, Error> {
        let mut connection = self.connect_patiently().await?;
        let version = match document_version {
            Some(version) => version,
            None => connection.head().await?.map_or(0, |head| head.document_version),
        };
        Ok(connection.past_document(version).await?.map(|document| (version, document)))
    }

    pub(super) async fn read_entries(&self) -> Result<(u64, Entries), Error> {
        let mut connection = self.connect_patiently().await?;
        let version = connection.head().await?.map_or(0, |head| head.version);
        Ok((version, connection.entries().await?))
    }

    pub(super) async fn read_document_version(&self) -> Result<u64, Error> {
        Ok(self.connect_patiently().await?.head().await?.map_or(0, |head| head.document_version))
    }

    pub(super) async fn read_history(&self, most: usize) -> Result<Vec<PastChange>, Error> {
        let mut connection = self.connect_patiently().await?;
        // The documents of the log are counted down from this one.
        let mut document_version = connection.head().await?.map_or(0, |head| head.document_version);
        let (mut changes, mut to) = (Vec::new(), "+".to_owned());
        while changes.len() < most {
            let mut command = redis::cmd("XREVRANGE");
            command.arg(&connection.keys.log).arg(&to).arg("-").arg("COUNT").arg(PAGE);
            let page: Vec<Value> = connection.ask(&command, REPLY_TIMEOUT).await?;
            let is_last = page.len() < PAGE;
            for record in read_range(page) {
                to = format!("({}", record.id);
                changes.push(past(record, &mut document_version));
            }
            if is_last {
                break;
            }
        }
        changes.truncate(most);
        Ok(changes)
    }

    pub(super) async fn publish_again(
        &self,
        document_version: u64,
        author: Author<'_>,
    ) -> Result<Published, Error> {
        let mut connection = self.connect_patiently().await?;
        let head = connection.head().await?;
        let Some(PastDocument { document, text, .. }) = connection.past_document(document_version).await?
        else {
            return Err(unknown_document(document_version));
        };
        self.publish_document(&document, &text, head.map_or(0, |head| head.document_version), author).await
    }
}

impl ConfigurationConnection {
    async fn past_document(
        &mut self,
        document_version: u64,
    ) -> Result<Option<PastDocument>, ConfigurationFailure> {
        let mut command = redis::cmd("HMGET");
        command.arg(&self.keys.documents).arg(document_version).arg(format!("text:{document_version}"));
        let (document, text): (Option<String>, Option<String>) = self.ask(&command, REPLY_TIMEOUT).await?;
        Ok(document.map(|document| PastDocument {
            digest: digest(&document),
            text: text.unwrap_or_else(|| document.clone()),
            document,
        }))
    }
}

fn script(source: &str, keys: &[&String]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(source).arg(keys.len()).arg(keys);
    command
}

/// SHA-256 as hexadecimal digits.
fn digest(document: &str) -> String {
    hex(&Sha256::digest(document))
}

fn past(record: Record, document_version: &mut u64) -> PastChange {
    let at_ms = record.id.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(0);
    let what = match record.change {
        RecordedChange::Document(digest) => {
            let this = *document_version;
            *document_version = this.saturating_sub(1);
            PastKind::Document { document_version: this, digest }
        }
        RecordedChange::Entries(changes) => PastKind::Entries(changes),
    };
    PastChange { version: record.version, at_ms, by: record.by, why: record.why, what }
}

impl From<ConfigurationFailure> for Error {
    fn from(failure: ConfigurationFailure) -> Self {
        failure.error
    }
}
