//! The servers that are measured, each in a process of its own on the core of the servers.

use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use polylimit_test_servers::{Kind, Server};
use tempfile::TempDir;

use crate::options::Options;
use crate::process::{Process, free_port, pin};

/// The limits of `polylimit serve`. Those under load are never reached; `once` admits one request.
const POLICIES: &str = r#"polylimit = 1

[policies.bench]
quotas = "1000000/second token_bucket"

[policies.hourly]
quotas = "100000000/hour fixed_window aligned"

[policies.once]
quotas = "1/hour"

[[rules]]
match = { domain = "bench", descriptor = "user" }
apply = [{ policy = "bench", key = "{user}" }]

[[rules]]
match = { domain = "bench", descriptor = "hourly" }
apply = [{ policy = "hourly", key = "{hourly}" }]

[[rules]]
match = { domain = "bench", descriptor = "once" }
apply = [{ policy = "once", key = "{once}" }]
"#;

/// The same limits for envoyproxy/ratelimit.
const RATELIMIT: &str = "\
domain: bench
descriptors:
  - key: hourly
    rate_limit: { unit: hour, requests_per_unit: 100000000 }
  - key: once
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// `polylimit serve`.
pub(crate) struct Polylimit {
    pub(crate) process: Process,
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
    /// A Unix socket for RESP.
    pub(crate) socket: PathBuf,
    _folder: TempDir,
}

impl Polylimit {
    /// Starts the server with its states in memory, or in the store of this URL.
    pub(crate) fn start(options: &Options, store: Option<&str>) -> Result<Self, Box<dyn Error>> {
        let folder = TempDir::new()?;
        let (policies, socket) = (folder.path().join("limits.toml"), folder.path().join("resp"));
        fs::write(&policies, POLICIES)?;
        let mut command = vec![options.polylimit.display().to_string()];
        if let Some(store) = store {
            command.extend(["--store".to_owned(), store.to_owned()]);
        }
        command.extend(["--policies".to_owned(), policies.display().to_string(), "serve".to_owned()]);
        for listen in ["http://127.0.0.1:0", "resp://127.0.0.1:0", &format!("resp+unix:{}", socket.display())]
        {
            command.extend(["--listen".to_owned(), listen.to_owned()]);
        }
        command.extend(["--admin", "off"].map(str::to_owned));
        let mut process = Process::start(&command, &[], options.server_core())?;
        let [http, resp] = process.addresses(["http://", "resp://"])?;
        Ok(Self { process, http, resp, socket, _folder: folder })
    }
}

/// `throttlecrab-server`, which keeps its states in memory.
pub(crate) struct Throttlecrab {
    pub(crate) process: Process,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) resp: SocketAddr,
}

impl Throttlecrab {
    pub(crate) fn start(options: &Options) -> Result<Self, Box<dyn Error>> {
        let [http, grpc, resp] = [local()?, local()?, local()?];
        let mut command = vec![options.throttlecrab.display().to_string()];
        for (transport, address) in [("http", http), ("grpc", grpc), ("redis", resp)] {
            command.push(format!("--{transport}"));
            command.extend([format!("--{transport}-host"), address.ip().to_string()]);
            command.extend([format!("--{transport}-port"), address.port().to_string()]);
        }
        let mut process = Process::start(&command, &[], options.server_core())?;
        for address in [http, grpc, resp] {
            process.listens(address)?;
        }
        Ok(Self { process, http, grpc, resp })
    }
}

/// envoyproxy/ratelimit on Redis.
pub(crate) struct Ratelimit {
    pub(crate) process: Process,
    pub(crate) grpc: SocketAddr,
    _folder: TempDir,
}

impl Ratelimit {
    /// Starts it with its settings as they are, or with the pipelining that its documentation recommends: commands of 150 us together.
    pub(crate) fn start(options: &Options, redis: &Server, pipelined: bool) -> Result<Self, Box<dyn Error>> {
        let folder = TempDir::new()?;
        let config = folder.path().join("ratelimit/config");
        fs::create_dir_all(&config)?;
        fs::write(config.join("bench.yaml"), RATELIMIT)?;
        let [grpc, http, debug] = [local()?, local()?, local()?];
        let mut environment = vec![
            ("RUNTIME_ROOT", folder.path().display().to_string()),
            ("RUNTIME_SUBDIRECTORY", "ratelimit".to_owned()),
            ("RUNTIME_WATCH_ROOT", "false".to_owned()),
            ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
            ("REDIS_URL", redis.address().to_string()),
            ("USE_STATSD", "false".to_owned()),
            ("LOG_LEVEL", "error".to_owned()),
            // Otherwise its keys live for random times.
            ("EXPIRATION_JITTER_MAX_SECONDS", "0".to_owned()),
        ];
        for (name, port, address) in
            [("HOST", "PORT", http), ("GRPC_HOST", "GRPC_PORT", grpc), ("DEBUG_HOST", "DEBUG_PORT", debug)]
        {
            environment.extend([(name, address.ip().to_string()), (port, address.port().to_string())]);
        }
        if pipelined {
            environment.extend([
                ("REDIS_PIPELINE_WINDOW", "150us".to_owned()),
                ("REDIS_PIPELINE_LIMIT", "8".to_owned()),
            ]);
        }
        let mut process = Process::start(&[&options.ratelimit], &environment, options.server_core())?;
        process.listens(grpc)?;
        Ok(Self { process, grpc, _folder: folder })
    }
}

/// The service of axum that decides nothing.
pub(crate) struct BareAxum {
    pub(crate) process: Process,
    pub(crate) http: SocketAddr,
}

impl BareAxum {
    pub(crate) fn start(options: &Options) -> Result<Self, Box<dyn Error>> {
        let mut process = Process::start(&[&options.bare_axum], &[], options.server_core())?;
        let [http] = process.addresses(["http://"])?;
        Ok(Self { process, http })
    }
}

/// A Redis server that is measured itself, on the core of the servers.
pub(crate) fn redis_on_server_core(options: &Options) -> Result<Server, Box<dyn Error>> {
    let redis = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);
    if let Some(core) = options.server_core() {
        pin(redis.pid(), core)?;
    }
    Ok(redis)
}

fn local() -> std::io::Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}
