//! The headers that proxies write, and their entries from right to left.

use std::net::IpAddr;
use std::str::FromStr;

use crate::client_address::ClientAddressRules;
use crate::client_address::address::parse_node;
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::names::named_enum;

named_enum! {
    /// The header in which proxies write the address that called them.
    ///
    /// The first two are lists, to which each proxy appends. The others have one address, which the outermost proxy sets: name
    /// one only where nothing reaches the service but through that proxy, which replaces what its clients send. Several lines of
    /// such a header, or a list in it, name no address.
    ForwardingHeader {
        /// `X-Forwarded-For: client, proxy, proxy`: no standard, and what most proxies write.
        XForwardedFor = "x-forwarded-for",
        /// `Forwarded: for=client;proto=https, for="[2001:db8::1]:443"`: RFC 7239.
        Forwarded = "forwarded",
        /// `CF-Connecting-IP: client`: Cloudflare.
        CfConnectingIp = "cf-connecting-ip",
        /// `True-Client-IP: client`: Akamai, and Cloudflare where it is turned on.
        TrueClientIp = "true-client-ip",
        /// `X-Real-IP: client`: nginx by its users' convention, Vercel, Railway.
        XRealIp = "x-real-ip",
        /// `Fly-Client-IP: client`: Fly.io.
        FlyClientIp = "fly-client-ip",
    }
}

impl ForwardingHeader {
    /// Whether proxies append to the header; otherwise one of them sets it.
    const fn is_list(self) -> bool {
        matches!(self, Self::XForwardedFor | Self::Forwarded)
    }

    /// The entries of all lines, from the last to the first, within the limits. An entry in which a limit falls ends the
    /// iteration, so no part of an entry is yielded.
    pub(crate) fn entries_from_the_right<'a>(
        self,
        lines: impl IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
    ) -> impl Iterator<Item = &'a [u8]> {
        let mut lines = lines.into_iter().rev();
        let mut only_line = None;
        if !self.is_list() {
            only_line = lines.next().filter(|_| lines.next().is_none());
            lines.by_ref().for_each(drop);
        }
        let mut rest_of_line = only_line;
        let mut entries_left = ClientAddressRules::MAX_ENTRIES;
        let mut bytes_left = ClientAddressRules::MAX_HEADER_BYTES;
        std::iter::from_fn(move || {
            entries_left = entries_left.checked_sub(1)?;
            let line: &[u8] = match rest_of_line.take() {
                Some(rest) => rest,
                None => lines.next()?,
            };
            let seen_from = line.len().saturating_sub(bytes_left);
            let start = match self.last_comma(&line[seen_from..]) {
                Some(comma) => {
                    let comma = seen_from + comma;
                    rest_of_line = Some(&line[..comma]);
                    comma + 1
                }
                None if seen_from == 0 => 0,
                None => {
                    entries_left = 0;
                    return None;
                }
            };
            let entry = &line[start..];
            // An entry is followed by a comma, or by the comma and space that would join its line to the next.
            let separator = if rest_of_line.is_some() { 1 } else { 2 };
            bytes_left = bytes_left.saturating_sub(entry.len() + separator);
            Some(entry)
        })
    }

    /// The address that an entry names, if there is one.
    pub(crate) fn address_of(self, entry: &[u8]) -> Option<IpAddr> {
        match self {
            Self::Forwarded => parse_node(&for_value(entry)?),
            _ => parse_node(entry.trim_ascii()),
        }
    }

    fn last_comma(self, line: &[u8]) -> Option<usize> {
        match self {
            Self::XForwardedFor => line.iter().rposition(|&byte| byte == b','),
            Self::Forwarded => last_unquoted_comma(line),
            _ => None,
        }
    }
}

impl FromStr for ForwardingHeader {
    type Err = Error;

