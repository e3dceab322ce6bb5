//! Runs a file of conformance cases through a server, over HTTP and, as far as its commands go, over RESP, and prints how many cases
//! agree.
//!
//! Usage: `conformance-server FILE STORE`, where `STORE` is `memory` or the URL of one.

#[path = "../../rust/src/cases.rs"]
mod cases;
mod face;
#[path = "../../rust/src/policies.rs"]
mod policies;
mod policy_face;
#[path = "../../rust/src/requests.rs"]
mod requests;
mod requests_face;
mod service;

use std::process::ExitCode;
use std::time::SystemTime;

use polylimit::Limiter;
use polylimit::clock::ManualClock;
use polylimit::storage::Outage;
use tokio::runtime::Runtime;

use cases::{Answer, Case, File, Kind};
use face::{Client, Face};
use policies::DocumentSource;
use policy_face::{PolicyClient, Ways};
use service::Service;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, store] = arguments.as_slice() else {
        eprintln!("usage: conformance-server FILE STORE");
        return ExitCode::from(2);
    };
    match run(file, store) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance-server: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(path: &str, store: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let file: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    if file["format"] == 3 {
        return run_policies(&file, store, &runtime);
    }
    if file["format"] == 5 {
        return run_requests(&file, store, &runtime);
    }
    let file: File = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    if !matches!(file.format, 1 | 2 | 4) {
        return Err(
            format!("{path}: format {} is not known: this runner reads formats 1 to 5", file.format).into()
        );
    }
    let started_us = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros();
    let mut all_agree = true;
    for face in [Face::Http, Face::Resp] {
        let (mut agreed, mut all) = (0, 0);
        for (number, case) in file.cases.iter().enumerate().filter(|(_, case)| face.knows(case)) {
            all += 1;
            // A store that outlives this process has never seen such a key.
            let key = format!("{} {started_us} {number}", face.name());
            match run_case(case, &key, face, store, &runtime) {
                Ok(()) => agreed += 1,
                Err(message) => println!("{} {store}: case {:?}, {message}", face.name(), case.name),
            }
        }
        all_agree &= agree(face, store, agreed, all)?;
    }
    Ok(all_agree)
}

/// Prints how many cases agree, and returns whether all do. RESP has neither reservations nor groups, which a whole file may be about.
fn agree(face: Face, store: &str, agreed: usize, all: usize) -> Result<bool, String> {
    match (face, all) {
        (Face::Resp, 0) => return Ok(true),
        (Face::Http, 0) => return Err("the file has no case for HTTP".to_owned()),
        _ => println!("{} {store}: {agreed} of {all} cases agree", face.name()),
    }
    Ok(agreed == all)
}

/// Runs a file of format 3 through both protocols, as far as each can express a case, and says how many operations the server has
/// answered and how many its limiter, because there is no path for them.
fn run_policies(
    file: &serde_json::Value,
    store: &str,
    runtime: &Runtime,
) -> Result<bool, Box<dyn std::error::Error>> {
    let cases = file["cases"].as_array().filter(|cases| !cases.is_empty()).ok_or("a file without cases")?;
    let source = if store.starts_with("redis") { DocumentSource::Store } else { DocumentSource::Program };
    let mut all_agree = true;
    for face in [Face::Http, Face::Resp] {
        let (mut agreed, mut all, mut ways) = (0, 0, Ways::default());
        for case in cases.iter().filter_map(|case| policy_face::expressed(face, case)) {
            all += 1;
            let counted = &mut ways;
            let result = policies::run_case_by(&case, store, source, move |limiter| {
                let service = Service::start(runtime, &limiter)?;
                let mut client = PolicyClient::new(limiter, service, face, source)?;
                Ok(move |operation: &serde_json::Value| client.answer(operation, counted))
            });
            match result {
                Ok(()) => agreed += 1,
                Err(message) => println!("{} {store}: case {}, {message}", face.name(), case["name"]),
            }
        }
        let Ways { face: by_face, admin: by_admin, limiter: by_limiter } = ways;
        let others: Vec<String> = by_limiter.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        println!(
            "{} {store}: {by_face} operations by {}, {by_admin} by admin paths, {} by the limiter itself{}{}",
            face.name(),
            face.name(),
            by_limiter.values().sum::<usize>(),
            if others.is_empty() { "" } else { ": " },
            others.join(", ")
        );
        all_agree &= agree(face, store, agreed, all)?;
    }
    Ok(all_agree)
}

