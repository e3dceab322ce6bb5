//! Requests from the log of a web server.

mod format;
mod json;
mod line;
mod template;
mod time;

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::path::Path;

pub(crate) use format::Format;
pub(crate) use template::Template;

use crate::error::SimulationError;
use crate::facts::{Facts, Record};
use line::Fields;

/// The requests of a log, in the order of their times.
#[derive(Debug)]
pub(crate) struct LogTraffic {
    /// The time of the first request, in microseconds since the Unix epoch.
    pub(crate) start_us: u64,
    pub(crate) records: Vec<Record>,
    pub(crate) keys: Vec<Box<[u8]>>,
    /// What is known about requests, each combination once.
    pub(crate) facts: Vec<Facts>,
    pub(crate) summary: LogSummary,
}

/// How a log was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSummary {
    pub(crate) lines: u64,
    pub(crate) malformed: u64,
    /// What was wrong with the first malformed lines.
    pub(crate) malformed_examples: Vec<String>,
    /// Lines whose key is empty.
    pub(crate) without_key: u64,
    /// Whether all times are whole seconds, so that requests were spread inside of them.
    pub(crate) is_spread: bool,
}

/// How a log is read.
#[derive(Debug)]
pub(crate) struct LogOptions<'a> {
    pub(crate) format: &'a Format,
    pub(crate) key: &'a Template,
    /// The field of the time, where the user names it.
    pub(crate) time: Option<&'a str>,
    pub(crate) skip_malformed: u64,
    /// Whether rules need to know more about requests than their keys.
    pub(crate) has_rules: bool,
}

/// How many malformed lines are quoted.
const EXAMPLES: usize = 5;

/// Reads a log file; `-` is the standard input.
pub(crate) fn read_file(path: &Path, options: &LogOptions<'_>) -> Result<LogTraffic, SimulationError> {
    if path.as_os_str() == "-" {
        return read_log(std::io::stdin().lock(), path, options);
    }
    let file = std::fs::File::open(path).map_err(|error| SimulationError::file("read", path, &error))?;
    read_log(std::io::BufReader::with_capacity(1 << 16, file), path, options)
}

fn read_log(
    mut reader: impl BufRead,
    path: &Path,
    options: &LogOptions<'_>,
) -> Result<LogTraffic, SimulationError> {
    let mut reading = Reading { is_whole: true, ..Reading::default() };
    let (mut line, mut number) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        let length = reader
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .map_err(|error| SimulationError::file("read", path, &error))?;
        if length == 0 {
            break;
        }
        number += 1;
        if number == 1 && line.starts_with(&[0x1f, 0x8b]) {
            return Err(SimulationError::usage(format!(
                "{} is compressed: unpack it, and give the log on standard input with --log -",
                path.display()
            )));
        }
        let text = line.trim_ascii_end();
        if !text.is_empty() {
            reading.summary.lines += 1;
            if let Err(reason) = reading.read(text, options) {
                let at = format!("{}:{number}: {reason}", path.display());
                reading.malformed(at, options.skip_malformed)?;
            }
        }
    }
    reading.finish(path, options.has_rules)
}

/// The longest line, in bytes; the rest counts as the next line.
const MAX_LINE: u64 = 1 << 20;

#[derive(Default)]
struct Reading {
    /// Times since the Unix epoch.
    requests: Vec<(i64, u32, u32)>,
    keys: HashMap<Box<[u8]>, u32>,
    facts: HashMap<Facts, u32>,
    is_whole: bool,
    /// Whether a line had what rules are about.
    has_subject: bool,
    summary: LogSummary,
}

impl Reading {
    fn read(&mut self, line: &[u8], options: &LogOptions<'_>) -> Result<(), String> {
        let fields = options.format.read(line)?;
        let time = fields.time(options.time)?;
        let Some(key) = options.key.fill(|name| fields.get(name)) else {
            self.summary.without_key += 1;
            return Ok(());
        };
        self.is_whole &= time.is_whole;
        let facts = if options.has_rules { facts(&fields) } else { Facts::default() };
        // A request line that is no request, such as what scanners send, is one all the same.
        self.has_subject |= facts.method.is_some() || facts.path.is_some() || fields.get("request").is_some();
        let client = number(&mut self.keys, key.into());
        let facts = number(&mut self.facts, facts);
        self.requests.push((time.us, client, facts));
        Ok(())
    }

