//! The arguments of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use polylimit::http::ForwardingHeader;
use polylimit::raw::parse_duration;
use polylimit_server::{Endpoint, Level, Protocol, ShownKeys};

/// How records of the log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// How long a connection may last, if that is bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionAge(pub(crate) Option<Duration>);

/// How often something is reported, if it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportEvery(pub(crate) Option<Duration>);

/// The listener for operators and health checks.
const ADMIN: &str = "http://127.0.0.1:8181";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the command has many flags")]
#[allow(clippy::doc_markdown, reason = "the help shows listeners as they are written")]
pub(crate) struct ServeArguments {
    /// A listener for callers: http://HOST:PORT, https://, unix:/PATH, resp://HOST:PORT, resps:// or resp+unix:/PATH; may be repeated
    #[arg(long, value_name = "LISTENER", default_value = "http://127.0.0.1:8180")]
    pub(crate) listen: Vec<Endpoint>,
    /// The same without tokens, on a Unix socket or loopback, for a proxy that forwards its clients' Authorization; may be repeated
    #[arg(long, value_name = "LISTENER")]
    pub(crate) listen_open: Vec<Endpoint>,
    /// The listener for operators, or `off`
    #[arg(long, value_name = "LISTENER", default_value = ADMIN)]
    pub(crate) admin: String,
    /// A further host name of --admin, and of listeners for callers without tokens; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) admin_host: Vec<String>,
    /// How keys are shown to operators: plain, hash or off
    #[arg(long, value_name = "HOW", default_value = "plain", value_parser = parse_shown_keys)]
    pub(crate) show_keys: ShownKeys,
    /// The file of callers: ROLE NAME sha256:DIGITS or ROLE NAME san:NAME per line, with the roles check, read and admin
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// The certificate of TLS listeners, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// The authorities of clients' certificates, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Allows listeners beyond this host without TLS or authentication
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The mode of the files of Unix sockets, octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = parse_mode)]
    pub(crate) socket_mode: u32,
    /// How long connections may last once the server stops
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) drain: Duration,
    /// How long an HTTP connection may last before its client is asked to open another one, 1s or more, or `off`
    #[arg(long, value_name = "TIME", default_value = "off", value_parser = parse_age)]
    pub(crate) max_connection_age: ConnectionAge,
    /// How records of the log are written on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// The lowest level of records that are written: error, warn or info
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = parse_level)]
    pub(crate) log_level: Level,
    /// Is ready only while the store answers
    #[arg(long)]
    pub(crate) ready_needs_store: bool,
    /// A network of proxies that name the client's address, for forward authentication; may be repeated
    #[arg(long, value_name = "NETWORK")]
    pub(crate) trust: Vec<String>,
    /// The header in which they name it: x-forwarded-for, forwarded, cf-connecting-ip, true-client-ip, x-real-ip or fly-client-ip
    #[arg(long, value_name = "HEADER", default_value = "x-forwarded-for", value_parser = parse_header)]
    pub(crate) client_header: ForwardingHeader,
    /// Counts every descriptor from Envoy on its own, even if another one denies the request
    #[arg(long)]
    pub(crate) rls_count_all: bool,
    /// Lets a limit in a descriptor from Envoy replace that of the document
    #[arg(long)]
    pub(crate) rls_overrides: bool,
    /// How many connections of callers at a time, 1 to 1 million
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// How many keys are counted for the list of the most frequently denied ones, 0 to 65,536
    #[arg(long, value_name = "KEYS", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub(crate) observe_keys: u32,
    /// How often this process reports its counts to the others that share the store in Redis, 1s to 1h, or `off`
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_report)]
    pub(crate) report: ReportEvery,
}

#[derive(Args, Debug)]
#[allow(clippy::doc_markdown, reason = "the help shows listeners as they are written")]
pub(crate) struct ProbeArguments {
    /// A listener of the server, http://HOST:PORT or unix:/PATH; that of --admin answers probes even if it has no connection left
    #[arg(value_name = "LISTENER", default_value = ADMIN, value_parser = parse_probed)]
    pub(crate) listener: Endpoint,
    /// Checks only whether the process answers
    #[arg(long)]
    pub(crate) alive: bool,
    /// How long the response may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) within: Duration,
}

fn parse_probed(text: &str) -> Result<Endpoint, String> {
    let endpoint: Endpoint = text.parse().map_err(|error: polylimit_server::ServeError| error.to_string())?;
    if endpoint.protocol() == Protocol::Http && !endpoint.is_tls() {
        return Ok(endpoint);
    }
    Err(format!(
        "{text:?} cannot be probed: allowed are http://HOST:PORT and unix:/PATH; where those of the server speak TLS or RESP, let it listen \
         at a Unix socket, too"
    ))
}

fn parse_report(text: &str) -> Result<ReportEvery, String> {
    if text == "off" {
        return Ok(ReportEvery(None));
    }
    parse_duration(text).map(|every| ReportEvery(Some(every))).map_err(|error| error.message().to_owned())
}

fn parse_age(text: &str) -> Result<ConnectionAge, String> {
    if text == "off" {
        return Ok(ConnectionAge(None));
    }
    let age = parse_duration(text).map_err(|error| error.message().to_owned())?;
    if age < Duration::from_secs(1) {
        return Err(format!("{text:?} is too short: allowed is 1s or more, or off"));
    }
    Ok(ConnectionAge(Some(age)))
}

fn parse_level(text: &str) -> Result<Level, String> {
    let known = Level::ALL.into_iter().find(|known| known.name() == text);
    known.ok_or_else(|| format!("{text:?} is not known: use error, warn or info"))
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is no mode: allowed is an octal number up to 777, such as 660"))
}

fn parse_header(text: &str) -> Result<ForwardingHeader, String> {
    text.parse().map_err(|error: polylimit::Error| error.message().to_owned())
}

fn parse_shown_keys(text: &str) -> Result<ShownKeys, String> {
    let known = ShownKeys::ALL.into_iter().find(|known| known.name() == text);
    known.ok_or_else(|| format!("{text:?} is not known: use plain, hash or off"))
}
