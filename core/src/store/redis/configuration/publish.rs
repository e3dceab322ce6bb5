//! Changes the configuration in Redis: documents and entries, with their history.
//!
//! Operators and programs that manage limits call these a few times a day, so each call opens its own connection and sends the source of
//! its script.

use redis::{Cmd, Value};
use sha2::{Digest as _, Sha256};

use crate::configuration::document::Document;
use crate::configuration_source::publication::{Author, PastChange, PastDocument, PastKind, Published};
use crate::configuration_source::snapshot::{Entries, EntryChange, Snapshot};
use crate::error::Error;
use crate::report::hex;
use crate::store::redis::configuration::log::{Record, RecordedChange, read_range};
use crate::store::redis::configuration::{
    ConfigurationConnection, ConfigurationFailure, ConfigurationStore, REPLY_TIMEOUT,
};

const PUBLISH: &str = include_str!("lua/publish.lua");
const ENTRIES: &str = include_str!("lua/entries.lua");

/// The maximum number of changes in one call, and in one record of the log.
pub(crate) const MAX_CHANGES: usize = 100;
/// The maximum length of an entry and of its JSON, in bytes.
const MAX_ENTRY: usize = 65_536;
/// The maximum size of all changes of one call, in bytes: a follower reads the records of 100 calls at once.
const MAX_CHANGE_BYTES: usize = 512 << 10;
/// How many records of the log are read at once for the history.
const PAGE: usize = 200;

