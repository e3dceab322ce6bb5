//! Commands as clients send them: arrays of bulk strings.
//!
//! `redis-protocol` 6.0.0 reads any value by recursion, so nested arrays take it as deep as a client likes: within the bounds of a
//! request that is deeper than a stack. A command is one array, which these lines read without recursion and without copies.

use std::fmt;

use smallvec::SmallVec;

/// The most arguments of a command, with its name.
const MAX_ARGUMENTS: usize = 64;
/// The most bytes of a line that has a number: its sign, its digits and what ends it.
const MAX_LINE: usize = 24;

/// A command, which borrows what was read.
pub(crate) struct Framed<'a> {
    /// The name and the arguments; nothing for an empty array, which has no reply.
    pub(crate) arguments: SmallVec<[&'a [u8]; 8]>,
    /// How many bytes it has.
    pub(crate) length: usize,
}

/// Why the bytes are no command. The connection ends, since it is not known where the next one begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken(&'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The next command; `None` when it is not complete yet.
pub(crate) fn next(input: &[u8], most: usize) -> Result<Option<Framed<'_>>, Broken> {
    match Line::of(input) {
        Line::Command { word, length } => {
            return Ok(Some(Framed { arguments: SmallVec::from_slice(&[&input[..word]]), length }));
        }
        Line::Begun => return Ok(None),
        Line::Other => {}
    }
    let mut reader = Reader { input, at: 0 };
    let Some(count) = reader.number(b'*', "expected an array of bulk strings")? else { return Ok(None) };
    if count > MAX_ARGUMENTS as u64 {
        return Err(Broken("too many arguments: allowed are up to 64"));
    }
    let mut arguments = SmallVec::new();
    for _ in 0..count {
        let Some(length) = reader.number(b'$', "expected a bulk string")? else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|length| *length <= most);
        let length = length.ok_or(Broken("a bulk string is too long"))?;
        match reader.bytes(length)? {
            Some(bytes) => arguments.push(bytes),
            None => return Ok(None),
        }
    }
    Ok(Some(Framed { arguments, length: reader.at }))
}

/// The commands that health checks send as lines of text.
const LINES: [&[u8]; 2] = [b"PING", b"QUIT"];

/// What begins as one of these lines. A browser that was led here sends other lines.
enum Line {
    /// A command of this many letters, with the bytes of its line.
    Command {
        word: usize,
        length: usize,
    },
    /// It may become one.
    Begun,
    Other,
}

impl Line {
    fn of(input: &[u8]) -> Self {
        for line in LINES {
            let shared = line.len().min(input.len());
            if shared == 0 || !input[..shared].eq_ignore_ascii_case(&line[..shared]) {
                continue;
            }
            let word = line.len();
            return match &input[shared..] {
                [b'\n', ..] => Self::Command { word, length: word + 1 },
                [b'\r', b'\n', ..] => Self::Command { word, length: word + 2 },
                [] | [b'\r'] => Self::Begun,
                _ => Self::Other,
            };
        }
        Self::Other
    }
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A line with this first byte and a number.
    fn number(&mut self, first: u8, expected: &'static str) -> Result<Option<u64>, Broken> {
        let rest = &self.input[self.at..];
        match rest.first() {
            None => return Ok(None),
            Some(byte) if *byte == first => {}
            Some(_) => return Err(Broken(expected)),
        }
        let line = &rest[1..rest.len().min(MAX_LINE)];
        let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
            return if rest.len() < MAX_LINE { Ok(None) } else { Err(Broken("a length is no number")) };
        };
        let digits = &line[..end];
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let number =
            std::str::from_utf8(digits).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
        self.at += 1 + end + 2;
        number.map(Some).ok_or(Broken("a length is no number"))
    }

    /// This many bytes, and the end of their line.
    fn bytes(&mut self, length: usize) -> Result<Option<&'a [u8]>, Broken> {
        let rest = &self.input[self.at..];
        if rest.len() < length + 2 {
            return Ok(None);
        }
        if &rest[length..length + 2] != b"\r\n" {
            return Err(Broken("a bulk string is longer than it says"));
        }
        self.at += length + 2;
        Ok(Some(&rest[..length]))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    const MOST: usize = 1 << 20;

    #[test]
    fn command_is_read_once_it_is_complete() {
        let whole = b"*3\r\n$4\r\nPING\r\n$0\r\n\r\n$2\r\n\r\n\r\n*0\r\n";
        let first = whole.len() - 4;
        for end in 0..first {
            assert!(next(&whole[..end], MOST).unwrap().is_none(), "{end}");
        }
        let framed = next(whole, MOST).unwrap().unwrap();
        assert_eq!((&framed.arguments[..], framed.length), (&[&b"PING"[..], b"", b"\r\n"][..], first));
        let empty = next(&whole[first..], MOST).unwrap().unwrap();
        assert_eq!((empty.arguments.len(), empty.length), (0, 4));
    }

    #[test]
    fn bytes_that_are_no_command_are_refused() {
        for bytes in [
            &b"POST / HTTP/1.1\r\n"[..],
            b"PONG\r\n",
            b"PING a\r\n",
            b"PING\rQ",
            b"QUITE\r\n",
            b"*x\r\n",
            b"*-1\r\n",
            b"*\r\n",
            b"*65\r\n",
            b"*99999999999999999999999999999999",
            b"*18446744073709551616\r\n",
            b"*1\r\n*1\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$1048577\r\n",
            b"*1\r\n$18446744073709551615\r\n",
            b"*1\r\n$1\r\nab\r\n",
            b"*1\r\n:1\r\n",
        ] {
            assert!(next(bytes, MOST).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn ping_and_quit_may_be_lines_of_text() {
        for (bytes, word, length) in [
            (&b"PING\r\n*1"[..], "PING", 6),
            (b"ping\n", "PING", 5),
            (b"Quit\r\n", "QUIT", 6),
            (b"QUIT\nPING", "QUIT", 5),
        ] {
            let Ok(Some(framed)) = next(bytes, MOST) else { panic!("{bytes:?}") };
            assert_eq!(
                (framed.arguments[0].to_ascii_uppercase(), framed.length),
                (word.as_bytes().to_vec(), length)
            );
        }
        assert!((1..6).all(|length| matches!(next(&b"PING\r\n"[..length], MOST), Ok(None))));
    }
}
