//! The configuration in Redis: its keys, and the connection that reads them.
//!
//! ```text
//! P            = prefix ":1:{configuration}"     the braces are literal: all keys share a slot
//! P            hash: version, last (id of the newest record), document_version, document, digest
//! P:entries    hash: entry to JSON
//! P:documents  hash: document_version to document, the last 32
//! P:log        stream: version, after (id of the record before), by, why, and document (digest) or the changed entries
//! ```
//!
//! A record of the log names a changed entry by a field of its text, such as `deny client 192.0.2.0/24`, whose value is the entry's JSON,
//! or empty if the entry was removed. The text of an entry contains a space, unlike every other field.

mod follow;
pub(crate) mod log;
pub(crate) mod publish;

use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::time::timeout;

use crate::config::Settings;
use crate::config::target::Endpoint;
use crate::configuration::log::{LogRead, read_log};
use crate::pipeline::server::Context;
use crate::routing::hub::Access;
use crate::transport::CONNECT_TIMEOUT;
use crate::transport::cluster_slots::{self, slot};
use crate::transport::connect::{Address, happy_eyeballs};
use crate::transport::failure::{Class, Failure};
use crate::transport::refused::words;
use crate::transport::sentinel::PrimaryEvents;
use crate::transport::server_time::ServerTime;
use crate::transport::session::Session;
use polylimit_document::source::origin::{Changes, Ended, Identity, Origin, Pending};
use polylimit_document::source::publication::{Author, PastChange, PastDocument, Published};
use polylimit_document::source::snapshot::{DocumentText, Entries, EntryChange, Snapshot};
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::{Error, ErrorKind};

/// The time limit of a command: a document or a page of entries takes longer than a decision.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Roughly how many entries are read at once.
const PAGE: usize = 1_000;
/// How many records of the log are read at once.
const RECORDS: usize = 100;
/// The maximum size of all entries together, in bytes.
const MAX_ENTRY_BYTES: usize = 256 << 20;

/// The configuration in the store of one limiter.
#[derive(Clone, Debug)]
pub struct RedisConfiguration {
    access: Arc<Access>,
}

/// Identifies limiters that share connections, by their settings.
struct SettingsIdentity(Arc<Settings>);

impl Identity for SettingsIdentity {
    fn name(&self) -> String {
        self.0.prefix.to_string()
    }

    fn is_same(&self, other: &dyn Identity) -> bool {
        (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
    }
}

/// The names of the keys.
#[derive(Clone, Debug)]
pub(crate) struct ConfigurationKeys {
    pub(crate) head: String,
    pub(crate) entries: String,
    pub(crate) documents: String,
    pub(crate) log: String,
}

impl ConfigurationKeys {
    pub(crate) fn new(prefix: &str) -> Self {
        let head = format!("{prefix}:1:{{configuration}}");
        Self {
            entries: format!("{head}:entries"),
            documents: format!("{head}:documents"),
            log: format!("{head}:log"),
            head,
        }
    }
}

/// Why the configuration could not be read or changed.
#[derive(Debug)]
pub(crate) struct ConfigurationFailure {
    pub(crate) error: Error,
    /// Whether the server did not answer, as opposed to refusing.
    pub(crate) is_unreachable: bool,
    /// Whether retries fail until an operator intervenes.
    pub(crate) is_permanent: bool,
}

/// The fields of the main hash, without the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: u64,
    pub(crate) last: Box<str>,
    pub(crate) document_version: u64,
}

/// A connection to the server that has the configuration.
pub(crate) struct ConfigurationConnection {
    session: Session,
    address: Address,
    primary: Option<Endpoint>,
    context: Arc<Context>,
    keys: ConfigurationKeys,
}

impl RedisConfiguration {
    pub(crate) fn new(access: &Arc<Access>) -> Self {
        Self { access: Arc::clone(access) }
    }

    /// Tries every read that following the configuration needs, on a small scale.
    pub(crate) async fn try_out(&self) -> Result<(), ConfigurationFailure> {
        let mut connection = self.connect(None).await?;
        connection.head().await?;
        connection.records("", None).await?;
        let mut command = redis::cmd("HSCAN");
        command.arg(&connection.keys.entries).arg(0).arg("COUNT").arg(1);
        connection.ask::<Value>(&command, REPLY_TIMEOUT).await.map(drop)
    }

    fn keys(&self) -> ConfigurationKeys {
        ConfigurationKeys::new(&self.access.settings().prefix)
    }

