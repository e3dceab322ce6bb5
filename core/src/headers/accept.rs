//! Whether a client would rather read text than a problem document (RFC 9110, section 12.5.1).

/// The types of each form that a client may name, the most specific first.
const JSON: [&str; 3] = ["application/problem+json", "application/json", "application/*"];
const TEXT: [&str; 3] = ["text/plain", "text/html", "text/*"];

/// Whether this `accept` field gives text a higher quality. Who names neither, or both alike, gets the document.
pub(super) fn prefers_text(accept: &str) -> bool {
    quality(accept, &TEXT) > quality(accept, &JSON)
}

/// The best quality that a form has, in thousandths.
fn quality(accept: &str, types: &[&str]) -> u16 {
    let named = ranges(accept).filter(|(range, _)| types.iter().any(|name| name.eq_ignore_ascii_case(range)));
    named.map(|(_, quality)| quality).max().unwrap_or_else(|| {
        ranges(accept).filter(|(range, _)| *range == "*/*").map(|(_, quality)| quality).max().unwrap_or(0)
    })
}

/// The media ranges, each with its quality in thousandths. What cannot be read as a quality is 0.
fn ranges(accept: &str) -> impl Iterator<Item = (&str, u16)> {
    accept.split(',').map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let range = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        (range, quality.map_or(1000, thousandths))
    })
}

fn thousandths(quality: &str) -> u16 {
    let (whole, part) = quality.split_once('.').unwrap_or((quality, ""));
    let is_digits = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "1" if is_digits => 1000,
        "0" if is_digits => format!("{part:0<3}").parse().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::prefers_text;

    #[test]
    fn text_is_for_those_who_prefer_it() {
        for accept in [
            "text/plain",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
            "application/json;q=0.5, text/plain",
            "TEXT/Plain ; Q=0.2",
            "text/*, application/problem+json;q=0.999",
        ] {
            assert!(prefers_text(accept), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "application/json",
            "application/json, text/plain, */*",
            "text/plain;q=0, */*",
            "text/plain;q=0.5, application/*;q=0.6",
            "text/plain;q=7",
            "image/png",
        ] {
            assert!(!prefers_text(accept), "{accept}");
        }
    }
}
