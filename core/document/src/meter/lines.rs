//! The JSON documents of a body: one for all, one on each line, or one in the data of each event of a stream.

use crate::meter::json::{JsonScanner, Paths};

/// How a body has its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `application/json`
    Document,
    /// `application/x-ndjson` and the like: each line is one.
    Lines,
    /// `text/event-stream`: the lines `data` of an event are one.
    Events,
}

impl Format {
    /// The format of a body with this content type; `None` for one that is not JSON.
    pub(super) fn of(content_type: &[u8]) -> Option<Self> {
        let name = content_type.split(|byte| *byte == b';').next()?.trim_ascii().to_ascii_lowercase();
        match &name[..] {
            b"text/event-stream" => Some(Self::Events),
            b"application/x-ndjson"
            | b"application/ndjson"
            | b"application/jsonl"
            | b"application/x-jsonlines" => Some(Self::Lines),
            b"application/json" => Some(Self::Document),
            _ if name.ends_with(b"+json") => Some(Self::Document),
            _ => None,
        }
    }
}

/// Reads the documents of a body.
#[derive(Debug)]
pub(super) struct Documents {
    format: Format,
    scanner: JsonScanner,
    /// How many bytes of a byte order mark may still come.
    mark: usize,
    line: Line,
    is_line_empty: bool,
    after_carriage_return: bool,
}

/// The current line of a stream of events.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// The name of a field, of which this many bytes are those of `data:`.
    Field(usize),
    /// Data, before its first byte.
    DataStart,
    Data,
    /// Another field, or a comment.
    Other,
}

const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];
const DATA: &[u8] = b"data:";

impl Documents {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            scanner: JsonScanner::default(),
            mark: BYTE_ORDER_MARK.len(),
            line: Line::Field(0),
            is_line_empty: true,
            after_carriage_return: false,
        }
    }

    /// Takes the next piece of the body. `found` gets the index of a place and its number as text.
    pub(super) fn push(&mut self, bytes: &[u8], paths: &Paths, mut found: impl FnMut(usize, &[u8])) {
        for byte in bytes {
            match self.format {
                Format::Document => self.scanner.push(*byte, paths, &mut found),
                Format::Lines => {
                    self.scanner.push(*byte, paths, &mut found);
                    if *byte == b'\n' {
                        self.scanner.reset();
                    }
                }
                Format::Events => self.push_event(*byte, paths, &mut found),
            }
        }
    }

    /// The end of the body ends a number.
    pub(super) fn end(&mut self, paths: &Paths, mut found: impl FnMut(usize, &[u8])) {
        self.scanner.push(b'\n', paths, &mut found);
    }

    fn push_event(&mut self, byte: u8, paths: &Paths, found: &mut impl FnMut(usize, &[u8])) {
        if self.mark > 0 {
            let is_mark = byte == BYTE_ORDER_MARK[BYTE_ORDER_MARK.len() - self.mark];
            self.mark = if is_mark { self.mark - 1 } else { 0 };
            if is_mark {
                return;
            }
        }
        // A line ends with a line feed, a carriage return, or both (HTML Standard, 9.2.5).
        if std::mem::replace(&mut self.after_carriage_return, byte == b'\r') && byte == b'\n' {
            return;
        }
        if matches!(byte, b'\r' | b'\n') {
            if self.is_line_empty {
                self.scanner.reset();
            } else if matches!(self.line, Line::DataStart | Line::Data) {
                self.scanner.push(b'\n', paths, found);
            }
            (self.line, self.is_line_empty) = (Line::Field(0), true);
            return;
        }
        self.is_line_empty = false;
        self.line = match self.line {
            Line::Field(read) if byte == DATA[read] && read + 1 == DATA.len() => Line::DataStart,
            Line::Field(read) if byte == DATA[read] => Line::Field(read + 1),
            Line::DataStart if byte == b' ' => Line::Data,
            Line::DataStart | Line::Data => {
                self.scanner.push(byte, paths, found);
                Line::Data
            }
            Line::Field(_) | Line::Other => Line::Other,
        };
    }
}
