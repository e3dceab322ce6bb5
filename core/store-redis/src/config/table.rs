//! The table of options: name, setter, kind, range, default and meaning of each, written once.
//!
//! A row generates the setter and its documentation, the name for `set` and the URL, and the entry in the public list.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::RedisOptions;
use crate::config::kinds::{
    Addresses, Choice, ClientName, Count, File, Fingerprints, Flag, Hidden, HostName, Kind, Prefix, Program,
    Share, Size, Time,
};
use polylimit_rules::error::{Error, ErrorKind, excerpt};
use polylimit_store::option::StoreOption;
use polylimit_store::outage::Outage;

/// The origin of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The URL, which may set an option once. Without `show`, the text may be part of a secret.
    Url { show: bool },
    /// A setter; the last call counts.
    Code,
}

/// The value of one option, from the URL and from code.
pub(crate) struct OptionValue<K: Kind> {
    /// The value, and whether it may be shown.
    url: Option<(K::Value, bool)>,
    code: Option<K::Value>,
}

impl<K: Kind> OptionValue<K> {
    /// Stores a value from code; [`resolve`](Self::resolve) checks its range.
    pub(crate) fn put(&mut self, argument: K::Argument) {
        self.code = Some(argument.into());
    }

    /// Parses and checks a text.
    pub(crate) fn read(&mut self, row: &StoreOption, text: &str, origin: Origin) -> Result<(), Error> {
        let Some(value) = K::read(text).filter(|value| K::allows(row.allowed, value)) else {
            let show = !K::SECRET && origin != Origin::Url { show: false };
            return Err(out_of_range::<K>(row, show.then(|| excerpt(text))));
        };
        match origin {
            Origin::Code => self.code = Some(value),
            Origin::Url { .. } if self.url.is_some() => {
                let name = row.name;
                return Err(Error::invalid_argument(format!(
                    "store URL has {name} more than once: set it once"
                )));
            }
            Origin::Url { show } => self.url = Some((value, show)),
        }
        Ok(())
    }

    /// The given value, if any; the URL and the code must not differ.
    pub(crate) fn resolve(&self, row: &StoreOption) -> Result<Option<K::Value>, Error> {
        if let Some(code) = &self.code {
            if !K::allows(row.allowed, code) {
                return Err(out_of_range::<K>(row, (!K::SECRET).then(|| K::show(code))));
            }
            if let Some((url, show)) = &self.url
                && url != code
            {
                let message = if K::SECRET || !show {
                    format!("{} in code differs from the one in the store URL: leave one out", row.name)
                } else {
                    let (code, url) = (K::show(code), K::show(url));
                    format!("{} is {code} in code and {url} in the store URL: leave one out", row.name)
                };
                return Err(Error::invalid_argument(message));
            }
        }
        Ok(self.any().cloned())
    }

    /// The given value, or else the default.
    pub(crate) fn resolve_or_default(&self, row: &StoreOption) -> Result<K::Value, Error> {
        let default = || row.default.and_then(K::read);
        self.resolve(row)?.or_else(default).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("the default of {} cannot be read", row.name))
        })
    }

    pub(crate) fn any(&self) -> Option<&K::Value> {
        self.code.as_ref().or(self.url.as_ref().map(|(value, _)| value))
    }

    /// Adds the option to a `Debug` output, if it was given.
    pub(crate) fn debug(&self, row: &StoreOption, out: &mut fmt::DebugStruct<'_, '_>) {
        let shown = match (&self.code, &self.url) {
            (Some(value), _) | (None, Some((value, true))) => K::show(value),
            (None, Some((_, false))) => "***".to_owned(),
            (None, None) => return,
        };
        out.field(row.name, &format_args!("{shown}"));
    }
}

fn out_of_range<K: Kind>(row: &StoreOption, read: Option<String>) -> Error {
    let StoreOption { name, allowed, .. } = row;
    let read = read.unwrap_or_else(|| "out of range (not shown)".to_owned());
    Error::invalid_argument(format!("{name} is {read}: allowed is {allowed}{}", K::FORM))
}

// A derive would require the same traits of the kind, which has no values.
impl<K: Kind> Default for OptionValue<K> {
    fn default() -> Self {
        Self { url: None, code: None }
    }
}

impl<K: Kind> Clone for OptionValue<K> {
    fn clone(&self) -> Self {
        Self { url: self.url.clone(), code: self.code.clone() }
    }
}

/// The type of an option's checked value: optional if there is no default.
macro_rules! value {
    ($kind:ident none) => { Option<<$kind as Kind>::Value> };
    ($kind:ident $default:literal) => { <$kind as Kind>::Value };
}

/// The default as text.
macro_rules! default {
    (none) => {
        None
    };
    ($default:literal) => {
        Some($default)
    };
}

