//! The normal form of paths, and patterns.
//!
//! Servers and applications read paths in different ways: repeated slashes, dots and escapes give the same path many spellings.
//! Rules compare its normal form, so that a client cannot evade a limit by another spelling.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::attribute::is_name;
use crate::router_paths::RouterPaths;
use polylimit_rules::error::{Error, excerpt};

/// The normal form of a path.
///
/// Scheme and authority of an absolute-form target (RFC 9112, section 3.2.2) are removed first. The path is cut at the first
/// `?` or `#`. Each `%XX` becomes its byte, except `%2F` and `%25`, which stay, in upper case. Empty segments and `.` are
/// removed, and `..` is removed with the segment before it, as is everything that the router drops. The result is `/` and the
/// segments, joined by `/`.
pub(crate) fn normalise(path: &[u8], router: RouterPaths) -> Cow<'_, [u8]> {
    let path = path_of_target(path);
    match borrow_normalised(path, router) {
        Some(path) => Cow::Borrowed(path),
        None => Cow::Owned(joined(&decode(before_query(path)), router, Dots::Resolved)),
    }
}

/// One way to read a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading<'a> {
    /// The form that rules compare: in lower case where the router ignores case.
    pub(crate) compared: Cow<'a, [u8]>,
    /// The same in the case in which it was sent, where that differs.
    sent: Option<Cow<'a, [u8]>>,
}

impl<'a> Reading<'a> {
    fn new(path: Cow<'a, [u8]>, router: RouterPaths) -> Self {
        if router.ignores_case()
            && let Cow::Owned(lower) = lower_case(&path)
        {
            return Self { compared: Cow::Owned(lower), sent: Some(path) };
        }
        Self { compared: path, sent: None }
    }

    /// The path with its letters as they were sent.
    pub(crate) fn sent(&self) -> &[u8] {
        self.sent.as_deref().unwrap_or(&self.compared)
    }
}

/// The ways to read a path; the first one is its [normal form](normalise).
pub(crate) type Readings<'a> = SmallVec<[Reading<'a>; 1]>;

/// The ways in which routers may read a path: with an escaped slash or a backslash as part of its segment or as a separator
/// and, where the router's treatment of dot segments is unknown, with these resolved or taken literally. A path without any of
/// them has one reading.
pub(crate) fn readings(path: &[u8], router: RouterPaths) -> Readings<'_> {
    let mut readings = Readings::new();
    readings.push(Reading::new(normalise(path, router), router));
    let path = before_query(path_of_target(path));
    let has_other_slashes = path.iter().any(|byte| b"%\\".contains(byte));
    if !has_other_slashes && (!router.counts_every_reading() || !has_dots(path)) {
        return readings;
    }
    let decoded = decode(path);
    let split = split_at_other_slashes(&decoded);
    let others = [(&split, Dots::Resolved), (&decoded, Dots::Literal), (&split, Dots::Literal)];
    let others = others.into_iter().take(if router.counts_every_reading() { others.len() } else { 1 });
    for (path, dots) in others {
        let reading = Reading::new(Cow::Owned(joined(path, router, dots)), router);
        if !readings.contains(&reading) {
            readings.push(reading);
        }
    }
    readings
}

/// A text in lower case, borrowed if it already is. Bytes that are not UTF-8 keep their case, except for ASCII letters.
pub(crate) fn lower_case(text: &[u8]) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        if text.iter().any(u8::is_ascii_uppercase) {
            return Cow::Owned(text.to_ascii_lowercase());
        }
        return Cow::Borrowed(text);
    }
    let lower = std::str::from_utf8(text)
        .map_or_else(|_| text.to_ascii_lowercase(), |text| text.to_lowercase().into_bytes());
    if *lower == *text { Cow::Borrowed(text) } else { Cow::Owned(lower) }
}

/// The path and the query of a request's target, without any scheme and authority.
fn path_of_target(target: &[u8]) -> &[u8] {
    if target.first() == Some(&b'/') {
        return target;
    }
    let is_scheme_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let scheme = target.iter().take_while(|byte| is_scheme_byte(byte)).count();
    let is_scheme = target.first().is_some_and(u8::is_ascii_alphabetic);
    let Some(rest) = target[scheme..].strip_prefix(b"://").filter(|_| is_scheme) else { return target };
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    &rest[end..]
}

fn before_query(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    &path[..end]
}

fn has_dots(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| segment.starts_with(b"."))
}

