//! Load on a server for one slice: by wrk over HTTP, by h2load or our own generator over gRPC, and by redis-benchmark over RESP.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use tempfile::NamedTempFile;

use crate::grpc::{self, Calls, Measured};
use crate::options::Options;

/// What is sent to a server, and by what.
pub(crate) enum Load {
    /// wrk: `POST` requests with this JSON, in which KEY stands for a key.
    Wrk { address: SocketAddr, path: &'static str, body: &'static str },
    /// h2load: calls of gRPC, all with the same body.
    H2load { address: SocketAddr, path: &'static str, body: Bytes },
    /// Our own generator: calls of gRPC about many keys.
    Grpc(Calls),
    /// redis-benchmark: a command, in which `__rand_int__` stands for a number.
    Redis { place: Place, command: String, clients: usize, pipeline: usize },
}

/// Where a server for RESP listens.
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Connections and requests in flight where a table does not say otherwise.
pub(crate) const CONNECTIONS: usize = 64;
/// Requests in flight over gRPC, on [`STREAM_CONNECTIONS`].
pub(crate) const IN_FLIGHT: usize = 64;
pub(crate) const STREAM_CONNECTIONS: usize = 4;

impl Load {
    /// How many requests fill a time, for redis-benchmark, which sends a number of them: found by a short run. 0 for the others.
    pub(crate) fn requests(&self, time: Duration, options: &Options) -> Result<u64, Box<dyn Error>> {
        let Self::Redis { clients, pipeline, .. } = self else { return Ok(0) };
        let least = (clients * pipeline) as u64 * 20;
        let first = self.redis_benchmark(least, options)?;
        let per_second = first.answers as f64 / first.wall.as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of requests")]
        let requests = (per_second * time.as_secs_f64()) as u64;
        Ok(requests.max(least))
    }

    /// Loads a server for a time, or with the requests that [`Self::requests`] has found for it.
    pub(crate) fn run(
        &self,
        time: Duration,
        requests: u64,
        options: &Options,
    ) -> Result<Measured, Box<dyn Error>> {
        match self {
            Self::Wrk { address, path, body } => wrk(*address, path, body, time, options),
            Self::H2load { address, path, body } => h2load(*address, path, body, time),
            Self::Grpc(calls) => grpc::run(calls.load(time)),
            Self::Redis { .. } => self.redis_benchmark(requests, options),
        }
    }

    /// How a reader repeats it, with the addresses left out.
    pub(crate) fn description(&self, options: &Options) -> String {
        let (seconds, keys) = (options.slice.as_secs_f64(), options.keys);
        match self {
            Self::Wrk { path, body, .. } => format!(
                "`wrk -t 1 -c {CONNECTIONS} -d {seconds}s -s benches/server/keys.lua http://ADDRESS{path} -- '{body}' {keys}`"
            ),
            Self::H2load { path, .. } => format!(
                "`h2load -t 1 -c {STREAM_CONNECTIONS} -m {} -D {}ms -d MESSAGE -H 'content-type: application/grpc' -H 'te: trailers' http://ADDRESS{path}`",
                IN_FLIGHT / STREAM_CONNECTIONS,
                options.slice.as_millis()
            ),
            Self::Grpc(calls) => format!(
                "our own generator, {} requests in flight on {} connections, {} keys",
                calls.in_flight,
                calls.connections,
                calls.bodies.len()
            ),
            Self::Redis { place, command, clients, pipeline } => {
                let to = match place {
                    Place::Tcp(_) => "-p PORT",
                    Place::Unix(_) => "-s SOCKET",
                };
                format!(
                    "`redis-benchmark {to} -c {clients} -P {pipeline} -r {keys} -n REQUESTS --csv {command}`"
                )
            }
        }
    }

    fn redis_benchmark(&self, requests: u64, options: &Options) -> Result<Measured, Box<dyn Error>> {
        let Self::Redis { place, command, clients, pipeline } = self else {
            return Err("not for redis-benchmark".into());
        };
        let mut tool = Command::new("redis-benchmark");
        match place {
            Place::Tcp(address) => {
                tool.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()])
            }
            Place::Unix(path) => tool.arg("-s").arg(path),
        };
        tool.args(["-c", &clients.to_string(), "-P", &pipeline.to_string(), "-r", &options.keys.to_string()]);
        tool.args(["-n", &requests.to_string(), "--csv"]).args(command.split(' '));
        read_csv(&output(&mut tool)?, requests)
    }
}

/// The output of a tool that has succeeded.
fn output(tool: &mut Command) -> Result<String, Box<dyn Error>> {
    let made = tool.output().map_err(|error| format!("{}: {error}", tool.get_program().display()))?;
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&made.stderr);
    // redis-benchmark shows errors among replies here, and succeeds.
    if !made.status.success() || complaint.contains("Error from server") {
        return Err(format!("{} failed: {complaint}{text}", tool.get_program().display()).into());
    }
    Ok(text)
}

