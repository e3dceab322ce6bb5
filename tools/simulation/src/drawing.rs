//! Pictures of requests over time, as SVG: time runs to the right, with one row for the traffic and one for each policy.

use std::fmt::{self, Write};

use crate::results::{Course, Simulation};

// Lengths are in pixels.
const LEFT: usize = 16;
const ROW: usize = 88;
const TOP: usize = 62;
/// From the top of a row to its base line: a title, and bars of up to 48 pixels.
const BASE: usize = 66;
const HIGHEST: u64 = 48;

const STYLE: &str = "
  .back { fill: #ffffff } text { fill: #24292f; font: 13px ui-sans-serif, system-ui, sans-serif }
  .name { font: 600 13px ui-monospace, monospace } .small { font-size: 12px; fill: #57606a }
  .grid { stroke: #d0d7de } .base { stroke: #8c959f } .came { fill: #6e7781 } .yes { fill: #0969da }
  .no { fill: none; stroke: #bc4c00 } .out { stroke: #0969da; stroke-width: 2 }
";
const DARK_STYLE: &str = "  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } text { fill: #e6edf3 } .small { fill: #9198a1 }
    .grid { stroke: #30363d } .base { stroke: #6e7681 } .came { fill: #9198a1 } .yes { fill: #4493f8 }
    .no { stroke: #f0883e } .out { stroke: #4493f8 }
  }
";

/// A picture before it is drawn.
#[derive(Clone, Debug)]
pub struct Picture {
    /// For readers that do not see it.
    pub title: String,
    /// The sentence above the rows.
    pub heading: String,
    /// What has written it.
    pub written_by: String,
    /// The width of a slot of time, at least 3 pixels.
    pub slot_width: usize,
    /// The length of a slot of time, in microseconds.
    pub slot_us: u64,
    /// The number of requests and the number of pixels that stand for them.
    pub scale: (u64, u64),
    /// Lines at these slots, with what is written below them.
    pub ticks: Vec<(usize, String)>,
    /// From top to bottom.
    pub rows: Vec<Row>,
    /// Whether colours for dark screens are added, which renderers of pictures do not know.
    pub has_dark_colours: bool,
}

/// A row of bars, one in each slot of time.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The name, above the bars.
    pub name: String,
    /// What stands next to the bars, in one or two lines.
    pub notes: Vec<String>,
    /// The requests in each slot.
    pub bars: Vec<Bar>,
    /// When admitted requests have their turn, in microseconds; drawn below the base line.
    pub turns_us: Vec<u64>,
}

/// The requests in a slot of time.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// Requests that are not decided.
    Came(u64),
    /// Admitted and denied ones.
    Decided(u64, u64),
}

impl Picture {
    /// The picture as SVG.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a `String` does not fail.
        let _ = self.write(&mut svg);
        svg
    }

    fn slots(&self) -> usize {
        self.rows.iter().map(|row| row.bars.len()).max().unwrap_or(0)
    }

    /// Where the bars end.
    fn end(&self) -> usize {
        LEFT + self.slots() * self.slot_width
    }

    fn height(&self) -> usize {
        TOP + self.rows.len() * ROW + 30
    }

    fn write(&self, svg: &mut String) -> fmt::Result {
        let (width, height) = (self.end() + 20 + 164, self.height());
        writeln!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">"#
        )?;
        writeln!(svg, "<title>{}</title>", Escaped(&self.title))?;
        let dark = if self.has_dark_colours { DARK_STYLE } else { "" };
        writeln!(svg, "<!-- Written by {}. -->\n<style>{STYLE}{dark}</style>", self.written_by)?;
        writeln!(svg, r#"<rect class="back" width="{width}" height="{height}"/>"#)?;
        self.legend(svg)?;
        self.grid(svg)?;
        for (at, row) in self.rows.iter().enumerate() {
            self.row(svg, base(at), row)?;
        }
        writeln!(svg, "</svg>")
    }

    fn legend(&self, svg: &mut String) -> fmt::Result {
        writeln!(svg, r#"<text x="{LEFT}" y="24">{}</text>"#, Escaped(&self.heading))?;
        writeln!(svg, r#"<rect class="yes" x="{LEFT}" y="37" width="7" height="9"/>"#)?;
        writeln!(svg, r#"<text class="small" x="{}" y="46">admitted</text>"#, LEFT + 14)?;
        let x = LEFT + 90;
        writeln!(svg, r#"<rect class="no" x="{x}" y="37" width="7" height="9"/>"#)?;
        writeln!(svg, r#"<text class="small" x="{}" y="46">denied</text>"#, x + 14)?;
        if self.rows.iter().all(|row| row.turns_us.is_empty()) {
            return Ok(());
        }
        let x = x + 90;
        writeln!(svg, r#"<line class="out" x1="{x}" x2="{x}" y1="36" y2="46"/>"#)?;
        writeln!(
            svg,
            r#"<text class="small" x="{}" y="46">when an admitted request of the leaky bucket has its turn</text>"#,
            x + 14
        )
    }

    fn grid(&self, svg: &mut String) -> fmt::Result {
        let (top, bottom) = (TOP + 12, self.height() - 26);
        for (slot, label) in &self.ticks {
            let x = LEFT + slot * self.slot_width;
            writeln!(svg, r#"<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>"#)?;
            let y = bottom + 16;
            writeln!(
                svg,
                r#"<text class="small" x="{x}" y="{y}" text-anchor="middle">{}</text>"#,
                Escaped(label)
            )?;
        }
        Ok(())
    }

    fn row(&self, svg: &mut String, base: usize, row: &Row) -> fmt::Result {
        let (end, side) = (self.end(), self.end() + 20);
        writeln!(svg, r#"<line class="base" x1="{LEFT}" x2="{end}" y1="{base}" y2="{base}"/>"#)?;
        let name_y = base - BASE + 20;
        writeln!(svg, r#"<text class="name" x="{}" y="{name_y}">{}</text>"#, LEFT + 4, Escaped(&row.name))?;
        for (at, note) in row.notes.iter().take(2).enumerate() {
            let y = base - 2 - 18 * (row.notes.len().min(2) - 1 - at);
            let class = if at == 0 { "" } else { r#"class="small" "# };
            writeln!(svg, r#"<text {class}x="{side}" y="{y}">{}</text>"#, Escaped(note))?;
        }
        for (slot, bar) in row.bars.iter().enumerate() {
            match *bar {
                Bar::Came(count) => self.bar(svg, "came", slot, (0, count), base)?,
                Bar::Decided(admitted, denied) => {
                    self.bar(svg, "yes", slot, (0, admitted), base)?;
                    self.bar(svg, "no", slot, (admitted, denied), base)?;
                }
            }
        }
        for turn_us in &row.turns_us {
            let x =
                LEFT + usize::try_from(turn_us * self.slot_width as u64 / self.slot_us.max(1)).unwrap_or(0);
            let (top, bottom) = (base + 4, base + 12);
            writeln!(svg, r#"<line class="out" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>"#)?;
        }
        Ok(())
    }

    /// A bar for `count` requests of a slot, above the `below` requests that were drawn before.
    fn bar(
        &self,
        svg: &mut String,
        class: &str,
        slot: usize,
        (below, count): (u64, u64),
        base: usize,
    ) -> fmt::Result {
        let bottom = self.pixels(below);
        let height = self.pixels(below + count) - bottom;
        if height == 0 {
            return Ok(());
        }
        let width = self.slot_width - if self.slot_width > 6 { 2 } else { 1 };
        let (x, y) = (LEFT + slot * self.slot_width + 1, base - bottom - height);
        // The outline extends beyond the edge on both sides.
        if class == "no" {
            let (height, width) = (height - 1, width - 1);
            return writeln!(
                svg,
                r#"<rect class="no" x="{x}.5" y="{y}.5" width="{width}" height="{height}"/>"#
            );
        }
        writeln!(svg, r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#)
    }

    fn pixels(&self, count: u64) -> usize {
        let (requests, pixels) = self.scale;
        let drawn = u128::from(count) * u128::from(pixels) / u128::from(requests.max(1));
        usize::try_from(drawn.min(u128::from(HIGHEST))).unwrap_or(0)
    }
}

/// The base line of a row.
fn base(row: usize) -> usize {
    TOP + row * ROW + BASE
}

/// Text in XML.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            // XML has no control characters.
            c if c.is_control() => f.write_char('\u{fffd}'),
            c => f.write_char(c),
        })
    }
}

/// The picture of a simulation.
pub(crate) fn picture(simulation: &Simulation, has_dark_colours: bool) -> Picture {
    let courses: Vec<&Course> = simulation.courses().collect();
    let demand = &simulation.demand;
    let came = demand.timeline.admitted.iter().copied();
    let highest = courses.iter().flat_map(|course| {
        course
            .timeline
            .admitted
            .iter()
            .zip(&course.timeline.denied)
            .map(|(admitted, denied)| admitted + denied)
    });
    let highest = highest.chain(came.clone()).max().unwrap_or(1).max(1);
    let mut rows = vec![Row {
        name: "the traffic".to_owned(),
        notes: vec![format!("{} requests", demand.requests), format!("{} clients", demand.clients)],
        bars: came.map(Bar::Came).collect(),
        turns_us: Vec::new(),
    }];
    rows.extend(courses.iter().map(|course| {
        Row {
            name: course.label.clone(),
            notes: vec![
                format!("{} admitted", course.total.admitted),
                format!("{} denied to {} keys", course.total.denied, course.total.keys_denied),
            ],
            bars: (course.timeline.admitted.iter())
                .zip(&course.timeline.denied)
                .map(|(admitted, denied)| Bar::Decided(*admitted, *denied))
                .collect(),
            turns_us: Vec::new(),
        }
    }));
    let (slots, slot_us) = (demand.timeline.admitted.len(), demand.timeline.slot_us);
    let ticks = (0..=slots).step_by((slots / 6).max(1));
    Picture {
        title: "What limits do to traffic".to_owned(),
        heading: format!(
            "Requests in slots of {}; the highest bar is {highest}. Time runs to the right.",
            crate::text::duration(slot_us)
        ),
        written_by: "polylimit simulate".to_owned(),
        slot_width: 6,
        slot_us,
        scale: (highest, HIGHEST),
        ticks: ticks.map(|slot| (slot, crate::text::duration(slot as u64 * slot_us))).collect(),
        rows,
        has_dark_colours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_leave_their_elements() {
        let row = Row {
            name: "</text><script>\u{1}".to_owned(),
            notes: vec!["\"&".to_owned()],
            bars: vec![Bar::Decided(1, u64::MAX - 1), Bar::Came(0)],
            turns_us: vec![500],
        };
        let picture = Picture {
            title: "<&>".to_owned(),
            heading: "<b>".to_owned(),
            written_by: "a test".to_owned(),
            slot_width: 6,
            slot_us: 1_000,
            scale: (1, 4),
            ticks: vec![(0, "<i>".to_owned())],
            rows: vec![row],
            has_dark_colours: false,
        };
        let svg = picture.svg();
        for part in ["<script", "<b>", "<i>", "\u{1}", "@media"] {
            assert!(!svg.contains(part), "{svg}");
        }
        assert!(svg.contains("&lt;/text&gt;&lt;script&gt;\u{fffd}</text>"), "{svg}");
    }
}