/// A decoded path with a slash in place of each escaped one and of each backslash, as some servers read them.
fn split_at_other_slashes(decoded: &[u8]) -> Vec<u8> {
    let mut split = Vec::with_capacity(decoded.len());
    let mut rest = decoded;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        // Decoding has left no other escape of a slash.
        match rest.strip_prefix(b"2F") {
            Some(after) if byte == b'%' => {
                split.push(b'/');
                rest = after;
            }
            _ if byte == b'\\' => split.push(b'/'),
            _ => split.push(byte),
        }
    }
    split
}

/// How the segments `.` and `..` are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dots {
    /// `.` is removed, and `..` is removed with the segment before it.
    Resolved,
    /// They are ordinary segments.
    Literal,
}

/// The segments of a decoded path that a router keeps, each behind a `/`.
fn joined(decoded: &[u8], router: RouterPaths, dots: Dots) -> Vec<u8> {
    let mut path = Vec::with_capacity(decoded.len() + 1);
    for mut segment in decoded.split(|byte| *byte == b'/') {
        if router.drops_parameters() {
            segment = without_parameters(segment);
        }
        match segment {
            b"" => {}
            b"." if dots == Dots::Resolved => {}
            b".." if dots == Dots::Resolved => {
                let parent = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                path.truncate(parent);
            }
            _ => {
                path.push(b'/');
                path.extend_from_slice(segment);
            }
        }
    }
    if router.drops_suffix() {
        path.truncate(length_without_suffix(&path));
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

fn without_parameters(segment: &[u8]) -> &[u8] {
    let end = segment.iter().position(|byte| *byte == b';').unwrap_or(segment.len());
    &segment[..end]
}

/// The length of a path without the format of its last segment, such as `.json`: the last dot and what follows it, if the
/// segment has a name before it.
fn length_without_suffix(path: &[u8]) -> usize {
    let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    match path.iter().rposition(|byte| *byte == b'.') {
        Some(dot)
            if dot >= name && dot + 1 < path.len() && path[name..dot].iter().any(|byte| *byte != b'.') =>
        {
            dot
        }
        _ => path.len(),
    }
}

/// The path up to its query, if it has no escape and no segment to remove, like most paths.
fn borrow_normalised(path: &[u8], router: RouterPaths) -> Option<&[u8]> {
    let mut before = 0;
    let mut end = path.len();
    for (at, &byte) in path.iter().enumerate() {
        match byte {
            b'?' | b'#' => {
                end = at;
                break;
            }
            b'%' => return None,
            b';' if router.drops_parameters() => return None,
            b'/' | b'.' if before == b'/' => return None,
            _ => before = byte,
        }
    }
    let path = &path[..end];
    let is_normal = path.first() == Some(&b'/') && (path.len() == 1 || before != b'/');
    let length = if router.drops_suffix() { length_without_suffix(path) } else { path.len() };
    is_normal.then_some(&path[..length])
}

fn decode(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match decode_escape(byte, after) {
            None => decoded.push(byte),
            Some(escaped) => {
                rest = &after[2..];
                match escaped {
                    b'/' => decoded.extend_from_slice(b"%2F"),
                    b'%' => decoded.extend_from_slice(b"%25"),
                    _ => decoded.push(escaped),
                }
            }
        }
    }
    decoded
}

/// The byte that `%` and two hexadecimal digits after it stand for.
pub(crate) fn decode_escape(first: u8, after: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match (first, after) {
        (b'%', &[high, low, ..]) => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    }
}

/// Whether this can be the normal form of a path: it has no empty segments, `.` or `..`.
pub(crate) fn is_normalised(path: &[u8]) -> bool {
    let is_kept = |segment: &[u8]| !matches!(segment, b"" | b"." | b"..");
    path.strip_prefix(b"/")
        .is_some_and(|rest| rest.is_empty() || rest.split(|byte| *byte == b'/').all(is_kept))
}

/// The segments of a normalised path.
pub(crate) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty())
}

