//! A configuration in a store outside this crate. The store keeps bytes with a version; this is their meaning.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use crate::source::changes::{
    check_changes, check_size, refuse_lost_policies, too_many_entries, unknown_document,
};
use crate::source::origin::{Changes, Ended, Identity, Origin, OriginFailure, Pending};
use crate::source::publication::{Author, PastChange, PastDocument, PastKind, Published};
use crate::source::snapshot::{
    DocumentText, Entries, EntriesChange, EntryChange, Known, Snapshot, StoreChange,
};
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::report::hex;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::sleep::at_most;
use polylimit_store::interface::{ConfigurationStore, StoreError, StoredConfiguration};

/// How often the store is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a load or a replacement may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How often a change is repeated because another one was faster.
const MAX_ATTEMPTS: usize = 100;
/// How many documents and changes are kept, and how many bytes of documents; the published one is always kept.
const MAX_DOCUMENTS: usize = 32;
const MAX_DOCUMENT_BYTES: usize = 4 << 20;
const MAX_PAST_CHANGES: usize = 200;
/// No store has this version.
const NO_VERSION: u64 = u64::MAX;
/// The form of the content.
const FORMAT: u32 = 1;

/// The configuration in a store outside this crate.
#[derive(Debug)]
pub struct CustomOrigin {
    store: Arc<dyn ConfigurationStore>,
}

/// The content that the store keeps, as JSON.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Content {
    format: u32,
    /// 0 before the first document.
    document_version: u64,
    /// The last documents, the oldest first.
    documents: VecDeque<Texts>,
    entries: Entries,
    /// The newest first.
    changes: VecDeque<Noted>,
    /// What a later version has added.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Texts {
    document_version: u64,
    /// Canonical JSON.
    document: String,
    /// As written by its author.
    text: String,
}

/// A change of the past.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Noted {
    version: u64,
    at_ms: u64,
    by: Box<str>,
    why: Box<str>,
    /// The version and the digest of a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    document: Option<(u64, Box<str>)>,
    /// Entries with their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    entries: Vec<(Box<str>, Option<Box<str>>)>,
}

impl Content {
    fn document(&self, document_version: u64) -> Option<&Texts> {
        self.documents.iter().find(|texts| texts.document_version == document_version)
    }

    fn published(&self) -> Option<&Texts> {
        self.document(self.document_version)
    }

    fn publish(&mut self, document: &str, text: &str) {
        self.document_version += 1;
        let document_version = self.document_version;
        let texts = Texts { document_version, document: document.to_owned(), text: text.to_owned() };
        self.documents.push_back(texts);
        let mut bytes = 0;
        let kept = self.documents.iter().rev().take(MAX_DOCUMENTS).take_while(|texts| {
            let is_first = bytes == 0;
            bytes += texts.document.len() + texts.text.len();
            is_first || bytes <= MAX_DOCUMENT_BYTES
        });
        let dropped = self.documents.len() - kept.count();
        self.documents.drain(..dropped);
    }

    fn change_entries(&mut self, changes: &[EntryChange]) {
        for EntryChange { entry, value } in changes {
            match value {
                Some(value) => drop(self.entries.insert(entry.clone(), value.clone())),
                None => drop(self.entries.remove(entry)),
            }
        }
    }

    fn note(&mut self, noted: Noted) {
        self.changes.push_front(noted);
        self.changes.truncate(MAX_PAST_CHANGES);
    }
}

impl Noted {
    fn new(version: u64, author: Author<'_>) -> Self {
        let at_ms = Clock::system().now_us() / 1_000;
        let (by, why) = (author.by.into(), author.why.into());
        Self { version, at_ms, by, why, document: None, entries: Vec::new() }
    }

    fn into_past(self) -> PastChange {
        let Self { version, at_ms, by, why, document, entries } = self;
        let what = match document {
            Some((document_version, digest)) => PastKind::Document { document_version, digest },
            None => PastKind::Entries(
                entries.into_iter().map(|(entry, value)| EntryChange { entry, value }).collect(),
            ),
        };
        PastChange { version, at_ms, by, why, what }
    }
}

impl CustomOrigin {
    pub fn new(store: Arc<dyn ConfigurationStore>) -> Self {
        Self { store }
    }

