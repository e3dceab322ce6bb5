//! What a server says when it refuses a command, in words for operators, with its name and version.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::{InfoDict, RedisError, Value};

use crate::rules::decision::Degradation;
use crate::runtime::monotonic;
use crate::store::redis::transport::connect::Address;
use crate::store::redis::transport::session::Session;

/// The oldest major version whose scripting has all that the scripts need.
const OLDEST_MAJOR: u32 = 7;
pub(crate) const NEEDED: &str = "Redis 7.0 or newer or Valkey is needed";
/// A server that goes on refusing is asked for its version this often at most.
const ASKED_EVERY: Duration = Duration::from_secs(1);
const MAX_WORDS: usize = 200;

/// The last refusal of a store's servers.
#[derive(Debug, Default)]
pub(crate) struct LastRefusal {
    /// The reason that decisions without the store have since, and what was refused and why.
    text: ArcSwapOption<(Degradation, String)>,
    asked: Mutex<Option<Instant>>,
}

impl LastRefusal {
    /// What was refused and why, if the last refusal was for this reason.
    pub(crate) fn text(&self, reason: Degradation) -> Option<String> {
        self.text.load().as_ref().filter(|refusal| refusal.0 == reason).map(|refusal| refusal.1.clone())
    }

    /// Takes note of a refusal. `true` when it is time to [describe](Self::describe) it.
    pub(crate) fn note(&self, reason: Degradation, address: &Address, error: &RedisError) -> bool {
        let now = monotonic::now();
        let mut asked = self.asked.lock();
        let is_known = asked.is_some_and(|asked| now.saturating_duration_since(asked) < ASKED_EVERY);
        if !is_known {
            *asked = Some(now);
            self.set(reason, format!("{} refuses a command: {}", address.describe(), words(error)));
        }
        !is_known
    }

    /// Takes note of a refusal by a server that is asked for its name and version.
    pub(crate) async fn describe(
        &self,
        reason: Degradation,
        session: &mut Session,
        address: &Address,
        error: &RedisError,
    ) {
        let identity = Identity::of(session).await;
        let advice = match (error.code(), &identity) {
            (Some("MOVED" | "ASK" | "CROSSSLOT"), _) => {
                "; it is a node of a cluster: write redis-cluster:// or rediss-cluster:// in the URL"
                    .to_owned()
            }
            _ if error.detail().is_some_and(|words| words.contains("cluster support disabled")) => {
                "; it is no node of a cluster: write redis:// or rediss:// in the URL".to_owned()
            }
            (_, Some(identity)) if !identity.is_too_old() => String::new(),
            _ => format!("; {NEEDED}"),
        };
        let identity = identity
            .map_or_else(|| "which does not tell its version".to_owned(), |identity| identity.to_string());
        let (server, words) = (address.describe(), words(error));
        self.set(reason, format!("{server} ({identity}) refuses a command: {words}{advice}"));
    }

    fn set(&self, reason: Degradation, text: String) {
        self.text.store(Some(Arc::new((reason, text))));
    }
}

/// The name and the version of a server.
#[derive(Debug)]
pub(crate) struct Identity {
    name: &'static str,
    version: String,
    major: u32,
}

impl Identity {
    fn new(name: &'static str, version: String) -> Self {
        let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        Self { name, version, major }
    }

    /// Reads it from the reply to `INFO`.
    pub(crate) fn of_info(info: &InfoDict) -> Option<Self> {
        let field = |name| info.get::<String>(name);
        let valkey = field("valkey_version").map(|version| Self::new("Valkey", version));
        valkey.or_else(|| field("redis_version").map(|version| Self::new("Redis", version)))
    }

    /// Asks a server for it, which may refuse one command or both.
    async fn of(session: &mut Session) -> Option<Self> {
        if let Ok(info) = session.ask::<InfoDict>(redis::cmd("INFO").arg("server")).await
            && let Some(identity) = Self::of_info(&info)
        {
            return Some(identity);
        }
        let hello: Vec<Value> = session.ask(&redis::cmd("HELLO")).await.ok()?;
        let text = |value: &Value| redis::from_redis_value_ref::<String>(value).ok();
        let field = |name: &str| {
            let at = hello.iter().step_by(2).position(|key| text(key).as_deref() == Some(name))?;
            hello.get(2 * at + 1).and_then(text)
        };
        let name = if field("server").as_deref() == Some("valkey") { "Valkey" } else { "Redis" };
        Some(Self::new(name, field("version")?))
    }

    pub(crate) fn is_too_old(&self) -> bool {
        self.major < OLDEST_MAJOR
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, printable(&self.version))
    }
}

/// The words of an error reply, without the arguments that some quote: they contain users' keys.
pub(crate) fn words(error: &RedisError) -> String {
    let (code, detail) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    let detail = detail.split(", with args beginning with").next().unwrap_or_default();
    printable(format!("{code} {detail}").trim())
}

/// The beginning of what a server says, without control characters.
pub(crate) fn printable(said: &str) -> String {
    said.chars().filter(|letter| !letter.is_control()).take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_no_arguments_no_control_characters_and_a_bound() {
        let words = |line: &str| {
            let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            words(&reply.extract_error().unwrap_err())
        };
        let unknown =
            "ERR unknown command 'EVALSHA', with args beginning with: 'abc' '1' 'polylimit:1:p:{user}' ";
        assert_eq!(words(unknown), "ERR unknown command 'EVALSHA'");
        assert_eq!(words("ERR a\x1b[31mb"), "ERR a[31mb");
        assert_eq!(words(&format!("ERR {}", "x".repeat(500))).len(), MAX_WORDS);
    }
}
