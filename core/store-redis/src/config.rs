//! The configuration of a Redis store, by a URL, by setters in code, or by names and texts.

pub(crate) mod address_map;
pub(crate) mod kinds;
mod table;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod url;

use std::fmt;
use std::path::PathBuf;

use table::{OptionValue, Options, Origin, Values};

use crate::config::kinds::{File, Source, read_fingerprints};
use crate::config::target::{
    ChangingCredentials, Credentials, CredentialsFunction, CredentialsSource, Endpoints, Identity, Location,
    Secret, Target, Tls, Trust,
};
use polylimit_document::source::place::{CONFIGURATION, COPY};
use polylimit_rules::error::Error;
use polylimit_rules::suggestion::unknown_option;
use polylimit_store::duration;

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
/// use polylimit::redis::RedisOptions;
/// use polylimit::storage::Outage;
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
    configuration: OptionValue<Source>,
    copy: OptionValue<File>,
    function: Option<CredentialsFunction>,
}

impl RedisOptions {
    /// The longest URL, in bytes.
    pub const MAX_URL_LENGTH: usize = url::MAX_LENGTH;

    /// Parses a store URL.
    ///
    /// # Errors
    /// [`InvalidArgument`](polylimit_rules::error::ErrorKind::InvalidArgument) with the rejected text and the allowed values: the
    /// URL has another form, or a parameter is unknown, repeated or out of range. The message shows nothing
    /// that may be part of a secret.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let (location, parameters) = url::read(url)?;
        let mut options = Self {
            location,
            values: Values::default(),
            configuration: OptionValue::default(),
            copy: OptionValue::default(),
            function: None,
        };
        for url::Parameter { name, value, show } in parameters {
            options.read(&name, &value, Origin::Url { show })?;
        }
        Ok(options)
    }

    /// Sets an option by name and text, for callers that cannot call its setter. The text is not percent-encoded.
    ///
    /// # Errors
    /// [`InvalidArgument`](polylimit_rules::error::ErrorKind::InvalidArgument) when no option has this name, or the text is not
    /// an allowed value.
    pub fn set(mut self, name: &str, text: &str) -> Result<Self, Error> {
        self.read(name, text, Origin::Code)?;
        Ok(self)
    }

    /// Checks everything that can be checked without contacting a server or opening a file. Creating a limiter does the
    /// same.
    ///
    /// # Errors
    /// [`InvalidArgument`](polylimit_rules::error::ErrorKind::InvalidArgument) when a value is out of range, when code and URL
    /// differ, or when options contradict each other or the URL: a user name without a password, a certificate without
    /// its key, or TLS, Sentinel or database options with a URL that does not use them.
    pub fn check(&self) -> Result<(), Error> {
        self.source()?;
        self.settings().map(drop)
    }

    /// The user name and password for the server, from the URL and the options; `None` without a password, or if a file, a program or a
    /// function provides it.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn login(&self) -> Result<Option<(Option<String>, String)>, Error> {
        let revealed = |credentials: &Credentials| {
            let username = credentials.username.as_ref().map(|name| name.reveal().to_owned());
            (username, credentials.password.reveal().to_owned())
        };
        Ok(self.settings()?.target.credentials.as_ref().map(revealed))
    }

    /// Where the limiter's configuration comes from: `store`, `file:PATH` or `store+file:PATH`. It is an option of the limiter, which may
    /// also be given in the URL of its store.
    pub fn configuration(mut self, place: &str) -> Self {
        self.configuration.put(place.into());
        self
    }

    /// The file of the configuration's copy. It is an option of the limiter, which may also be given in the URL of its store.
    pub fn copy(mut self, path: impl Into<PathBuf>) -> Self {
        self.copy.put(path.into());
        self
    }

    /// Sets the function that returns the credentials for each new connection.
    #[doc(hidden)]
    pub fn with_credentials(mut self, function: CredentialsFunction) -> Self {
        self.function = Some(function);
        self
    }

    /// The limiter's options that were set along with those of its store: where the configuration comes from, and its copy.
    #[doc(hidden)]
    pub fn source(&self) -> Result<(Option<Box<str>>, Option<PathBuf>), Error> {
        Ok((self.configuration.resolve(&CONFIGURATION)?, self.copy.resolve(&COPY)?))
    }

    /// The checked settings.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        Settings::new(&self.location, &self.values, self.function.clone())
    }

    fn read(&mut self, name: &str, text: &str, origin: Origin) -> Result<(), Error> {
        match name {
            _ if name == CONFIGURATION.name => return self.configuration.read(&CONFIGURATION, text, origin),
            _ if name == COPY.name => return self.copy.read(&COPY, text, origin),
            _ => {}
        }
        self.values.read(name, text, origin).unwrap_or_else(|| {
            let known = Self::ALL.iter().map(|option| option.name);
            match origin {
                Origin::Code => Err(unknown_option("", name, known)),
                Origin::Url { show: true } => Err(unknown_option("store URL: ", name, known)),
                Origin::Url { show: false } => {
                    let known = known.collect::<Vec<_>>().join(", ");
                    Err(Error::invalid_argument(format!("store URL: {UNSHOWN}: allowed are {known}")))
                }
            }
        })
    }
}