/// Runs a file of format 5 over HTTP: commands over RESP are about one key.
fn run_requests(
    file: &serde_json::Value,
    store: &str,
    runtime: &Runtime,
) -> Result<bool, Box<dyn std::error::Error>> {
    let cases = file["cases"].as_array().filter(|cases| !cases.is_empty()).ok_or("a file without cases")?;
    let started_us = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros();
    let mut agreed = 0;
    for (number, case) in cases.iter().enumerate() {
        let case: requests::Case = serde_json::from_value(case.clone())?;
        let prefix = format!("http {started_us} {number}");
        let connect = |limiter: &Limiter| {
            let service = Service::start(runtime, limiter)?;
            let (mut client, prefix) = (service.http()?, &prefix);
            Ok(move |operation: &requests::Operation| {
                // It lives as long as its client.
                let _ = &service;
                requests_face::answer(operation, prefix, &mut client)
            })
        };
        match requests::run_case(&case, &prefix, store, connect) {
            Ok(()) => agreed += 1,
            Err(message) => println!("http {store}: case {:?}, {message}", case.name),
        }
    }
    println!("http {store}: {agreed} of {} cases agree", cases.len());
    Ok(agreed == cases.len())
}

fn run_case(case: &Case, key: &str, face: Face, store: &str, runtime: &Runtime) -> Result<(), String> {
    let refused = |error: polylimit::Error| format!("refused: {error}");
    let clock = ManualClock::new(0).map_err(refused)?;
    let policy = cases::policy(&case.quotas).map_err(refused)?;
    let url = if store == "memory" { "memory:" } else { store };
    let builder = Limiter::builder().store(url).policy(policy).clock(clock.clone());
    // What the store does not answer must not look as if it did.
    let builder = if store.starts_with("redis") { builder.outage("case", Outage::Deny) } else { builder };
    let limiter = builder.build().map_err(refused)?;
    let service = Service::start(runtime, &limiter)?;
    let difference = face.client(&service).and_then(|client| differs(case, key, client, &limiter, &clock));
    // A manual clock's keys do not expire.
    limiter.blocking().reset(key).map_err(refused)?;
    difference
}

fn differs(
    case: &Case,
    key: &str,
    mut client: Client,
    limiter: &Limiter,
    clock: &ManualClock,
) -> Result<(), String> {
    for (at, operation) in case.ops.iter().enumerate() {
        let refused = |error: polylimit::Error| format!("operation {at}: refused: {error}");
        clock.set(operation.at_us).map_err(refused)?;
        if let Kind::Change = operation.op {
            let quotas = operation.quotas.as_ref().ok_or("a change without quotas")?;
            limiter.set_policy(cases::policy(quotas).map_err(refused)?).map_err(refused)?;
            continue;
        }
        let mut got = client.answer(key, operation).map_err(|error| format!("operation {at}: {error}"))?;
        let nothing = Answer::default();
        let expected = operation.expect.as_ref().unwrap_or(&nothing);
        got.over = got.over.filter(|_| expected.over.is_some());
        got.repeated = got.repeated.filter(|_| expected.repeated.is_some());
        if got != *expected {
            return Err(format!(
                "operation {at}: {:?} of {:?} at {} us\n  expected {expected:?}\n  got      {got:?}",
                operation.op, operation.cost, operation.at_us
            ));
        }
    }
    Ok(())
}