    /// The state that the store's connections share; an error once the limiter is closed.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Error> {
        Ok(Arc::clone(&self.access.hub()?.context))
    }

    /// Connects to the server that has the configuration. `primary` is the one that the sentinels named, if any.
    pub(crate) async fn connect(
        &self,
        primary: Option<Endpoint>,
    ) -> Result<ConfigurationConnection, ConfigurationFailure> {
        self.connect_for(primary, self.keys().head.as_bytes()).await
    }

    /// The same within [`REPLY_TIMEOUT`], for a command of an operator, who would only try again.
    pub(crate) async fn connect_patiently(&self) -> Result<ConfigurationConnection, ConfigurationFailure> {
        self.connect_within(None, self.keys().head.as_bytes(), REPLY_TIMEOUT).await
    }

    /// Connects to the server that has a key.
    pub(crate) async fn connect_for(
        &self,
        primary: Option<Endpoint>,
        key: &[u8],
    ) -> Result<ConfigurationConnection, ConfigurationFailure> {
        self.connect_within(primary, key, CONNECT_TIMEOUT).await
    }

    async fn connect_within(
        &self,
        primary: Option<Endpoint>,
        key: &[u8],
        longest: Duration,
    ) -> Result<ConfigurationConnection, ConfigurationFailure> {
        let context = self.context().map_err(ConfigurationFailure::closed)?;
        let (keys, settings) = (self.keys(), self.access.settings());
        let address = match Address::of(&settings.target.endpoints) {
            Ok(address) => address,
            Err(seeds) => owner(&context, seeds, slot(key)).await?,
        };
        let time = ServerTime::default();
        let connected = context.connector.connect(&address, primary, &time, longest).await?;
        context.switches.listen(&context.connector, &address);
        let session = Session::new(connected.stream);
        Ok(ConfigurationConnection { session, address, primary: connected.primary, context, keys })
    }
}

impl Origin for RedisConfiguration {
    fn identity(&self) -> Arc<dyn Identity> {
        Arc::new(SettingsIdentity(self.access.settings()))
    }

    /// The doctor then checks whether the user may read it.
    fn note_followed(&self) {
        self.access.follows_configuration.store(true, Ordering::Relaxed);
    }

    fn follow<'a>(&'a self, changes: &'a Weak<dyn Changes>, failed: u32) -> Pending<'a, Ended> {
        Box::pin(follow::follow(self, changes, failed))
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
        Box::pin(self.publish_again(document_version, author))
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
        Box::pin(self.read_document(document_version))
    }

    fn entries(&self) -> Pending<'_, Result<(u64, Entries), Error>> {
        Box::pin(self.read_entries())
    }

    fn document_version(&self) -> Pending<'_, Result<u64, Error>> {
        Box::pin(self.read_document_version())
    }

    fn history(&self, most: usize) -> Pending<'_, Result<Vec<PastChange>, Error>> {
        Box::pin(self.read_history(most))
    }
}

/// The node of a cluster that owns a slot.
async fn owner(context: &Context, seeds: &[Endpoint], slot: u16) -> Result<Address, Failure> {
    let asked = seeds.iter().map(|seed| cluster_slots::read(&context.connector, seed));
    let (slots, nodes) = happy_eyeballs(asked.collect()).await?;
    let owner = slots.owner(slot).and_then(|at| nodes.get(at));
    owner.cloned().map(Address::Tcp).ok_or(Failure::not_applied(Degradation::ClusterDown))
}

