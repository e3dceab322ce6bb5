//! Traffic as text: groups of clients, how their requests arrive, and what clients do when they are denied.
//!
//! ```text
//! traffic  = group { ";" group }
//! group    = [ name ":" ] count ( "client" | "clients" ) { word }
//! word     = rate | "even" | "poisson" | "zipf=" exponent | "burst=" requests | "every=" duration
//!          | "from=" duration | "to=" duration | "cost=" units | "denied=" reaction
//! rate     = requests "/" period
//! reaction = "hammer" | "wait" | "leave" | "retry=" duration
//! ```

use std::time::Duration;

use polylimit::raw::parse_duration;
use polylimit::{Quota, Request};

use crate::error::{SimulationError, excerpt};

/// The most clients of all groups.
pub(crate) const MAX_CLIENTS: u32 = 10_000_000;
/// The longest name of a group, in bytes.
const MAX_NAME_LENGTH: usize = 40;
const WORDS: &str = "a rate such as 2/s, even, poisson, zipf=, burst=, every=, from=, to=, cost= or denied=";

/// Clients that behave alike.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// The beginning of the keys of its clients.
    pub(crate) name: String,
    pub(crate) clients: u32,
    pub(crate) arrivals: Arrivals,
    /// The exponent of Zipf's law, by which the clients share the rate of the group.
    pub(crate) zipf: f64,
    pub(crate) from_us: u64,
    /// The end of the group; `None` is that of the simulation.
    pub(crate) to_us: Option<u64>,
    pub(crate) cost: u64,
    pub(crate) reaction: Reaction,
}

/// How the requests of a client arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arrivals {
    /// One after each gap.
    Even { gap_us: f64 },
    /// Independent of each other, with this gap on average.
    Poisson { gap_us: f64 },
    /// This many at once, again and again.
    Burst { size: u32, every_us: u64 },
}

/// What a client does when a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// It goes on as if nothing had happened.
    Hammer,
    /// It repeats the request after the wait of the decision, and sends nothing until then.
    Wait,
    /// It repeats the request after this time, and sends nothing until then.
    Retry { after_us: u64 },
    /// It sends nothing any more.
    Leave,
}

impl Group {
    /// The key of a client, by its number in the group from 1.
    pub(crate) fn key(&self, number: u32) -> String {
        if self.clients == 1 { self.name.clone() } else { format!("{}-{number}", self.name) }
    }
}

/// Reads the groups of a text.
pub(crate) fn parse_traffic(text: &str) -> Result<Vec<Group>, SimulationError> {
    let mut groups: Vec<Group> = Vec::new();
    let mut clients: u32 = 0;
    for (at, part) in text.split(';').enumerate() {
        let refuse =
            |message: String| SimulationError::usage(format!("traffic, group {}: {message}", at + 1));
        let group = parse_group(part).map_err(refuse)?;
        if groups.iter().any(|other| other.name == group.name) {
            return Err(refuse(format!(
                "two groups are called {}: give this one a name of its own, such as bots: 5 clients 2/s",
                group.name
            )));
        }
        clients = clients.saturating_add(group.clients);
        if clients > MAX_CLIENTS {
            return Err(refuse(format!("there are {clients} clients: allowed are up to {MAX_CLIENTS}")));
        }
        groups.push(group);
    }
    Ok(groups)
}

/// What the words of a group have said.
#[derive(Default)]
struct Words {
    rate: Option<f64>,
    poisson: Option<bool>,
    zipf: Option<f64>,
    burst: Option<u32>,
    every_us: Option<u64>,
    from_us: Option<u64>,
    to_us: Option<u64>,
    cost: Option<u64>,
    reaction: Option<Reaction>,
}

fn parse_group(text: &str) -> Result<Group, String> {
    let (name, text) = match text.split_once(':') {
        Some((name, rest)) => (parse_name(name.trim())?, rest),
        None => ("client".to_owned(), text),
    };
    let mut words = text.split_whitespace();
    let count = words.next().ok_or("the text ends, allowed is a group such as 500 clients 2/s")?;
    let clients = number(count, "a number of clients, from 1", 1, u64::from(MAX_CLIENTS))?;
    match words.next() {
        Some("client" | "clients") => {}
        Some(word) => return Err(format!("read {}, allowed is clients", excerpt(word))),
        None => return Err(format!("the text ends after {count}, allowed is clients")),
    }
    let mut said = Words::default();
    for word in words {
        said.read(word)?;
    }
    said.group(name, u32::try_from(clients).unwrap_or(MAX_CLIENTS))
}

fn parse_name(name: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=MAX_NAME_LENGTH).contains(&name.len()) && name.bytes().all(is_allowed) {
        return Ok(name.to_owned());
    }
    Err(format!("the name is {}: allowed are 1 to {MAX_NAME_LENGTH} letters, digits and ._-", excerpt(name)))
}

