//! User info and lists of hosts.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::Error;
use crate::store::redis::config::target::Endpoint;
use crate::store::redis::config::url::{Parameter, percent, refused};

/// The maximum number of hosts in a URL.
const MAX_HOSTS: usize = 64;

/// Parses the text before the `@`.
pub(crate) fn user_info(text: &str) -> Result<Vec<Parameter>, Error> {
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
        let value = percent::decode("the user info", text)?;
        Ok(Parameter { name: name.to_owned(), value, show: false })
    };
    let username = (!username.is_empty()).then(|| decode("username", username));
    let password = password.map(|password| decode("password", password));
    username.into_iter().chain(password).collect()
}

/// Parses a comma-separated list of hosts. The messages identify a host by its position.
pub(crate) fn hosts(text: &str, default_port: u16) -> Result<Box<[Endpoint]>, Error> {
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
    let (host, port) = if let Some(text) = text.strip_prefix('[') {
        let allowed = "allowed is an IPv6 address in [ and ]";
        let (address, port) = text.split_once(']').ok_or(allowed)?;
        (address.parse::<Ipv6Addr>().map_err(|_| allowed)?.to_string(), port)
    } else {
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        (host_name(host)?.to_owned(), port)
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port,
        Some(port) => {
            port_number(port).ok_or("allowed is a port from 1 to 65535; an IPv6 address stands in [ and ]")?
        }
        None => return Err("allowed after ] is : and a port"),
    };
    Ok(Endpoint { host: host.into(), port })
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
