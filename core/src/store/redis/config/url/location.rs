//! The address in a URL: its hosts and its path, by its scheme.

use std::path::PathBuf;

use crate::error::Error;
use crate::store::redis::config::target::{Endpoints, Location};
use crate::store::redis::config::url::scheme::{Kind, Scheme};
use crate::store::redis::config::url::{Parameter, authority, percent, refused};

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Parses hosts and path; a database in the path becomes a parameter.
pub(crate) fn read(
    scheme: Scheme,
    hosts: &str,
    path: &str,
    parameters: &mut Vec<Parameter>,
) -> Result<Location, Error> {
    let endpoints = match scheme.kind {
        Kind::Socket => {
            if !hosts.is_empty() {
                return Err(refused(
                    "has a host before the path of a socket: allowed is redis+unix:///path/to.sock",
                ));
            }
            Endpoints::Unix(socket(path)?)
        }
        Kind::Server => {
            let hosts = authority::hosts(hosts, REDIS_PORT)?;
            let [host] = &*hosts else {
                return Err(refused(
                    "has several hosts: several are for redis-sentinel:// and redis-cluster://, with or without TLS",
                ));
            };
            database(path.strip_prefix('/').unwrap_or(path), parameters);
            Endpoints::Tcp(host.clone())
        }
        Kind::Sentinel => {
            let sentinels = authority::hosts(hosts, SENTINEL_PORT)?;
            let path = path.strip_prefix('/').unwrap_or(path);
            let (service, number) = path.split_once('/').unwrap_or((path, ""));
            database(number, parameters);
            Endpoints::Sentinel { service: service_name(service)?, sentinels }
        }
        Kind::Cluster => {
            let seeds = authority::hosts(hosts, REDIS_PORT)?;
            database(path.strip_prefix('/').unwrap_or(path), parameters);
            Endpoints::Cluster { seeds }
        }
    };
    Ok(Location { endpoints, tls: scheme.tls })
}

fn database(number: &str, parameters: &mut Vec<Parameter>) {
    if !number.is_empty() {
        let show = number.bytes().all(|byte| byte.is_ascii_digit());
        parameters.push(Parameter { name: "db".to_owned(), value: number.to_owned(), show });
    }
}

fn service_name(text: &str) -> Result<Box<str>, Error> {
    let service = percent::decode("the path", text)?;
    if service.is_empty() || service.contains(char::is_control) {
        return Err(refused(
            "has no name of a service: allowed is redis-sentinel://host,host/service, as the sentinels call it",
        ));
    }
    Ok(service.into())
}

fn socket(path: &str) -> Result<PathBuf, Error> {
    let path = percent::decode("the path", path)?;
    if path.len() < 2 || path.contains('\0') {
        return Err(refused("has no path of a socket: allowed is redis+unix:///path/to.sock"));
    }
    Ok(path.into())
}
