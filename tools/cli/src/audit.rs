//! The audit log: which key was reset, blocked or unblocked, by which user and why. Its records have the fields of those that the server writes.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylimit::admin::KeyName;
use polylimit::raw::time_text;
use serde::Serialize;

use crate::arguments::{Author, GlobalOptions, system_user};
use crate::exit::Failure;
use crate::output::key_name;

/// The file of `--audit-log`, where it is given.
pub(crate) struct AuditLog(Option<(PathBuf, File)>);

#[derive(Serialize)]
struct Record<'a> {
    time: String,
    level: &'static str,
    event: &'static str,
    message: &'static str,
    policy: &'a str,
    #[serde(flatten)]
    key: Option<KeyName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    /// How many keys began with the prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
    /// As text, as in the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    for_us: Option<String>,
    by: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'a str,
}

impl AuditLog {
    /// Opens the file. A command opens it before it changes anything: what cannot be recorded is not done.
    pub(crate) fn open(options: &GlobalOptions) -> Result<Self, Failure> {
        let Some(path) = &options.audit_log else { return Ok(Self(None)) };
        let mut opening = OpenOptions::new();
        opening.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut opening, 0o600);
        let file = opening.open(path).map_err(|error| Failure::of_file(path, &error))?;
        Ok(Self(Some((path.clone(), file))))
    }

    pub(crate) fn key_reset(&mut self, policy: &str, key: &OsStr, author: &Author) -> Result<(), Failure> {
        self.write(&Record {
            key: Some(key_name(key)),
            ..Record::of("key_reset", "a key was reset", policy, author)
        })
    }

    pub(crate) fn keys_reset(
        &mut self,
        policy: &str,
        prefix: &OsStr,
        keys: u64,
        author: &Author,
    ) -> Result<(), Failure> {
        self.write(&Record {
            prefix: Some(prefix.to_string_lossy().into_owned()),
            keys: Some(keys),
            ..Record::of("keys_reset", "the keys with a prefix were reset", policy, author)
        })
    }

    /// A block, or its end for no time.
    pub(crate) fn key_blocked(
        &mut self,
        policy: &str,
        key: &OsStr,
        time: Duration,
        author: &Author,
    ) -> Result<(), Failure> {
        let (event, message) = if time.is_zero() {
            ("key_unblocked", "a key was unblocked")
        } else {
            ("key_blocked", "a key was blocked")
        };
        self.write(&Record {
            key: Some(key_name(key)),
            for_us: (!time.is_zero()).then(|| time.as_micros().to_string()),
            ..Record::of(event, message, policy, author)
        })
    }

    /// In one call, so that lines of several processes are not mixed.
    fn write(&mut self, record: &Record<'_>) -> Result<(), Failure> {
        let Some((path, file)) = &mut self.0 else { return Ok(()) };
        let written = serde_json::to_vec(record).map_err(std::io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            file.write_all(&line)
        });
        written.map_err(|error| {
            let file = path.display();
            Failure::usage(format!("{}, and the file {file} cannot record it: {error}", record.message))
        })
    }
}

impl<'a> Record<'a> {
    fn of(event: &'static str, message: &'static str, policy: &'a str, author: &'a Author) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            time: time_text(u64::try_from(now.as_micros()).unwrap_or(u64::MAX)),
            level: "info",
            event,
            message,
            policy,
            key: None,
            prefix: None,
            keys: None,
            for_us: None,
            by: author_name(&system_user(), &author.by),
            why: &author.why,
        }
    }
}

/// The user of this process, and in brackets the name that was given: no user acts in the name of another.
fn author_name(user: &str, by: &str) -> String {
    if by.is_empty() || by == user { user.to_owned() } else { format!("{user} ({by})") }
}
