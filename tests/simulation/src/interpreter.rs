//! Runs the real scripts in Lua 5.1, with the parts of Redis's interpreter that they use: `redis.call`, `redis.pcall`,
//! `redis.sha1hex` and `struct`.

use std::cell::RefCell;
use std::collections::HashMap;

use mlua::{Error, Function, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, Variadic};
use sha1::{Digest, Sha1};

use crate::database::{Database, Reply};

/// What a script works on.
#[derive(Debug, Default)]
pub struct Call {
    /// The keys of the server.
    pub database: Database,
    /// The time of the server, which stands still while a script runs.
    pub now_us: u64,
    /// The messages that the script published: channel and text.
    pub published: Vec<(Vec<u8>, Vec<u8>)>,
}

thread_local! {
    static CALL: RefCell<Call> = RefCell::default();
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

struct Interpreter {
    lua: Lua,
    /// The scripts by their hash.
    scripts: HashMap<Vec<u8>, Function>,
}

/// Runs the script with that hash; `source` is its text. The reply is an error when the script fails.
pub fn run(call: &mut Call, hash: &[u8], source: &[u8], keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Reply {
    CALL.with_borrow_mut(|current| std::mem::swap(current, call));
    let replied = INTERPRETER.with_borrow_mut(|interpreter| {
        if interpreter.is_none() {
            *interpreter = Some(Interpreter::new()?);
        }
        match interpreter {
            Some(interpreter) => interpreter.run(hash, source, keys, arguments),
            None => Ok(Reply::Nil),
        }
    });
    CALL.with_borrow_mut(|current| std::mem::swap(current, call));
    replied
        .unwrap_or_else(|error| Reply::Error(format!("ERR {}", error.to_string().replace(['\r', '\n'], " "))))
}

/// The SHA-1 in hexadecimal digits, as `redis.sha1hex` replies it and as scripts are named.
pub fn hex_sha1(text: &[u8]) -> String {
    use std::fmt::Write;
    Sha1::digest(text).iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

impl Interpreter {
    fn new() -> Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let redis = lua.create_table()?;
        redis.set(
            "call",
            lua.create_function(|lua: &Lua, words: Variadic<Value>| command(lua, &words, true))?,
        )?;
        redis.set(
            "pcall",
            lua.create_function(|lua: &Lua, words: Variadic<Value>| command(lua, &words, false))?,
        )?;
        let sha1hex = |_: &Lua, text: mlua::LuaString| Ok(hex_sha1(&text.as_bytes()));
        redis.set("sha1hex", lua.create_function(sha1hex)?)?;
        let structs = lua.create_table()?;
        structs.set(
            "pack",
            lua.create_function(|lua: &Lua, arguments: Variadic<Value>| pack(lua, &arguments))?,
        )?;
        structs.set(
            "unpack",
            lua.create_function(|lua: &Lua, arguments: Variadic<Value>| unpack(lua, &arguments))?,
        )?;
        lua.globals().set("redis", redis)?;
        lua.globals().set("struct", structs)?;
        Ok(Self { lua, scripts: HashMap::new() })
    }

    fn run(&mut self, hash: &[u8], source: &[u8], keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Result<Reply> {
        if !self.scripts.contains_key(hash) {
            // Redis takes the line with the flags for itself.
            let line =
                if source.starts_with(b"#!") { source.iter().position(|byte| *byte == b'\n') } else { None };
            let script = self.lua.load(&source[line.unwrap_or(0)..]).into_function()?;
            self.scripts.insert(hash.into(), script);
        }
        let strings = |all: &[Vec<u8>]| {
            let strings: Result<Vec<_>> = all.iter().map(|one| self.lua.create_string(one)).collect();
            self.lua.create_sequence_from(strings?)
        };
        self.lua.globals().set("KEYS", strings(keys)?)?;
        self.lua.globals().set("ARGV", strings(arguments)?)?;
        match self.scripts[hash].call::<Value>(())? {
            Value::String(reply) => Ok(Reply::Bulk(reply.as_bytes().to_vec())),
            other => Err(Error::runtime(format!("the script returned a {}", other.type_name()))),
        }
    }
}

fn command(lua: &Lua, words: &Variadic<Value>, raises: bool) -> Result<Value> {
    let mut texts = Vec::with_capacity(words.len());
    for word in words.iter() {
        texts.push(match word {
            Value::String(text) => text.as_bytes().to_vec(),
            Value::Integer(number) => number.to_string().into_bytes(),
            other => return Err(Error::runtime(format!("a command with a {}", other.type_name()))),
        });
    }
    let reply = CALL.with_borrow_mut(|call| match texts.as_slice() {
        [name, channel, message] if name == b"PUBLISH" => {
            call.published.push((channel.clone(), message.clone()));
            Reply::Int(0)
        }
        texts => call.database.run(call.now_us, texts),
    });
    match reply {
        Reply::Error(text) if raises => Err(Error::runtime(text)),
        reply => value(lua, &reply),
    }
}

/// A reply as a script sees it.
fn value(lua: &Lua, reply: &Reply) -> Result<Value> {
    let named = |name: &str, text: &str| -> Result<Value> {
        let table: Table = lua.create_table()?;
        table.set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Int(number) => Ok(Value::Number(*number as f64)),
        Reply::Bulk(bytes) => lua.create_string(bytes).map(Value::String),
        Reply::Okay => named("ok", "OK"),
        Reply::Error(text) => named("err", text),
        Reply::Array(replies) | Reply::Several(replies) => {
            let values: Result<Vec<Value>> = replies.iter().map(|reply| value(lua, reply)).collect();
            lua.create_sequence_from(values?).map(Value::Table)
        }
    }
}

/// One letter of a format of `struct`, with its size where it is given.
struct Letter {
    letter: u8,
    size: Option<usize>,
}

/// Reads a format, which is big-endian as all of the scripts are.
fn letters(format: &[u8]) -> Result<Vec<Letter>> {
    let mut rest = format.strip_prefix(b">").unwrap_or(format);
    let mut letters = Vec::new();
    while let Some((letter, after)) = rest.split_first() {
        if rest.len() == format.len() && format.iter().any(|letter| *letter != b'B') {
            return Err(Error::runtime("the model server knows no numbers of the machine's byte order"));
        }
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let size = std::str::from_utf8(&after[..digits]).ok().and_then(|digits| digits.parse().ok());
        letters.push(match (letter, size) {
            (b'B', None) => Letter { letter: b'I', size: Some(1) },
            (b'H', None) => Letter { letter: b'I', size: Some(2) },
            (b'I', size) => Letter { letter: b'I', size: Some(size.unwrap_or(4)) },
            (b'c', size) => Letter { letter: b'c', size: Some(size.unwrap_or(1)) },
            _ => return Err(Error::runtime(format!("the model server knows no format {}", *letter as char))),
        });
        rest = &after[digits..];
    }
    Ok(letters)
}

fn text(value: Option<&Value>) -> Result<Vec<u8>> {
    match value {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        other => Err(Error::runtime(format!("no string: {other:?}"))),
    }
}

fn pack(lua: &Lua, arguments: &Variadic<Value>) -> Result<Value> {
    let mut out = Vec::new();
    let mut values = arguments.iter().skip(1);
    for Letter { letter, size } in letters(&text(arguments.first())?)? {
        let (value, size) = (values.next(), size.unwrap_or(0));
        if letter == b'c' {
            let bytes = text(value)?;
            let size = if size == 0 { bytes.len() } else { size };
            let part = bytes.get(..size).ok_or_else(|| Error::runtime("arg too short"))?;
            out.extend_from_slice(part);
            continue;
        }
        let number = match value {
            Some(Value::Integer(number)) => *number,
            // As C casts it.
            Some(Value::Number(number)) => *number as i64,
            other => return Err(Error::runtime(format!("no number: {other:?}"))),
        };
        let bytes = i128::from(number).to_be_bytes();
        out.extend_from_slice(&bytes[bytes.len() - size..]);
    }
    lua.create_string(out).map(Value::String)
}

fn unpack(lua: &Lua, arguments: &Variadic<Value>) -> Result<MultiValue> {
    let bytes = text(arguments.get(1))?;
    let mut at = match arguments.get(2) {
        None => 0,
        Some(Value::Integer(from)) if *from >= 1 => usize::try_from(*from - 1).unwrap_or(usize::MAX),
        other => return Err(Error::runtime(format!("no place: {other:?}"))),
    };
    let mut values: Vec<Value> = Vec::new();
    for Letter { letter, size } in letters(&text(arguments.first())?)? {
        let size = match (letter, size.unwrap_or(0), values.last()) {
            (b'c', 0, Some(Value::Number(length))) => {
                let length = *length as usize;
                values.pop();
                length
            }
            (_, size, _) => size,
        };
        let end = at.saturating_add(size);
        let part = bytes.get(at..end).ok_or_else(|| Error::runtime("data string too short"))?;
        values.push(if letter == b'c' {
            Value::String(lua.create_string(part)?)
        } else {
            Value::Number(part.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) as f64)
        });
        at = end;
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values.into_iter().collect())
}
