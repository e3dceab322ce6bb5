//! Why a key is admitted or denied.

use polylimit::Request;
use polylimit::admin::{EntryExplanation, KeyExplanation, PolicyMode, QuotaExplanation, QuotasSource};
use polylimit::raw::{printable, time_text};

use crate::arguments::{GlobalOptions, RequestArguments};
use crate::exit::{Exit, Failure};
use crate::listing::key_text;
use crate::output::duration;
use crate::terminal::Terminal;

pub(crate) fn run(
    options: &GlobalOptions,
    arguments: &RequestArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let (limiter, policy) = options.limiter_for(&arguments.policy)?;
    let request = Request::new(arguments.key.as_encoded_bytes()).policy(policy.name()).cost(arguments.cost);
    let explained = limiter.admin().explain(request)?;
    if options.json {
        terminal.json(&explained)?;
    } else {
        show(&explained, terminal)?;
    }
    Ok(if explained.allowed { Exit::Fine } else { Exit::Problem })
}

fn show(explained: &KeyExplanation, terminal: &mut Terminal) -> Result<(), Failure> {
    terminal.line(verdict(explained))?;
    for line in facts(explained) {
        terminal.line(format_args!("  {line}"))?;
    }
    if let Some(configuration) = &explained.configuration {
        terminal.line(format_args!("  by {}, version {}", configuration.source, configuration.version))?;
    }
    Ok(())
}

/// What the policy says in all.
fn verdict(explained: &KeyExplanation) -> String {
    let verdict = if explained.allowed { "allowed" } else { "denied" };
    let cause = explained.cause.map(|cause| format!(" ({})", cause.name())).unwrap_or_default();
    let more = match explained.retry_after_us {
        _ if explained.shadowed => ", since the policy is in shadow and only counts".to_owned(),
        _ if explained.elastic => " by the pool".to_owned(),
        Some(0) => String::new(),
        Some(us) => format!(", again in {}", duration(us)),
        None => ", no wait helps".to_owned(),
    };
    format!("{verdict}{cause}{more}")
}

/// What quotas, blocks, lists and the configuration say about the key, as far as they do.
fn facts(explained: &KeyExplanation) -> Vec<String> {
    let mut lines: Vec<String> = explained.quotas.iter().map(quota).collect();
    if explained.blocked_for_us > 0 {
        lines.push(format!("blocked for {}", duration(explained.blocked_for_us)));
    }
    if let Some(penalty) =
        explained.penalty.as_ref().filter(|penalty| penalty.denials > 0 || penalty.level > 0)
    {
        let next = duration(penalty.next_block_us);
        lines.push(format!(
            "penalty: {} of {} denials count, the next block is for {next}",
            penalty.denials, penalty.blocks_at
        ));
    }
    if explained.reservations > 0 {
        lines.push(format!(
            "{} with {} reserved, the last ends in {}",
            count_of(explained.reservations, "reservation"),
            count_of(explained.reserved_units, "unit"),
            duration(explained.reservations_end_after_us)
        ));
    }
    if explained.leased_units > 0 {
        lines.push(format!("{} leased by this process", count_of(explained.leased_units, "unit")));
    }
    if explained.denial_cached {
        lines.push("this process knows of the denial and does not ask the store".to_owned());
    }
    if let Some(denials) = explained.denials {
        let error = explained.denials_error.unwrap_or(0);
        lines
            .push(format!("denied {denials} times lately by this process, at most {error} of them too many"));
    }
    if let Some(degraded) = explained.degraded {
        lines.push(format!("the states may be those of other keys: {}", degraded.name()));
    }
    lines.extend(explained.rule.map(|rule| format!("applied by rule {rule}")));
    match (explained.quotas_source, &explained.plan) {
        (QuotasSource::Quotas, _) => {}
        (source, Some(plan)) => lines.push(format!("quotas of the plan {plan}, by {}", source.name())),
        (source, None) => lines.push(format!("quotas by {}", source.name())),
    }
    if explained.mode != PolicyMode::On {
        lines.push(format!("mode: {}", explained.mode.name()));
    }
    lines.extend(explained.list_entry.iter().chain(&explained.override_entry).map(entry));
    if let Some(pool) = &explained.pool {
        lines.push(format!("pool {} {}: {}", pool.policy, printable(&key_text(&pool.key)), verdict(pool)));
        lines.extend(facts(pool).into_iter().map(|line| format!("  {line}")));
    }
    lines
}

fn quota(quota: &QuotaExplanation) -> String {
    let QuotaExplanation { quota, words, admits, retry_after_us, .. } = quota;
    let verdict = match retry_after_us {
        _ if *admits => "admits".to_owned(),
        Some(us) => format!("denies for {}", duration(*us)),
        None => "denies, no wait helps".to_owned(),
    };
    format!("{quota}: {words}: {verdict}")
}

fn entry(entry: &EntryExplanation) -> String {
    let until = entry.until_us.map(|us| format!(" until {}", time_text(us))).unwrap_or_default();
    let by = entry.by.as_ref().filter(|by| !by.is_empty()).map(|by| format!(", by {by}")).unwrap_or_default();
    let why =
        entry.why.as_ref().filter(|why| !why.is_empty()).map(|why| format!(": {why}")).unwrap_or_default();
    printable(&format!("{}{until}{by}{why}", entry.entry)).into_owned()
}

/// `1 unit`, `2 units`.
fn count_of(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
