//! Two builds of polylimit with different formats on one store, under load. One is this tree; the other is a copy with
//! `newer.patch`, whose formats are those that a later version could have.
//!
//! Usage: `polylimit-upgrades trial NEWER [ROUNDS]` runs all trials; NEWER is the same program, built with the patch.
//! `polylimit-upgrades work` is a process that shares a store with others.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this program is a test: what it cannot do fails the test"
)]

mod documents;
mod states;
mod trial;
mod work;

use std::process::ExitCode;

use crate::trial::Trial;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (newer, rounds) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["work"] => {
            work::run();
            return ExitCode::SUCCESS;
        }
        ["trial", newer] => (newer.to_owned(), 1),
        ["trial", newer, rounds] => (newer.to_owned(), rounds.parse().unwrap()),
        _ => {
            eprintln!("usage: polylimit-upgrades trial NEWER [ROUNDS]");
            return ExitCode::from(2);
        }
    };
    let mut trial = Trial::new(newer);
    for _ in 0..rounds {
        states::run(&mut trial);
        documents::run(&mut trial);
    }
    trial.report()
}
