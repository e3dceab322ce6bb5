//! The table of docs/adaptive.md: what limits do for a service that is overloaded, or loses half of its workers.

use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;

use polylimit::adaptive::AdaptiveLimit;
use polylimit::clock::ManualClock;

use crate::service::{Outcome, SECONDS, Scenario, play};

const START: &str = "<!-- simulation: written by core/tests/adaptive/simulation.rs -->\n";
const END: &str = "<!-- end of simulation -->";

/// Ten workers serve 100 requests a second.
const SCENARIOS: [(&str, Scenario); 4] = [
    ("50 % of capacity", Scenario { requests_a_second: 50, workers: |_| 10 }),
    ("100 %", Scenario { requests_a_second: 100, workers: |_| 10 }),
    ("200 %", Scenario { requests_a_second: 200, workers: |_| 10 }),
    (
        "90 %, with half of the workers from 40 to 80 s",
        Scenario { requests_a_second: 90, workers: |second| if (40..80).contains(&second) { 5 } else { 10 } },
    ),
];

/// A limit measured by a clock.
type Limit = fn(&ManualClock) -> Option<AdaptiveLimit>;

const LIMITS: [(&str, Limit); 4] = [
    ("none", |_| None),
    ("`40 concurrent`", |clock| Some(AdaptiveLimit::builder(40..=40).clock(clock.clone()).build().unwrap())),
    ("AIMD, 300 ms", |clock| {
        let builder = AdaptiveLimit::builder(4..=400).aimd(Duration::from_millis(300));
        Some(builder.clock(clock.clone()).build().unwrap())
    }),
    ("gradient", |clock| {
        Some(AdaptiveLimit::builder(4..=400).gradient().clock(clock.clone()).build().unwrap())
    }),
];

/// Played once for both tests.
fn outcomes() -> &'static [[Outcome; 4]] {
    static OUTCOMES: OnceLock<Vec<[Outcome; 4]>> = OnceLock::new();
    let play_all = |scenario| LIMITS.map(|(_, limit)| play(scenario, limit));
    OUTCOMES.get_or_init(|| SCENARIOS.iter().map(|(_, scenario)| play_all(scenario)).collect())
}

/// A number a second, to a tenth.
fn rate(count: u64) -> String {
    let tenths = (count * 10 + SECONDS / 2) / SECONDS;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn table(outcomes: &[[Outcome; 4]]) -> String {
    let mut table = "| load | limit | answers/s | in time/s | refused | p99 | N in the second minute |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    for ((load, _), outcomes) in SCENARIOS.iter().zip(outcomes) {
        for ((limit, _), outcome) in LIMITS.iter().zip(outcomes) {
            let n = match outcome.limits {
                Some((low, high)) if low == high => low.to_string(),
                Some((low, high)) => format!("{low} to {high}"),
                None => String::new(),
            };
            let refused = (outcome.refused * 100 + outcome.requests / 2) / outcome.requests;
            let (answers, in_time, p99_ms) = (rate(outcome.answers), rate(outcome.in_time), outcome.p99_ms());
            writeln!(table, "| {load} | {limit} | {answers} | {in_time} | {refused} % | {p99_ms} ms | {n} |")
                .unwrap();
        }
    }
    table
}

/// `WRITE_DOCS=1 cargo test -p polylimit --test adaptive` updates the table.
#[test]
fn simulation_is_the_table_of_the_page() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/adaptive.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(START).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let table = table(outcomes());
    let written = format!("{before}{START}{table}{END}{after}");
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &written).unwrap();
    } else {
        assert!(text == written, "docs/adaptive.md differs from the simulation, which says:\n{table}");
    }
}

/// What the page claims, whatever its numbers.
#[test]
fn adaptive_limits_keep_answers_in_time_where_others_do_not() {
    let all = outcomes();
    for [_, _, aimd, gradient] in all {
        for outcome in [aimd, gradient] {
            assert!(
                outcome.in_time * 100 >= outcome.answers * 95,
                "{} of {}",
                outcome.in_time,
                outcome.answers
            );
        }
    }
    let [light, _, overload, step] = all else { panic!("four scenarios") };
    assert!(light.iter().all(|outcome| outcome.refused * 100 <= outcome.requests));
    let [none, fixed, aimd, gradient] = overload;
    assert!(none.in_time * 10 < none.answers);
    for outcome in [fixed, aimd, gradient] {
        // 90 of the 100 that ten workers can answer.
        assert!(outcome.in_time >= 90 * SECONDS, "{outcome:?}", outcome = outcome.in_time);
    }
    let [none, fixed, aimd, gradient] = step;
    for adaptive in [aimd, gradient] {
        assert!(adaptive.in_time > fixed.in_time && fixed.in_time > none.in_time);
    }
}
