//! Finds the numbers at known places of JSON that arrives in pieces. Libraries either take a whole document or keep each of its strings;
//! this keeps a name or a number of a known place, whatever the size of the document.

use smallvec::SmallVec;

/// The places that are looked for: the names on the path to each.
pub(super) type Paths = [Box<[Box<str>]>];

/// A set of places, by their index.
type Set = u128;

/// The maximum number of places.
pub(super) const MAX_PATHS: usize = Set::BITS as usize;
/// The maximum length of a name, in bytes; longer names are no known ones.
const MAX_NAME: usize = 1_024;
/// The maximum length of a number, in bytes; longer ones are not read.
const MAX_NUMBER: usize = 64;

/// Reads JSON byte by byte. It does not check its grammar: another text has no numbers at known places, or different ones.
#[derive(Debug, Default)]
pub(super) struct JsonScanner {
    /// The containers around the current byte on a path to a known place.
    frames: SmallVec<[Frame; 4]>,
    /// How many containers around the current byte are on no such path.
    skipped: u64,
    token: Token,
    /// The name or the number so far, if it may matter.
    kept: SmallVec<[u8; 32]>,
}

#[derive(Debug, Default)]
struct Frame {
    /// The places within the container.
    places: Set,
    /// The places of the member whose value comes next, or of the current element.
    next: Set,
    /// The index of the current element; `None` for an object.
    index: Option<usize>,
    expects_name: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Token {
    /// Between tokens, or within one that does not matter.
    #[default]
    None,
    Text {
        is_name: bool,
        is_escaped: bool,
    },
    Number,
}

impl JsonScanner {
    /// Begins a new document.
    pub(super) fn reset(&mut self) {
        self.frames.clear();
        self.skipped = 0;
        self.token = Token::None;
        self.kept.clear();
    }

    /// Takes the next byte. `found` gets the index of a place and its number as text.
    pub(super) fn push(&mut self, byte: u8, paths: &Paths, found: &mut impl FnMut(usize, &[u8])) {
        match self.token {
            Token::Text { is_name, is_escaped } => return self.push_text(byte, is_name, is_escaped, paths),
            Token::Number if matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') => {
                return self.keep(byte, MAX_NUMBER);
            }
            Token::Number => {
                self.token = Token::None;
                let (places, depth) = (self.next_places(paths), self.frames.len());
                if self.kept.len() <= MAX_NUMBER {
                    for at in indices(places).filter(|at| paths[*at].len() == depth) {
                        found(at, &self.kept);
                    }
                }
            }
            Token::None => {}
        }
        self.push_structure(byte, paths);
    }

    fn push_structure(&mut self, byte: u8, paths: &Paths) {
        match byte {
            b'"' => {
                let top = self.frames.last();
                let is_name =
                    self.skipped == 0 && top.is_some_and(|top| top.index.is_none() && top.expects_name);
                self.kept.clear();
                self.token = Token::Text { is_name, is_escaped: false };
            }
            b'{' | b'[' => self.open(byte == b'[', paths),
            b'}' | b']' if self.skipped > 0 => self.skipped -= 1,
            b'}' | b']' => drop(self.frames.pop()),
            b',' if self.skipped == 0 => self.start_next(paths),
            b'-' | b'0'..=b'9' if self.skipped == 0 && self.next_places(paths) != 0 => {
                self.kept.clear();
                self.keep(byte, MAX_NUMBER);
                self.token = Token::Number;
            }
            _ => {}
        }
    }

    fn open(&mut self, is_array: bool, paths: &Paths) {
        let places = if self.skipped == 0 { self.next_places(paths) } else { 0 };
        if places == 0 {
            self.skipped += 1;
            return;
        }
        let depth = self.frames.len();
        let index = is_array.then_some(0);
        let next = index.map_or(0, |index| at_index(places, depth, index, paths));
        self.frames.push(Frame { places, next, index, expects_name: !is_array });
    }

    /// A comma: the next member or element.
    fn start_next(&mut self, paths: &Paths) {
        let Some(depth) = self.frames.len().checked_sub(1) else { return };
        let top = &mut self.frames[depth];
        if let Some(index) = &mut top.index {
            *index += 1;
            top.next = at_index(top.places, depth, *index, paths);
        } else {
            (top.next, top.expects_name) = (0, true);
        }
    }

    fn push_text(&mut self, byte: u8, is_name: bool, is_escaped: bool, paths: &Paths) {
        if byte == b'"' && !is_escaped {
            self.token = Token::None;
            if is_name {
                self.end_name(paths);
            }
            return;
        }
        self.token = Token::Text { is_name, is_escaped: byte == b'\\' && !is_escaped };
        if is_name {
            self.keep(byte, MAX_NAME);
        }
    }

    fn end_name(&mut self, paths: &Paths) {
        let Some(depth) = self.frames.len().checked_sub(1) else { return };
        let unescaped = if self.kept.contains(&b'\\') { unescaped(&self.kept) } else { None };
        let name = unescaped.as_deref().map_or(&*self.kept, str::as_bytes);
        let top = &mut self.frames[depth];
        let is_name = |at: &usize| paths[*at].get(depth).is_some_and(|known| known.as_bytes() == name);
        top.next = set(indices(top.places).filter(is_name));
        top.expects_name = false;
    }

    /// The places of the value that begins here.
    fn next_places(&self, paths: &Paths) -> Set {
        self.frames.last().map_or_else(|| set(0..paths.len()), |top| top.next)
    }

    /// Keeps a byte, unless there are more than `max` of them already: one more shows that the text is longer.
    fn keep(&mut self, byte: u8, max: usize) {
        if self.kept.len() <= max {
            self.kept.push(byte);
        }
    }
}

/// The places within an array that are in its element at this index.
fn at_index(places: Set, depth: usize, index: usize, paths: &Paths) -> Set {
    set(indices(places).filter(|at| paths[*at].get(depth).and_then(|name| name.parse().ok()) == Some(index)))
}

fn indices(set: Set) -> impl Iterator<Item = usize> {
    (0..MAX_PATHS).filter(move |at| set & (1 << at) != 0)
}

fn set(indices: impl Iterator<Item = usize>) -> Set {
    indices.fold(0, |set, at| set | (1 << at))
}

/// The text of a JSON string with escapes.
fn unescaped(escaped: &[u8]) -> Option<String> {
    let quoted = [b"\"", escaped, b"\""].concat();
    serde_json::from_slice(&quoted).ok()
}
