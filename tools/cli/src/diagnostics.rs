//! What a store and its limiter report about themselves.

use polylimit::admin::{ConfigurationStatus, Severity};
use polylimit::raw::time_text;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::arguments::GlobalOptions;
use crate::exit::{Exit, Failure};
use crate::output::{duration, table};
use crate::terminal::Terminal;

#[derive(Serialize)]
struct StatsReport {
    /// How many keys have a state, for stores of this host.
    keys: Option<usize>,
    configuration: Option<ConfigurationStatus>,
    #[serde(flatten)]
    counts: Map<String, Value>,
}

pub(crate) fn stats(options: &GlobalOptions, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let is_configured = options.policies.is_some();
    let limiter = if is_configured { options.configured_limiter()? } else { options.answering_limiter()? };
    let limiter = limiter.asynchronous();
    let (keys, configuration) = (limiter.admin().keys(), limiter.admin().configuration());
    if options.json {
        let counts = limiter.stats().iter().map(|(name, count)| (name.to_owned(), Value::from(count)));
        terminal.json(&StatsReport { keys, configuration, counts: counts.collect() })?;
        return Ok(Exit::Fine);
    }
    let mut rows = table(["counter", "value"]);
    if let Some(keys) = keys {
        rows.add_row(["keys", &keys.to_string()]);
    }
    for (name, count) in limiter.stats().iter() {
        rows.add_row([name, &count.to_string()]);
    }
    terminal.table(&rows)?;
    if let Some(status) = configuration {
        let ConfigurationStatus { source, version, digest, applied_at_us, unreachable_for_us, error, .. } =
            status;
        let applied = time_text(applied_at_us);
        terminal.line(format_args!(
            "\nconfiguration of {source}, version {version}, applied at {applied}\ndigest {digest}"
        ))?;
        if unreachable_for_us > 0 {
            terminal.line(format_args!("unreachable for {}", duration(unreachable_for_us)))?;
        }
        if let Some(error) = error {
            terminal.line(format_args!("not newer because {error}"))?;
        }
    }
    Ok(Exit::Fine)
}

pub(crate) fn doctor(options: &GlobalOptions, terminal: &mut Terminal) -> Result<Exit, Failure> {
    // The active policies say which commands are needed. Where they cannot be read, the findings say why.
    let limiter = match options.limiter_for_keys(None) {
        Ok(limiter) => limiter,
        Err(failure) if failure.exit == Exit::Usage => return Err(failure),
        Err(_) => options.plain_limiter()?,
    };
    let findings = limiter.admin().doctor()?;
    for finding in &findings {
        if options.json {
            terminal.json(finding)?;
            continue;
        }
        let colour = match finding.severity {
            Severity::Problem => Some(31),
            Severity::Advice => Some(33),
            _ => None,
        };
        terminal.coloured(colour, finding)?;
    }
    if findings.is_empty() && !options.json {
        terminal.line("fine: the store answers")?;
    }
    let has_problem = findings.iter().any(|finding| finding.severity == Severity::Problem);
    Ok(if has_problem { Exit::Problem } else { Exit::Fine })
}
