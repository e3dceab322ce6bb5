//! A service on a real socket, and a client of it.

use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use polylimit::clock::ManualClock;
use polylimit::{Limiter, Policy};
use tokio::net::TcpListener;
use ureq::Agent;
use ureq::http::Response;

/// A service that runs until it is dropped.
pub(crate) struct Service {
    address: SocketAddr,
    agent: Agent,
    /// What ends the server when it is dropped.
    _running: Box<dyn Any + Send + Sync>,
}

/// The response that a client received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Received {
    /// A response whose body is not read.
    pub(crate) fn head_of(response: &Response<ureq::Body>) -> Self {
        let headers = response.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        Self { status: response.status().as_u16(), headers: headers.collect(), body: String::new() }
    }

    /// The values of a header field.
    pub(crate) fn field(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(field, _)| field == name).map(|(_, value)| &**value).collect()
    }
}

impl Service {
    pub(crate) fn start(app: Router) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self::at(address, Box::new(runtime))
    }

    /// The server at an address, which runs until `running` is dropped.
    pub(crate) fn at(address: SocketAddr, running: Box<dyn Any + Send + Sync>) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            // A server may close a connection whose request it has answered without reading all of it.
            .max_idle_connections(0)
            .build();
        Self { address, agent: config.into(), _running: running }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn get(&self, path: &str) -> Received {
        self.get_with(path, &[])
    }

    /// Makes a request with these header lines.
    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Received {
        receive(self.response(path, headers))
    }

    pub(crate) fn statuses(&self, path: &str, times: usize) -> Vec<u16> {
        (0..times).map(|_| self.get(path).status).collect()
    }

    /// Makes a request of any method without a body.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Received {
        let request =
            ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        receive(self.agent.run(request.body(()).unwrap()).unwrap())
    }

    pub(crate) fn response(&self, path: &str, headers: &[(&str, &str)]) -> Response<ureq::Body> {
        let request = self.agent.get(format!("http://{}{path}", self.address));
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).call().unwrap()
    }
}

fn receive(mut response: Response<ureq::Body>) -> Received {
    let head = Received::head_of(&response);
    Received { body: response.body_mut().read_to_string().unwrap(), ..head }
}

/// A limiter in memory whose clock stands still.
pub(crate) fn limiter(policies: &[(&str, &str)]) -> Limiter {
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let policies = policies.iter().map(|(name, quotas)| Policy::parse(name, quotas).unwrap());
    policies.fold(Limiter::builder().clock(clock), polylimit::LimiterBuilder::policy).build().unwrap()
}
