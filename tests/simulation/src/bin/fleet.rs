//! `fleet`: what thousands of processes with the limiter would do to one server of Redis.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::process::ExitCode;

use clap::Parser;
use polylimit_fault_simulation::fleet::arguments::Arguments;
use polylimit_fault_simulation::fleet::{report, run};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match print(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {error}");
            ExitCode::from(64)
        }
    }
}

fn print(arguments: &Arguments) -> Result<(), String> {
    let mut reports = Vec::new();
    for settings in arguments.settings()? {
        let report = run(&settings)?;
        if arguments.json {
            println!("{}", serde_json::to_string(&report).map_err(|error| error.to_string())?);
        } else {
            reports.push(report);
        }
    }
    print!("{}", report::table(&reports));
    Ok(())
}
