//! The configuration of a Redis store, by a URL, by setters in code, or by names and texts.

mod kind;
pub(crate) mod numeric;
#[cfg(test)]
mod secrecy;
pub(crate) mod secret;
mod settings;
mod table;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod url;
pub(crate) mod value;

use std::fmt;

pub(crate) use settings::Settings;
use table::Values;
pub(crate) use value::Origin;

use crate::error::{Error, excerpt};
use crate::store::redis::config::target::Location;
use crate::store::suggestion::Suggestion;

/// The location of Redis and the options of the store: a store URL and options.
///
/// Each option has a setter here, and the same name as a parameter of the URL (`?deadline=20ms`) and for
/// [`set`](Self::set). In text, a duration is a whole number and one of `us`, `ms`, `s`, `m` and `h`. Values in the URL
/// and in code must agree; if a setter is called twice, the last call counts.
///
/// | URL | connects to |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server; the default port is 6379 |
/// | `redis+unix://[user:password@]/path/to.sock` | one server on this host, by its socket |
/// | `redis-sentinel://[user:password@]host[:port],.../service[/db]` | the primary of a service, by its sentinels (port 26379) |
/// | `redis-cluster://[user:password@]host[:port],...` | a cluster, by some of its nodes (port 6379) |
///
/// `rediss://`, `rediss-sentinel://` and `rediss-cluster://` are the same with TLS. In user info, paths and parameters,
/// `%` and two hexadecimal digits stand for a byte. A password that contains one of `@ / ? # % &` is percent-encoded,
/// or set unencoded by [`password`](Self::password). An IPv6 address stands in brackets.
///
/// Neither errors nor `Debug` show the URL, user names, passwords or [`key_secret`](Self::key_secret).
///
/// ```
/// use std::time::Duration;
/// use polylimit::{Outage, RedisOptions};
///
/// let options = RedisOptions::parse("rediss://limits@redis.example:6380/2?prefix=shop")?
///     .password("p@ss/word")
///     .deadline(Duration::from_millis(20))
///     .outage(Outage::Deny);
/// // The same by names and texts.
/// let options = options.set("breaker_failures", "5")?.set("max_connection_age", "5m")?;
/// options.check()?;
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "options have an effect only when a store is made of them"]
pub struct RedisOptions {
    location: Location,
    values: Values,
}

impl RedisOptions {
    /// The longest URL, in bytes.
    pub const MAX_URL_LENGTH: usize = url::MAX_LENGTH;

    /// Parses a store URL.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::ErrorKind::InvalidArgument) with the rejected text and the allowed values: the
    /// URL has another form, or a parameter is unknown, is given twice or is out of range. The message shows nothing
    /// that may be part of a secret.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let parts = url::read(url)?;
        let mut options = Self { location: parts.location, values: Values::default() };
        for url::Parameter { name, value, show } in parts.parameters {
            options.read(&name, &value, Origin::Url { show })?;
        }
        Ok(options)
    }

    /// Sets an option by name and text, for callers that cannot call its setter. The text is not percent-encoded.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::ErrorKind::InvalidArgument) when no option has this name, or the text is not
    /// an allowed value.
    pub fn set(mut self, name: &str, text: &str) -> Result<Self, Error> {
        self.read(name, text, Origin::Code)?;
        Ok(self)
    }

    /// Checks everything that can be checked without contacting a server or opening a file. Creating a limiter does the
    /// same.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::error::ErrorKind::InvalidArgument) when a value is out of range, when code and URL
    /// differ, or when options contradict each other or the URL: a user name without a password, a certificate without
    /// its key, or TLS, Sentinel or database options with a URL that does not use them.
    pub fn check(&self) -> Result<(), Error> {
        self.settings().map(drop)
    }

    /// The checked settings.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        Settings::new(&self.location, &self.values)
    }

    fn read(&mut self, name: &str, text: &str, origin: Origin) -> Result<(), Error> {
        self.values.read(name, text, origin).unwrap_or_else(|| {
            let (place, show) = match origin {
                Origin::Url { show } => ("store URL: ", show),
                Origin::Code => ("", true),
            };
            let read =
                if show { format!("option {} is not known", excerpt(name)) } else { UNSHOWN.to_owned() };
            if let Some(ours) = Suggestion::for_option(name).filter(|_| show) {
                return Err(Error::invalid_argument(format!("{place}{read}: {ours}")));
            }
            let known = Self::ALL.iter().map(|option| option.name).collect::<Vec<_>>().join(", ");
            Err(Error::invalid_argument(format!("{place}{read}: allowed are {known}")))
        })
    }
}

/// Shown in place of a text that may be the end of a secret with an unencoded `&`.
const UNSHOWN: &str =
    "an option is not known, and not shown beside a secret (an & in a secret is written as %26)";

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RedisOptions");
        out.field("location", &self.location);
        self.values.debug(&mut out);
        out.finish()
    }
}