impl Words {
    fn read(&mut self, word: &str) -> Result<(), String> {
        let Some((name, value)) = word.split_once('=') else {
            return match word {
                "even" => set(&mut self.poisson, false, "even or poisson"),
                "poisson" => set(&mut self.poisson, true, "even or poisson"),
                _ if word.contains('/') => set(&mut self.rate, rate_gap_us(word)?, "a rate"),
                _ => Err(format!("read {}, allowed is {WORDS}", excerpt(word))),
            };
        };
        match name {
            "zipf" => set(&mut self.zipf, exponent(value)?, word),
            "burst" => {
                let size = number(value, "burst= with a number of requests", 1, 1_000_000)?;
                set(&mut self.burst, u32::try_from(size).unwrap_or(1_000_000), word)
            }
            "every" => set(&mut self.every_us, duration_us(word, value)?, word),
            "from" => set(&mut self.from_us, start_us(word, value)?, word),
            "to" => set(&mut self.to_us, duration_us(word, value)?, word),
            "cost" => set(
                &mut self.cost,
                number(value, "cost= with a number of units", 0, Request::MAX_COST)?,
                word,
            ),
            "denied" => set(&mut self.reaction, reaction(word, value)?, word),
            _ => Err(format!("read {}, allowed is {WORDS}", excerpt(word))),
        }
    }

    fn group(self, name: String, clients: u32) -> Result<Group, String> {
        let arrivals = match (self.rate, self.burst, self.every_us) {
            (Some(gap_us), None, None) if self.poisson == Some(true) => Arrivals::Poisson { gap_us },
            (Some(gap_us), None, None) => Arrivals::Even { gap_us },
            (None, Some(size), Some(every_us)) if self.poisson.is_none() && self.zipf.is_none() => {
                Arrivals::Burst { size, every_us }
            }
            (None, None, None) => {
                return Err(
                    "there is no rate: allowed is a rate such as 2/s, or burst=20 every=5s".to_owned()
                );
            }
            (None, ..) => {
                return Err(
                    "burst= and every= belong together, without even, poisson or zipf=: allowed is burst=20 every=5s"
                        .to_owned(),
                );
            }
            (Some(_), ..) => {
                return Err(
                    "there are both a rate and burst= or every=: allowed is one, such as 2/s or burst=20 every=5s"
                        .to_owned(),
                );
            }
        };
        let from_us = self.from_us.unwrap_or(0);
        if self.to_us.is_some_and(|to_us| to_us <= from_us) {
            return Err("to= is not after from=: allowed is a later time such as from=10m to=20m".to_owned());
        }
        Ok(Group {
            name,
            clients,
            arrivals,
            zipf: self.zipf.unwrap_or(0.0),
            from_us,
            to_us: self.to_us,
            cost: self.cost.unwrap_or(1),
            reaction: self.reaction.unwrap_or(Reaction::Hammer),
        })
    }
}

/// Keeps what a word says, which no other word may have said before.
fn set<T>(place: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("read {} again, allowed is one of each kind", excerpt(what))),
    }
}

fn number(read: &str, allowed: &str, least: u64, most: u64) -> Result<u64, String> {
    let digits: String = read.chars().filter(|c| *c != '_').collect();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value = is_number.then(|| digits.parse::<u64>().ok()).flatten();
    value
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| format!("read {}, allowed is {allowed}, {least} to {most}", excerpt(read)))
}

/// The gap between requests at a rate that is written as a quota.
#[expect(clippy::cast_precision_loss, reason = "gaps are random or rounded to microseconds anyway")]
fn rate_gap_us(word: &str) -> Result<f64, String> {
    let wrong = |reason: &str| {
        format!("read {}, allowed is a rate such as 2/s or 30/minute: {reason}", excerpt(word))
    };
    let quota: Quota = word.parse().map_err(|error: polylimit::Error| wrong(error.message()))?;
    if quota.limit() == 0 {
        return Err(wrong("it is 0"));
    }
    if let Some(calendar) = quota.calendar() {
        return Err(wrong(&format!(
            "a {calendar} does not always have the same length: use a period such as 30d"
        )));
    }
    Ok(quota.period().as_micros() as f64 / quota.limit() as f64)
}

fn exponent(value: &str) -> Result<f64, String> {
    let exponent = value.parse::<f64>().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
    exponent.ok_or_else(|| format!("read zipf={value}, allowed is a number from 0 to 10, such as zipf=1.1"))
}

fn duration_us(word: &str, value: &str) -> Result<u64, String> {
    let duration = parse_duration(value);
    let duration = duration.map_err(|error| format!("read {}: {}", excerpt(word), error.message()))?;
    Ok(as_us(duration))
}

/// A duration that may be 0.
fn start_us(word: &str, value: &str) -> Result<u64, String> {
    if value.strip_prefix('0').is_some_and(|unit| matches!(unit, "" | "s" | "m" | "h")) {
        return Ok(0);
    }
    duration_us(word, value)
}

pub(crate) fn as_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn reaction(word: &str, value: &str) -> Result<Reaction, String> {
    Ok(match value {
        "hammer" => Reaction::Hammer,
        "wait" => Reaction::Wait,
        "leave" => Reaction::Leave,
        _ => match value.strip_prefix("retry=") {
            Some(after) => Reaction::Retry { after_us: duration_us(word, after)? },
            None => {
                return Err(format!(
                    "read {}, allowed is denied=hammer, denied=wait, denied=leave or denied=retry=100ms",
                    excerpt(word)
                ));
            }
        },
    })
}

#[cfg(test)]
mod tests;
