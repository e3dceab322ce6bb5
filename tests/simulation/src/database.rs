//! The keys of the model server: strings with a time to live, and the commands that the scripts call.

use std::collections::BTreeMap;

/// What a command replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No value.
    Nil,
    /// An integer.
    Int(i64),
    /// A string.
    Bulk(Vec<u8>),
    /// `OK`.
    Okay,
    /// Several replies.
    Array(Vec<Reply>),
    /// Replies one after the other, as SUBSCRIBE gives for each channel.
    Several(Vec<Reply>),
    /// An error, with its code in front.
    Error(String),
}

impl Reply {
    /// Appends the reply as RESP2 has it.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::Int(number) => out.extend_from_slice(format!(":{number}\r\n").as_bytes()),
            Self::Okay => out.extend_from_slice(b"+OK\r\n"),
            Self::Error(text) => out.extend_from_slice(format!("-{text}\r\n").as_bytes()),
            Self::Bulk(bytes) => {
                out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Several(replies) => replies.iter().for_each(|reply| reply.write(out)),
            Self::Array(replies) => {
                out.extend_from_slice(format!("*{}\r\n", replies.len()).as_bytes());
                for reply in replies {
                    reply.write(out);
                }
            }
        }
    }
}

/// The state of a server that a restart or a failover may lose.
#[derive(Clone, Debug, Default)]
pub struct Database {
    values: BTreeMap<Vec<u8>, Value>,
}

#[derive(Clone, Debug)]
struct Value {
    bytes: Vec<u8>,
    /// When it expires, in milliseconds since the Unix epoch.
    until_ms: Option<u64>,
}

impl Database {
    /// Runs a command at a time in microseconds.
    pub fn run(&mut self, now_us: u64, words: &[Vec<u8>]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match words.as_slice() {
            [b"TIME"] => time(now_us),
            [b"GET", key] => self.get(now_us, key).map_or(Reply::Nil, |bytes| Reply::Bulk(bytes.clone())),
            [b"MGET", keys @ ..] => {
                let get = |key: &&[u8]| {
                    self.get(now_us, key).map_or(Reply::Nil, |bytes| Reply::Bulk(bytes.clone()))
                };
                Reply::Array(keys.iter().map(get).collect())
            }
            [b"SET", key, value, options @ ..] => self.set(now_us, key, value, options),
            [b"SETRANGE", key, at, bytes] => {
                let Some(at) = number(at) else { return refused(&words) };
                let value = self.live(now_us, key);
                let end = at + bytes.len();
                if value.bytes.len() < end {
                    value.bytes.resize(end, 0);
                }
                value.bytes[at..end].copy_from_slice(bytes);
                length(value.bytes.len())
            }
            [b"STRLEN", key] => length(self.get(now_us, key).map_or(0, Vec::len)),
            [b"DEL", key] => {
                let was_there = self.get(now_us, key).is_some();
                self.values.remove(*key);
                Reply::Int(was_there.into())
            }
            _ => refused(&words),
        }
    }

    fn get(&self, now_us: u64, key: &[u8]) -> Option<&Vec<u8>> {
        self.values.get(key).filter(|value| value.is_live(now_us)).map(|value| &value.bytes)
    }

    /// The value of a key, which is made if it is not there.
    fn live(&mut self, now_us: u64, key: &[u8]) -> &mut Value {
        let value = self.values.entry(key.into()).or_insert(Value { bytes: Vec::new(), until_ms: None });
        if !value.is_live(now_us) {
            *value = Value { bytes: Vec::new(), until_ms: None };
        }
        value
    }

    fn set(&mut self, now_us: u64, key: &[u8], bytes: &[u8], options: &[&[u8]]) -> Reply {
        let is_there = self.get(now_us, key).is_some();
        let (mut options, mut until_ms) = (options.iter(), None);
        while let Some(option) = options.next() {
            match *option {
                b"NX" if is_there => return Reply::Nil,
                b"XX" if !is_there => return Reply::Nil,
                b"NX" | b"XX" => {}
                b"KEEPTTL" => {
                    until_ms = self.values.get(key).filter(|_| is_there).and_then(|value| value.until_ms);
                }
                b"PXAT" => match options.next().and_then(|ms| number(ms)) {
                    Some(ms) => until_ms = Some(ms as u64),
                    None => return Reply::Error("ERR syntax error".into()),
                },
                _ => return Reply::Error("ERR syntax error".into()),
            }
        }
        self.values.insert(key.into(), Value { bytes: bytes.into(), until_ms });
        Reply::Okay
    }
}

impl Value {
    fn is_live(&self, now_us: u64) -> bool {
        self.until_ms.is_none_or(|until_ms| now_us / 1_000 < until_ms)
    }
}

/// The reply to `TIME`.
pub fn time(now_us: u64) -> Reply {
    let text = |number: u64| Reply::Bulk(number.to_string().into_bytes());
    Reply::Array(vec![text(now_us / 1_000_000), text(now_us % 1_000_000)])
}

fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn length(length: usize) -> Reply {
    Reply::Int(i64::try_from(length).unwrap_or(i64::MAX))
}

fn refused(words: &[&[u8]]) -> Reply {
    let name = words.first().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
    Reply::Error(format!("ERR the model server has no command '{name}' with these arguments"))
}
