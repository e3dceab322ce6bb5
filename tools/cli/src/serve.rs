//! `serve`: the server over a limiter of its own; and `probe`, which asks one for its health.

use std::io::Write as _;
use std::sync::Arc;

use polylimit::Limiter;
use polylimit::http::ClientAddressRules;
use polylimit_server::{Probe, ReadLogin, Server, ServerOptions, Signals, StoreLogin, TlsFiles};

use crate::arguments::GlobalOptions;
use crate::arguments::serve::{LogFormat, ProbeArguments, ServeArguments};
use crate::documents;
use crate::exit::{Exit, Failure};

pub(crate) fn run(options: &GlobalOptions, arguments: &ServeArguments) -> Result<Exit, Failure> {
    let limiter = limiter(options, arguments)?;
    let server_options = server_options(options, arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Undecided, format!("the system refuses threads: {error}")))?;
    let refused = |error: polylimit_server::ServeError| Failure::usage(error.to_string());
    runtime.block_on(async {
        let signals = Signals::new().map_err(refused)?;
        let server = Server::bind(limiter, server_options).await.map_err(refused)?;
        let _ = signals.run(server).await;
        Ok(Exit::Fine)
    })
}

pub(crate) fn probe(arguments: &ProbeArguments) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Problem, format!("the system refuses a runtime: {error}")))?;
    let probe = if arguments.alive { Probe::Alive } else { Probe::Ready };
    // Docker knows the status 1 alone for a container that is not healthy.
    let unhealthy = |error: polylimit_server::ServeError| Failure::new(Exit::Problem, error.to_string());
    runtime
        .block_on(polylimit_server::probe(&arguments.listener, probe, arguments.within))
        .map_err(unhealthy)?;
    Ok(Exit::Fine)
}

/// The limiter of the server: the states are in its memory unless a store is named.
fn limiter(options: &GlobalOptions, arguments: &ServeArguments) -> Result<Limiter, Failure> {
    let url = options.store_url_or("memory:")?;
    let keys = usize::try_from(arguments.observe_keys).unwrap_or(usize::MAX);
    let mut builder = Limiter::builder().store(&url).observe_keys(keys);
    if let Some(file) = &options.policies {
        // With a bad document the previous one stays active, and at first there is none.
        documents::validate_file(file)?;
    }
    if options.policies.is_some() || url.starts_with("redis") {
        builder = options.configured(builder, &url)?;
    }
    if let Some(every) = arguments.report.0.filter(|_| url.starts_with("redis")) {
        builder = builder.report(every);
    }
    Ok(builder.build()?)
}

/// Reads the login of a store whose URL is in a file.
fn store_login(options: &GlobalOptions) -> Option<ReadLogin> {
    let path = options.store.as_deref()?.strip_prefix('@')?.to_owned();
    let _ = options.store_url_or("memory:").ok().filter(|url| url.starts_with("redis"))?;
    Some(Arc::new(move || {
        let url = std::fs::read_to_string(&path);
        let url = url.map_err(|error| format!("the file {path:?} cannot be used: {error}"))?;
        let login = polylimit::redis::RedisOptions::parse(url.trim()).and_then(|options| options.login());
        let login = login.map_err(|error| format!("the file {path:?} cannot be used: {error}"))?;
        Ok(login.map(|(username, password)| StoreLogin { username, password }))
    }))
}

fn server_options(options: &GlobalOptions, arguments: &ServeArguments) -> Result<ServerOptions, Failure> {
    let mut made = ServerOptions::default();
    made.listen.clone_from(&arguments.listen);
    made.admin = match &*arguments.admin {
        "off" => None,
        text => Some(
            text.parse().map_err(|error: polylimit_server::ServeError| Failure::usage(error.to_string()))?,
        ),
    };
    made.admin_hosts.clone_from(&arguments.admin_host);
    made.show_keys = arguments.show_keys;
    made.tokens.clone_from(&arguments.tokens);
    made.tls = arguments.certificate.clone().zip(arguments.key.clone()).map(|(certificate, key)| TlsFiles {
        certificate,
        key,
        client_authorities: arguments.client_ca.clone(),
    });
    made.insecure = arguments.insecure;
    made.socket_mode = arguments.socket_mode;
    made.drain = arguments.drain;
    made.rls.count_all = arguments.rls_count_all;
    made.rls.overrides = arguments.rls_overrides;
    made.ready_needs_store = arguments.ready_needs_store;
    let rules = ClientAddressRules::builder().header(arguments.client_header);
    made.client_address =
        arguments.trust.iter().fold(rules, |rules, network| rules.trust(network)).build()?;
    made.policies.clone_from(&options.policies);
    made.limits.connections = usize::try_from(arguments.connections).unwrap_or(usize::MAX);
    made.limits.connection_age = arguments.max_connection_age.0;
    made.listen_open.clone_from(&arguments.listen_open);
    made.store_login = store_login(options);
    let most = if options.quiet { None } else { Some(arguments.log_level) };
    let is_json = arguments.log_format == LogFormat::Json;
    made.log = Arc::new(move |record| {
        if most.is_none_or(|most| record.level() > most) {
            return;
        }
        let line = if is_json { format!("{}\n", record.json()) } else { format!("polylimit: {record}\n") };
        // One write, so that lines of threads do not mix. There is no place to report that it fails.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    });
    Ok(made)
}