/// A pattern of normalised paths, such as `/v1/orders/{id}` or `/static/{*rest}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPattern {
    segments: Box<[Segment]>,
    /// The name that captures all further segments, if any may follow.
    rest: Option<Box<str>>,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(Box<[u8]>),
    /// Any segment, captured under its name.
    Any(Box<str>),
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Invalid argument: the text is not a normalised path, has braces or `*` other than in a `{name}` segment or a `{*name}`
    /// as the last one, or duplicate names.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if !text.starts_with('/') {
            return Err(Error::invalid_argument(format!(
                "path is {}; allowed are normalised paths, which start with /, such as \"/v1/{{id}}\" or \"/static/{{*rest}}\"",
                excerpt(text)
            )));
        }
        let normalised = normalise(text.as_bytes(), RouterPaths::new());
        if *normalised != *text.as_bytes() {
            let normalised = String::from_utf8_lossy(&normalised);
            let shown = excerpt(&normalised);
            let correction = if shown.ends_with('"') {
                format!("write {shown}")
            } else {
                // An excerpt of a long path may end before the difference.
                let is_same = |(here, there): &(char, char)| here == there;
                let same = text.chars().zip(normalised.chars()).take_while(is_same);
                let same: usize = same.map(|(here, _)| here.len_utf8()).sum();
                let (wrong, right) = (excerpt(&text[same..]), excerpt(&normalised[same..]));
                format!("write {right} in place of {wrong} in it")
            };
            return Err(Error::invalid_argument(format!(
                "path is {}, which no path equals once it is normalised; allowed are normalised paths: {correction}",
                excerpt(text)
            )));
        }
        let mut pattern = Self { segments: Box::default(), rest: None };
        let mut parsed = Vec::new();
        for segment in text.split('/').filter(|segment| !segment.is_empty()) {
            let refuse = |why: &str| {
                Err(Error::invalid_argument(format!(
                    "path is {} with the segment {}{why}; allowed are text, {{name}} for a segment and, as the last one, \
                     {{*name}} for all the rest, with names of lower-case letters, digits and _",
                    excerpt(text),
                    excerpt(segment)
                )))
            };
            if let Some(rest) = &pattern.rest {
                return refuse(&format!(" after {{*{rest}}}"));
            }
            let name = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            let (name, is_rest) = match name {
                None if segment.contains(['{', '}', '*']) => return refuse(""),
                None => {
                    parsed.push(Segment::Literal(segment.as_bytes().into()));
                    continue;
                }
                Some(name) => name.strip_prefix('*').map_or((name, false), |name| (name, true)),
            };
            if !is_name(name) {
                return refuse("");
            }
            if parsed.iter().any(|other| matches!(other, Segment::Any(other) if **other == *name)) {
                return refuse(", whose name stands twice");
            }
            if is_rest {
                pattern.rest = Some(name.into());
            } else {
                parsed.push(Segment::Any(name.into()));
            }
        }
        pattern.segments = parsed.into();
        Ok(pattern)
    }

    /// The pattern that matches a path [as a router reads it](Reading) where this one matches it byte by byte: what the router
    /// ignores in paths, it ignores in patterns.
    pub(crate) fn for_router(&self, router: RouterPaths) -> Self {
        let last = self.segments.len().saturating_sub(1);
        let segments = self.segments.iter().enumerate().map(|(at, segment)| {
            let Segment::Literal(literal) = segment else { return segment.clone() };
            let mut literal = &**literal;
            if router.drops_parameters() {
                literal = without_parameters(literal);
            }
            if router.drops_suffix() && at == last && self.rest.is_none() {
                literal = &literal[..length_without_suffix(literal)];
            }
            let literal = if router.ignores_case() { lower_case(literal) } else { Cow::Borrowed(literal) };
            Segment::Literal(literal.into())
        });
        let is_left = |segment: &Segment| !matches!(segment, Segment::Literal(literal) if literal.is_empty());
        Self { segments: segments.filter(is_left).collect(), rest: self.rest.clone() }
    }

    /// Its segments, and whether more may follow.
    pub(crate) fn parts(&self) -> (&[Segment], bool) {
        (&self.segments, self.rest.is_some())
    }

    /// Whether it has a capture with this name.
    pub(crate) fn captures(&self, name: &str) -> bool {
        self.rest.as_deref() == Some(name)
            || self.segments.iter().any(|segment| matches!(segment, Segment::Any(any) if **any == *name))
    }

    /// Whether a normalised path matches the pattern.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        let mut found = segments(path);
        for segment in &self.segments {
            match (found.next(), segment) {
                (Some(found), Segment::Literal(literal)) if *found == **literal => {}
                (Some(_), Segment::Any(_)) => {}
                _ => return false,
            }
        }
        self.rest.is_some() || found.next().is_none()
    }

    /// The capture with this name in a normalised path that matches the pattern.
    pub(crate) fn capture<'a>(&self, name: &str, path: &'a [u8]) -> Option<&'a [u8]> {
        let is_named = |segment: &Segment| matches!(segment, Segment::Any(any) if **any == *name);
        if let Some(at) = self.segments.iter().position(is_named) {
            return segments(path).nth(at);
        }
        if self.rest.as_deref() != Some(name) {
            return None;
        }
        // Each segment has a `/` before it; what is left starts with the next one.
        let before: usize = segments(path).take(self.segments.len()).map(|segment| segment.len() + 1).sum();
        path.get(before..).and_then(|rest| rest.strip_prefix(b"/"))
    }
}

#[cfg(test)]
mod tests;