    /// The content, if its version is not the known one.
    async fn load(&self, known: u64) -> Result<Option<(u64, Content)>, OriginFailure> {
        let stored = match at_most(ANSWER_WITHIN, self.store.load(known)).await {
            Some(Ok(Some(stored))) => stored,
            Some(Ok(None)) => return Ok(None),
            Some(Err(error)) => return Err(self.unreachable(error)),
            None => return Err(self.unreachable(late())),
        };
        if stored.version == 0 && stored.content.is_empty() {
            return Ok(Some((0, Content { format: FORMAT, ..Content::default() })));
        }
        let read: Result<Content, _> = serde_json::from_slice(&stored.content);
        match read {
            Ok(content) if content.format == FORMAT => Ok(Some((stored.version, content))),
            _ => Err(refused(format!(
                "the configuration in {} has another form than this version of polylimit writes: publish it again",
                self.store.place()
            ))),
        }
    }

    /// The newest content, with its version.
    async fn newest(&self) -> Result<(u64, Content), Error> {
        let loaded = self.load(NO_VERSION).await.map_err(|failure| failure.error)?;
        loaded.ok_or_else(Error::no_answer)
    }

    /// Replaces the content of this version; `false` when another one was faster.
    async fn replace(&self, version: u64, content: &Content) -> Result<bool, Error> {
        let content = serde_json::to_vec(content).map_err(|_| Error::no_answer())?;
        let next = StoredConfiguration { version: version + 1, content };
        match at_most(ANSWER_WITHIN, self.store.replace(version, &next)).await {
            Some(Ok(is_replaced)) => Ok(is_replaced),
            Some(Err(error)) => Err(self.unreachable(error).error),
            None => Err(self.unreachable(late()).error),
        }
    }

    fn unreachable(&self, error: StoreError) -> OriginFailure {
        let message = format!("the configuration in {} cannot be reached: {error}", self.store.place());
        let error = Error::new(ErrorKind::StoreUnavailable, message).caused_by_shared(error.into());
        OriginFailure { error, is_unreachable: true }
    }

    /// The error after too many attempts.
    fn busy(&self) -> Error {
        let message = format!(
            "the configuration in {} was changed by others {MAX_ATTEMPTS} times in a row: try again",
            self.store.place()
        );
        Error::new(ErrorKind::StoreFailed, message)
    }

    async fn publish_document(
        &self,
        document: &str,
        text: &str,
        expected_version: u64,
        author: Author<'_>,
    ) -> Result<Published, Error> {
        author.check()?;
        check_size(document, text)?;
        for _ in 0..MAX_ATTEMPTS {
            let (before, mut content) = self.newest().await?;
            let document_version = content.document_version;
            if document_version != expected_version {
                return Ok(Published::Conflict { document_version });
            }
            if let Some(there) = content.published() {
                refuse_lost_policies(document, &there.document)?;
            }
            content.publish(document, text);
            let (version, document_version) = (before + 1, content.document_version);
            let digest = hex(&Sha256::digest(document)).into();
            content.note(Noted { document: Some((document_version, digest)), ..Noted::new(version, author) });
            if self.replace(before, &content).await? {
                return Ok(Published::Done { version, document_version });
            }
        }
        Err(self.busy())
    }

    async fn put_entries(&self, changes: &[EntryChange], author: Author<'_>) -> Result<u64, Error> {
        author.check()?;
        check_changes(changes)?;
        for _ in 0..MAX_ATTEMPTS {
            let (before, mut content) = self.newest().await?;
            content.change_entries(changes);
            if content.entries.len() > Snapshot::MAX_ENTRIES {
                return Err(too_many_entries(content.entries.len() as u64));
            }
            let version = before + 1;
            let entries = changes.iter().map(|change| (change.entry.clone(), change.value.clone())).collect();
            content.note(Noted { entries, ..Noted::new(version, author) });
            if self.replace(before, &content).await? {
                return Ok(version);
            }
        }
        Err(self.busy())
    }

    /// Looks at the store until it fails, or the follower ends.
    async fn follow_store(&self, changes: &Weak<dyn Changes>) -> Ended {
        let (mut has_read, pause) = (false, LOOK_EVERY);
        while let Some(current) = changes.upgrade() {
            let (known, looks) = (current.known(), Arc::clone(current.looks()));
            drop(current);
            let looking = looks.begin();
            // After a failure everything is read: the store may have been emptied, and have reached the same version since.
            let known_version = known.as_ref().filter(|_| has_read).map_or(NO_VERSION, |known| known.version);
            let loaded = self.load(known_version).await;
            drop(looking);
            let Some(current) = changes.upgrade() else { break };
            match loaded {
                Ok(loaded) => self.take(&*current, known.as_ref(), loaded),
                Err(failure) => return Ended { has_read, failure: Some(failure), pause },
            }
            has_read = true;
            drop(current);
            sleep(LOOK_EVERY).await;
        }
        Ended { has_read, failure: None, pause }
    }

