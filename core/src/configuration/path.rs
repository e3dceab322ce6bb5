//! Paths in one form, and patterns of them.
//!
//! Servers and applications read a path in different ways: with repeated slashes, dots and escapes there are many ways to
//! write the same path. A rule compares one form, so that a client evades no limit by another spelling.

use std::borrow::Cow;

use crate::configuration::attribute::is_name;
use crate::error::{Error, excerpt};

/// The path in its one form.
///
/// It is cut at the first `?` or `#`. Each `%XX` becomes its byte, except `%2F` and `%25`, which stay, in upper case. Empty
/// segments and `.` go, `..` goes with the segment before it. The result is `/` and the segments, joined by `/`.
pub(crate) fn normalise(path: &[u8]) -> Cow<'_, [u8]> {
    if let Some(path) = borrow_normalised(path) {
        return Cow::Borrowed(path);
    }
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let decoded = decode(&path[..end]);
    let mut normalised = Vec::with_capacity(decoded.len() + 1);
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                let parent = normalised.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                normalised.truncate(parent);
            }
            _ => {
                normalised.push(b'/');
                normalised.extend_from_slice(segment);
            }
        }
    }
    if normalised.is_empty() {
        normalised.push(b'/');
    }
    Cow::Owned(normalised)
}

/// The path up to its query, if it has no escape and no segment that could go; most paths are so.
fn borrow_normalised(path: &[u8]) -> Option<&[u8]> {
    let mut before = 0;
    let mut end = path.len();
    for (at, &byte) in path.iter().enumerate() {
        match byte {
            b'?' | b'#' => {
                end = at;
                break;
            }
            b'%' => return None,
            b'/' | b'.' if before == b'/' => return None,
            _ => before = byte,
        }
    }
    let path = &path[..end];
    (path.first() == Some(&b'/') && (path.len() == 1 || before != b'/')).then_some(path)
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

/// Whether some path has this form: segments without empty ones, `.` and `..`.
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
    /// The name of all the segments after these, if any may follow.
    rest: Option<Box<str>>,
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(Box<[u8]>),
    /// Any segment, under its name.
    Any(Box<str>),
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Invalid argument: the text is no normalised path, or has braces or `*` that are no `{name}` of a segment and no
    /// `{*name}` of the last one, or a name twice.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if !text.starts_with('/') {
            return Err(Error::invalid_argument(format!(
                "path is {}; allowed are normalised paths, which start with /, such as \"/v1/{{id}}\" or \"/static/{{*rest}}\"",
                excerpt(text)
            )));
        }
        let normalised = normalise(text.as_bytes());
        if *normalised != *text.as_bytes() {
            let normalised = String::from_utf8_lossy(&normalised);
            let shown = excerpt(&normalised);
            let correction = if shown.ends_with('"') {
                format!("write {shown}")
            } else {
                // An excerpt of a long path may end before they differ.
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

    /// Its segments, and whether more may follow.
    pub(crate) fn parts(&self) -> (&[Segment], bool) {
        (&self.segments, self.rest.is_some())
    }

    /// Whether it captures under a name.
    pub(crate) fn captures(&self, name: &str) -> bool {
        self.rest.as_deref() == Some(name)
            || self.segments.iter().any(|segment| matches!(segment, Segment::Any(any) if **any == *name))
    }

    /// Whether a normalised path has the pattern.
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

    /// What is captured under a name in a normalised path that has the pattern.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normalised(path: &str) -> String {
        String::from_utf8(normalise(path.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn path_has_one_form() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("/..", "/"),
            ("/../..", "/"),
            ("?a=/b", "/"),
            ("#a", "/"),
            ("*", "/*"),
            ("a/b", "/a/b"),
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/a?", "/a"),
            ("/a/?b", "/a"),
            ("/a#b?c", "/a"),
            ("/a//b/", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/b/..", "/a"),
            ("/a/../../b", "/b"),
            ("/a/b/../../c", "/c"),
            ("/a/..b/.c/...", "/a/..b/.c/..."),
            ("/v1/./x/../orders/7?a=/b/c", "/v1/orders/7"),
            ("/v1/%6Frders/7#f", "/v1/orders/7"),
            ("/v1/orders/%2E%2e/orders/7", "/v1/orders/7"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%252fb", "/a%252fb"),
            ("/%zz/%4", "/%zz/%4"),
            ("/%", "/%"),
            ("/%%34", "/%4"),
            ("/a%3Fb%23", "/a?b#"),
            ("/a%20b%C3%A9", "/a b\u{e9}"),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(normalised(path), expected, "{path}");
            assert!(is_normalised(expected.as_bytes()), "{expected}");
        }
        assert_eq!(*normalise(b"/%FF%00"), *b"/\xff\0");
        for path in ["", "a", "/a/", "//", "/.", "/a/../b"] {
            assert!(!is_normalised(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn usual_path_is_borrowed() {
        for path in ["/", "/v1/orders/7", "/v1/orders/7?a=b%20c", "/a.b/c..d/e#f"] {
            assert!(matches!(normalise(path.as_bytes()), Cow::Borrowed(_)), "{path}");
        }
    }

    #[test]
    fn pattern_matches_segments_and_the_rest() {
        for (pattern, path, expected) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/a", "/a", true),
            ("/a", "/A", false),
            ("/a", "/a/b", false),
            ("/a/b", "/a", false),
            ("/v1/orders/{id}", "/v1/orders/7", true),
            ("/v1/orders/{id}", "/v1/orders", false),
            ("/v1/orders/{id}", "/v1/orders/7/8", false),
            ("/{a}/x/{b}", "/1/x/2", true),
            ("/{a}/x/{b}", "/1/y/2", false),
            ("/static/{*rest}", "/static", true),
            ("/static/{*rest}", "/static/a/b", true),
            ("/static/{*rest}", "/statical", false),
            ("/{*rest}", "/", true),
            ("/{*rest}", "/a/b", true),
            ("/{tenant}/files/{*rest}", "/files/a", false),
            ("/a%2Fb", "/a%2Fb", true),
            ("/é", "/é", true),
        ] {
            let matches = PathPattern::parse(pattern).unwrap().matches(path.as_bytes());
            assert_eq!(matches, expected, "{pattern} and {path}");
        }
    }

    #[test]
    fn names_capture_segments_and_the_rest() {
        let pattern = PathPattern::parse("/{tenant}/files/{*rest}").unwrap();
        for (path, rest) in
            [("/acme/files", None), ("/acme/files/a", Some("a")), ("/acme/files/a/b", Some("a/b"))]
        {
            assert!(pattern.matches(path.as_bytes()));
            assert_eq!(pattern.capture("tenant", path.as_bytes()), Some(&b"acme"[..]));
            assert_eq!(pattern.capture("rest", path.as_bytes()), rest.map(str::as_bytes));
            assert_eq!(pattern.capture("files", path.as_bytes()), None);
        }
        assert!(pattern.captures("tenant") && pattern.captures("rest") && !pattern.captures("files"));
        let all = PathPattern::parse("/{*all}").unwrap();
        assert_eq!((all.capture("all", b"/"), all.capture("all", b"/a")), (Some(&b""[..]), Some(&b"a"[..])));
    }

    #[test]
    fn pattern_is_a_normalised_path_with_whole_segments_in_braces() {
        for (text, about) in [
            ("", "start with /"),
            ("*", "start with /"),
            ("a", "start with /"),
            ("/a/", "\"/a/\""),
            ("/a//b", "write \"/a/b\""),
            ("/a?b", "write \"/a\""),
            ("/%41", "write \"/A\""),
            ("/a%2fb", "write \"/a%2Fb\""),
            ("/{*x}/y", "{*x}"),
            ("/{*x}/{*y}", "{*x}"),
            ("/a*", "segment \"a*\""),
            ("/{a}b", "segment \"{a}b\""),
            ("/{a", "segment \"{a\""),
            ("/a}", "segment \"a}\""),
            ("/{}", "segment \"{}\""),
            ("/{*}", "segment \"{*}\""),
            ("/{A}", "segment \"{A}\""),
            ("/{a}/{a}", "twice"),
            ("/{a}/{*a}", "twice"),
        ] {
            let message = PathPattern::parse(text).unwrap_err().message().to_owned();
            assert!(message.contains(about), "{text}: {message}");
        }
        let long = format!("/{}/b%2fc", "a".repeat(50));
        let message = PathPattern::parse(&long).unwrap_err().message().to_owned();
        assert!(message.ends_with("write \"Fc\" in place of \"fc\" in it"), "{message}");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_normalised_form(
            path in prop::collection::vec(prop::sample::select(&b"//..%%2FfEe5347?#ab\xff\0"[..]), 0..24),
        ) {
            let normalised = normalise(&path);
            prop_assert!(is_normalised(&normalised));
            // An escape may stand for a byte that cuts a path, or be completed by another one.
            if !path.contains(&b'%') {
                prop_assert_eq!(&normalise(&normalised), &normalised);
            }
        }

        #[test]
        fn escaped_letters_are_letters(path in "(/[a-c.]{0,3}){0,5}") {
            let escaped: String = path
                .chars()
                .map(|letter| if letter == '/' { letter.into() } else { format!("%{:02x}", u32::from(letter)) })
                .collect();
            prop_assert_eq!(normalise(path.as_bytes()), normalise(escaped.as_bytes()));
        }
    }
}
