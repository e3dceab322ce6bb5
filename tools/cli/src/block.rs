//! Blocks of keys.

use std::ffi::OsStr;
use std::time::Duration;

use polylimit::Request;
use polylimit::admin::KeyName;
use serde::Serialize;

use crate::arguments::{Author, BlockCommand, GlobalOptions, ListArguments};
use crate::audit::AuditLog;
use crate::exit::{Exit, Failure};
use crate::listing;
use crate::operations::exit_of;
use crate::output::{duration, key_name};
use crate::terminal::Terminal;

#[derive(Serialize)]
struct BlockReport<'a> {
    policy: &'a str,
    #[serde(flatten)]
    key: KeyName,
    /// How long the key stays blocked at most, longer where it was blocked before.
    reset_after_us: u64,
}

pub(crate) fn run(
    options: &GlobalOptions,
    command: &BlockCommand,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    match command {
        BlockCommand::Add { policy, key, time, author } => {
            block(options, policy, key, *time, author, terminal)
        }
        BlockCommand::Remove { policy, key, author } => {
            block(options, policy, key, Duration::ZERO, author, terminal)
        }
        BlockCommand::List { policy, scan } => {
            listing::list(options, &ListArguments::blocked(policy.clone(), *scan), terminal)
        }
    }
}

fn block(
    options: &GlobalOptions,
    policy: &str,
    key: &OsStr,
    time: Duration,
    author: &Author,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut audit = AuditLog::open(options)?;
    let (limiter, policy) = options.limiter_for(policy)?;
    let usage = limiter.admin().block(Request::new(key.as_encoded_bytes()).policy(policy.name()), time)?;
    let exit = exit_of(&usage, Exit::Fine, terminal);
    if exit != Exit::Fine {
        return Ok(exit);
    }
    audit.key_blocked(policy.name(), key, time, author)?;
    if options.json {
        let (policy, reset_after_us) = (policy.name(), usage.reset_after_us());
        terminal.json(&BlockReport { policy, key: key_name(key), reset_after_us })?;
    } else if time.is_zero() {
        terminal.line("the key is not blocked")?;
    } else {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        terminal.line(format_args!("the key is blocked for {} or longer", duration(us)))?;
    }
    Ok(Exit::Fine)
}