macro_rules! resolve {
    ($given:expr, $row:expr, none) => {
        $given.resolve(&$row)?
    };
    ($given:expr, $row:expr, $default:literal) => {
        $given.resolve_or_default(&$row)?
    };
}

macro_rules! options {
    ($($name:ident($argument:ty): $kind:ident, $allowed:literal, default $default:tt, $about:literal;)*) => {
        /// The given value of each option.
        #[derive(Clone, Default)]
        pub(crate) struct Values {
            $(pub(crate) $name: OptionValue<$kind>,)*
        }

        /// The checked value of each option.
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub(crate) struct Options {
            $(pub(crate) $name: value!($kind $default),)*
        }

        /// The row of each option.
        #[allow(non_upper_case_globals, reason = "an option's name is its name everywhere")]
        mod row {
            use super::*;
            $(pub(crate) const $name: StoreOption = StoreOption {
                name: stringify!($name),
                kind: $kind::SHOWN,
                about: $about,
                allowed: $allowed,
                default: default!($default),
                secret: $kind::SECRET,
            };)*
        }

        impl Values {
            /// Parses the text of an option; `None` when there is no option of that name.
            pub(crate) fn read(&mut self, name: &str, text: &str, origin: Origin) -> Option<Result<(), Error>> {
                match name {
                    $(stringify!($name) => Some(self.$name.read(&row::$name, text, origin)),)*
                    _ => None,
                }
            }

            /// Checks the given values and adds the defaults.
            pub(crate) fn resolve(&self) -> Result<Options, Error> {
                Ok(Options { $($name: resolve!(self.$name, row::$name, $default),)* })
            }

            /// Whether the URL or the code set the option of that name.
            pub(crate) fn is_given(&self, name: &str) -> bool {
                match name {
                    $(stringify!($name) => self.$name.any().is_some(),)*
                    _ => false,
                }
            }

            /// Adds the given values to a `Debug` output.
            pub(crate) fn debug(&self, out: &mut fmt::DebugStruct<'_, '_>) {
                $(self.$name.debug(&row::$name, out);)*
            }
        }

        impl RedisOptions {
            /// Every option, with its purpose, its range and its default.
            pub const ALL: &[StoreOption] = &[$(row::$name,)*];

            $(
                #[doc = $about]
                #[doc = concat!("\n\nAllowed: ", $allowed, ". Default: ", stringify!($default), ".")]
                pub fn $name(mut self, $name: $argument) -> Self {
                    self.values.$name.put($name.into());
                    self
                }
            )*
        }
    };
}

