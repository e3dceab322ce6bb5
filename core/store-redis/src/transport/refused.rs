//! A server's refusal of a command, in words for operators, with its name and version.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::{InfoDict, RedisError, Value};

use crate::transport::session::Session;
use polylimit_rules::decision::Degradation;
use polylimit_runtime::monotonic;

/// The oldest version that has all that the scripts need.
const OLDEST: (u32, u32) = (6, 2);
pub(crate) const NEEDED: &str = "Redis 6.2 or newer or Valkey is needed";
/// A server that keeps refusing is queried for its version at most this often.
const ASKED_EVERY: Duration = Duration::from_secs(1);
const MAX_WORDS: usize = 200;

/// The last refusal of a store's servers.
#[derive(Debug, Default)]
pub(crate) struct LastRefusal {
    /// The reason reported by decisions without the store since the refusal, and what was refused and why.
    text: ArcSwapOption<(Degradation, String)>,
    asked: Mutex<Option<Instant>>,
}

impl LastRefusal {
    /// What was refused and why, if the last refusal was for this reason.
    pub(crate) fn text(&self, reason: Degradation) -> Option<String> {
        self.text.load().as_ref().filter(|refusal| refusal.0 == reason).map(|refusal| refusal.1.clone())
    }

    /// Records a refusal. `true` when it is time to [describe](Self::describe) it.
    pub(crate) fn note(&self, reason: Degradation, server: &str, error: &RedisError) -> bool {
        let now = monotonic::now();
        let mut asked = self.asked.lock();
        let is_known = asked.is_some_and(|asked| now.saturating_duration_since(asked) < ASKED_EVERY);
        if !is_known {
            *asked = Some(now);
            self.set(reason, format!("{server} refuses a command: {}", words(error)));
        }
        !is_known
    }

    /// Records a refusal by a server, which is queried for its name and version.
    pub(crate) async fn describe(
        &self,
        reason: Degradation,
        session: &mut Session,
        server: &str,
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
            (_, Some(identity)) if identity.is_original() && !identity.is_too_old() => String::new(),
            _ => format!("; {NEEDED}"),
        };
        let identity =
            identity.map_or_else(|| "which reports no version".to_owned(), |identity| identity.to_string());
        let words = words(error);
        self.set(reason, format!("{server} ({identity}) refuses a command: {words}{advice}"));
    }

    fn set(&self, reason: Degradation, text: String) {
        self.text.store(Some(Arc::new((reason, text))));
    }
}

/// The name and the version of a server.
#[derive(Debug)]
pub(crate) struct Identity {
    name: String,
    version: String,
}

impl Identity {
    fn new(name: &str, version: String) -> Self {
        Self { name: name.to_owned(), version }
    }

    /// Reads it from the reply to `INFO`.
    pub(crate) fn of_info(info: &InfoDict) -> Option<Self> {
        let field = |name| info.get::<String>(name);
        let valkey = field("valkey_version").map(|version| Self::new("Valkey", version));
        valkey.or_else(|| field("redis_version").map(|version| Self::new("Redis", version)))
    }

    /// Queries a server for it, which may refuse one command or both.
    async fn of(session: &mut Session) -> Option<Self> {
        if let Ok(info) = session.ask::<InfoDict>(redis::cmd("INFO").arg("server")).await
            && let Some(identity) = Self::of_info(&info)
        {
            return Some(identity);
        }
        let hello: Vec<Value> = session.ask(redis::cmd("HELLO").arg(2)).await.ok()?;
        let text = |value: &Value| redis::from_redis_value_ref::<String>(value).ok();
        let field = |name: &str| {
            let at = hello.iter().step_by(2).position(|key| text(key).as_deref() == Some(name))?;
            hello.get(2 * at + 1).and_then(text)
        };
        let server = field("server")?;
        let name = match &*server {
            "redis" => "Redis",
            "valkey" => "Valkey",
            imitation => imitation,
        };
        Some(Self::new(name, field("version")?))
    }

    fn is_original(&self) -> bool {
        matches!(&*self.name, "Redis" | "Valkey")
    }

    pub(crate) fn is_too_old(&self) -> bool {
        let mut numbers = self.version.split('.').map(|number| number.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", printable(&self.name), printable(&self.version))
    }
}

/// The message of an error reply, without the arguments that some quote: they contain users' keys.
pub(crate) fn words(error: &RedisError) -> String {
    let (code, detail) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    let detail = detail.split(", with args beginning with").next().unwrap_or_default();
    printable(format!("{code} {detail}").trim())
}

/// The beginning of a server's message, with spaces for control characters.
pub(crate) fn printable(said: &str) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    said.chars().map(shown).take(MAX_WORDS).collect()
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
        assert_eq!(words("ERR a\x1b[31mb"), "ERR a [31mb");
        assert_eq!(words(&format!("ERR {}", "x".repeat(500))).len(), MAX_WORDS);
    }
}
