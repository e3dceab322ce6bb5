//! The headers that proxies write, and their entries from right to left.

use std::iter::Rev;
use std::net::IpAddr;
use std::str::FromStr;

use crate::error::{Error, excerpt};
use crate::http::client_address::node::parse_node;
use crate::http::client_address::{ClientAddressRules, forwarded};

/// The header in which proxies write the address that called them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForwardingHeader {
    /// `X-Forwarded-For: client, proxy, proxy`: no standard, and what most proxies write.
    XForwardedFor,
    /// `Forwarded: for=client;proto=https, for="[2001:db8::1]:443"`: RFC 7239.
    Forwarded,
}

impl ForwardingHeader {
    /// The header's name in lower case, as in HTTP/2.
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }

    /// The entries of all lines, from the last to the first, within the limits.
    pub(crate) fn entries_from_the_right<'a, L>(self, lines: L) -> EntriesFromTheRight<'a, L::IntoIter>
    where
        L: IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
    {
        EntriesFromTheRight {
            header: self,
            lines: lines.into_iter().rev(),
            line: None,
            entries_left: ClientAddressRules::MAX_ENTRIES,
            bytes_left: ClientAddressRules::MAX_HEADER_BYTES,
        }
    }

    /// The address that an entry names, if there is one.
    pub(crate) fn address_of(self, entry: &[u8]) -> Option<IpAddr> {
        match self {
            Self::XForwardedFor => parse_node(entry.trim_ascii()),
            Self::Forwarded => parse_node(&forwarded::for_value(entry)?),
        }
    }

    fn last_comma(self, line: &[u8]) -> Option<usize> {
        match self {
            Self::XForwardedFor => line.iter().rposition(|&byte| byte == b','),
            Self::Forwarded => forwarded::last_comma(line),
        }
    }
}

impl FromStr for ForwardingHeader {
    type Err = Error;

    /// Parses the name of a header, in any letter case.
    fn from_str(name: &str) -> Result<Self, Error> {
        [Self::XForwardedFor, Self::Forwarded]
            .into_iter()
            .find(|header| name.eq_ignore_ascii_case(header.name()))
            .ok_or_else(|| {
                let read = excerpt(name);
                Error::invalid_argument(format!(
                    "header is {read}; allowed are \"x-forwarded-for\" and \"forwarded\""
                ))
            })
    }
}

/// Never yields a part of an entry: an entry in which a limit falls ends the iteration.
pub(crate) struct EntriesFromTheRight<'a, L> {
    header: ForwardingHeader,
    lines: Rev<L>,
    /// The rest of the current line.
    line: Option<&'a [u8]>,
    entries_left: usize,
    bytes_left: usize,
}

impl<'a, L: DoubleEndedIterator<Item = &'a [u8]>> Iterator for EntriesFromTheRight<'a, L> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.entries_left = self.entries_left.checked_sub(1)?;
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.next()?,
        };
        let seen_from = line.len().saturating_sub(self.bytes_left);
        let start = match self.header.last_comma(&line[seen_from..]) {
            Some(comma) => {
                let comma = seen_from + comma;
                self.line = Some(&line[..comma]);
                comma + 1
            }
            None if seen_from == 0 => 0,
            None => {
                self.entries_left = 0;
                return None;
            }
        };
        let entry = &line[start..];
        // An entry is followed by a comma, or by the comma and space that would join its line to the next.
        let separator = if self.line.is_some() { 1 } else { 2 };
        self.bytes_left = self.bytes_left.saturating_sub(entry.len() + separator);
        Some(entry)
    }
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
        assert!("x-real-ip".parse::<ForwardingHeader>().unwrap_err().message().contains("x-real-ip"));
    }
}
