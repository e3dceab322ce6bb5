//! Meters: what a request has spent, as its response reports it.
//!
//! A [`Meter`] is the text of the option and of the field `spent`, such as `usage:total` or `3*usage:input + 15*usage:output`. [`Meters`]
//! are those of all policies of a request, and a [`MeterReading`] takes one response, piece by piece, without keeping it.

mod json;
mod lines;
mod reading;
mod units;

use std::fmt;

pub use reading::{MeterReading, Meters};

use crate::meter::units::{FACTOR, decimal};
use polylimit_rules::error::{Error, excerpt};

/// The maximum length of a meter as text, in bytes.
const MAX_TEXT: usize = 1_024;
/// The maximum number of terms. With it, the sum of the largest terms fits into the integers of [`units`].
const MAX_TERMS: usize = 8;
/// The maximum number of names in the path of a JSON member.
const MAX_PATH: usize = 16;
/// The maximum factor of a term, which is a price in micro-dollars per token, or the number of units of what a source counts.
const MAX_FACTOR: i128 = 1_000_000;

/// What a request has spent, as a sum of numbers that its response reports.
///
/// A meter consists of at most eight terms with ` + ` or ` - ` between them. A term is a source, or a factor from 0 to 1,000,000 with up
/// to six decimal places and a source, as in `0.15*usage:input`. The sources are:
///
/// | source | value |
/// |---|---|
/// | `header:NAME` | the number in this field of the response |
/// | `json:PATH` | the number at this place of a JSON body, as in `json:usage.total_tokens` or `json:results.0.tokens` |
/// | `usage:input` | the input tokens that a language model reports, cached ones included |
/// | `usage:cached` | those of them that it has read from its cache |
/// | `usage:cache_write` | those of them that it has written to its cache |
/// | `usage:output` | its output tokens |
/// | `usage:total` | its input and output tokens |
///
/// `usage` are the fields `usage` of OpenAI's Chat Completions and Responses and of Anthropic's Messages, in a JSON body or in the events
/// of a stream. A number is at least 0; fractions and exponents are read exactly. The sum is rounded up, and is at least 0.
///
/// With prices in dollars per million tokens as factors, the sum is in micro-dollars: `3*usage:input + 15*usage:output`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    text: Box<str>,
    terms: Box<[Term]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    /// In millionths; negative after a minus.
    factor: i128,
    source: Source,
}

/// Where a number of a response is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// A field, with its name in lower case.
    Header(Box<str>),
    /// The names on the path to a member, or indices of arrays.
    Json(Box<[Box<str>]>),
    Usage(Tokens),
}

/// A kind of tokens that a language model reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tokens {
    Input,
    Cached,
    CacheWrite,
    Output,
    Total,
}

impl Tokens {
    const ALL: [(&'static str, Self); 5] = [
        ("input", Self::Input),
        ("cached", Self::Cached),
        ("cache_write", Self::CacheWrite),
        ("output", Self::Output),
        ("total", Self::Total),
    ];
}

impl Meter {
    /// Reads a meter.
    ///
    /// # Errors
    /// [`InvalidArgument`](polylimit_rules::error::ErrorKind::InvalidArgument) when the text is longer than 1,024 bytes, has more than
    /// eight terms, or has a term of another form.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |what: &str| {
            Error::invalid_argument(format!(
                "spent is {}, {what}: allowed are header:NAME, json:PATH and usage: with input, cached, cache_write, output or total, \
                 such as usage:total or 3*usage:input + 15*usage:output",
                excerpt(text)
            ))
        };
        if text.len() > MAX_TEXT {
            return Err(refuse(&format!("which has {} bytes of at most {MAX_TEXT}", text.len())));
        }
        let mut terms = Vec::new();
        let mut words = text.split_ascii_whitespace();
        let mut sign = 1;
        loop {
            let word = words.next().ok_or_else(|| refuse("where a source is missing"))?;
            let term = Term::parse(word, sign)
                .ok_or_else(|| refuse(&format!("where {} is not a source", excerpt(word))))?;
            terms.push(term);
            sign = match words.next() {
                None => break,
                Some("+") => 1,
                Some("-") => -1,
                Some(other) => return Err(refuse(&format!("where {} is no + or -", excerpt(other)))),
            };
        }
        if terms.len() > MAX_TERMS {
            return Err(refuse(&format!("which has {} terms of at most {MAX_TERMS}", terms.len())));
        }
        Ok(Self { text: text.into(), terms: terms.into() })
    }
}

/// The text that was read.
impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Term {
    fn parse(word: &str, sign: i128) -> Option<Self> {
        let (factor, source) = match word.split_once('*') {
            // The name of a field may have an asterisk.
            Some((factor, source)) if !factor.contains(':') => (parse_factor(factor)?, source),
            _ => (FACTOR, word),
        };
        let (kind, name) = source.split_once(':')?;
        let source = match kind {
            "header" if is_field_name(name) => Source::Header(name.to_ascii_lowercase().into()),
            "json" => {
                let path: Box<[Box<str>]> = name.split('.').map(Into::into).collect();
                let is_path = path.len() <= MAX_PATH && path.iter().all(|name| !name.is_empty());
                Source::Json(Some(path).filter(|_| is_path)?)
            }
            "usage" => Source::Usage(Tokens::ALL.iter().find(|(known, _)| *known == name)?.1),
            _ => return None,
        };
        Some(Self { factor: sign * factor, source })
    }
}

/// A factor in millionths: digits, and up to six after a point.
fn parse_factor(text: &str) -> Option<i128> {
    let places = text.split_once('.').map_or(0, |(_, places)| places.len());
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let factor = decimal(text.as_bytes(), FACTOR)?;
    Some(factor).filter(|factor| is_plain && places <= 6 && *factor <= MAX_FACTOR * FACTOR)
}

/// Whether a text is the name of a field (RFC 9110, 5.6.2).
fn is_field_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

#[cfg(test)]
mod tests;