fn wrk(
    address: SocketAddr,
    path: &str,
    body: &str,
    time: Duration,
    options: &Options,
) -> Result<Measured, Box<dyn Error>> {
    let mut tool = Command::new("wrk");
    // wrk takes whole seconds only.
    let seconds = time.as_secs().max(1);
    tool.args(["-t", "1", "-c", &CONNECTIONS.to_string(), "-d", &format!("{seconds}s"), "-s"]);
    tool.arg(&options.script).arg(format!("http://{address}{path}"));
    tool.args(["--", body, &options.keys.to_string()]);
    let text = output(&mut tool)?;
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT ")).ok_or("wrk printed no result")?;
    let field = |name: &str| -> Result<u64, Box<dyn Error>> {
        let value = line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        Ok(value.ok_or_else(|| format!("no {name} in: {line}"))?.parse()?)
    };
    if field("failed")? > 0 {
        return Err(format!("requests of wrk failed: {line}").into());
    }
    Ok(Measured {
        answers: field("requests")?,
        wall: Duration::from_micros(field("wall_us")?),
        latency: Some((Duration::from_micros(field("p50_us")?), Duration::from_micros(field("p99_us")?))),
    })
}

fn h2load(address: SocketAddr, path: &str, body: &Bytes, time: Duration) -> Result<Measured, Box<dyn Error>> {
    let file = NamedTempFile::new()?;
    fs::write(file.path(), body)?;
    let mut tool = Command::new("h2load");
    let streams = (IN_FLIGHT / STREAM_CONNECTIONS).to_string();
    tool.args(["-t", "1", "-c", &STREAM_CONNECTIONS.to_string(), "-m", &streams, "-D"]);
    tool.arg(format!("{}ms", time.as_millis())).arg("-d").arg(file.path());
    tool.args(["-H", "content-type: application/grpc", "-H", "te: trailers"]);
    tool.arg(format!("http://{address}{path}"));
    let text = output(&mut tool)?;
    let line = text.lines().find_map(|line| line.strip_prefix("requests: ")).ok_or("h2load: no requests")?;
    let count = |name: &str| -> Result<u64, Box<dyn Error>> {
        let field = line.split(", ").find_map(|field| field.strip_suffix(name));
        Ok(field.ok_or_else(|| format!("no{name} in: {line}"))?.trim().parse()?)
    };
    if count(" failed")? + count(" errored")? > 0 {
        return Err(format!("requests of h2load failed: {line}").into());
    }
    Ok(Measured { answers: count(" succeeded")?, wall: time, latency: None })
}

/// The last line of redis-benchmark: name, requests a second, and latencies in milliseconds: average, minimum, and the quantiles 50, 95, 99
/// and 100.
fn read_csv(text: &str, requests: u64) -> Result<Measured, Box<dyn Error>> {
    let line =
        text.lines().rfind(|line| line.starts_with('"')).ok_or("redis-benchmark printed no figures")?;
    let fields: Vec<&str> = line.rsplit(',').map(|field| field.trim_matches('"')).collect();
    let field = |from_end: usize| -> Result<f64, Box<dyn Error>> {
        Ok(fields.get(from_end).ok_or_else(|| format!("too few figures: {line}"))?.parse()?)
    };
    let milliseconds = |from_end: usize| field(from_end).map(|ms| Duration::from_secs_f64(ms / 1e3));
    let wall = Duration::from_secs_f64(requests as f64 / field(6)?);
    Ok(Measured { answers: requests, wall, latency: Some((milliseconds(3)?, milliseconds(1)?)) })
}

/// The bodies of requests about this number of keys.
pub(crate) fn bodies(keys: usize, body: impl Fn(&str) -> Bytes) -> Vec<Bytes> {
    let mut key = String::new();
    let mut bodies = Vec::with_capacity(keys);
    for number in 0..keys {
        key.clear();
        // A string takes everything.
        let _ = write!(key, "user:{number:012}");
        bodies.push(body(&key));
    }
    bodies
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn figures_of_redis_benchmark_are_read_past_a_command_with_commas() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"POLYLIMIT.CHECK a,b c\",\"50000.00\",\"0.200\",\"0.010\",\"0.150\",\"0.400\",\"0.800\",\"9.000\"\n";
        let read = read_csv(text, 100_000).unwrap();
        assert_eq!((read.answers, read.wall), (100_000, Duration::from_secs(2)));
        assert_eq!(read.latency, Some((Duration::from_micros(150), Duration::from_micros(800))));
        assert!(read_csv("WARNING: no configuration\n", 1).is_err());
    }
}
