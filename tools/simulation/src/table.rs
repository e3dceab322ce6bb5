//! The answer as tables for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use crate::results::{Candidate, Course, KeyCounts, Percentiles, Simulation, Traffic};
use crate::text::{count, duration, percent};

/// One line, below the header.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The whole answer but for the plot.
pub(crate) fn tables(simulation: &Simulation) -> String {
    let mut text = String::new();
    let courses: Vec<&Course> = simulation.courses().collect();
    for part in [
        traffic(simulation),
        demand(simulation),
        decisions(&courses),
        bounds(&courses),
        shares(&courses),
        waits(&courses),
        causes(&courses),
        most_denied(&simulation.live),
    ]
    .into_iter()
    .chain(simulation.candidates.iter().map(candidate))
    {
        if !part.is_empty() {
            // Writing to a `String` does not fail.
            let _ = writeln!(text, "{}\n", part.trim_end());
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// A table whose first columns are text and whose others are numbers.
fn table(title: &str, header: &[&str], texts: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(header.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    for at in texts..header.len() {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    format!("{title}\n{}\n", lines.join("\n"))
}

fn traffic(simulation: &Simulation) -> String {
    let Traffic { source, start, duration_us, seed, log } = &simulation.traffic;
    let demand = &simulation.demand;
    let mut text = format!(
        "{} requests of {} clients in {} from {start}",
        count(demand.requests),
        count(demand.clients),
        duration(*duration_us)
    );
    let _ = match (seed, *source) {
        (Some(seed), _) => writeln!(text, ", generated with the seed {seed}"),
        (None, source) => writeln!(text, ", from a {source}"),
    };
    let Some(log) = log else { return text };
    if log.spread_inside_seconds {
        text.push_str(
            "the log has whole seconds only: the requests of each second are spread evenly inside of it\n",
        );
    }
    if log.without_key > 0 {
        let _ = writeln!(text, "{} lines have no key and are left out", count(log.without_key));
    }
    if log.malformed > 0 {
        let _ = writeln!(
            text,
            "{} of {} lines are malformed and left out:",
            count(log.malformed),
            count(log.lines)
        );
        for example in &log.malformed_examples {
            let _ = writeln!(text, "  {example}");
        }
    }
    text
}

fn demand(simulation: &Simulation) -> String {
    let demand = &simulation.demand;
    let row = |name: &str, of: &Percentiles| {
        let values = [of.p50, of.p90, of.p95, of.p99, of.p999, of.max].map(count);
        std::iter::once(name.to_owned()).chain(values).collect()
    };
    let mut text = table(
        "Units of each client in its busiest second, minute and hour, without limits",
        &["busiest", "p50", "p90", "p95", "p99", "p99.9", "max"],
        1,
        [
            row("second", &demand.busiest_second),
            row("minute", &demand.busiest_minute),
            row("hour", &demand.busiest_hour),
        ],
    );
    let _ = writeln!(
        text,
        "a limit of {} in any minute touches at most 1 % of the clients, one of {} at most 0.1 %",
        count(demand.busiest_minute.p99),
        count(demand.busiest_minute.p999)
    );
    text
}

fn decisions(courses: &[&Course]) -> String {
    let rows = courses.iter().map(|course| {
        let total = &course.total;
        vec![
            course.label.clone(),
            count(total.admitted),
            count(total.denied),
            percent(total.denied, total.admitted + total.denied),
            format!("{} of {}", count(total.keys_denied), count(total.keys)),
            count(total.keys_never_admitted),
            duration(total.longest_block_us),
        ]
    });
    let header = ["limits", "admitted", "denied", "", "clients denied", "never admitted", "longest block"];
    let mut text = table("Decisions", &header, 1, rows);
    for course in courses {
        let total = &course.total;
        for (number, what) in [
            (total.shadowed, "requests were admitted only because a policy is in shadow"),
            (total.left, "clients left after a denial"),
            (total.given_up, "requests were given up, since no wait would help"),
            (total.unfinished, "requests were still waiting at the end"),
        ] {
            if number > 0 {
                let _ = writeln!(text, "{}: {} {what}", course.label, count(number));
            }
        }
    }
    text
}

fn bounds(courses: &[&Course]) -> String {
    let rows = courses.iter().flat_map(|course| {
        course.policies.iter().flat_map(|policy| {
            policy.quotas.iter().map(|quota| {
                vec![
                    format!("{}: {}", policy.policy, quota.quota),
                    count(policy.counts.admitted),
                    count(policy.counts.denied),
                    count(quota.most_admitted),
                    quota.bound.map_or_else(|| "-".to_owned(), count),
                    quota.key.as_ref().map_or_else(String::new, ToString::to_string),
                ]
            })
        })
    });
    let header = ["quota", "admitted", "denied", "most in a period", "can be at most", "key"];
    let rows: Vec<_> = rows.collect();
    table("The most units that a key got in any span of a quota's period", &header, 1, rows)
}

/// How many spans of time a table of shares has.
const SPANS: usize = 6;

/// What the groups of policies got, in parts of what all of them got, over time.
fn shares(courses: &[&Course]) -> String {
    let mut text = String::new();
    for course in courses {
        let slots = course.timeline.admitted.len();
        let span = slots.div_ceil(SPANS).max(1);
        let starts: Vec<usize> = (0..slots).step_by(span).collect();
        for policy in course.policies.iter().filter(|policy| !policy.groups.is_empty()) {
            let of_span =
                |timeline: &[u64], start: usize| timeline.iter().skip(start).take(span).sum::<u64>();
            let all = |start| policy.groups.iter().map(|group| of_span(&group.timeline, start)).sum::<u64>();
            let rows = policy.groups.iter().map(|group| {
                let parts = starts.iter().map(|start| percent(of_span(&group.timeline, *start), all(*start)));
                [group.group.clone(), count(group.admitted_units), count(group.denied_units)]
                    .into_iter()
                    .chain(parts)
                    .collect()
            });
            let from = starts
                .iter()
                .map(|start| format!("from {}", duration(*start as u64 * course.timeline.slot_us)));
            let header: Vec<String> = ["group", "admitted units", "denied units"]
                .map(str::to_owned)
                .into_iter()
                .chain(from)
                .collect();
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            let title = format!("Shares of the groups of {} under {}", policy.policy, course.label);
            text.push_str(&table(&title, &header, 1, rows.collect::<Vec<_>>()));
        }
    }
    text
}

fn waits(courses: &[&Course]) -> String {
    let rows: Vec<_> = courses
        .iter()
        .filter(|course| course.waits.waited > 0)
        .map(|course| {
            let waits = &course.waits;
            let times = [waits.p50_us, waits.p90_us, waits.p99_us, waits.p999_us, waits.max_us].map(duration);
            [course.label.clone(), count(waits.waited)].into_iter().chain(times).collect()
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = ["limits", "waited", "p50", "p90", "p99", "p99.9", "max"];
    table("Waits of admitted requests that had to wait", &header, 1, rows)
}

fn causes(courses: &[&Course]) -> String {
    let rows: Vec<_> = courses
        .iter()
        .flat_map(|course| {
            let row = |cause: &crate::results::CauseCount| {
                vec![course.label.clone(), cause.cause.to_owned(), count(cause.denied)]
            };
            course.causes.iter().map(row)
        })
        .collect();
    if rows.is_empty() {
        String::new()
    } else {
        table("Causes of denials", &["limits", "cause", "denied"], 2, rows)
    }
}

fn most_denied(course: &Course) -> String {
    if course.most_denied.is_empty() {
        return String::new();
    }
    keys(&format!("Clients that are denied most by {}", course.label), &course.most_denied)
}

fn keys(title: &str, keys: &[KeyCounts]) -> String {
    let rows = keys.iter().map(|key| {
        let block = duration(key.longest_block_us);
        vec![key.key.to_string(), count(key.admitted), count(key.denied), block]
    });
    table(title, &["client", "admitted", "denied", "longest block"], 1, rows)
}

fn candidate(candidate: &Candidate) -> String {
    let Candidate { course, agreement, newly_denied, newly_admitted } = candidate;
    let all = agreement.both_allow
        + agreement.only_live_denies
        + agreement.only_candidate_denies
        + agreement.both_deny
        + agreement.only_made_once;
    let row = |name: &str, admits: u64, denies: u64| {
        let cell = |number| format!("{} ({})", count(number), percent(number, all));
        vec![name.to_owned(), cell(admits), cell(denies)]
    };
    let mut text = table(
        &format!("First attempts, compared with {}", course.label),
        &["", "it admits", "it denies"],
        1,
        [
            row("the active limits admit", agreement.both_allow, agreement.only_candidate_denies),
            row("the active limits deny", agreement.only_live_denies, agreement.both_deny),
        ],
    );
    if agreement.only_made_once > 0 {
        let _ = writeln!(
            text,
            "{} requests were made under one of them only, since clients waited or left",
            count(agreement.only_made_once)
        );
    }
    for (changed, what) in [
        (newly_denied, "clients are denied that were never denied"),
        (newly_admitted, "clients are never denied any more"),
    ] {
        if changed.clients > 0 {
            text.push('\n');
            text.push_str(&keys(&format!("{} {what}", count(changed.clients)), &changed.examples));
        }
    }
    text
}