impl ConfigurationStore {
    /// Publishes a document, given as canonical JSON and as its author wrote it, if the published document has the expected version; 0 if
    /// there is none.
    ///
    /// # Errors
    /// A document or an author that is too long; a document that has lost policies of the published one; Redis does not answer, in which
    /// case the document may have been published; Redis refuses.
    pub(crate) async fn publish(
        &self,
        document: &str,
        text: &str,
        expected_version: u64,
        author: Author<'_>,
    ) -> Result<Published, Error> {
        author.check()?;
        let length = document.len().max(text.len());
        if length > Snapshot::MAX_DOCUMENT {
            return Err(Error::invalid_argument(format!(
                "the document has {length} bytes: allowed are up to {}",
                Snapshot::MAX_DOCUMENT
            )));
        }
        let mut connection = self.connect(None).await?;
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

    /// Sets and removes up to 100 entries, all or none, and returns the resulting version of the configuration.
    ///
    /// # Errors
    /// No changes or too many, an entry or an author that is too long; more than 100,000 entries; Redis does not answer, in which case the
    /// entries may have changed; Redis refuses.
    pub(crate) async fn change_entries(
        &self,
        changes: &[EntryChange],
        author: Author<'_>,
    ) -> Result<u64, Error> {
        author.check()?;
        check_changes(changes)?;
        let mut connection = self.connect(None).await?;
        let keys = &connection.keys;
        let mut command = script(ENTRIES, &[&keys.head, &keys.entries, &keys.log]);
        command.arg(author.by).arg(author.why).arg(Snapshot::MAX_ENTRIES);
        for EntryChange { entry, value } in changes {
            command.arg(&**entry).arg(value.as_deref().unwrap_or_default());
        }
        match *connection.ask::<Vec<u64>>(&command, REPLY_TIMEOUT).await? {
            [1, version] => Ok(version),
            [0, count] => Err(Error::invalid_argument(format!(
                "there would be {count} entries: allowed are up to {}",
                Snapshot::MAX_ENTRIES
            ))),
            _ => Err(ConfigurationFailure::malformed().error),
        }
    }

    /// The current content, for tests: the texts of document and entries, with their versions.
    ///
    /// # Errors
    /// Redis does not answer, or refuses.
    #[cfg(feature = "testing")]
    pub(crate) async fn load(&self) -> Result<Snapshot, Error> {
        let mut connection = self.connect(None).await?;
        let head = connection.head().await?;
        let (version, last) = head.map(|head| (head.version, head.last)).unwrap_or_default();
        let document = connection.document().await?;
        Ok(Snapshot { version, last, document, entries: connection.entries().await? })
    }

    /// The published document, or one of the last 32 by its version, with its version.
    ///
    /// # Errors
    /// Redis does not answer, or refuses.
    pub(crate) async fn published(
        &self,
        document_version: Option<u64>,
    ) -> Result<Option<(u64, PastDocument)>, Error> {
        let mut connection = self.connect(None).await?;
        let version = match document_version {
            Some(version) => version,
            None => connection.head().await?.map_or(0, |head| head.document_version),
        };
        Ok(connection.past_document(version).await?.map(|document| (version, document)))
    }

    /// All current entries, and a version that contains them.
    ///
    /// # Errors
    /// Redis does not answer, or refuses; there are too many entries.
    pub(crate) async fn entries(&self) -> Result<(u64, Entries), Error> {
        let mut connection = self.connect(None).await?;
        let version = connection.head().await?.map_or(0, |head| head.version);
        Ok((version, connection.entries().await?))
    }

    /// The version of the published document; 0 if there is none.
    ///
    /// # Errors
    /// Redis does not answer, or refuses.
    pub(crate) async fn document_version(&self) -> Result<u64, Error> {
        Ok(self.connect(None).await?.head().await?.map_or(0, |head| head.document_version))
    }

    /// The last changes, newest first, as far back as the log has them.
    ///
    /// # Errors
    /// Redis does not answer, or refuses.
    pub(crate) async fn history(&self, most: usize) -> Result<Vec<PastChange>, Error> {
        let mut connection = self.connect(None).await?;
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

    /// Publishes one of the last 32 documents again, as a new version.
    ///
    /// # Errors
    /// The document is no longer stored; as [`publish`](Self::publish).
    pub(crate) async fn rollback(
        &self,
        document_version: u64,
        author: Author<'_>,
    ) -> Result<Published, Error> {
        let mut connection = self.connect(None).await?;
        let head = connection.head().await?;
        let Some(PastDocument { document, text, .. }) = connection.past_document(document_version).await?
        else {
            return Err(Error::invalid_argument(format!(
                "document {document_version} does not exist: allowed is one of the last 32, which the history lists"
            )));
        };
        self.publish(&document, &text, head.map_or(0, |head| head.document_version), author).await
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

/// Refuses a document that followers would refuse. If either document is of a later version, it cannot be read, and nothing is compared.
fn refuse_lost_policies(document: &str, there: &str) -> Result<(), Error> {
    match [document, there].map(|text| Document::parse(text.as_bytes())) {
        [Ok(document), Ok(there)] => document.refuse_lost_policies(&there),
        _ => Ok(()),
    }
}

fn check_changes(changes: &[EntryChange]) -> Result<(), Error> {
    if changes.is_empty() || changes.len() > MAX_CHANGES {
        return Err(Error::invalid_argument(format!(
            "{} entries are changed at once: allowed are 1 to {MAX_CHANGES}",
            changes.len()
        )));
    }
    let mut bytes = 0;
    for EntryChange { entry, value } in changes {
        let value_length = value.as_ref().map_or(0, |value| value.len());
        let length = entry.len().max(value_length);
        bytes += entry.len() + value_length;
        if length > MAX_ENTRY {
            return Err(Error::invalid_argument(format!(
                "an entry or its value has {length} bytes: allowed are up to {MAX_ENTRY}"
            )));
        }
        if !entry.contains(' ') || value.as_ref().is_some_and(|value| value.is_empty()) {
            return Err(Error::invalid_argument(
                "an entry has an invalid form: allowed are `deny ITEM`, `allow ITEM` and `override POLICY KEY`, each with JSON",
            ));
        }
    }
    if bytes > MAX_CHANGE_BYTES {
        return Err(Error::invalid_argument(format!(
            "the changed entries have {bytes} bytes: allowed are up to {MAX_CHANGE_BYTES} at once"
        )));
    }
    Ok(())
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
