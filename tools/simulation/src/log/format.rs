//! The formats of logs. All but those of JSON are templates in the manner of nginx, of which each becomes one regular expression.

use std::fmt::Write;
use std::net::IpAddr;

use regex::bytes::{Captures, Regex};

use crate::error::{SimulationError, excerpt, excerpt_of_line};
use crate::log::json::Schema;
use crate::log::line::Fields;
use crate::log::template::{Part, Template};
use crate::log::time::VARIABLES;

const COMMON: &str =
    r#"$remote_addr $remote_ident $remote_user [$time_local] "$request" $status $body_bytes_sent"#;
const COMBINED: &str = r#"$remote_addr $remote_ident $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
const VHOST_COMBINED: &str = r#"$server_name $remote_addr $remote_ident $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
const NAMES: &str = "combined, vhost_combined, common, caddy, traefik, envoy, json, or variables of nginx such as '$remote_addr [$time_local] \"$request\"'";

/// How the lines of a log are written.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    Pattern {
        regex: Regex,
        /// The variables of the groups, in their order.
        names: Vec<String>,
        /// What is called the format in messages.
        called: String,
    },
    /// An object in each line, with these names of variables.
    Json(Schema),
}

impl Format {
    /// Reads the name of a format, or its variables.
    pub(crate) fn parse(text: &str) -> Result<Self, SimulationError> {
        match text {
            // Many servers add something at the end.
            "combined" => Self::compile(COMBINED, "combined", true),
            "common" => Self::compile(COMMON, "common", true),
            "vhost_combined" => Self::compile(VHOST_COMBINED, "vhost_combined", true),
            "caddy" => Ok(Self::Json(Schema::Caddy)),
            "traefik" => Ok(Self::Json(Schema::Traefik)),
            "envoy" => Ok(Self::Json(Schema::Envoy)),
            "json" => Ok(Self::Json(Schema::Plain)),
            _ if text.contains('$') => Self::compile(text, text, false),
            _ => Err(SimulationError::usage(format!("read --format {}, allowed is {NAMES}", excerpt(text)))),
        }
    }

    fn compile(text: &str, called: &str, has_more: bool) -> Result<Self, SimulationError> {
        let template = Template::parse(text, "--format")?;
        if !template.variables().any(|name| VARIABLES.contains(&name)) {
            return Err(SimulationError::usage(format!(
                "--format {} has no time: allowed is one with $time_local, $time_iso8601 or $msec",
                excerpt(text)
            )));
        }
        let mut pattern = String::from("(?s-u)^");
        for (at, part) in template.parts.iter().enumerate() {
            match part {
                Part::Text(text) => pattern.push_str(&regex::escape(text)),
                Part::Variable(name) => {
                    let before = at.checked_sub(1).and_then(|at| template.parts.get(at));
                    let quoted = quotes(before, true) && quotes(template.parts.get(at + 1), false);
                    // Writing to a `String` does not fail.
                    let _ = write!(pattern, "({})", value_pattern(name, quoted));
                }
            }
        }
        pattern.push_str(if has_more { "(?: .*)?$" } else { "$" });
        let regex = Regex::new(&pattern).map_err(|error| {
            SimulationError::usage(format!("--format {} cannot be used: {error}", excerpt(text)))
        })?;
        let names = template.variables().map(str::to_owned).collect();
        Ok(Self::Pattern { regex, names, called: called.to_owned() })
    }

    /// Refuses variables that no line of this format has.
    pub(crate) fn check(&self, template: &Template, what: &str) -> Result<(), SimulationError> {
        let Self::Pattern { names, .. } = self else { return Ok(()) };
        let derived: &[&str] = if names.iter().any(|name| name == "request") {
            &["request_method", "request_uri", "uri", "server_protocol"]
        } else if names.iter().any(|name| name == "request_uri") {
            &["uri"]
        } else {
            &[]
        };
        let known: Vec<&str> = names.iter().map(String::as_str).chain(derived.iter().copied()).collect();
        match template.variables().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(SimulationError::usage(format!(
                "{what}: read ${name}, allowed are the variables of the format: ${}",
                known.join(", $")
            ))),
        }
    }

    /// The fields of a line.
    pub(crate) fn read<'a>(&'a self, line: &'a [u8]) -> Result<Fields<'a>, String> {
        match self {
            Self::Pattern { regex, names, called } => {
                if let Some(captures) = regex.captures(line) {
                    check_first_fields(&captures, names, line)?;
                    return Ok(Fields::Captured { captures, names });
                }
                let called = if called.contains('$') { excerpt(called) } else { called.clone() };
                Err(format!("read {}, allowed is a line of the format {called}", excerpt_of_line(line)))
            }
            Self::Json(schema) => match serde_json::from_slice(line) {
                Ok(value @ serde_json::Value::Object(_)) => Ok(Fields::Json { value, schema: *schema }),
                Ok(_) => Err(format!("read {}, allowed is a JSON object", excerpt_of_line(line))),
                Err(error) => {
                    Err(format!("read {}, allowed is a JSON object: {error}", excerpt_of_line(line)))
                }
            },
        }
    }
}

/// Refuses a line that begins with the virtual host, as Apache's `vhost_combined` does: it would be taken for the client.
fn check_first_fields(captures: &Captures<'_>, names: &[String], line: &[u8]) -> Result<(), String> {
    let text = |at: usize| captures.get(at).and_then(|group| std::str::from_utf8(group.as_bytes()).ok());
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let has_two = names.first().is_some_and(|name| name == "remote_addr")
        && names.get(1).is_some_and(|name| name == "remote_ident");
    if has_two && !text(1).is_some_and(is_address) && text(2).is_some_and(is_address) {
        return Err(format!(
            "read {}, which begins with the virtual host: give --format vhost_combined",
            excerpt_of_line(line)
        ));
    }
    Ok(())
}

/// Whether a text ends, or begins, with a quotation mark.
fn quotes(part: Option<&Part>, ends: bool) -> bool {
    match part {
        Some(Part::Text(text)) if ends => text.ends_with('"'),
        Some(Part::Text(text)) => text.starts_with('"'),
        _ => false,
    }
}

fn value_pattern(name: &str, quoted: bool) -> &'static str {
    match name {
        "time_local" => r"\d{1,2}/[A-Za-z]{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}",
        "time_iso8601" => r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*",
        "msec" => r"\d+(?:\.\d+)?",
        "status" => r"\d{3}|-",
        "remote_addr" | "server_name" => r"\S+",
        _ if quoted => r#"(?:[^"\\]|\\.)*"#,
        _ => r".*?",
    }
}
