//! The services that are compared.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use polylimit_test_servers::Server;

use crate::figures::Slice;
use crate::load::Client;
use crate::options::Options;
use crate::service::Service;

/// How long a service warms up at most.
const WARM_UP: Duration = Duration::from_secs(20);

/// A framework, with its server and the usual limiter besides polylimit.
pub(crate) struct Framework {
    pub(crate) name: &'static str,
    pub(crate) server: &'static str,
    /// `{python}`, `{services}` and `{build}` stand for the interpreter and for folders.
    command: &'static str,
    pub(crate) peer: Option<&'static str>,
}

pub(crate) const FRAMEWORKS: [Framework; 6] = [
    Framework {
        name: "FastAPI",
        server: "uvicorn, one worker",
        command: "{python} -m uvicorn --app-dir {services} --port 0 --no-access-log --timeout-keep-alive 600 fastapi_service:app",
        peer: Some("slowapi"),
    },
    Framework {
        name: "Flask",
        server: "gunicorn, one worker of 4 threads",
        command: "{python} -m gunicorn --chdir {services} --bind 127.0.0.1:0 --threads 4 --keep-alive 600 flask_service:app",
        peer: Some("Flask-Limiter"),
    },
    Framework {
        name: "Express",
        server: "node:http",
        command: "node {services}/express.cjs",
        peer: Some("express-rate-limit"),
    },
    Framework {
        name: "Fastify",
        server: "node:http",
        command: "node {services}/fastify.cjs",
        peer: Some("@fastify/rate-limit"),
    },
    Framework { name: "net/http", server: "Go's own server", command: "{build}/nethttp", peer: None },
    Framework {
        name: "tower",
        server: "axum on hyper and tokio",
        command: "{build}/tower-service",
        peer: None,
    },
];

/// One of the services of a framework. All of them respond with the same body.
#[derive(Clone)]
pub(crate) struct Variant {
    pub(crate) title: String,
    /// The middleware and the store of a service, which its environment names.
    name: &'static str,
    store: String,
    build: String,
    /// Whether responses have fields that describe the limits.
    has_fields: bool,
}

impl Variant {
    /// All services of a framework whose usual limiter is `peer`. The first is the bare one.
    pub(crate) fn all(peer: Option<&str>, options: &Options, url: &str) -> Vec<Self> {
        let of = |title: &str, name, store: &str, build: &str| Self {
            title: title.to_owned(),
            name,
            store: store.to_owned(),
            build: build.to_owned(),
            has_fields: !["bare", "round_trip"].contains(&name),
        };
        // A service that waits for a busy machine is slow, and does not decide without Redis.
        let patient = format!("{url}?deadline=10s");
        let now = options.build.as_str();
        let mut all = vec![
            of("bare", "bare", "", now),
            of("two constant fields", "fields", "", now),
            of("one GET on Redis", "round_trip", url, now),
            of("polylimit, memory", "polylimit", "memory:", now),
            of("polylimit, Redis", "polylimit", &patient, now),
        ];
        if let Some((revision, build)) = &options.before {
            all.push(of(&format!("polylimit {revision}, memory"), "polylimit", "memory:", build));
            all.push(of(&format!("polylimit {revision}, Redis"), "polylimit", &patient, build));
        }
        if let Some(peer) = peer {
            all.push(of(&format!("{peer}, memory"), "peer", "memory:", now));
            all.push(of(&format!("{peer}, Redis"), "peer", url, now));
        }
        all
    }

    /// Starts the service. It is ready when [`Running::connect`] returns.
    pub(crate) fn start(self, framework: &Framework, options: &Options) -> Result<Running, Box<dyn Error>> {
        let command: Vec<String> = framework
            .command
            .split(' ')
            .map(|word| {
                word.replace("{python}", &options.python)
                    .replace("{services}", &options.services)
                    .replace("{build}", &self.build)
            })
            .collect();
        let environment = [
            ("VARIANT", self.name.to_owned()),
            ("STORE", self.store.clone()),
            ("PYTHONPATH", format!("{}/python", self.build)),
            ("POLYLIMIT_NODE", format!("{}/node", self.build)),
            ("LD_LIBRARY_PATH", format!("{}/lib", self.build)),
        ];
        let service = Service::start(&command, &environment, options.pins)?;
        Ok(Running { variant: self, service, client: None, slices: Vec::new() })
    }
}

/// A service that runs, and what was measured of it.
pub(crate) struct Running {
    pub(crate) variant: Variant,
    service: Service,
    client: Option<Client>,
    pub(crate) slices: Vec<Slice>,
}

impl Running {
    /// Connects to the service, and checks that its first response is what the variant stands for.
    pub(crate) async fn connect(&mut self, redis: &Server, connections: usize) -> Result<(), Box<dyn Error>> {
        let address: SocketAddr = self.service.address()?;
        let _ = redis.command(&["FLUSHALL"]);
        let mut client = Client::connect(address, connections).await?;
        let response = client.response().await?.to_ascii_lowercase();
        let counts =
            ["polylimit", "peer"].contains(&self.variant.name) && self.variant.store.starts_with("redis");
        if response.contains("\r\nratelimit: ") || response.contains("\r\nx-ratelimit-limit: ") {
            if !self.variant.has_fields {
                return Err(format!("{}: fields of a limit in {response}", self.variant.title).into());
            }
        } else if self.variant.has_fields {
            return Err(format!("{}: no fields of a limit in {response}", self.variant.title).into());
        }
        if counts != (redis.query::<u64>(&["DBSIZE"]) > 0) {
            return Err(format!("{}: it counts elsewhere than in its store", self.variant.title).into());
        }
        self.client = Some(client);
        Ok(())
    }

    /// Sends requests until Node has compiled what they need.
    pub(crate) async fn warm_up(&mut self, options: &Options) -> Result<(), Box<dyn Error>> {
        let (mut requests, started) = (0, Instant::now());
        while requests < options.warm_up && started.elapsed() < WARM_UP {
            requests += self.measure(options).await?.requests;
        }
        Ok(())
    }

    /// Measures the service for a slice of time.
    pub(crate) async fn measure(&mut self, options: &Options) -> Result<Slice, Box<dyn Error>> {
        let Some(client) = &mut self.client else { return Err("the service is not connected".into()) };
        let (before, started) = (self.service.processor_time()?, Instant::now());
        let requests = client.slice(options.slice).await?;
        let wall = started.elapsed();
        Ok(Slice { requests, wall, processor: self.service.processor_time()?.saturating_sub(before) })
    }
}
