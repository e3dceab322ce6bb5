//! A process that decides as fast as it is allowed to, in rounds that its parent starts.
//!
//! Its first line of input is a [`Setup`]; each further one is a [`Command`], and is answered by one line.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use polylimit::admin::PublishOptions;
use polylimit::reservation::ReserveOptions;
use polylimit::storage::Outage;
use polylimit::{Decision, Error, Limiter, Policy, Request, blocking};
use serde::{Deserialize, Serialize};

/// Much longer than anything takes.
const SOON: Duration = Duration::from_secs(60);
/// The policy that has a quota of concurrent reservations.
pub(crate) const SLOTS: &str = "slots";
/// The policy whose states only the newer build reads.
pub(crate) const WINDOW: &str = "window";
/// Calls that are made at the same time.
const CALLERS: usize = 4;

#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Setup {
    pub(crate) store: String,
    /// Policies by their names.
    pub(crate) policies: BTreeMap<String, String>,
    /// Where the document is; empty without one.
    pub(crate) configuration: String,
    /// Where a copy of it is kept; empty without one.
    pub(crate) copy: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Command {
    /// Every caller makes this many requests for each policy and key.
    Decide {
        policies: Vec<String>,
        keys: Vec<String>,
        requests: usize,
    },
    /// Publishes a document in place of this version.
    Publish {
        document: String,
        expected: u64,
    },
    SetEntry {
        entry: String,
        value: String,
    },
    /// Waits until the version of the configuration is at least this one, or until an error contains this text.
    Wait {
        version: u64,
        error: String,
    },
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Answer {
    /// The units admitted, by policy and key.
    pub(crate) admitted: BTreeMap<String, u64>,
    /// How many decisions of a policy were made without the store, by policy and reason.
    pub(crate) degraded: BTreeMap<String, u64>,
    /// How often a request failed, by policy and message.
    pub(crate) errors: BTreeMap<String, u64>,
    /// The versions of the configuration and of its document.
    pub(crate) version: u64,
    pub(crate) document_version: u64,
    /// Why a newer configuration is not active.
    pub(crate) error: String,
}

impl Answer {
    fn note(&mut self, policy: &str, key: &str, units: u64, decided: Result<&Decision, &Error>) {
        match decided {
            Ok(decision) => {
                if decision.allowed() {
                    *self.admitted.entry(format!("{policy} {key}")).or_default() += units;
                }
                if let Some(reason) = decision.degraded() {
                    *self.degraded.entry(format!("{policy} {}", reason.name())).or_default() += 1;
                }
            }
            Err(error) => *self.errors.entry(format!("{policy} {error}")).or_default() += 1,
        }
    }
}

pub(crate) fn run() {
    let mut lines = stdin().lock().lines().map(Result::unwrap);
    let Some(setup) = lines.next() else { return };
    let limiter = build(&serde_json::from_str(&setup).unwrap());
    for line in lines {
        let answer = perform(&limiter, serde_json::from_str(&line).unwrap());
        let mut out = stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&answer).unwrap()).unwrap();
        out.flush().unwrap();
    }
}

fn build(setup: &Setup) -> blocking::Limiter {
    let mut builder = Limiter::builder().store(&setup.store);
    for (name, quotas) in &setup.policies {
        builder = builder.policy(Policy::parse(name, quotas).unwrap()).outage(name, Outage::Deny);
    }
    if !setup.configuration.is_empty() {
        builder = builder.configuration(&setup.configuration);
    }
    if !setup.copy.is_empty() {
        builder = builder.copy(&setup.copy);
    }
    builder.build().unwrap().blocking()
}

fn perform(limiter: &blocking::Limiter, command: Command) -> Answer {
    match command {
        Command::Decide { policies, keys, requests } => decide(limiter, &policies, &keys, requests),
        Command::Publish { document, expected } => {
            let options = PublishOptions::default().expected_version(expected);
            status(limiter, limiter.admin().publish(&document, options).err())
        }
        Command::SetEntry { entry, value } => {
            status(limiter, limiter.admin().set_entry(&entry, &value).err())
        }
        Command::Wait { version, error } => {
            let started = Instant::now();
            loop {
                let answer = status(limiter, None);
                let is_there = if error.is_empty() {
                    answer.version >= version && answer.error.is_empty()
                } else {
                    answer.error.contains(&error)
                };
                if is_there || started.elapsed() > SOON {
                    return answer;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn status(limiter: &blocking::Limiter, failed: Option<Error>) -> Answer {
    let mut answer = Answer::default();
    if let Some(status) = limiter.admin().configuration() {
        answer.version = status.version;
        answer.document_version = status.document_version;
        answer.error = status.error.map(String::from).unwrap_or_default();
    }
    if let Some(error) = failed {
        answer.error = error.to_string();
    }
    answer
}

fn decide(limiter: &blocking::Limiter, policies: &[String], keys: &[String], requests: usize) -> Answer {
    let answer = Mutex::new(Answer::default());
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let answer = &answer;
            scope.spawn(move || {
                for number in 0..requests {
                    for (policy, key) in
                        policies.iter().flat_map(|policy| keys.iter().map(move |key| (policy, key)))
                    {
                        decide_one(limiter, policy, key, number + caller, answer);
                    }
                }
            });
        }
    });
    answer.into_inner().unwrap()
}

/// A check; every fourth time a reservation that is committed, and every fourth time a request over two keys. Slots are only reserved, and
/// windows never: a process that cannot read them any more cannot commit either, and the units stay reserved for the ttl.
fn decide_one(limiter: &blocking::Limiter, policy: &str, key: &str, number: usize, answer: &Mutex<Answer>) {
    let request = Request::new(key).policy(policy);
    let number = match (policy, number % 4) {
        (SLOTS, _) => 0,
        (WINDOW, 0) => 2,
        (_, number) => number,
    };
    match number {
        0 => match limiter.reserve(request, ReserveOptions::default().max_age(Duration::ZERO)) {
            Ok(reservation) if reservation.allowed() => {
                let decision = reservation.decision().clone();
                match reservation.commit_blocking(1) {
                    Ok(usage) if usage.found() => answer.lock().unwrap().note(policy, key, 1, Ok(&decision)),
                    Ok(usage) => panic!("a commit has found no reservation: {usage:?}"),
                    Err(error) => answer.lock().unwrap().note(policy, key, 1, Err(&error)),
                }
            }
            Ok(reservation) => answer.lock().unwrap().note(policy, key, 1, Ok(reservation.decision())),
            Err(error) => answer.lock().unwrap().note(policy, key, 1, Err(&error)),
        },
        1 => match limiter.check_together(&[request, Request::new(&format!("{key}:2")).policy(policy)]) {
            Ok(decisions) => {
                let mut answer = answer.lock().unwrap();
                // The second key is used by these requests alone, so the first one denies if any does.
                if decisions.iter().all(Decision::allowed) {
                    answer.note(policy, key, 1, Ok(&decisions[0]));
                } else if let Some(decision) = decisions.iter().find(|decision| !decision.allowed()) {
                    answer.note(policy, key, 1, Ok(decision));
                }
            }
            Err(error) => answer.lock().unwrap().note(policy, key, 1, Err(&error)),
        },
        _ => {
            let decided = limiter.check(request);
            answer.lock().unwrap().note(policy, key, 1, decided.as_ref());
        }
    }
}
