//! What is compared with what, and the goals.

use polylimit_test_servers::{Cluster, Server};

use crate::generators::{CONNECTIONS, IN_FLIGHT, Load, Place, STREAM_CONNECTIONS, bodies};
use crate::grpc::Calls;
use crate::messages::{SHOULD_RATE_LIMIT, THROTTLE, should_rate_limit, throttle};
use crate::options::Options;
use crate::servers::{BareAxum, Polylimit, Ratelimit, Throttlecrab};
use crate::table::{Bound, Goal, Row, Table};

const CL_THROTTLE: &str = "CL.THROTTLE user:__rand_int__ 999999 1000000 1";
const POLYLIMIT_CHECK: &str = "POLYLIMIT.CHECK bench user:__rand_int__";
const CRAB_THROTTLE: &str = "THROTTLE user:__rand_int__ 1000000 1000000 1";
const INCR: &str = "INCR user:__rand_int__";

fn rate(row: usize, beside: usize, least: f64) -> Goal {
    Goal { row, beside, bound: Bound::Rate(least) }
}

pub(crate) fn http(polylimit: &Polylimit, throttlecrab: &Throttlecrab, axum: &BareAxum) -> Table {
    let wrk = |address, path, body| Load::Wrk { address, path, body };
    let policy = r#"{"policy":"bench","key":"KEY"}"#;
    let throttle = r#"{"key":"KEY","max_burst":1000000,"count_per_period":1000000,"period":1}"#;
    Table {
        name: "http",
        title: "HTTP, states in memory",
        about: "The bare service of axum reads the same request and writes an answer of the same fields as JSON, without a decision; with a \
                fixed answer it does not read the body.",
        rows: vec![
            Row::new("polylimit", polylimit.process.id(), wrk(polylimit.http, "/v1/check", policy)),
            Row::new(
                "throttlecrab",
                throttlecrab.process.id(),
                wrk(throttlecrab.http, "/throttle", throttle),
            ),
            Row::new("bare axum", axum.process.id(), wrk(axum.http, "/json", policy)),
            Row::new("bare axum, fixed answer", axum.process.id(), wrk(axum.http, "/fixed", policy)),
        ],
        goals: vec![rate(0, 1, 1.2), rate(0, 2, 0.9)],
    }
}

pub(crate) fn grpc(polylimit: &Polylimit, throttlecrab: &Throttlecrab, options: &Options) -> Table {
    let one = "user:000000000001";
    let h2load = |address, path, body| Load::H2load { address, path, body };
    let many = |address, path, bodies| {
        Load::Grpc(Calls { address, path, bodies, connections: STREAM_CONNECTIONS, in_flight: IN_FLIGHT })
    };
    let (own, other) = (polylimit.process.id(), throttlecrab.process.id());
    let asked = bodies(options.keys, |key| should_rate_limit("user", key));
    let throttled = bodies(options.keys, |key| throttle(key, 1_000_000, 1));
    Table {
        name: "grpc",
        title: "gRPC, states in memory",
        about: "64 requests in flight on 4 connections. polylimit answers Envoy's `ShouldRateLimit`, which finds its policy by the rules of \
                the document; throttlecrab has a service of its own, whose requests bring their limit.",
        rows: vec![
            Row::new(
                "polylimit, one key",
                own,
                h2load(polylimit.http, SHOULD_RATE_LIMIT, should_rate_limit("user", one)),
            ),
            Row::new(
                "throttlecrab, one key",
                other,
                h2load(throttlecrab.grpc, THROTTLE, throttle(one, 1_000_000, 1)),
            ),
            Row::new("polylimit, many keys", own, many(polylimit.http, SHOULD_RATE_LIMIT, asked)),
            Row::new("throttlecrab, many keys", other, many(throttlecrab.grpc, THROTTLE, throttled)),
        ],
        goals: vec![rate(0, 1, 1.2), rate(2, 3, 1.2)],
    }
}

fn resp_load(place: Place, command: &str, clients: usize, pipeline: usize) -> Load {
    Load::Redis { place, command: command.to_owned(), clients, pipeline }
}

pub(crate) fn resp(polylimit: &Polylimit, throttlecrab: &Throttlecrab) -> Table {
    let lone = |address, command| resp_load(Place::Tcp(address), command, CONNECTIONS, 1);
    let own = polylimit.process.id();
    Table {
        name: "resp",
        title: "RESP, one command at a time on each connection, states in memory",
        about: "64 connections.",
        rows: vec![
            Row::new("polylimit, CL.THROTTLE", own, lone(polylimit.resp, CL_THROTTLE)),
            Row::new("polylimit, POLYLIMIT.CHECK", own, lone(polylimit.resp, POLYLIMIT_CHECK)),
            Row::new("throttlecrab", throttlecrab.process.id(), lone(throttlecrab.resp, CRAB_THROTTLE)),
        ],
        goals: vec![rate(0, 2, 1.2), rate(1, 2, 1.2)],
    }
}

