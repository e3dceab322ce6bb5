//! Logs with a JSON object in each line: those of Caddy, and any that name their fields.

use std::borrow::Cow;

use serde_json::Value;

use crate::log::time::{Time, read_time};

/// What the fields mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    /// They have the names of variables, or paths to them.
    Plain,
    Caddy,
}

/// The fields in which programs write the time.
const TIMES: [&str; 9] =
    ["ts", "time", "timestamp", "@timestamp", "time_iso8601", "msec", "time_local", "datetime", "date"];

/// When the request was made.
pub(crate) fn time(line: &Value) -> Result<Time, String> {
    let found = TIMES.iter().find_map(|name| line.get(name));
    match found {
        Some(Value::String(text)) => read_time(text),
        Some(Value::Number(number)) => read_time(&number.to_string()),
        Some(other) => Err(format!("read the time {other}, allowed is a number or a text")),
        None => Err(format!("there is no time: allowed is a field {}", TIMES.join(", "))),
    }
}

/// The value of a variable.
pub(crate) fn get<'a>(line: &'a Value, schema: Schema, name: &str) -> Option<Cow<'a, [u8]>> {
    let found = match schema {
        Schema::Plain => None,
        Schema::Caddy => caddy(line, name),
    };
    match found.or_else(|| at_path(line, name))? {
        Value::String(text) => Some(Cow::Borrowed(text.as_bytes())),
        Value::Null | Value::Object(_) => None,
        // Of a header with several lines, the first.
        Value::Array(values) => Some(Cow::Borrowed(values.first()?.as_str()?.as_bytes())),
        other => Some(Cow::Owned(other.to_string().into_bytes())),
    }
}

/// Where Caddy writes the variables of nginx.
fn caddy<'a>(line: &'a Value, name: &str) -> Option<&'a Value> {
    let request = line.get("request")?;
    match name {
        // Before Caddy 2.7 there is no client_ip, which knows about proxies.
        "remote_addr" => request.get("client_ip").or_else(|| request.get("remote_ip")),
        "request_method" => request.get("method"),
        "request_uri" => request.get("uri"),
        "server_protocol" => request.get("proto"),
        "host" => request.get("host"),
        "remote_user" => line.get("user_id"),
        _ => {
            let wanted = name.strip_prefix("http_")?;
            let headers = request.get("headers")?.as_object()?;
            let is_wanted = |header: &&String| header.replace('-', "_").eq_ignore_ascii_case(wanted);
            headers.get(headers.keys().find(is_wanted)?)
        }
    }
}

/// A field, or one within others: `request.headers.Host`.
fn at_path<'a>(line: &'a Value, name: &str) -> Option<&'a Value> {
    line.get(name).or_else(|| name.split('.').try_fold(line, |value, part| value.get(part)))
}
