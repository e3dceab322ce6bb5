//! The log: events for operators, one record a line, with the caller and the reason of each change.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use polylimit::admin::Severity;
use polylimit::metrics::DegradedEvent;
use polylimit::raw::{printable, time_text};
use serde_json::{Map, Value};
use tokio::time::Instant;

/// The time in which failed sign-ins are counted into one record.
const SIGN_INS_EVERY: Duration = Duration::from_secs(10);

/// How much a record matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work.
    Error,
    /// Limits cannot be held, or not always; a caller may not be authentic.
    Warn,
    /// A change, and that something works again.
    Info,
}

impl Level {
    /// Every level, from the one that matters most.
    pub const ALL: [Self; 3] = [Self::Error, Self::Warn, Self::Info];

    /// The name, as in records and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
        }
    }
}

/// One record of the log. `Display` writes it as a line of text, in which control characters and those that change the direction of text
/// are escaped; [`json`](Self::json) writes it as an object.
#[derive(Clone, Debug)]
pub struct LogRecord {
    level: Level,
    event: &'static str,
    message: String,
    fields: Vec<(&'static str, String)>,
    at_us: u64,
}

impl LogRecord {
    pub(crate) fn new(level: Level, event: &'static str, message: impl Into<String>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        Self { level, event, message: message.into(), fields: Vec::new(), at_us }
    }

    pub(crate) fn error(event: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Error, event, message)
    }

    pub(crate) fn warn(event: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Warn, event, message)
    }

    pub(crate) fn info(event: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Info, event, message)
    }

    /// Adds a field; an empty value is left out.
    pub(crate) fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.fields.push((name, value));
        }
        self
    }

    /// What the limiter says about its store and its configuration.
    pub(crate) fn of_event(event: &DegradedEvent) -> Self {
        let (level, name) = match (event, event.severity()) {
            (DegradedEvent::Started { .. }, _) => (Level::Warn, "store_away"),
            (DegradedEvent::Ended { .. }, _) => (Level::Info, "store_back"),
            (_, Severity::Fine) => (Level::Info, "finding"),
            _ => (Level::Warn, "finding"),
        };
        let record = Self::new(level, name, event.to_string());
        match (event.reason(), event.finding()) {
            (Some(reason), _) => record.with("reason", reason.name()),
            (None, Some(finding)) => record.with("subject", finding.subject),
            (None, None) => record,
        }
    }

    /// How much the record matters.
    pub fn level(&self) -> Level {
        self.level
    }

    /// What has happened, as a word for programs, such as `store_away` or `key_reset`.
    pub fn event(&self) -> &'static str {
        self.event
    }

    /// The record as an object in one line, with `time`, `level`, `event`, `message` and the fields.
    pub fn json(&self) -> String {
        let fixed = [
            ("time", time_text(self.at_us)),
            ("level", self.level.name().to_owned()),
            ("event", self.event.to_owned()),
            ("message", self.message.clone()),
        ];
        let fields = fixed.into_iter().chain(self.fields.iter().cloned());
        let object: Map<String, Value> =
            fields.map(|(name, value)| (name.to_owned(), value.into())).collect();
        Value::Object(object).to_string()
    }
}

impl fmt::Display for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, event, message, fields, at_us } = self;
        write!(f, "{} {} {event}: {}", time_text(*at_us), level.name(), printable(message))?;
        for (name, value) in fields {
            let value = printable(value);
            let is_word = !value.contains([' ', '"', '=']);
            if is_word { write!(f, " {name}={value}")? } else { write!(f, " {name}={value:?}")? }
        }
        Ok(())
    }
}

/// Failed sign-ins, of which the first is recorded at once and the others together: their number is the client's choice.
#[derive(Default)]
pub(crate) struct FailedSignIns(Mutex<Failed>);

#[derive(Default)]
struct Failed {
    recorded: Option<Instant>,
    since: u64,
}

impl FailedSignIns {
    /// Notes one more, and returns how many have to be recorded now; 0 when it is not time.
    pub(crate) fn note(&self) -> u64 {
        let mut failed = self.0.lock();
        failed.since += 1;
        if failed.recorded.is_some_and(|recorded| recorded.elapsed() < SIGN_INS_EVERY) {
            return 0;
        }
        failed.recorded = Some(Instant::now());
        std::mem::take(&mut failed.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_one_line_whatever_is_in_it() {
        let record = LogRecord::info("key_reset", "a key was reset")
            .with("key", "a\n\u{1b}[31m\u{202e}b")
            .with("why", "");
        let text = record.to_string();
        assert!(text.ends_with(r"info key_reset: a key was reset key=a\u{a}\u{1b}[31m\u{202e}b"), "{text}");
        let json: Value = serde_json::from_str(&record.json()).unwrap_or_default();
        assert_eq!((&json["event"], &json["key"]), (&"key_reset".into(), &"a\n\u{1b}[31m\u{202e}b".into()));
        assert_eq!(record.json().lines().count(), 1);
        assert!(
            LogRecord::warn("a", "b").with("why", "two words").to_string().ends_with(r#"why="two words""#)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn failed_sign_ins_are_counted_together() {
        let failed = FailedSignIns::default();
        assert_eq!([failed.note(), failed.note(), failed.note()], [1, 0, 0]);
        tokio::time::advance(SIGN_INS_EVERY).await;
        assert_eq!(failed.note(), 3);
    }
}