impl ConfigurationConnection {
    /// Waits until the service has a primary other than this connection's server, and returns it. Waits forever without sentinels.
    pub(crate) fn moved<'a>(
        &self,
        events: &'a mut PrimaryEvents,
    ) -> impl Future<Output = Endpoint> + Send + use<'a> {
        let (context, address, primary) =
            (Arc::clone(&self.context), self.address.clone(), self.primary.clone());
        async move { context.connector.moved(&address, primary, events, context.topology_refresh).await }
    }

    /// The main hash; `None` if there is none.
    pub(crate) async fn head(&mut self) -> Result<Option<Head>, ConfigurationFailure> {
        let fields = self.fields(&["version", "last", "document_version"]).await?;
        let [version, last, document_version] = fields.as_slice() else {
            return Err(ConfigurationFailure::malformed());
        };
        if fields.iter().all(Option::is_none) {
            return Ok(None);
        }
        let last = last.as_deref().unwrap_or_default().into();
        Ok(Some(Head {
            version: number(version.as_deref())?,
            last,
            document_version: number(document_version.as_deref())?,
        }))
    }

    /// The document with its version; `None` if there is none.
    pub(crate) async fn document(&mut self) -> Result<Option<DocumentText>, ConfigurationFailure> {
        let fields = self.fields(&["document_version", "document"]).await?;
        let [version, Some(text)] = fields.as_slice() else { return Ok(None) };
        Ok(Some(DocumentText { version: number(version.as_deref())?, text: text.as_str().into() }))
    }

    async fn fields(&mut self, names: &[&str]) -> Result<Vec<Option<String>>, ConfigurationFailure> {
        let mut command = redis::cmd("HMGET");
        command.arg(&self.keys.head).arg(names);
        let fields: Vec<Option<Vec<u8>>> = self.ask(&command, REPLY_TIMEOUT).await?;
        let text = |bytes| String::from_utf8(bytes).map_err(|_| ConfigurationFailure::malformed());
        fields.into_iter().map(|field| field.map(text).transpose()).collect()
    }

    /// All entries. An entry that changes during the read may have its old or its new value: the log has the change.
    pub(crate) async fn entries(&mut self) -> Result<Entries, ConfigurationFailure> {
        let (mut entries, mut bytes, mut cursor) = (Entries::new(), 0, 0_u64);
        loop {
            let mut command = redis::cmd("HSCAN");
            command.arg(&self.keys.entries).arg(cursor).arg("COUNT").arg(PAGE);
            let (next, page): (u64, Vec<Vec<u8>>) = self.ask(&command, REPLY_TIMEOUT).await?;
            for pair in page.chunks_exact(2) {
                // Only valid text can be an entry.
                if let (Ok(entry), Ok(value)) = (std::str::from_utf8(&pair[0]), std::str::from_utf8(&pair[1]))
                {
                    bytes += entry.len() + value.len();
                    entries.insert(entry.into(), value.into());
                }
            }
            if entries.len() > Snapshot::MAX_ENTRIES || bytes > MAX_ENTRY_BYTES {
                return Err(ConfigurationFailure::refused(format!(
                    "the store has more than {} entries, or more than {} MiB of them: remove some",
                    Snapshot::MAX_ENTRIES,
                    MAX_ENTRY_BYTES >> 20
                )));
            }
            cursor = next;
            if cursor == 0 {
                return Ok(entries);
            }
        }
    }

    /// The records of the log after the one with this id. With `block`, waits that long for the first one.
    pub(crate) async fn records(
        &mut self,
        after: &str,
        block: Option<Duration>,
    ) -> Result<LogRead, ConfigurationFailure> {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(RECORDS);
        if let Some(block) = block {
            command.arg("BLOCK").arg(u64::try_from(block.as_millis()).unwrap_or(u64::MAX));
        }
        command.arg("STREAMS").arg(&self.keys.log).arg(if after.is_empty() { "0-0" } else { after });
        let longest = block.unwrap_or_default() + CONNECT_TIMEOUT;
        let reply: Value = self.ask(&command, longest).await?;
        read_log(reply, after).ok_or_else(ConfigurationFailure::malformed)
    }

    /// Sends a command, and waits for its reply for as long as for a document.
    pub(crate) async fn ask_once<T: redis::FromRedisValue>(
        &mut self,
        command: &Cmd,
    ) -> Result<T, ConfigurationFailure> {
        self.ask(command, REPLY_TIMEOUT).await
    }

    async fn ask<T: redis::FromRedisValue>(
        &mut self,
        command: &Cmd,
        longest: Duration,
    ) -> Result<T, ConfigurationFailure> {
        let session = &mut self.session;
        let asking = async {
            session.send(&command.get_packed_command()).await?;
            session.reply().await
        };
        match timeout(longest, asking).await {
            Ok(answered) => answered.map_err(ConfigurationFailure::from),
            Err(_) => Err(ConfigurationFailure::unreachable("it does not answer")),
        }
    }
}

fn number(text: Option<&str>) -> Result<u64, ConfigurationFailure> {
    text.map_or(Ok(0), |text| text.parse().map_err(|_| ConfigurationFailure::malformed()))
}

impl ConfigurationFailure {
    fn unreachable(why: &str) -> Self {
        let message = format!("the configuration in Redis cannot be reached ({why})");
        Self {
            error: Error::new(ErrorKind::StoreUnavailable, message),
            is_unreachable: true,
            is_permanent: false,
        }
    }

    pub(crate) fn refused(message: impl Into<Box<str>>) -> Self {
        Self { error: Error::new(ErrorKind::StoreFailed, message), is_unreachable: false, is_permanent: true }
    }

    fn malformed() -> Self {
        Self::refused("the configuration in Redis has another form than polylimit writes: publish it again")
    }

    fn closed(error: Error) -> Self {
        Self { error, is_unreachable: false, is_permanent: true }
    }

    fn no_permission() -> Self {
        let refused = Self::refused(
            "the user may not do this with the configuration in Redis: grant %R~{prefix}:1:{configuration}* +xread +hmget \
             +hscan to read it; publishing needs more (docs/redis.md)",
        );
        Self { error: refused.error.of_missing_right(), ..refused }
    }
}

impl From<Failure> for ConfigurationFailure {
    fn from(Failure { class, reason }: Failure) -> Self {
        let mut failure =
            Self { is_permanent: class == Class::Permanent, ..Self::unreachable(reason.name()) };
        if reason == Degradation::Auth {
            failure.error = failure.error.of_missing_right();
        }
        failure
    }
}

impl From<RedisError> for ConfigurationFailure {
    fn from(error: RedisError) -> Self {
        let failure = match error.code() {
            None if error.is_io_error() => Self::unreachable("the connection has ended"),
            None | Some("WRONGTYPE") => Self::malformed(),
            Some("NOPERM") => Self::no_permission(),
            // Of a command in a script.
            Some("ERR")
                if error
                    .detail()
                    .is_some_and(|detail| detail.contains("ACL") || detail.contains("The user")) =>
            {
                Self::no_permission()
            }
            Some("ERR") => Self::refused(format!(
                "the server refuses a command on its configuration: {}; Redis 7.0 or newer or Valkey is needed for it",
                words(&error)
            )),
            // Another server has it now, or the server is starting: the next attempt finds out.
            Some(code) => Self::unreachable(code),
        };
        Self { error: failure.error.caused_by(error), ..failure }
    }
}