    fn malformed(&mut self, message: String, allowed: u64) -> Result<(), SimulationError> {
        self.summary.malformed += 1;
        if self.summary.malformed > allowed {
            let before = self.summary.malformed - 1;
            let skip = if before == 0 {
                "give --skip-malformed COUNT to leave out such lines".to_owned()
            } else {
                format!("{before} lines before it were malformed, and --skip-malformed allows {allowed}")
            };
            return Err(SimulationError::usage(format!("{message}; {skip}")));
        }
        if self.summary.malformed_examples.len() < EXAMPLES {
            self.summary.malformed_examples.push(message);
        }
        Ok(())
    }

    fn finish(mut self, path: &Path, has_rules: bool) -> Result<LogTraffic, SimulationError> {
        // Servers write a line when the response is complete, so lines may be out of order.
        self.requests.sort_by_key(|(time_us, ..)| *time_us);
        if self.is_whole {
            spread(&mut self.requests);
        }
        self.summary.is_spread = self.is_whole;
        let Some((start_us, ..)) = self.requests.first().copied() else {
            return Err(SimulationError::usage(format!(
                "{} has no request with a key, in {} lines: look at --key and --format",
                path.display(),
                self.summary.lines
            )));
        };
        let out_of_range = || {
            SimulationError::usage(format!(
                "{} has times out of range: allowed are 1970 to 2255",
                path.display()
            ))
        };
        let records = self.requests.iter().map(|(time_us, client, facts)| Record {
            time_us: time_us.abs_diff(start_us),
            client: *client,
            facts: *facts,
        });
        let last_us = self.requests.last().map_or(start_us, |(time_us, ..)| *time_us);
        u64::try_from(last_us)
            .ok()
            .filter(|last_us| *last_us <= polylimit::clock::ManualClock::MAX_US)
            .ok_or_else(out_of_range)?;
        if has_rules && !self.has_subject {
            return Err(SimulationError::usage(format!(
                "no line of {} has a method or a path, so rules about them match nothing: look at --format (traefik, envoy, caddy, or \
                 fields named request_method and request_uri), or name a policy by --policy",
                path.display()
            )));
        }
        Ok(LogTraffic {
            start_us: u64::try_from(start_us).map_err(|_| out_of_range())?,
            records: records.collect(),
            keys: in_order(self.keys),
            facts: in_order(self.facts),
            summary: self.summary,
        })
    }
}

/// Spreads the requests of each second evenly inside of it, in their order.
fn spread(requests: &mut [(i64, u32, u32)]) {
    for second in requests.chunk_by_mut(|(one, ..), (other, ..)| one == other) {
        let count = i64::try_from(second.len()).unwrap_or(i64::MAX);
        for (at, (time_us, ..)) in (0..).zip(second) {
            *time_us += at * 1_000_000 / count;
        }
    }
}

/// The number of a value, in the order in which values came.
fn number<T: Eq + std::hash::Hash>(known: &mut HashMap<T, u32>, value: T) -> u32 {
    let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
    *known.entry(value).or_insert(next)
}

fn in_order<T>(known: HashMap<T, u32>) -> Vec<T> {
    let mut values: Vec<_> = known.into_iter().collect();
    values.sort_unstable_by_key(|(_, number)| *number);
    values.into_iter().map(|(value, _)| value).collect()
}

fn facts(fields: &Fields<'_>) -> Facts {
    let bytes = |name: &str| fields.get(name).map(|value| value.as_ref().into());
    let header = |name: &str, field: &str| Some((name.into(), bytes(field)?));
    let headers = [
        header("host", "host"),
        header("user-agent", "http_user_agent"),
        header("referer", "http_referer"),
        header("x-forwarded-for", "http_x_forwarded_for"),
    ];
    let address = fields.get("remote_addr");
    Facts {
        method: bytes("request_method"),
        path: bytes("uri"),
        address: address.and_then(|value| std::str::from_utf8(&value).ok().map(Into::into)),
        user: bytes("remote_user"),
        headers: headers.into_iter().flatten().collect(),
        others: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
