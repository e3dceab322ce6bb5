//! The picture: time runs to the right, with one row for the traffic and one for each algorithm.

use std::fmt::Write;

use polylimit::Error;

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

// Lengths are in pixels.
const LEFT: usize = 16;
const SLOT: usize = 9;
const BAR: usize = 7;
const UNIT: usize = 4;
const ROW: usize = 88;
const TOP: usize = 62;
/// From the top of a row to its base line: a title, and bars of up to 12 requests.
const BASE: usize = 66;
const NUMBERS: usize = LEFT + SLOTS * SLOT + 20;
const WIDTH: usize = NUMBERS + 164;
const HEIGHT: usize = TOP + (QUOTAS.len() + 1) * ROW + 30;

const STYLE: &str = "
  .back { fill: #ffffff } text { fill: #24292f; font: 13px ui-sans-serif, system-ui, sans-serif }
  .name { font: 600 13px ui-monospace, monospace } .small { font-size: 12px; fill: #57606a }
  .grid { stroke: #d0d7de } .base { stroke: #8c959f } .came { fill: #6e7781 } .yes { fill: #0969da }
  .no { fill: none; stroke: #bc4c00 } .out { stroke: #0969da; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } text { fill: #e6edf3 } .small { fill: #9198a1 }
    .grid { stroke: #30363d } .base { stroke: #6e7681 } .came { fill: #9198a1 } .yes { fill: #4493f8 }
    .no { stroke: #f0883e } .out { stroke: #4493f8 }
  }
";

/// The picture as SVG.
pub(crate) fn draw() -> Result<String, Error> {
    let outcomes = QUOTAS.iter().map(|quota| decide(quota)).collect::<Result<Vec<_>, _>>()?;
    let mut svg = String::new();
    // Writing to a `String` does not fail.
    let _ = write(&mut svg, &outcomes);
    Ok(svg)
}

fn write(svg: &mut String, outcomes: &[Outcome]) -> std::fmt::Result {
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">"#
    )?;
    writeln!(svg, "<title>How each algorithm admits the same bursty traffic</title>")?;
    writeln!(svg, "<!-- Written by core/examples/draw_algorithms. -->\n<style>{STYLE}</style>")?;
    writeln!(svg, r#"<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>"#)?;
    legend(svg)?;
    seconds(svg)?;
    let total: u64 = (0..SLOTS).map(arrivals).sum();
    row(svg, 0, "the traffic", &format!("{total} requests"), "")?;
    for slot in 0..SLOTS {
        bar(svg, "came", slot, 0, arrivals(slot), base(0))?;
    }
    for (at, (quota, outcome)) in QUOTAS.iter().zip(outcomes).enumerate() {
        let (at, admitted) = (at + 1, outcome.admitted());
        let most = format!("most in any 10 s: {}", outcome.most_in(PERIOD_US));
        row(svg, at, quota, &format!("{admitted} admitted"), &most)?;
        for (slot, (admitted, denied)) in outcome.slots.iter().enumerate() {
            bar(svg, "yes", slot, 0, *admitted, base(at))?;
            bar(svg, "no", slot, *admitted, *denied, base(at))?;
        }
        if quota.contains("leaky_bucket") {
            // The last requests have their turn beyond the picture.
            for time_us in outcome.proceeds_us.iter().filter(|time_us| **time_us <= END_US) {
                let x = x_of(*time_us);
                let (top, bottom) = (base(at) + 4, base(at) + 12);
                writeln!(svg, r#"<line class="out" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>"#)?;
            }
        }
    }
    writeln!(svg, "</svg>")
}

/// The base line of a row.
fn base(row: usize) -> usize {
    TOP + row * ROW + BASE
}

/// The x coordinate of a time, in pixels.
fn x_of(time_us: u64) -> usize {
    LEFT + usize::try_from(time_us * SLOT as u64 / SLOT_US).unwrap_or(usize::MAX)
}

fn legend(svg: &mut String) -> std::fmt::Result {
    writeln!(
        svg,
        r#"<text x="{LEFT}" y="24">Each quota admits 10 requests in 10 seconds; time runs to the right.</text>"#
    )?;
    let mut x = LEFT;
    for (class, what) in [
        ("yes", "admitted"),
        ("no", "denied"),
        ("out", "when an admitted request of the leaky bucket has its turn"),
    ] {
        if class == "out" {
            writeln!(svg, r#"<line class="out" x1="{x}" x2="{x}" y1="36" y2="46"/>"#)?;
        } else {
            writeln!(svg, r#"<rect class="{class}" x="{x}" y="37" width="{BAR}" height="9"/>"#)?;
        }
        writeln!(svg, r#"<text class="small" x="{}" y="46">{what}</text>"#, x + 14)?;
        x += 90;
    }
    Ok(())
}

/// A line every 5 seconds; every other line is a possible end of a window that starts with the first request.
fn seconds(svg: &mut String) -> std::fmt::Result {
    let (top, bottom) = (TOP + 12, HEIGHT - 26);
    for slot in (0..=SLOTS).step_by(10) {
        let x = LEFT + slot * SLOT;
        writeln!(svg, r#"<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>"#)?;
        let second = slot as u64 * SLOT_US / 1_000_000;
        writeln!(
            svg,
            r#"<text class="small" x="{x}" y="{}" text-anchor="middle">{second} s</text>"#,
            bottom + 16
        )?;
    }
    Ok(())
}

fn row(svg: &mut String, at: usize, name: &str, first: &str, second: &str) -> std::fmt::Result {
    let (base, end) = (base(at), LEFT + SLOTS * SLOT);
    let first_y = if second.is_empty() { base - 2 } else { base - 20 };
    writeln!(svg, r#"<line class="base" x1="{LEFT}" x2="{end}" y1="{base}" y2="{base}"/>"#)?;
    writeln!(svg, r#"<text class="name" x="{}" y="{}">{name}</text>"#, LEFT + 4, base - BASE + 20)?;
    writeln!(svg, r#"<text x="{NUMBERS}" y="{first_y}">{first}</text>"#)?;
    if second.is_empty() {
        return Ok(());
    }
    writeln!(svg, r#"<text class="small" x="{NUMBERS}" y="{}">{second}</text>"#, base - 2)
}

/// A bar for `count` requests of a slot, above the `below` requests that were drawn before.
fn bar(svg: &mut String, class: &str, slot: usize, below: u64, count: u64, base: usize) -> std::fmt::Result {
    if count == 0 {
        return Ok(());
    }
    let [below, count] = [below, count].map(|requests| usize::try_from(requests).unwrap_or(0) * UNIT);
    let (x, y) = (LEFT + slot * SLOT + 1, base - below - count);
    // The outline extends beyond the edge on both sides.
    if class == "no" {
        let (height, width) = (count - 1, BAR - 1);
        return writeln!(svg, r#"<rect class="no" x="{x}.5" y="{y}.5" width="{width}" height="{height}"/>"#);
    }
    writeln!(svg, r#"<rect class="{class}" x="{x}" y="{y}" width="{BAR}" height="{count}"/>"#)
}
