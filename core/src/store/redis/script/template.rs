//! Lua that is cut at its markers at compile time.

/// Lua, cut at lines of the form `--[marker]`.
pub(super) struct Template<const MARKERS: usize> {
    /// The text before each marker.
    pub(super) before: [&'static str; MARKERS],
    /// The text after the last marker.
    pub(super) rest: &'static str,
}

impl<const MARKERS: usize> Template<MARKERS> {
    /// Fails to compile unless the source has exactly these markers, in this order.
    pub(super) const fn cut(source: &'static str, markers: [&str; MARKERS]) -> Self {
        let (mut before, mut rest, mut at) = ([""; MARKERS], source, 0);
        while at < MARKERS {
            let marker = next_marker(rest);
            assert!(marker < rest.len(), "the Lua lacks a marker");
            let (piece, found) = rest.split_at(marker);
            let name = found.split_at(3).1;
            assert!(starts_with(name, markers[at]), "the Lua has another marker here");
            let (_, after) = name.split_at(markers[at].len());
            assert!(starts_with(after, "]\n"), "the Lua has another marker here");
            (before[at], rest) = (piece, after.split_at(2).1);
            at += 1;
        }
        assert!(next_marker(rest) == rest.len(), "the Lua has one marker more");
        Self { before, rest }
    }

    /// The Lua with these texts in place of the markers.
    pub(super) fn fill(&self, texts: [&str; MARKERS]) -> String {
        let pieces = self.before.into_iter().zip(texts).flat_map(|(before, text)| [before, text]);
        pieces.chain([self.rest]).collect()
    }
}

/// Where the next marker begins; the end if there is none.
const fn next_marker(source: &str) -> usize {
    let bytes = source.as_bytes();
    let mut at = 0;
    while at + 3 <= bytes.len() {
        if bytes[at] == b'-' && bytes[at + 1] == b'-' && bytes[at + 2] == b'[' {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

const fn starts_with(text: &str, start: &str) -> bool {
    let (text, start) = (text.as_bytes(), start.as_bytes());
    let mut at = 0;
    while at < start.len() {
        if at >= text.len() || text[at] != start[at] {
            return false;
        }
        at += 1;
    }
    true
}
