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

mod authority;
mod location;
mod percent;
mod scheme;
#[cfg(test)]
mod tests;

use scheme::Scheme;

use crate::error::Error;
use crate::store::redis::config::target::Location;

/// The longest URL, in bytes.
pub(crate) const MAX_LENGTH: usize = 65_536;

/// The content of a URL: the address and the options.
pub(crate) struct Parts {
    pub(crate) location: Location,
    pub(crate) parameters: Vec<Parameter>,
}

/// An option and its value, decoded.
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether name and value may be shown.
    pub(crate) show: bool,
}

/// Splits a URL into its parts. The values of the parameters are not checked.
pub(crate) fn read(url: &str) -> Result<Parts, Error> {
    if url.len() > MAX_LENGTH {
        return Err(refused(&format!("has {} bytes: allowed are up to {MAX_LENGTH}", url.len())));
    }
    if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(refused(
            "has white space or a control character: write it as % and two hexadecimal digits",
        ));
    }
    let (scheme, rest) = Scheme::split(url)?;
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if rest.contains('@') || authority.matches('@').count() > 1 {
        return Err(refused(
            "has an @ that does not end the user info: in user info and parameters, write @ as %40, / as %2F and ? as %3F",
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
    let mut parameters = user_info.map_or(Ok(Vec::new()), authority::user_info)?;
    let location = location::read(scheme, hosts, path, &mut parameters)?;
    read_query(query, &mut parameters)?;
    Ok(Parts { location, parameters })
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
        let value = percent::decode("the value of a parameter", value)?;
        parameters.push(Parameter { name: name.to_owned(), value, show: end <= secret_from + 1 });
    }
    Ok(())
}

/// The position in a query from which text may be secret.
fn first_secret(query: &str) -> usize {
    let query = query.to_ascii_lowercase();
    ["secret", "pass", "pwd", "user"].iter().filter_map(|word| query.find(word)).min().unwrap_or(query.len())
}

fn refused(message: &str) -> Error {
    Error::invalid_argument(format!("store URL {message}"))
}
