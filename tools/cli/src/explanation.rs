//! Why a key is admitted or denied.

use polylimit::{KeyExplanation, Request, time_text};

use crate::arguments::{GlobalOptions, RequestArguments};
use crate::exit::{Exit, Failure};
use crate::output::duration;
use crate::terminal::Terminal;

pub(crate) fn run(
    options: &GlobalOptions,
    arguments: &RequestArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let (limiter, policy) = options.limiter_for(&arguments.policy)?;
    let request = Request::new(arguments.key.as_encoded_bytes()).policy(policy.name()).cost(arguments.cost);
    let explained = limiter.explain(request)?;
    if options.json {
        terminal.json(&explained)?;
    } else {
        show(&explained, terminal)?;
    }
    Ok(if explained.allowed { Exit::Fine } else { Exit::Problem })
}

fn show(explained: &KeyExplanation, terminal: &mut Terminal) -> Result<(), Failure> {
    let verdict = if explained.allowed { "allowed" } else { "denied" };
    let cause = explained.cause.map(|cause| format!(" ({})", cause.name())).unwrap_or_default();
    let wait = match explained.retry_after_us {
        Some(0) => String::new(),
        Some(us) => format!(", again in {}", duration(us)),
        None => ", no wait helps".to_owned(),
    };
    terminal.line(format_args!("{verdict}{cause}{wait}"))?;
    for quota in &explained.quotas {
        let verdict = if quota.admits { "admits" } else { "denies" };
        terminal.line(format_args!("  {}: {}: {verdict}", quota.quota, quota.words))?;
    }
    if explained.blocked_for_us > 0 {
        terminal.line(format_args!("  blocked for {}", duration(explained.blocked_for_us)))?;
    }
    for entry in explained.list_entry.iter().chain(&explained.override_entry) {
        let until = entry.until_us.map(|us| format!(" until {}", time_text(us))).unwrap_or_default();
        terminal.line(format_args!("  {}{until}", entry.entry))?;
    }
    if let Some(configuration) = &explained.configuration {
        terminal.line(format_args!("  by {}, version {}", configuration.source, configuration.version))?;
    }
    Ok(())
}
