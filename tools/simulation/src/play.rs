//! A document of policies under generated requests with attributes, without files or arguments: the playground of the documentation.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use polylimit::clock::ManualClock;
use serde::{Deserialize, Serialize};

use crate::error::{SimulationError, excerpt};
use crate::facts::Facts;
use crate::limits::read_document;
use crate::results::{Course, Timeline};
use crate::scenario::Scenario;
use crate::simulate::{course_of, timeline};
use crate::tally::Timeline as Slots;
use crate::traffic::{Group, as_us, parse_traffic};

/// The most clients, each of which has attributes of its own.
const MAX_CLIENTS: u32 = 20_000;
/// The most attempts, so that a page answers within seconds.
const MAX_ATTEMPTS: u64 = 500_000;

/// A document and its traffic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Play {
    /// The document, in TOML or JSON.
    pub document: String,
    /// The groups of clients, in the form that `polylimit simulate --traffic` takes.
    pub traffic: String,
    /// What the requests of a group are, by its name.
    #[serde(default)]
    pub requests: BTreeMap<String, RequestShape>,
    /// The policy that all clients have, each with a key of its own; without it the rules decide.
    #[serde(default)]
    pub policy: Option<String>,
    /// How long the traffic lasts, such as `10m`.
    #[serde(rename = "for")]
    pub duration: String,
    /// The number from which all random numbers follow.
    #[serde(default)]
    pub seed: u64,
    /// The time of the start, as in RFC 3339.
    #[serde(default = "first_of_2026")]
    pub start: String,
}

fn first_of_2026() -> String {
    "2026-01-01T00:00:00Z".to_owned()
}

/// The attributes of a group's requests. In values `{client}` is the name of the client, and every client has an address of its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestShape {
    /// The method; GET by default.
    pub method: Option<String>,
    /// The path; `/` by default.
    pub path: Option<String>,
    /// Header fields.
    pub headers: BTreeMap<String, String>,
    /// What an application knows under other names, such as `user`.
    pub attributes: BTreeMap<String, String>,
}

/// What a document has done to traffic.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// How long the traffic lasted.
    pub duration_us: u64,
    /// All clients.
    #[serde(flatten)]
    pub course: Course,
    /// Each group of clients.
    pub groups: Vec<GroupTimeline>,
}

/// The requests of one group of clients over time.
#[derive(Clone, Debug, Serialize)]
pub struct GroupTimeline {
    /// Its name.
    pub group: String,
    /// What was admitted and denied in each slot.
    pub timeline: Timeline,
}

impl Play {
    /// Decides every request.
    ///
    /// # Errors
    /// [`SimulationError::Usage`] when a part is not allowed. Mistakes of the document begin with their line and column.
    pub fn run(&self) -> Result<Played, SimulationError> {
        let limits = read_document(&self.document, self.policy.as_deref())?;
        let groups = parse_traffic(&self.traffic)?;
        if let Some(unknown) =
            self.requests.keys().find(|name| groups.iter().all(|group| group.name != **name))
        {
            return Err(SimulationError::usage(format!("the traffic has no group {}", excerpt(unknown))));
        }
        let clients: u32 = groups.iter().map(|group| group.clients).sum();
        if clients > MAX_CLIENTS {
            return Err(SimulationError::usage(format!(
                "there are {clients} clients, allowed are {MAX_CLIENTS}"
            )));
        }
        let (start_us, duration_us) = self.times()?;
        let mut scenario = Scenario::generated(groups, self.seed, start_us, duration_us);
        scenario.give_facts(|group, number, client| self.facts(group, number, client));
        let group_of = group_of_each(scenario.groups());
        let mut slots = vec![Slots::new(duration_us); scenario.groups().len()];
        let mut attempts = 0;
        let course = scenario.course_observed(&limits, |attempt, verdict| {
            slots[group_of[attempt.client as usize]].count(attempt.time_us, verdict.allowed);
            attempts += 1;
            if attempts > MAX_ATTEMPTS {
                return Err(SimulationError::usage(format!(
                    "there are more than {MAX_ATTEMPTS} requests: make the rates lower, or the time shorter"
                )));
            }
            Ok(())
        })?;
        let course = course_of(&limits, &course, &scenario.keys)?;
        let groups = scenario
            .groups()
            .iter()
            .zip(&slots)
            .map(|(group, slots)| GroupTimeline { group: group.name.clone(), timeline: timeline(slots) });
        Ok(Played { duration_us, course, groups: groups.collect() })
    }

