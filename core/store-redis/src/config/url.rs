//! Parses a store URL.
//!
//! ```text
//! URL       = scheme "://" [user info "@"] [hosts] [path] ["?" name "=" value { "&" name "=" value }]
//! user info = user | [user] ":" password
//! hosts     = host [":" port] { "," host [":" port] }
//! ```
//!
//! The parser is hand-written: no standard URL has a list of hosts. The messages never show hosts, ports, paths or user
//! info: if a delimiter in a password was not percent-encoded, a part of the password stands in their place. For the
//! same reason an `@` is refused wherever it does not end the user info, and text after a secret parameter is not
//! shown.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use crate::config::target::{Endpoint, Endpoints, Location};
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::report::percent_decoded;

/// The longest URL, in bytes.
pub(crate) const MAX_LENGTH: usize = 65_536;
/// The maximum number of hosts in a URL.
const MAX_HOSTS: usize = 64;
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The kind of target.
#[derive(Clone, Copy)]
enum Kind {
    Server,
    Socket,
    Sentinel,
    Cluster,
}

/// The schemes: name, kind of target, and whether it uses TLS.
const SCHEMES: [(&str, Kind, bool); 7] = [
    ("redis", Kind::Server, false),
    ("rediss", Kind::Server, true),
    ("redis+unix", Kind::Socket, false),
    ("redis-sentinel", Kind::Sentinel, false),
    ("rediss-sentinel", Kind::Sentinel, true),
    ("redis-cluster", Kind::Cluster, false),
    ("rediss-cluster", Kind::Cluster, true),
];

/// An option and its value, decoded.
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether name and value may be shown.
    pub(crate) show: bool,
}

/// Splits a URL into the address and the options, whose values are not checked.
pub(crate) fn read(url: &str) -> Result<(Location, Vec<Parameter>), Error> {
    if url.len() > MAX_LENGTH {
        return Err(refused(&format!("has {} bytes: allowed are up to {MAX_LENGTH}", url.len())));
    }
    if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(refused(
            "has white space or a control character: write it as % and two hexadecimal digits",
        ));
    }
    let (kind, tls, rest) = split_scheme(url)?;
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if rest.contains('@') || authority.matches('@').count() > 1 {
        return Err(refused(
            "has an @ that does not end the user info: in user info and parameters, write @ as %40, / as %2F and ? as %3F",
        ));
    }
    if url.ends_with("#insecure") {
        return Err(refused(
            "ends in #insecure: verify the server by tls_ca or tls_fingerprint, or write tls_insecure=true as a parameter, for \
             development only",
        ));
    }
    if authority.contains('#') || rest.contains('#') {
        return Err(refused("has a #: write it as %23"));
    }
    let (user_info, hosts) = match authority.split_once('@') {
        Some((user_info, hosts)) => (Some(user_info), hosts),
        None => (None, authority),
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut parameters = user_info.map_or(Ok(Vec::new()), read_user_info)?;
    let endpoints = read_endpoints(kind, hosts, path, &mut parameters)?;
    read_query(query, &mut parameters)?;
    Ok((Location { endpoints, tls }, parameters))
}

/// Splits a URL into its scheme, which is case-insensitive, and the rest.
fn split_scheme(url: &str) -> Result<(Kind, bool, &str), Error> {
    let (read, rest) = match url.split_once("://") {
        Some((name, rest)) => (name, Some(rest)),
        None => (url, None),
    };
    let scheme = SCHEMES.iter().find(|(name, ..)| name.eq_ignore_ascii_case(read));
    if let (Some((_, kind, tls)), Some(rest)) = (scheme, rest) {
        return Ok((*kind, *tls, rest));
    }
    let known = SCHEMES.map(|(name, ..)| format!("{name}://")).join(", ");
    // A text without a scheme may begin with a user name.
    let named = rest.is_some() && !url.contains('@') && read.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let read =
        if named { format!("begins with {}", excerpt(read)) } else { "has no known scheme".to_owned() };
    Err(refused(&format!(
        "{read}: allowed are {known}, and without a server memory:, local:<name>, file:///<path>"
    )))
}

/// Parses the text before the `@`.
fn read_user_info(text: &str) -> Result<Vec<Parameter>, Error> {
    let (username, password) = match text.split_once(':') {
        Some((username, password)) => (username, Some(password)),
        None => (text, None),
    };
    if username.is_empty() && password.is_none() || password == Some("") {
        return Err(refused(
            "has empty user info or an empty password: allowed is user:password@ or :password@",
        ));
    }
    let decode = |name: &str, text: &str| {
        let value = decode("the user info", text)?;
        Ok(Parameter { name: name.to_owned(), value, show: false })
    };
    let username = (!username.is_empty()).then(|| decode("username", username));
    let password = password.map(|password| decode("password", password));
    username.into_iter().chain(password).collect()
}

/// Parses a comma-separated list of hosts. The messages identify a host by its position.
fn read_hosts(text: &str, default_port: u16) -> Result<Box<[Endpoint]>, Error> {
    let hosts = text.split(',').count();
    if hosts > MAX_HOSTS {
        return Err(refused(&format!("has {hosts} hosts: allowed are up to {MAX_HOSTS}")));
    }
    let read = |(at, text): (usize, &str)| {
        endpoint(text, default_port).map_err(|mistake| {
            let place = if hosts == 1 { String::new() } else { format!(" {}", at + 1) };
            refused(&format!("has a mistake in host{place}: {mistake}"))
        })
    };
    text.split(',').enumerate().map(read).collect()
}

fn endpoint(text: &str, default_port: u16) -> Result<Endpoint, &'static str> {
    let (host, port) = host_and_port(text)?;
    Ok(Endpoint { host: host.into(), port: port.unwrap_or(default_port) })
}

