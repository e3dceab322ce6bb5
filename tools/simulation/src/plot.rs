//! The requests over time as a plot of characters.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use crate::results::Simulation;
use crate::text::duration;

const HEIGHT: u16 = 18;
/// Colours of the lines, with what selects them in a terminal. The first is that of the traffic.
const COLOURS: [(Color, u8); 6] = [
    (Color::Gray, 37),
    (Color::Cyan, 36),
    (Color::Yellow, 33),
    (Color::Magenta, 35),
    (Color::Green, 32),
    (Color::Red, 31),
];

/// The traffic and what each of the limits admits, in lines of this width.
pub(crate) fn plot(simulation: &Simulation, width: u16, has_colours: bool) -> String {
    let mut names = vec!["traffic".to_owned()];
    let mut lines = vec![points(&simulation.demand.timeline.admitted)];
    for course in simulation.courses() {
        names.push(course.label.clone());
        lines.push(points(&course.timeline.admitted));
    }
    let end = lines.iter().map(Vec::len).max().unwrap_or(1).max(2);
    let highest = lines.iter().flatten().map(|(_, y)| *y).fold(1.0, f64::max);
    let slot_us = simulation.demand.timeline.slot_us;
    let datasets = lines.iter().enumerate().map(|(at, points)| {
        Dataset::default()
            .data(points)
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(COLOURS[at % COLOURS.len()].0))
    });
    let times = [0, end as u64 / 2, end as u64].map(|slot| duration(slot * slot_us));
    let last = exact(end as u64 - 1);
    let chart = Chart::new(datasets.collect())
        .x_axis(Axis::default().bounds([0.0, last]).labels(times))
        .y_axis(Axis::default().bounds([0.0, highest]).labels(["0".to_owned(), format!("{highest}")]));
    let area = Rect::new(0, 0, width.clamp(40, 200), HEIGHT);
    let mut buffer = Buffer::empty(area);
    chart.render(area, &mut buffer);
    let mut text = format!("Requests in slots of {}, and those that are admitted\n", duration(slot_us));
    for y in 0..area.height {
        text.push_str(line(&buffer, y, has_colours).trim_end());
        text.push('\n');
    }
    text.push_str(&legend(&names, has_colours));
    text
}

fn legend(names: &[String], has_colours: bool) -> String {
    let entries = names.iter().enumerate().map(|(at, name)| {
        let sign =
            if has_colours { coloured("──", COLOURS[at % COLOURS.len()].1) } else { "──".to_owned() };
        format!("{sign} {name}\n")
    });
    // Without colours the lines cannot be distinguished.
    if has_colours { entries.collect() } else { format!("── {}\n", names.join(", ")) }
}

fn points(values: &[u64]) -> Vec<(f64, f64)> {
    (0..).zip(values).map(|(at, value)| (exact(at), exact(*value))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a plot is rounded anyway")]
fn exact(number: u64) -> f64 {
    number as f64
}

/// A line of the buffer, with the escapes of its colours.
fn line(buffer: &Buffer, y: u16, has_colours: bool) -> String {
    let mut text = String::new();
    let mut before: Option<u8> = None;
    for x in 0..buffer.area.width {
        let Some(cell) = buffer.cell((x, y)) else { continue };
        let colour = COLOURS.iter().find(|(colour, _)| *colour == cell.fg).map(|(_, code)| *code);
        if has_colours && colour != before {
            text.push_str(&colour.map_or_else(|| "\x1b[0m".to_owned(), |code| format!("\x1b[{code}m")));
            before = colour;
        }
        text.push_str(cell.symbol());
    }
    if before.is_some() {
        text.push_str("\x1b[0m");
    }
    text
}

fn coloured(text: &str, code: u8) -> String {
    format!("\x1b[{code}m{text}\x1b[0m")
}
