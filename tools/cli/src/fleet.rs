//! What the processes that share a store have reported.

use polylimit::admin::{ProcessReport, top_denied as of_reports};
use polylimit::raw::time_text;

use crate::arguments::GlobalOptions;
use crate::exit::{Exit, Failure};
use crate::listing::key_text;
use crate::output::{Rows, table};
use crate::terminal::Terminal;

const NONE: &str =
    "no process reports to this store: build limiters with the option report=10s, or start `polylimit serve`";

pub(crate) fn stats(options: &GlobalOptions, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let processes = options.plain_limiter()?.admin().fleet()?;
    let titles =
        ["host", "process", "store", "limits", "admitted", "denied", "by outage policies", "reported"];
    let mut rows = table(titles);
    for process in &processes {
        if options.json {
            terminal.json(process)?;
        }
        let ProcessReport { host, pid, store_up, configuration_version, policies, at_ms, .. } = process;
        let sum =
            |of: fn(&polylimit::admin::PolicyCounts) -> u64| policies.iter().map(of).sum::<u64>().to_string();
        rows.add_row([
            host.as_str(),
            &pid.to_string(),
            if *store_up { "answers" } else { "away" },
            &configuration_version.to_string(),
            &sum(|counts| counts.allowed),
            &sum(|counts| counts.denied),
            &sum(|counts| counts.outage),
            &time_text(at_ms * 1_000),
        ]);
    }
    finish(options, &rows, processes.is_empty(), terminal)
}

pub(crate) fn top_denied(
    options: &GlobalOptions,
    most: usize,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let processes = options.plain_limiter()?.admin().fleet()?;
    let mut rows = table(["policy", "key", "denials"]);
    for denied in of_reports(&processes, most) {
        if options.json {
            terminal.json(&denied)?;
        }
        rows.add_row([&*denied.policy, &key_text(&denied.key), &denied.count.to_string()]);
    }
    finish(options, &rows, processes.is_empty(), terminal)
}

fn finish(
    options: &GlobalOptions,
    rows: &Rows,
    has_none: bool,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    if has_none {
        terminal.complain(NONE);
    } else if !options.json {
        terminal.table(rows)?;
    }
    Ok(Exit::Fine)
}