/// Parses a host and the port after it, if there is one.
pub(crate) fn host_and_port(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = if let Some(text) = text.strip_prefix('[') {
        let allowed = "allowed is an IPv6 address in [ and ]";
        let (address, port) = text.split_once(']').ok_or(allowed)?;
        (address.parse::<Ipv6Addr>().map_err(|_| allowed)?.to_string(), port)
    } else {
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        (host_name(host)?.to_owned(), port)
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        Some(port) => Some(
            port_number(port)
                .ok_or("allowed is a port from 1 to 65535; an IPv6 address stands in [ and ]")?,
        ),
        None => return Err("allowed after ] is : and a port"),
    };
    Ok((host, port))
}

/// A name of letters, digits, `-`, `_` and dots, or an IPv4 address.
fn host_name(text: &str) -> Result<&str, &'static str> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > 253 || !text.bytes().all(is_name) {
        return Err("allowed are up to 253 letters, digits, -, _ and dots, or an IPv6 address in [ and ]");
    }
    // A host of only digits and dots would be resolved as an address.
    let numeric = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if numeric && text.parse::<Ipv4Addr>().is_err() {
        return Err("it is all digits, and no IPv4 address");
    }
    Ok(text)
}

fn port_number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&port| digits && port > 0)
}

/// Parses hosts and path; a database in the path becomes a parameter.
fn read_endpoints(
    kind: Kind,
    hosts: &str,
    path: &str,
    parameters: &mut Vec<Parameter>,
) -> Result<Endpoints, Error> {
    let path = path.strip_prefix('/').filter(|_| !matches!(kind, Kind::Socket)).unwrap_or(path);
    Ok(match kind {
        Kind::Socket if cfg!(not(unix)) => {
            return Err(refused(
                "is that of a Unix socket, which programs on this system cannot use: name a host, as in redis://localhost",
            ));
        }
        Kind::Socket => {
            if !hosts.is_empty() {
                return Err(refused(
                    "has a host before the path of a socket: allowed is redis+unix:///path/to.sock",
                ));
            }
            Endpoints::Unix(socket(path)?)
        }
        Kind::Server => {
            let hosts = read_hosts(hosts, REDIS_PORT)?;
            let [host] = &*hosts else {
                return Err(refused(
                    "has several hosts: several are for redis-sentinel:// and redis-cluster://, with or without TLS",
                ));
            };
            read_database(path, parameters);
            Endpoints::Tcp(host.clone())
        }
        Kind::Sentinel => {
            let sentinels = read_hosts(hosts, SENTINEL_PORT)?;
            let (service, number) = path.split_once('/').unwrap_or((path, ""));
            read_database(number, parameters);
            Endpoints::Sentinel { service: service_name(service)?, sentinels }
        }
        Kind::Cluster => {
            let seeds = read_hosts(hosts, REDIS_PORT)?;
            read_database(path, parameters);
            Endpoints::Cluster { seeds }
        }
    })
}

fn read_database(number: &str, parameters: &mut Vec<Parameter>) {
    if !number.is_empty() {
        let show = number.bytes().all(|byte| byte.is_ascii_digit());
        parameters.push(Parameter { name: "db".to_owned(), value: number.to_owned(), show });
    }
}

fn service_name(text: &str) -> Result<Box<str>, Error> {
    let service = decode("the path", text)?;
    if service.is_empty() || service.contains(char::is_control) {
        return Err(refused(
            "has no name of a service: allowed is redis-sentinel://host,host/service, as the sentinels call it",
        ));
    }
    Ok(service.into())
}

fn socket(path: &str) -> Result<PathBuf, Error> {
    let path = decode("the path", path)?;
    if path.len() < 2 || path.contains('\0') {
        return Err(refused("has no path of a socket: allowed is redis+unix:///path/to.sock"));
    }
    Ok(path.into())
}

fn read_query(query: &str, parameters: &mut Vec<Parameter>) -> Result<(), Error> {
    let secret_from = first_secret(query);
    let mut end = 0;
    for parameter in query.split('&') {
        end += parameter.len() + 1;
        if parameter.is_empty() {
            continue;
        }
        let Some((name, value)) = parameter.split_once('=') else {
            return Err(refused(
                "has a parameter without a value: allowed is name=value, with & between them",
            ));
        };
        let value = decode("the value of a parameter", value)?;
        parameters.push(Parameter { name: name.to_owned(), value, show: end <= secret_from + 1 });
    }
    Ok(())
}

/// The position in a query from which text may be secret.
fn first_secret(query: &str) -> usize {
    // These options name the location of a password, and contain none.
    let query = query.to_ascii_lowercase().replace("password_file", "#############");
    let query = query.replace("password_command", "################");
    ["secret", "pass", "pwd", "user"].iter().filter_map(|word| query.find(word)).min().unwrap_or(query.len())
}

/// Decodes strictly: an unencoded `%` is an error. `place` is for the message, which does not show the text.
fn decode(place: &str, text: &str) -> Result<String, Error> {
    let digits = |at: usize| text.as_bytes().get(at + 1..at + 3);
    let well_formed = text
        .match_indices('%')
        .all(|(at, _)| digits(at).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
    if !well_formed {
        return Err(refused(&format!("has a % without two hexadecimal digits in {place}: write % as %25")));
    }
    let decoded = percent_decoded(text).map(Cow::into_owned);
    decoded.ok_or_else(|| refused(&format!("has bytes that are not UTF-8 in {place}: allowed is UTF-8")))
}

fn refused(message: &str) -> Error {
    Error::invalid_argument(format!("store URL {message}"))
}

#[cfg(test)]
mod tests;