/// Shown in place of text that may be the rest of a secret with an unencoded `&`.
const UNSHOWN: &str =
    "an option is not known, and not shown next to a secret (an & in a secret is written as %26)";

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RedisOptions");
        out.field("location", &self.location);
        self.values.debug(&mut out);
        self.configuration.debug(&CONFIGURATION, &mut out);
        self.copy.debug(&COPY, &mut out);
        if let Some(function) = &self.function {
            out.field("credentials", function);
        }
        out.finish()
    }
}

/// All settings, checked, with the defaults. There is no `Debug`, since some are secret.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    pub(crate) target: Target,
    /// Without those that belong to the target.
    options: Options,
}

impl std::ops::Deref for Settings {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

impl Settings {
    /// Checks the given values, individually and together, and adds the defaults.
    fn new(
        location: &Location,
        values: &Values,
        function: Option<CredentialsFunction>,
    ) -> Result<Self, Error> {
        let mut options = values.resolve()?;
        check_needs(location, values)?;
        if options.reconnect_min > options.reconnect_max {
            let [least, most] = [options.reconnect_min, options.reconnect_max].map(duration::write);
            return Err(Error::invalid_argument(format!(
                "reconnect_min is {least} and reconnect_max is {most}: allowed is a reconnect_max that is not shorter"
            )));
        }
        let (username, password) = (options.username.take(), options.password.take());
        let (sentinel_username, sentinel_password) =
            (options.sentinel_username.take(), options.sentinel_password.take());
        let sources = [
            ("password_file", options.password_file.take().map(CredentialsSource::File)),
            ("password_command", options.password_command.take().map(CredentialsSource::Program)),
            ("credentials", function.map(CredentialsSource::Function)),
        ];
        let sentinel_sources = [
            ("sentinel_password_file", options.sentinel_password_file.take().map(CredentialsSource::File)),
            (
                "sentinel_password_command",
                options.sentinel_password_command.take().map(CredentialsSource::Program),
            ),
        ];
        let (credentials, changing) = credentials(username, password, ["username", "password"], sources)?;
        let (sentinel_credentials, sentinel_changing) = self::credentials(
            sentinel_username,
            sentinel_password,
            ["sentinel_username", "sentinel_password"],
            sentinel_sources,
        )?;
        let target = Target {
            endpoints: location.endpoints.clone(),
            tls: tls(location, &mut options)?,
            credentials,
            changing,
            sentinel_credentials,
            sentinel_changing,
            database: options.db,
        };
        Ok(Self { target, options })
    }
}

type Condition = fn(&Location) -> bool;

/// The options that do not apply to every URL, the condition, and what to do.
const NEEDS: [(&[&str], Condition, &str); 4] = [
    (
        &["db"],
        |location| !matches!(location.endpoints, Endpoints::Cluster { .. }),
        "is not for clusters, which have only database 0: leave it out",
    ),
    (
        &["address_map", "topology_refresh"],
        |location| matches!(location.endpoints, Endpoints::Sentinel { .. } | Endpoints::Cluster { .. }),
        "is only for Sentinel and clusters: leave it out",
    ),
    (
        &["tls_ca", "tls_cert", "tls_key", "tls_server_name", "tls_fingerprint", "tls_insecure"],
        |location| location.tls,
        "is only for TLS: use rediss://, rediss-sentinel:// or rediss-cluster://, or leave it out",
    ),
    (
        &["sentinel_username", "sentinel_password", "sentinel_password_file", "sentinel_password_command"],
        |location| matches!(location.endpoints, Endpoints::Sentinel { .. }),
        "is only for Sentinel: use redis-sentinel:// or rediss-sentinel://, or leave it out",
    ),
];

/// Refuses options that do not apply to the URL.
fn check_needs(location: &Location, values: &Values) -> Result<(), Error> {
    for (names, applies, advice) in NEEDS {
        if let Some(name) = names.iter().find(|name| values.is_given(name) && !applies(location)) {
            return Err(Error::invalid_argument(format!("{name} {advice}")));
        }
    }
    Ok(())
}

/// The configured credentials, or the source of changing ones. Only one of all the options may provide a password.
fn credentials<const N: usize>(
    username: Option<Secret>,
    password: Option<Secret>,
    [username_name, password_name]: [&str; 2],
    sources: [(&'static str, Option<CredentialsSource>); N],
) -> Result<(Option<Credentials>, Option<ChangingCredentials>), Error> {
    let mut given = sources.into_iter().filter_map(|(option, source)| Some((option, source?)));
    let Some((option, source)) = given.next() else {
        return match (username, password) {
            (username, Some(password)) => Ok((Some(Credentials { username, password }), None)),
            (None, None) => Ok((None, None)),
            (Some(_), None) => Err(Error::invalid_argument(format!(
                "{username_name} is given without {password_name}: give both, or only the password"
            ))),
        };
    };
    let is_function = matches!(source, CredentialsSource::Function(_));
    let other = match given.next() {
        Some((other, _)) => Some(other),
        None if password.is_some() => Some(password_name),
        None if is_function && username.is_some() => Some(username_name),
        None => None,
    };
    if let Some(other) = other {
        let place =
            if ["username", "password"].contains(&other) { ", also in the user info of the URL" } else { "" };
        return Err(Error::invalid_argument(format!(
            "{other} and {option} contradict each other: leave one out{place}"
        )));
    }
    Ok((None, Some(ChangingCredentials { option, source, username })))
}

fn tls(location: &Location, options: &mut Options) -> Result<Option<Tls>, Error> {
    let identity = match (options.tls_cert.take(), options.tls_key.take()) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        (None, None) => None,
        (Some(_), None) => {
            return Err(Error::invalid_argument("tls_cert is given without tls_key: give both"));
        }
        (None, Some(_)) => {
            return Err(Error::invalid_argument("tls_key is given without tls_cert: give both"));
        }
    };
    let server_name = options.tls_server_name.take();
    let trust =
        trust(options.tls_ca.take(), options.tls_fingerprint.take().as_deref(), options.tls_insecure)?;
    Ok(location.tls.then_some(Tls { trust, identity, server_name }))
}

fn trust(ca: Option<PathBuf>, fingerprints: Option<&str>, insecure: bool) -> Result<Trust, Error> {
    let refused = |one, other| {
        Err(Error::invalid_argument(format!("{one} and {other} contradict each other: leave one out")))
    };
    let pinned = fingerprints.and_then(read_fingerprints);
    match (ca, pinned, insecure) {
        (Some(_), Some(_), _) => refused("tls_ca", "tls_fingerprint"),
        (Some(_), None, true) => refused("tls_ca", "tls_insecure"),
        (None, Some(_), true) => refused("tls_fingerprint", "tls_insecure"),
        (Some(file), None, false) => Ok(Trust::File(file)),
        (None, Some(pinned), false) => Ok(Trust::Fingerprints(pinned)),
        (None, None, true) => Ok(Trust::Any),
        (None, None, false) => Ok(Trust::System),
    }
}
