//! What is said to Redis and what it replies (RESP2), the latter read from a buffer that fills as bytes arrive.
//!
//! A reader of our own, since it has to hold its limits against a peer that sends anything: a length is not trusted
//! before its bytes are there, nothing nests deeper than what our commands are answered with, and what does not parse
//! ends the connection. See <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

/// The longest reply that a command of ours has: the states of a full batch, or a cluster's table of slots.
const MAX_LENGTH: usize = 64 << 20;
const MAX_LINE: usize = 64 << 10;
const DEEPEST: u32 = 8;

/// A whole reply, which borrows from the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Simple(&'a str),
    /// The error's line, without its sign.
    Error(&'a str),
    Integer(i64),
    Bulk(&'a [u8]),
    Array(Vec<Self>),
    Null,
}

/// What was read does not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Writes a command.
pub(crate) fn write(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads a reply from the start of `bytes`, and says how many of them it took; `None` when it has not arrived whole.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Value<'_>, usize)>, Garbled> {
    let mut reader = Reader { bytes, at: 0 };
    let value = reader.value(0)?;
    Ok(value.map(|value| (value, reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: u32) -> Result<Option<Value<'a>>, Garbled> {
        let Some(line) = self.line()? else { return Ok(None) };
        let Some((sign, rest)) = line.split_first() else { return Err(Garbled) };
        Ok(match sign {
            b'+' => Some(Value::Simple(text(rest)?)),
            b'-' => Some(Value::Error(text(rest)?)),
            b':' => Some(Value::Integer(text(rest)?.parse().map_err(|_| Garbled)?)),
            b'$' | b'*' if rest == b"-1" => Some(Value::Null),
            b'$' => self.bulk(length(rest)?)?.map(Value::Bulk),
            b'*' if depth < DEEPEST => self.array(length(rest)?, depth + 1)?.map(Value::Array),
            _ => return Err(Garbled),
        })
    }

    /// The bytes up to the end of the line.
    fn line(&mut self) -> Result<Option<&'a [u8]>, Garbled> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(end) = rest.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
            return if rest.len() < MAX_LINE { Ok(None) } else { Err(Garbled) };
        };
        self.at += end + 1;
        rest[..end].strip_suffix(b"\r").map(Some).ok_or(Garbled)
    }

    fn bulk(&mut self, length: usize) -> Result<Option<&'a [u8]>, Garbled> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some((bulk, after)) = rest.split_at_checked(length) else { return Ok(None) };
        match after {
            [b'\r', b'\n', ..] => {
                self.at += length + 2;
                Ok(Some(bulk))
            }
            [] | [b'\r'] => Ok(None),
            _ => Err(Garbled),
        }
    }

    fn array(&mut self, length: usize, depth: u32) -> Result<Option<Vec<Value<'a>>>, Garbled> {
        // Grows as elements are found: a length alone allocates nothing.
        let mut values = Vec::new();
        for _ in 0..length {
            let Some(value) = self.value(depth)? else { return Ok(None) };
            values.push(value);
        }
        Ok(Some(values))
    }
}

fn text(line: &[u8]) -> Result<&str, Garbled> {
    std::str::from_utf8(line).map_err(|_| Garbled)
}

fn length(line: &[u8]) -> Result<usize, Garbled> {
    let length = text(line)?.parse().map_err(|_| Garbled)?;
    if length <= MAX_LENGTH { Ok(length) } else { Err(Garbled) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REPLY: &[u8] = b"*5\r\n:-7\r\n$3\r\na\r\n\r\n*2\r\n+OK\r\n$-1\r\n-ERR no\r\n$0\r\n\r\n";

    #[test]
    fn every_kind_is_read() {
        let (value, taken) = read(REPLY).unwrap().unwrap();
        let nested = Value::Array(vec![Value::Simple("OK"), Value::Null]);
        let all =
            [Value::Integer(-7), Value::Bulk(b"a\r\n"), nested, Value::Error("ERR no"), Value::Bulk(b"")];
        assert_eq!((value, taken), (Value::Array(all.to_vec()), REPLY.len()));
    }

    #[test]
    fn a_part_of_a_reply_has_to_be_waited_for() {
        for end in 0..REPLY.len() {
            assert_eq!(read(&REPLY[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn what_does_not_follow_the_protocol_is_refused() {
        let deep = "*1\r\n".repeat(9) + ":1\r\n";
        for bytes in [
            "?\r\n",
            "\r\n",
            ":x\r\n",
            "$-2\r\n",
            "$1\r\nab\r\n",
            "+a\n",
            "$99999999999\r\n",
            "*1\r\n=",
            &deep,
        ] {
            let read = read(bytes.as_bytes());
            assert!(read == Err(Garbled) || bytes.ends_with('='), "{bytes:?} {read:?}");
        }
        assert_eq!(read(&vec![b'+'; MAX_LINE]), Err(Garbled));
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(bytes: Vec<u8>) {
            if let Ok(Some((_, taken))) = read(&bytes) {
                prop_assert!(taken <= bytes.len());
            }
        }

        #[test]
        fn any_flipped_byte_gives_an_answer(at in 0..REPLY.len(), byte: u8) {
            let mut bytes = REPLY.to_vec();
            bytes[at] = byte;
            let _ = read(&bytes);
        }
    }
}
