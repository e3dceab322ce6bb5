//! Logs with a JSON object in each line: those of Caddy, and any that name their fields.

use std::borrow::Cow;
use std::net::SocketAddr;

use serde_json::Value;

use crate::log::time::{Time, read_time};

/// What the fields mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    /// They have the names of variables, or paths to them.
    Plain,
    Caddy,
    Traefik,
    /// As Istio has Envoy write it.
    Envoy,
}

/// The fields in which programs write the time.
const TIMES: [&str; 11] = [
    "StartUTC",
    "start_time",
    "ts",
    "time",
    "timestamp",
    "@timestamp",
    "time_iso8601",
    "msec",
    "time_local",
    "datetime",
    "date",
];

/// When the request was made, by this field or by the first that is there of those that programs write.
pub(crate) fn time(line: &Value, named: Option<&str>) -> Result<Time, String> {
    let found = match named {
        Some(name) => at_path(line, name),
        None => TIMES.iter().find_map(|name| line.get(name)),
    };
    match found {
        Some(Value::String(text)) => read_time(text),
        Some(Value::Number(number)) => read_time(&number.to_string()),
        Some(other) => Err(format!("read the time {other}, allowed is a number or a text")),
        None => Err(match named {
            Some(name) => {
                format!("there is no field {name:?} with the time: name the one that is there by --time")
            }
            None => {
                format!("there is no time: name its field by --time, or write one of {}", TIMES.join(", "))
            }
        }),
    }
}

/// The value of a variable.
pub(crate) fn get<'a>(line: &'a Value, schema: Schema, name: &str) -> Option<Cow<'a, [u8]>> {
    let found = match schema {
        Schema::Plain => None,
        Schema::Caddy => caddy(line, name),
        Schema::Traefik => traefik(line, name),
        Schema::Envoy => envoy(line, name),
    };
    let value = match found.or_else(|| at_path(line, name))? {
        Value::String(text) if schema == Schema::Envoy && name == "remote_addr" => {
            return Some(without_port(text));
        }
        value => value,
    };
    match value {
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

/// Where Traefik writes the variables of nginx.
fn traefik<'a>(line: &'a Value, name: &str) -> Option<&'a Value> {
    let header = |wanted: &str| {
        let is_wanted = |field: &&String| {
            field
                .strip_prefix("request_")
                .is_some_and(|field| field.replace('-', "_").eq_ignore_ascii_case(wanted))
        };
        let fields = line.as_object()?;
        fields.get(fields.keys().find(is_wanted)?)
    };
    match name {
        "remote_addr" => line.get("ClientHost"),
        "request_method" => line.get("RequestMethod"),
        "request_uri" => line.get("RequestPath"),
        "server_protocol" => line.get("RequestProtocol"),
        "host" => line.get("RequestHost"),
        "remote_user" => line.get("ClientUsername"),
        "status" => line.get("DownstreamStatus"),
        _ => header(name.strip_prefix("http_")?),
    }
}

/// Where Envoy writes the variables of nginx, as the JSON of Istio names them.
fn envoy<'a>(line: &'a Value, name: &str) -> Option<&'a Value> {
    match name {
        "remote_addr" => line.get("downstream_remote_address"),
        "request_method" => line.get("method"),
        "request_uri" => line.get("path"),
        "server_protocol" => line.get("protocol"),
        "host" => line.get("authority"),
        "status" => line.get("response_code"),
        _ => line.get(name.strip_prefix("http_")?),
    }
}

/// An address without the port that stands after it.
fn without_port(text: &str) -> Cow<'_, [u8]> {
    match text.parse::<SocketAddr>() {
        Ok(address) => Cow::Owned(address.ip().to_string().into_bytes()),
        Err(_) => Cow::Borrowed(text.as_bytes()),
    }
}

/// A field, or one within others: `request.headers.Host`.
fn at_path<'a>(line: &'a Value, name: &str) -> Option<&'a Value> {
    line.get(name).or_else(|| name.split('.').try_fold(line, |value, part| value.get(part)))
}
