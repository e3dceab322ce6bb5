//! The picture: one row for the traffic and one for each algorithm.

use polylimit::Error;
use polylimit_simulation::{Bar, Picture, Row};

use crate::traffic::{Outcome, SLOT_US, SLOTS, arrivals, decide};

/// Every quota admits 10 requests in 10 seconds, each by its own algorithm.
const PERIOD_US: u64 = 10_000_000;
const QUOTAS: [&str; 5] = [
    "10/10s token_bucket",
    "10/10s leaky_bucket burst=10",
    "10/10s fixed_window",
    "10/10s sliding_window",
    "10/10s sliding_log",
];

/// The end of the picture.
const END_US: u64 = SLOTS as u64 * SLOT_US;

pub(crate) fn algorithms() -> Result<Picture, Error> {
    let total: u64 = (0..SLOTS).map(arrivals).sum();
    let mut rows = vec![Row {
        name: "the traffic".to_owned(),
        notes: vec![format!("{total} requests")],
        bars: (0..SLOTS).map(|slot| Bar::Came(arrivals(slot))).collect(),
        turns_us: Vec::new(),
    }];
    for quota in QUOTAS {
        rows.push(row(quota, &decide(quota)?));
    }
    // A line every 5 seconds; every other line is a possible end of a window that starts with the first request.
    let ticks =
        (0..=SLOTS).step_by(10).map(|slot| (slot, format!("{} s", slot as u64 * SLOT_US / 1_000_000)));
    Ok(Picture {
        title: "How each algorithm admits the same bursty traffic".to_owned(),
        heading: "Each quota admits 10 requests in 10 seconds; time runs to the right.".to_owned(),
        written_by: "tools/simulation/examples/draw_algorithms".to_owned(),
        slot_width: 9,
        slot_us: SLOT_US,
        scale: (1, 4),
        ticks: ticks.collect(),
        rows,
        has_dark_colours: true,
    })
}

fn row(quota: &str, outcome: &Outcome) -> Row {
    // The last requests have their turn beyond the picture.
    let turns =
        outcome.proceeds_us.iter().filter(|time_us| quota.contains("leaky_bucket") && **time_us <= END_US);
    Row {
        name: quota.to_owned(),
        notes: vec![
            format!("{} admitted", outcome.admitted()),
            format!("most in any 10 s: {}", outcome.most_in(PERIOD_US)),
        ],
        bars: outcome.slots.iter().map(|(admitted, denied)| Bar::Decided(*admitted, *denied)).collect(),
        turns_us: turns.copied().collect(),
    }
}