    /// Applies what was loaded; `None` is what is known.
    fn take(&self, changes: &dyn Changes, known: Option<&Known>, loaded: Option<(u64, Content)>) {
        let (version, content) = match (loaded, known) {
            (None, Some(_)) => return changes.reached(),
            (Some((0, _)), Some(known)) if known.version > 0 => {
                let lost = format!(
                    "the configuration in {} is gone, and the last one stays: publish it again",
                    self.store.place()
                );
                return changes.missed(&refused(lost).error, false);
            }
            (loaded, _) => loaded.unwrap_or_default(),
        };
        // A store that was emptied counts its documents anew, so the version alone does not identify one.
        let published = content.published();
        let last: Box<str> =
            published.map(|texts| hex(&Sha256::digest(&texts.document))).unwrap_or_default().into();
        let is_new = known
            .is_none_or(|known| (known.document_version, &known.last) != (content.document_version, &last));
        let published = published.filter(|_| is_new && changes.wants_document());
        let document = published.map(|texts| DocumentText {
            version: content.document_version,
            text: texts.document.as_str().into(),
        });
        let entries = EntriesChange::All(content.entries);
        changes.take_change(StoreChange { version, last, document, entries });
        changes.reached();
    }
}

impl Origin for CustomOrigin {
    fn identity(&self) -> Arc<dyn Identity> {
        Arc::new(SameStore(Arc::clone(&self.store)))
    }

    fn follow<'a>(&'a self, changes: &'a Weak<dyn Changes>, _failed: u32) -> Pending<'a, Ended> {
        Box::pin(self.follow_store(changes))
    }

    fn publish<'a>(
        &'a self,
        document: &'a str,
        text: &'a str,
        expected_version: u64,
        author: Author<'a>,
    ) -> Pending<'a, Result<Published, Error>> {
        Box::pin(self.publish_document(document, text, expected_version, author))
    }

    fn rollback<'a>(
        &'a self,
        document_version: u64,
        author: Author<'a>,
    ) -> Pending<'a, Result<Published, Error>> {
        Box::pin(async move {
            let (_, content) = self.newest().await?;
            let past = content.document(document_version);
            let Texts { document, text, .. } = past.ok_or_else(|| unknown_document(document_version))?;
            self.publish_document(document, text, content.document_version, author).await
        })
    }

    fn change_entries<'a>(
        &'a self,
        changes: &'a [EntryChange],
        author: Author<'a>,
    ) -> Pending<'a, Result<u64, Error>> {
        Box::pin(self.put_entries(changes, author))
    }

    fn published(
        &self,
        document_version: Option<u64>,
    ) -> Pending<'_, Result<Option<(u64, PastDocument)>, Error>> {
        Box::pin(async move {
            let (_, content) = self.newest().await?;
            let version = document_version.unwrap_or(content.document_version);
            Ok(content.document(version).map(|Texts { document, text, .. }| {
                let digest = hex(&Sha256::digest(document));
                (version, PastDocument { document: document.clone(), text: text.clone(), digest })
            }))
        })
    }

    fn entries(&self) -> Pending<'_, Result<(u64, Entries), Error>> {
        Box::pin(async move { self.newest().await.map(|(version, content)| (version, content.entries)) })
    }

    fn document_version(&self) -> Pending<'_, Result<u64, Error>> {
        Box::pin(async move { self.newest().await.map(|(_, content)| content.document_version) })
    }

    fn history(&self, most: usize) -> Pending<'_, Result<Vec<PastChange>, Error>> {
        Box::pin(async move {
            let (_, content) = self.newest().await?;
            Ok(content.changes.into_iter().take(most).map(Noted::into_past).collect())
        })
    }
}

/// Identifies limiters with the same store.
struct SameStore(Arc<dyn ConfigurationStore>);

impl Identity for SameStore {
    fn name(&self) -> String {
        self.0.place()
    }

    fn is_same(&self, other: &dyn Identity) -> bool {
        (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| Arc::ptr_eq(&self.0, &other.0))
    }
}

fn late() -> StoreError {
    format!("it has not answered for {} s", ANSWER_WITHIN.as_secs()).into()
}

fn refused(message: String) -> OriginFailure {
    OriginFailure { error: Error::new(ErrorKind::StoreFailed, message), is_unreachable: false }
}