    /// Parses the name of a header, in any letter case.
    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|header| name.eq_ignore_ascii_case(header.name())).ok_or_else(|| {
            let (read, allowed) = (excerpt(name), Self::ALL.map(Self::name).join(", "));
            Error::invalid_argument(format!("header is {read}; allowed are {allowed}"))
        })
    }
}

/// The position of the comma before the last element of a line of `Forwarded` (RFC 7239, section 4).
///
/// The search starts from the right. A well-formed element has its quotes in pairs, and its opening quotes have no
/// backslash before them, so the elements that trusted proxies appended are found exactly. A search from the left would
/// lose them to a quote that the client left open.
fn last_unquoted_comma(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    for (at, byte) in line.iter().enumerate().rev() {
        match byte {
            b'"' if !(quoted && is_escaped(line, at)) => quoted = !quoted,
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

fn is_escaped(line: &[u8], at: usize) -> bool {
    line[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The value of the parameter `for` without its quotes, if the element is well-formed and has exactly one.
///
/// An element that is not well-formed is ignored. Two deviations that proxies use are accepted: spaces around semicolons,
/// and colons and brackets without quotes.
fn for_value(element: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    let mut rest = element.trim_ascii();
    loop {
        let (name, after_name) = split_where(rest, |byte| !is_token(byte));
        if !name.is_empty() {
            let value;
            (value, rest) = split_value(after_name.strip_prefix(b"=")?)?;
            // A parameter must occur only once in an element; if it occurs twice, neither is used.
            if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
                return None;
            }
        }
        match rest.trim_ascii_start() {
            [] => return found,
            [b';', after @ ..] => rest = after.trim_ascii_start(),
            _ => return None,
        }
    }
}

/// The value at the start, a token or a quoted string (RFC 9110, section 5.6.4), and what follows it.
fn split_value(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(mut rest) = text.strip_prefix(b"\"") else {
        let (value, rest) = split_where(text, |byte| !is_token(byte) && !b":[]".contains(&byte));
        return (!value.is_empty()).then(|| (value.to_vec(), rest));
    };
    let mut value = Vec::new();
    loop {
        rest = match rest {
            [b'"', after @ ..] => return Some((value, after)),
            [b'\\', byte, after @ ..] | [byte, after @ ..] => {
                value.push(*byte);
                after
            }
            [] => return None,
        };
    }
}

fn split_where(text: &[u8], ends: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|&byte| ends(byte)).unwrap_or(text.len()))
}

/// A character of a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(header: ForwardingHeader, lines: &[&str]) -> Vec<String> {
        let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
        header
            .entries_from_the_right(lines)
            .map(|entry| String::from_utf8_lossy(entry).into_owned())
            .collect()
    }

    #[test]
    fn entries_come_from_the_right_over_all_lines() {
        let x_forwarded_for = ForwardingHeader::XForwardedFor;
        assert_eq!(entries(x_forwarded_for, &["a,b", "", " c ,d"]), ["d", " c ", "", "b", "a"]);
        assert_eq!(entries(x_forwarded_for, &[]), [""; 0]);
        assert_eq!(entries(x_forwarded_for, &[","]), ["", ""]);
        // A comma inside quotes separates nothing, whatever is escaped around it.
        let forwarded = ForwardingHeader::Forwarded;
        assert_eq!(entries(forwarded, &[r#"a,b="x,\",y";c="\\",d"#]), ["d", r#"b="x,\",y";c="\\""#, "a"]);
    }

    #[test]
    fn header_of_one_address_has_one_line_and_one_entry() {
        for header in ForwardingHeader::ALL.into_iter().filter(|header| !header.is_list()) {
            assert_eq!(entries(header, &[" a "]), [" a "]);
            assert_eq!(entries(header, &["a, b"]), ["a, b"]);
            assert_eq!(entries(header, &["a", "b"]), [""; 0]);
            assert_eq!(entries(header, &["a", "a", "b"]), [""; 0]);
            assert_eq!(entries(header, &[]), [""; 0]);
            assert_eq!(entries(header, &[&"a".repeat(4097)]), [""; 0]);
        }
    }

    #[test]
    fn no_more_is_seen_than_the_limits_allow() {
        let x_forwarded_for = ForwardingHeader::XForwardedFor;
        assert_eq!(entries(x_forwarded_for, &[&"a,".repeat(100)]).len(), 32);
        assert_eq!(entries(x_forwarded_for, &["a"; 100]).len(), 32);
        let long = "a".repeat(4096);
        assert_eq!(entries(x_forwarded_for, &[&long]).len(), 1);
        assert_eq!(entries(x_forwarded_for, &[&format!("{long}a")]).len(), 0);
        assert_eq!(entries(x_forwarded_for, &[&long, "b"]), ["b"]);
        assert_eq!(entries(x_forwarded_for, &[&format!("{long},b,c")]), ["c", "b"]);
        // The end of one line and the start of the next are two bytes apart.
        let next = "b";
        assert_eq!(entries(x_forwarded_for, &[&long[..4093], next]).len(), 2);
        assert_eq!(entries(x_forwarded_for, &[&long[..4094], next]).len(), 1);
        // The comma that starts the second entry is byte 4096 from the right, then byte 4097.
        for (fill, count) in [(4092, 2), (4093, 1)] {
            let line = format!("x,{},bb", "a".repeat(fill));
            assert_eq!(entries(x_forwarded_for, &[&line]).len(), count, "{fill}");
        }
    }

    #[test]
    fn names_are_read_in_any_case() {
        assert_eq!("X-Forwarded-For".parse(), Ok(ForwardingHeader::XForwardedFor));
        assert_eq!("forwarded".parse(), Ok(ForwardingHeader::Forwarded));
        for header in ForwardingHeader::ALL {
            assert_eq!(header.name().to_ascii_uppercase().parse(), Ok(header));
        }
        let message = "x-real".parse::<ForwardingHeader>().unwrap_err().message().to_owned();
        assert!(message.contains("\"x-real\"") && message.ends_with("x-real-ip, fly-client-ip"), "{message}");
    }

    #[test]
    fn the_value_of_for_is_found_in_a_well_formed_element() {
        for (element, expected) in [
            ("for=192.0.2.1", Some("192.0.2.1")),
            (" FoR=192.0.2.1 ; proto=http;", Some("192.0.2.1")),
            (r#"by=_b;host="a;b,c\"";for="[2001:db8::1]:443""#, Some("[2001:db8::1]:443")),
            (r#";;For="1\92.0.2.1""#, Some("192.0.2.1")),
            ("for=2001:db8::1", Some("2001:db8::1")),
            ("", None),
            ("proto=http", None),
            ("192.0.2.1", None),
            ("for", None),
            ("for=", None),
            ("for =192.0.2.1", None),
            ("for=192.0.2.1 by=_b", None),
            ("for=192.0.2.1;garbage", None),
            (r#"for="192.0.2.1"#, None),
            (r#"for="192.0.2.1\"#, None),
            (r#"for="192.0.2.1"x"#, None),
            ("for=192.0.2.1;for=192.0.2.1", None),
            ("for=192.0.2.1;FOR=192.0.2.2", None),
        ] {
            let value = for_value(element.as_bytes());
            assert_eq!(value.as_deref(), expected.map(str::as_bytes), "{element}");
        }
    }

    #[test]
    fn bytes_on_the_left_cannot_change_the_last_element() {
        let appended = r#", for="[2001:db8::1]:443";host="a,\"\\""#;
        for left in ["", "\"", r#"for=""#, r#"for="\"#, r"\", r#"",""#, r#"for="a\","#] {
            let line = format!("{left}{appended}");
            assert_eq!(last_unquoted_comma(line.as_bytes()), Some(left.len()), "{left}");
        }
    }
}