    fn times(&self) -> Result<(u64, u64), SimulationError> {
        let duration = polylimit::raw::parse_duration(&self.duration);
        let duration_us = as_us(duration.map_err(|error| {
            SimulationError::usage(format!("for {}: {}", excerpt(&self.duration), error.message()))
        })?);
        let start = self.start.parse::<Timestamp>().ok();
        let start_us = start
            .and_then(|start| u64::try_from(start.as_microsecond()).ok())
            .filter(|start_us| start_us.saturating_add(duration_us) <= ManualClock::MAX_US)
            .ok_or_else(|| {
                SimulationError::usage(format!(
                    "read the start {}, allowed is a time from 1970 to 2254 such as {}",
                    excerpt(&self.start),
                    first_of_2026()
                ))
            })?;
        Ok((start_us, duration_us))
    }

    fn facts(&self, group: &Group, number: u32, client: u32) -> Facts {
        let none = RequestShape::default();
        let shape = self.requests.get(&group.name).unwrap_or(&none);
        let name = group.key(number);
        let filled = |text: &str| text.replace("{client}", &name).into_bytes().into_boxed_slice();
        let each = |values: &BTreeMap<String, String>| {
            values.iter().map(|(name, value)| (name.as_str().into(), filled(value))).collect()
        };
        // Addresses of the block for private networks, from 10.0.0.1 on.
        let address = Ipv4Addr::from(0x0a00_0001 + client).to_string();
        Facts {
            method: Some(filled(shape.method.as_deref().unwrap_or("GET"))),
            path: Some(filled(shape.path.as_deref().unwrap_or("/"))),
            address: Some(address.into()),
            user: None,
            headers: each(&shape.headers),
            others: each(&shape.attributes),
        }
    }
}

/// The number of the group of each client.
fn group_of_each(groups: &[Group]) -> Vec<usize> {
    let each = groups.iter().enumerate();
    each.flat_map(|(at, group)| std::iter::repeat_n(at, group.clients as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "polylimit = 1\n[policies.login]\nquotas = \"2/minute\"\n[[rules]]\nmatch = { method = \"POST\", path = \"/login\" }\napply = [{ policy = \"login\", key = \"{user}\" }]\n";

    fn play(json: &str) -> Result<Played, SimulationError> {
        let mut play: Play = serde_json::from_str(json).unwrap();
        if play.document.is_empty() {
            play.document = DOCUMENT.to_owned();
        }
        play.run()
    }

    #[test]
    fn rules_see_the_attributes_of_each_client() {
        let played = play(
            r#"{"document": "", "for": "1m", "traffic": "in: 2 clients 6/m; other: 1 client 6/m",
                "requests": {"in": {"method": "POST", "path": "/login", "attributes": {"user": "{client}"}}}}"#,
        )
        .unwrap();
        let admitted = |at: usize| played.groups[at].timeline.admitted.iter().sum::<u64>();
        // Two of six for each of the two users; no rule is about the others.
        assert_eq!((admitted(0), admitted(1)), (4, 6));
        assert_eq!((played.course.total.admitted, played.course.total.denied), (10, 8));
        assert_eq!(played.course.policies[0].counts.keys, 2);
    }

    #[test]
    fn a_policy_decides_without_rules() {
        let played = play(
            r#"{"document": "", "policy": "login", "for": "1m", "traffic": "1 client burst=5 every=30s"}"#,
        )
        .unwrap();
        assert_eq!((played.course.total.admitted, played.course.total.denied), (2, 8));
    }

    #[test]
    fn mistakes_are_told() {
        for (json, part) in [
            (
                r#"{"document": "polylimit = 1\n[policies.a]\nquotas = \"5/minuet\"\n", "for": "1m", "traffic": "1 client 1/s"}"#,
                "line 3, column",
            ),
            (r#"{"document": "", "for": "1x", "traffic": "1 client 1/s"}"#, "1x"),
            (r#"{"document": "", "for": "1m", "traffic": "1 client"}"#, "traffic, group 1"),
            (
                r#"{"document": "", "for": "1m", "traffic": "1 client 1/s", "requests": {"x": {}}}"#,
                "no group",
            ),
            (r#"{"document": "", "for": "1m", "traffic": "30000 clients 1/h"}"#, "allowed are 20000"),
            (r#"{"document": "", "for": "1h", "traffic": "9999 clients 90/s"}"#, "more than 500000 requests"),
            (r#"{"document": "", "for": "1m", "traffic": "1 client 1/s", "start": "noon"}"#, "noon"),
            (r#"{"document": "", "for": "1m", "traffic": "1 client 1/s", "policy": "x"}"#, "no policy"),
        ] {
            let message = play(json).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
