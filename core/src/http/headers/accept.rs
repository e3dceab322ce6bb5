//! Whether a client prefers text to a problem document (RFC 9110, section 12.5.1).

/// The media types of each form that a client may name, after the range that includes them.
const JSON: (&str, [&str; 2]) = ("application/*", ["application/problem+json", "application/json"]);
const TEXT: (&str, [&str; 2]) = ("text/*", ["text/plain", "text/html"]);

/// Whether this `Accept` field gives text a higher quality than a problem document, by RFC 9110, section 12.5.1. A client
/// that names neither, or both with the same quality, gets the document.
pub fn prefers_text(accept: &str) -> bool {
    quality(accept, TEXT) > quality(accept, JSON)
}

/// The higher quality of the two types of a form, in thousandths. The most specific range decides for each type.
fn quality(accept: &str, (around, types): (&str, [&str; 2])) -> u16 {
    let of = |name: &str| {
        let named = ranges(accept).filter(|(range, _)| range.eq_ignore_ascii_case(name));
        named.map(|(_, quality)| quality).max()
    };
    types
        .into_iter()
        .filter_map(|name| of(name).or_else(|| of(around)).or_else(|| of("*/*")))
        .max()
        .unwrap_or(0)
}

/// The media ranges, each with its quality in thousandths; a malformed quality is 0.
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
            "text/plain;q=0.9, application/*;q=0.8, */*",
            "application/problem+json;q=0.1, application/json;q=0.1, application/*, text/plain;q=0.2",
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
            "text/plain;q=0.5, text/html;q=0.5, text/*, application/json;q=0.8",
            "text/html;q=0, text/plain;q=0, text/*, application/json;q=0.1",
            "image/png",
        ] {
            assert!(!prefers_text(accept), "{accept}");
        }
    }
}
