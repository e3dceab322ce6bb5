//! Runs a command while real servers are there for it, and ends them with it.
//!
//! Usage: `polylimit-with-servers redis|valkey|cluster|module|no-time|PROGRAM -- COMMAND [ARGUMENT]...`, where `{}` in an argument
//! becomes the servers' URL. `module` is Redis with polylimit's module, `no-time` Redis as a service that refuses `TIME` in
//! scripts, and `PROGRAM` the path of any server's program. Its exit status is that of the command.

use std::process::{Command, ExitCode};

use polylimit_test_servers::{Cluster, Kind, Server, Service};

const USAGE: &str =
    "usage: polylimit-with-servers redis|valkey|cluster|module|no-time|PROGRAM -- COMMAND [ARGUMENT]...";

/// The command is not a test of how fast this machine is, so its decisions may take as long as they need.
const OPTIONS: &str = "deadline=30s";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, separator, program, arguments @ ..] = arguments.as_slice() else {
        return refused(USAGE);
    };
    if separator != "--" {
        return refused(USAGE);
    }
    match servers.as_str() {
        "redis" => run(program, arguments, &Server::start(Kind::Redis, &[]).url()),
        "valkey" => run(program, arguments, &Server::start(Kind::Valkey, &[]).url()),
        "cluster" => run(program, arguments, &Cluster::start(Kind::Redis, 3, 0).url()),
        "module" => run(program, arguments, &Server::options(Kind::Redis).module().start().url()),
        "no-time" => {
            let server = Server::start(Kind::Redis, &[]);
            let service = Service::without_time_in_scripts(server.address());
            run(program, arguments, &server.url_at(service.port()))
        }
        path if path.contains('/') => {
            run(program, arguments, &Server::options(Kind::Redis).program(path).start().url())
        }
        _ => refused(USAGE),
    }
}

fn run(program: &str, arguments: &[String], url: &str) -> ExitCode {
    let url = format!("{url}?{OPTIONS}");
    let arguments = arguments.iter().map(|argument| argument.replace("{}", &url));
    match Command::new(program).args(arguments).status() {
        // Ended by a signal: as shells say it, roughly.
        Ok(status) => ExitCode::from(status.code().map_or(128, |code| u8::try_from(code).unwrap_or(u8::MAX))),
        Err(error) => refused(&format!("polylimit-with-servers: {program} cannot be run: {error}")),
    }
}

fn refused(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}
