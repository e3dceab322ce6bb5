//! Forgets keys.

use polylimit::Request;
use polylimit::admin::{KeyFilter, ListBudget};
use polylimit::blocking::Limiter;
use serde::Serialize;

use crate::arguments::{GlobalOptions, ResetArguments};
use crate::audit::AuditLog;
use crate::exit::{Exit, Failure};
use crate::operations::exit_of;
use crate::progress::Progress;
use crate::terminal::Terminal;

#[derive(Serialize)]
struct ResetReport<'a> {
    policy: &'a str,
    reset: usize,
}

pub(crate) fn run(
    options: &GlobalOptions,
    arguments: &ResetArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let (limiter, policy) = options.limiter_for(&arguments.policy)?;
    let (mut audit, author) = (AuditLog::open(options)?, &arguments.author);
    let mut reset = 0;
    if let Some(prefix) = &arguments.prefix {
        let filter = KeyFilter::default().policy(policy.name()).key_prefix(prefix.as_encoded_bytes());
        let mut counted = None;
        if !arguments.yes {
            let keys = counted_keys(&limiter, &filter, terminal)?;
            if !terminal.confirm(&format!("reset {}?", count(keys, "key")))? {
                return Ok(Exit::Problem);
            }
            counted = Some(keys as u64);
        }
        let template =
            if counted.is_some() { "resetting {bar:40} {pos}/{len} keys" } else { "resetting {pos} keys" };
        let progress = Progress::new(terminal, template, counted);
        let mut cursor = None;
        loop {
            let page = match limiter.admin().reset_listed(&filter, &ListBudget::default(), cursor.as_deref())
            {
                Ok(page) => page,
                Err(error) if reset == 0 => return Err(error.into()),
                // What was done before is recorded.
                Err(error) => {
                    audit.keys_reset(policy.name(), prefix, reset as u64, author)?;
                    return Err(error.into());
                }
            };
            reset += usize::try_from(page.reset).unwrap_or(usize::MAX);
            progress.set(reset as u64);
            cursor = page.cursor;
            if cursor.is_none() {
                drop(progress);
                audit.keys_reset(policy.name(), prefix, reset as u64, author)?;
                return report(options, policy.name(), reset, terminal);
            }
        }
    }
    for key in &arguments.keys {
        let usage = limiter.reset(Request::new(key.as_encoded_bytes()).policy(policy.name()))?;
        let exit = exit_of(&usage, Exit::Fine, terminal);
        if exit != Exit::Fine {
            return Ok(exit);
        }
        audit.key_reset(policy.name(), key, author)?;
        reset += 1;
    }
    report(options, policy.name(), reset, terminal)
}

/// How many keys there are to ask about.
fn counted_keys(limiter: &Limiter, filter: &KeyFilter<'_>, terminal: &Terminal) -> Result<usize, Failure> {
    if !terminal.can_ask() {
        return Err(Failure::usage("--prefix resets many keys, and there is no terminal to ask: give --yes"));
    }
    let progress = Progress::new(terminal, "counted {pos} keys", None);
    let (mut keys, mut cursor) = (0, None);
    loop {
        let page = limiter.admin().list(filter, &ListBudget::default(), cursor.as_deref())?;
        keys += page.keys.len();
        progress.set(keys as u64);
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(keys);
        }
    }
}

fn report(
    options: &GlobalOptions,
    policy: &str,
    reset: usize,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    if options.json {
        terminal.json(&ResetReport { policy, reset })?;
    } else {
        terminal.line(format_args!("reset {}", count(reset, "key")))?;
    }
    Ok(Exit::Fine)
}

/// `1 key`, `2 keys`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