options! {
    deadline(Duration): Time, "1ms to 60s", default "50ms",
        "How long a decision may take, including queueing, connecting, sending and waiting for the reply. After that the outage \
         policy answers.";
    outage(Outage): Choice, "fallback, allow or deny", default "fallback",
        "What a policy answers while Redis is unavailable, unless the policy has its own outage policy.";
    fallback_share(f64): Share, "more than 0, up to 1, with at most 6 decimals", default "1",
        "Which part of each limit this process admits on its own while Redis is unavailable and the outage policy is fallback, \
         rounded down: a part of less than one unit admits nothing. One divided by the number of processes keeps their sum \
         within the limit. A number in code is rounded to 6 decimals.";
    first_connect_max(Duration): Time, "0 (no longer than the deadline), or 1ms to 60s", default "1s",
        "How long the first decisions of a process, or of another runtime or event loop in it, wait for the first connection \
         before the outage policy answers; then they have their deadline. The wait ends immediately if Redis refuses or fails.";
    denial_cache_max(Duration): Time, "0 (never), or 1ms to 24h", default "1s",
        "How long a key that Redis has denied may be denied without calling Redis again, and never longer than Redis would. It \
         ends immediately when this process returns units, and when the server announces that another process did; if the \
         announcement is lost, after this time at the latest.";
    prefix(impl Into<Box<str>>): Prefix, "1 to 64 letters, digits and -._~@:/+=,;!$&'()*|", default "polylimit",
        "The beginning of every key in Redis. Limiters count together if prefix, policy and key are the same.";
    db(u32): Count, "0 to 2147483647", default "0",
        "The number of the database; a cluster has only 0.";
    client_name(impl Into<Box<str>>): ClientName, "1 to 64 printable ASCII characters without spaces", default "polylimit",
        "The name of the connections, as shown by CLIENT LIST on the server.";
    max_in_flight(u32): Count, "1 to 1000000", default "16384",
        "How many decisions may wait for Redis at once. The outage policy answers those beyond, without waiting.";
    max_outstanding_bytes(usize): Size, "64KiB to 1024MiB", default "16MiB",
        "How many bytes of requests may wait for Redis at once. The outage policy answers those beyond, without waiting.";
    max_connection_age(Duration): Time, "0 (never), or 1s to 24h", default "10m",
        "How long a connection is used before another replaces it, so that changed addresses are noticed; varied at random. It \
         stays in use until the other one is open.";
    breaker_failures(u32): Count, "1 to 1000", default "3",
        "After how many consecutive failures Redis is no longer called, but probed occasionally.";
    reconnect_min(Duration): Time, "1ms to 60s", default "5ms",
        "The longest wait before the first attempt to reconnect; it doubles with each attempt, up to `reconnect_max`.";
    reconnect_max(Duration): Time, "1ms to 60s", default "200ms",
        "The longest wait between attempts to reconnect; at least `reconnect_min`.";
    keepalive(Duration): Time, "1s to 1h", default "15s",
        "How long a connection may be idle before the system probes whether the other side is still there.";
    doctor_after(Duration): Time, "0 (never), or 1ms to 24h", default "1s",
        "How long after its first decision a limiter examines Redis once, in the background: findings that make limits \
         unreliable are reported as events. Of limiters that share connections, the first one examines for all.";
    module(bool): Flag, "true or false", default "true",
        "Whether polylimit's module decides on servers that have it. On all others, and for what it does not decide, scripts do.";
    topology_refresh(Duration): Time, "1s to 1h", default "30s",
        "How often Sentinel is polled for the primary, or a cluster for its slots, when nothing else triggers it; only with \
         Sentinel or a cluster.";
    address_map(impl Into<Box<str>>): Addresses,
        "pairs announced=reached with commas between them, each a host or host:port; an announced address once", default none,
        "Where to reach the addresses that a cluster or Sentinel announces, if they are not reachable themselves: behind NAT or \
         forwarded ports. A host without a port stands for all of its ports. Only with Sentinel or a cluster.";

    username(impl Into<Box<str>>): Hidden, "1 to 16384 bytes", default none,
        "The user to authenticate as; needs a password. It is never shown.";
    password(impl Into<Box<str>>): Hidden, "1 to 16384 bytes", default none,
        "The password to authenticate with; plain, not percent-encoded as in a URL. It is never shown.";
    password_file(impl Into<PathBuf>): File, "the path of a file", default none,
        "A file that holds the password, without its trailing line end, in place of `password`: it is read for each new \
         connection, and again when the server refuses the password.";
    password_command(impl Into<Box<str>>): Program, "a program and its arguments, with spaces between them; at most 4096 bytes",
        default none,
        "A program whose output is the password, in place of `password`, such as one that creates a cloud token: it is run, \
         without a shell and for at most 10 seconds, for each new connection, and again when the server refuses the password.";
    key_secret(impl Into<Box<str>>): Hidden, "1 to 16384 bytes", default none,
        "A secret for hashing the keys that are stored as a hash, so that the hashes in Redis cannot be compared with those of \
         guessed keys; use 16 random bytes or more. All processes need the same. It is never shown.";
    tls_ca(impl Into<PathBuf>): File, "the path of a file", default none,
        "A PEM file with the certificates to trust, in place of the system's: those of authorities, and self-signed server \
         certificates, for any name; only with TLS.";
    tls_fingerprint(impl Into<Box<str>>): Fingerprints, "1 to 8 fingerprints of 64 hexadecimal digits, with commas between them",
        default none,
        "The SHA-256 of the server's certificate, as printed by `openssl x509 -fingerprint -sha256`, in place of an authority: \
         a server with one of these certificates is trusted, whatever its name and its dates; only with TLS.";
    tls_insecure(bool): Flag, "true or false", default "false",
        "Whether any certificate is accepted, for development only: then anything on the path to the server can read and change \
         everything that is sent. An event and the doctor report it; only with TLS.";
    tls_cert(impl Into<PathBuf>): File, "the path of a file", default none,
        "A PEM file with the certificate, and its chain, that the server requires; needs `tls_key`; only with TLS.";
    tls_key(impl Into<PathBuf>): File, "the path of a file", default none,
        "A PEM file with the private key of `tls_cert`; only with TLS.";
    tls_server_name(impl Into<Box<str>>): HostName, "a host name or an IP address", default none,
        "The name that the server's certificate must have, in place of the host in the URL; only with TLS.";
    sentinel_username(impl Into<Box<str>>): Hidden, "1 to 16384 bytes", default none,
        "The user to authenticate as with the sentinels; needs a password for them; only with Sentinel. It is never shown.";
    sentinel_password(impl Into<Box<str>>): Hidden, "1 to 16384 bytes", default none,
        "The password to authenticate with at the sentinels; only with Sentinel. It is never shown.";
    sentinel_password_file(impl Into<PathBuf>): File, "the path of a file", default none,
        "A file that holds the password for the sentinels, in place of `sentinel_password`: it is read like `password_file`; \
         only with Sentinel.";
    sentinel_password_command(impl Into<Box<str>>): Program,
        "a program and its arguments, with spaces between them; at most 4096 bytes", default none,
        "A program whose output is the password for the sentinels, in place of `sentinel_password`: it is run like \
         `password_command`, and for each sentinel; only with Sentinel.";
}
