//! Runs a file of conformance cases through the Rust faces of polylimit, and prints how many cases agree.
//!
//! Usage: `conformance-rust FILE STORE`, where `STORE` is `memory` or the URL of one.

mod cases;
mod face;
mod policies;
mod requests;
mod requests_face;

use std::process::ExitCode;
use std::time::SystemTime;

use polylimit::Limiter;
use polylimit::clock::ManualClock;
use polylimit::storage::Outage;

use cases::{Answer, Case, File, Kind};
use face::Face;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, store] = arguments.as_slice() else {
        eprintln!("usage: conformance-rust FILE STORE");
        return ExitCode::from(2);
    };
    match run(file, store) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance-rust: {error}");
            ExitCode::from(2)
        }
    }
}

/// Both faces, or only the blocking one where `POLYLIMIT_ONE_FACE` is set: on a server that differs from Redis in nothing that a face can
/// see, the other one adds nothing.
fn faces() -> Result<Vec<Face>, Box<dyn std::error::Error>> {
    let mut faces = vec![Face::Blocking];
    if std::env::var_os("POLYLIMIT_ONE_FACE").is_none() {
        faces.push(Face::asynchronous()?);
    }
    Ok(faces)
}

fn run(path: &str, store: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    if let Some(all_agree) = run_policies(path, &text, store)? {
        return Ok(all_agree);
    }
    if let Some(all_agree) = run_requests(path, &text, store)? {
        return Ok(all_agree);
    }
    let file: File = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    if !matches!(file.format, 1 | 2 | 4) {
        return Err(
            format!("{path}: format {} is not known: this runner reads formats 1 to 5", file.format).into()
        );
    }
    if file.cases.is_empty() || file.cases.iter().any(|case| case.ops.is_empty()) {
        return Err(format!("{path}: it has no case, or a case without operations").into());
    }
    let started_us = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros();
    let mut all_agree = true;
    for face in faces()? {
        let mut agreed = 0;
        for (number, case) in file.cases.iter().enumerate() {
            // A store that outlives this process has never seen such a key, not even under the quotas that a case
            // changes to.
            let key = format!("{} {started_us} {number}", face.name());
            match run_case(case, &key, &face, store) {
                Ok(()) => agreed += 1,
                Err(Difference { at, message }) => {
                    println!("{} {store}: case {:?}, operation {at}: {message}", face.name(), case.name);
                }
            }
        }
        println!("{} {store}: {agreed} of {} cases agree", face.name(), file.cases.len());
        all_agree &= agreed == file.cases.len();
    }
    Ok(all_agree)
}

/// Runs a file of format 3; `None` for another format.
fn run_policies(path: &str, text: &str, store: &str) -> Result<Option<bool>, Box<dyn std::error::Error>> {
    let file: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("{path}: {error}"))?;
    if file["format"] != 3 {
        return Ok(None);
    }
    let cases = file["cases"].as_array().filter(|cases| !cases.is_empty()).ok_or("a file without cases")?;
    let mut all_agree = true;
    for face in faces()? {
        let runtime = match &face {
            Face::Blocking => None,
            Face::Asynchronous(runtime) => Some(runtime),
        };
        let mut agreed = 0;
        for case in cases {
            match policies::run_case(case, store, runtime) {
                Ok(()) => agreed += 1,
                Err(message) => println!("{} {store}: case {}, {message}", face.name(), case["name"]),
            }
        }
        println!("{} {store}: {agreed} of {} cases agree", face.name(), cases.len());
        all_agree &= agreed == cases.len();
    }
    Ok(Some(all_agree))
}

/// Runs a file of format 5; `None` for another format.
fn run_requests(path: &str, text: &str, store: &str) -> Result<Option<bool>, Box<dyn std::error::Error>> {
    #[derive(serde::Deserialize)]
    struct Requests {
        cases: Vec<requests::Case>,
    }
    let format: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("{path}: {error}"))?;
    if format["format"] != 5 {
        return Ok(None);
    }
    let Requests { cases } = serde_json::from_str(text).map_err(|error| format!("{path}: {error}"))?;
    let started_us = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros();
    let mut all_agree = !cases.is_empty();
    for face in faces()? {
        let runtime = match &face {
            Face::Blocking => None,
            Face::Asynchronous(runtime) => Some(runtime),
        };
        let mut agreed = 0;
        for (number, case) in cases.iter().enumerate() {
            let prefix = format!("{} {started_us} {number}", face.name());
            let connect = |limiter: &Limiter| {
                let (limiter, prefix) = (limiter.clone(), &prefix);
                Ok(move |operation: &requests::Operation| {
                    let answer = requests_face::answer(operation, prefix, &limiter, runtime);
                    answer.map_err(|error| error.to_string())
                })
            };
            match requests::run_case(case, &prefix, store, connect) {
                Ok(()) => agreed += 1,
                Err(message) => println!("{} {store}: case {:?}, {message}", face.name(), case.name),
            }
        }
        println!("{} {store}: {agreed} of {} cases agree", face.name(), cases.len());
        all_agree &= agreed == cases.len();
    }
    Ok(Some(all_agree))
}

/// Where a case went wrong. The operations after it mean nothing: they build on it.
struct Difference {
    at: usize,
    message: String,
}

fn run_case(case: &Case, key: &str, face: &Face, store: &str) -> Result<(), Difference> {
    let failed = |at| move |error: polylimit::Error| Difference { at, message: format!("refused: {error}") };
    let clock = ManualClock::new(0).map_err(failed(0))?;
    let policy = cases::policy(&case.quotas).map_err(failed(0))?;
    let builder = Limiter::builder().store(url(store)).policy(policy).clock(clock.clone());
    // What the store does not answer must not look as if it did.
    let builder = if store.starts_with("redis") { builder.outage("case", Outage::Deny) } else { builder };
    let limiter = builder.build().map_err(failed(0))?;
    let difference = differs(case, key, face, &limiter, &clock);
    // A manual clock's keys do not expire.
    limiter.blocking().reset(key).map_err(failed(case.ops.len()))?;
    difference
}

fn differs(
    case: &Case,
    key: &str,
    face: &Face,
    limiter: &Limiter,
    clock: &ManualClock,
) -> Result<(), Difference> {
    let failed = |at| move |error: polylimit::Error| Difference { at, message: format!("refused: {error}") };
    for (at, operation) in case.ops.iter().enumerate() {
        clock.set(operation.at_us).map_err(failed(at))?;
        if let Kind::Change = operation.op {
            let Some(quotas) = &operation.quotas else {
                return Err(Difference { at, message: "a change without quotas".to_owned() });
            };
            limiter.set_policy(cases::policy(quotas).map_err(failed(at))?).map_err(failed(at))?;
            continue;
        }
        let mut got = face.answer(limiter, key, operation).map_err(failed(at))?;
        let expected = operation.expect.as_ref().unwrap_or(&NOTHING);
        got.over = got.over.filter(|_| expected.over.is_some());
        got.repeated = got.repeated.filter(|_| expected.repeated.is_some());
        if got != *expected {
            let message = format!(
                "{:?} of {:?} at {} us\n  expected {expected:?}\n  got      {got:?}",
                operation.op, operation.cost, operation.at_us
            );
            return Err(Difference { at, message });
        }
    }
    Ok(())
}

fn url(store: &str) -> &str {
    if store == "memory" { "memory:" } else { store }
}

const NOTHING: Answer = Answer {
    allowed: None,
    remaining: None,
    retry_after_us: None,
    reset_after_us: None,
    delay_us: None,
    taken: None,
    over: None,
    found: None,
    repeated: None,
};