pub(crate) fn pipelined(polylimit: &Polylimit, throttlecrab: &Throttlecrab, redis: &Server) -> Table {
    let load = |address, command| resp_load(Place::Tcp(address), command, CONNECTIONS, 32);
    let own = polylimit.process.id();
    Table {
        name: "pipelined",
        title: "RESP, 32 commands at a time on each connection, states in memory",
        about: "64 connections. Redis runs `INCR`, which limits nothing.",
        rows: vec![
            Row::new("polylimit, CL.THROTTLE", own, load(polylimit.resp, CL_THROTTLE)),
            Row::new("polylimit, POLYLIMIT.CHECK", own, load(polylimit.resp, POLYLIMIT_CHECK)),
            Row::new("throttlecrab", throttlecrab.process.id(), load(throttlecrab.resp, CRAB_THROTTLE)),
            Row::new("Redis, INCR", redis.pid(), load(redis.address(), INCR)),
        ],
        goals: vec![rate(0, 2, 5.0), rate(1, 2, 5.0), rate(0, 3, 0.8), rate(1, 3, 0.8)],
    }
}

pub(crate) fn redis(
    polylimit: &Polylimit,
    plain: &Ratelimit,
    pipelined: &Ratelimit,
    redis: &Server,
    options: &Options,
) -> Table {
    let calls = |address| {
        let bodies = bodies(options.keys, |key| should_rate_limit("hourly", key));
        Load::Grpc(Calls { address, path: SHOULD_RATE_LIMIT, bodies, connections: 8, in_flight: 256 })
    };
    let row = |title, process, address| Row::new(title, process, calls(address)).on([redis.pid()]);
    Table {
        name: "redis",
        title: "gRPC on one Redis, 256 requests in flight",
        about: "Both answer Envoy's `ShouldRateLimit` by a fixed window of an hour. ratelimit runs with its settings as they are, and with the \
                pipelining that its documentation recommends (`REDIS_PIPELINE_WINDOW=150us`, `REDIS_PIPELINE_LIMIT=8`).",
        rows: vec![
            row("polylimit", polylimit.process.id(), polylimit.http),
            row("ratelimit", plain.process.id(), plain.grpc),
            row("ratelimit, pipelining", pipelined.process.id(), pipelined.grpc),
        ],
        goals: vec![
            rate(0, 1, 4.0),
            rate(0, 2, 4.0),
            Goal { row: 0, beside: 1, bound: Bound::P99(0.5) },
            Goal { row: 0, beside: 2, bound: Bound::P99(0.5) },
        ],
    }
}

pub(crate) fn host(polylimit: &Polylimit, redis: &Server) -> Table {
    let row = |title, place, clients| {
        Row::new(title, polylimit.process.id(), resp_load(place, POLYLIMIT_CHECK, clients, 1))
            .on([redis.pid()])
    };
    let (tcp, unix) = (|| Place::Tcp(polylimit.resp), || Place::Unix(polylimit.socket.clone()));
    Table {
        name: "host",
        title: "A server for a host, states in Redis",
        about: "Clients of the same host ask over RESP. The round trip to the server and that from the server to Redis are both in the latency.",
        rows: vec![
            row("1 client, Unix socket", unix(), 1),
            row("1 client, TCP", tcp(), 1),
            row("64 clients, Unix socket", unix(), 64),
            row("64 clients, TCP", tcp(), 64),
        ],
        goals: Vec::new(),
    }
}

pub(crate) fn cluster(alone: &Polylimit, redis: &Server, clustered: &Polylimit, cluster: &Cluster) -> Table {
    let load = |server: &Polylimit| resp_load(Place::Tcp(server.resp), POLYLIMIT_CHECK, CONNECTIONS, 8);
    let nodes = (0..cluster.len()).map(|node| cluster.node(node).pid());
    Table {
        name: "cluster",
        title: "A cluster",
        about: "64 connections with 8 commands at a time. All nodes share a core here, so the rate does not show what more nodes can decide; \
                the processor time of all nodes for an answer does.",
        rows: vec![
            Row::new("one Redis", alone.process.id(), load(alone)).on([redis.pid()]),
            Row::new("a cluster of 3 primaries", clustered.process.id(), load(clustered)).on(nodes),
        ],
        goals: Vec::new(),
    }
}
