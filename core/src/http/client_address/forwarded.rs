//! The elements of the header `Forwarded` (RFC 7239, section 4).

/// The position of the comma before the last element.
///
/// The search starts from the right. A well-formed element has its quotes in pairs, and its opening quotes have no
/// backslash before them, so the elements that trusted proxies appended are found exactly. A search from the left would
/// lose them to a quote that the client left open.
pub(crate) fn last_comma(line: &[u8]) -> Option<usize> {
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
pub(crate) fn for_value(element: &[u8]) -> Option<Vec<u8>> {
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
    fn what_stands_left_cannot_change_the_last_element() {
        let appended = r#", for="[2001:db8::1]:443";host="a,\"\\""#;
        for left in ["", "\"", r#"for=""#, r#"for="\"#, r"\", r#"",""#, r#"for="a\","#] {
            let line = format!("{left}{appended}");
            assert_eq!(last_comma(line.as_bytes()), Some(left.len()), "{left}");
        }
    }
}
