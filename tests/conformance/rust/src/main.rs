//! Runs a file of conformance cases through the Rust faces of polylimit, and prints how many operations agreed.
//!
//! Usage: `conformance-rust FILE STORE`, where `STORE` is `memory`.

mod cases;
mod face;

use std::process::ExitCode;

use polylimit::{Limiter, ManualClock};

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

fn run(path: &str, store: &str) -> Result<bool, Box<dyn std::error::Error>> {
    if store != "memory" {
        return Err(format!("store {store:?} is not known here: use memory").into());
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let file: File = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    if file.format != 1 {
        return Err(format!("{path}: format {} is not known: this runner reads format 1", file.format).into());
    }
    if file.cases.iter().all(|case| case.ops.is_empty()) {
        return Err(format!("{path}: there is no operation in it").into());
    }
    let mut all_agree = true;
    for face in [Face::Blocking, Face::asynchronous()?] {
        let (mut agreed, mut operations) = (0, 0);
        for case in &file.cases {
            operations += case.ops.len();
            match run_case(case, &face) {
                Ok(()) => agreed += case.ops.len(),
                Err(Difference { at, message }) => {
                    agreed += at;
                    println!("{} {store}: case {:?}, operation {at}: {message}", face.name(), case.name);
                }
            }
        }
        println!("{} {store}: {agreed} of {operations} operations agree", face.name());
        all_agree &= agreed == operations;
    }
    Ok(all_agree)
}

/// Where a case went wrong. The operations after it mean nothing: they build on it.
struct Difference {
    at: usize,
    message: String,
}

fn run_case(case: &Case, face: &Face) -> Result<(), Difference> {
    let failed = |at| move |error: polylimit::Error| Difference { at, message: format!("refused: {error}") };
    let clock = ManualClock::new(0).map_err(failed(0))?;
    let policy = cases::policy(&case.quotas).map_err(failed(0))?;
    let limiter = Limiter::builder().policy(policy).clock(clock.clone()).build().map_err(failed(0))?;
    for (at, operation) in case.ops.iter().enumerate() {
        clock.set(operation.at_us).map_err(failed(at))?;
        if let Kind::Change = operation.op {
            let Some(quotas) = &operation.quotas else {
                return Err(Difference { at, message: "a change without quotas".to_owned() });
            };
            limiter.set_policy(cases::policy(quotas).map_err(failed(at))?).map_err(failed(at))?;
            continue;
        }
        let got = face.answer(&limiter, operation.op, operation.cost).map_err(failed(at))?;
        let expected = operation.expect.as_ref().unwrap_or(&NOTHING);
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

const NOTHING: Answer = Answer {
    allowed: None,
    remaining: None,
    retry_after_us: None,
    reset_after_us: None,
    delay_us: None,
    taken: None,
};
