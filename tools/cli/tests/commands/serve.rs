//! `serve`: the program as a service, from its start to its end by a signal.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::Shell;

const SOON: Duration = Duration::from_secs(60);
const LIMITS: &str = "polylimit = 1\n[policies.api]\nquotas = \"2/hour\"\n";

/// A server that is ended when this is dropped.
struct Serving {
    program: Child,
    errors: BufReader<ChildStderr>,
}

impl Serving {
    fn start(shell: &Shell, arguments: &[&str]) -> Self {
        let mut command = shell.command(arguments);
        let mut program = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let errors = BufReader::new(program.stderr.take().unwrap());
        Self { program, errors }
    }

    /// The next line that it writes.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).unwrap();
        line
    }

    /// The next line of the log with this text.
    fn wait_for(&mut self, text: &str) {
        let mut lines = String::new();
        while !lines.contains(text) {
            let line = self.line();
            assert!(!line.is_empty(), "{text:?} is not in {lines}");
            lines.push_str(&line);
        }
    }

    /// The address of the next listener. Events of the limiter, such as that it has no document yet, may come before it.
    fn address(&mut self) -> String {
        let mut lines = String::new();
        loop {
            let line = self.line();
            if let Some((_, address)) = line.trim().split_once("info listening: listening on ") {
                return address.to_owned();
            }
            assert!(!line.is_empty(), "it writes {lines:?} and ends");
            lines.push_str(&line);
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.program.id()).unwrap()), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                return status;
            }
            assert!(since.elapsed() < SOON, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Asks over HTTP, and returns status line and body.
fn ask(listener: &str, request: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(listener.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn server_answers_reloads_and_ends_by_signals() {
    let shell = Shell::new();
    let _ = shell.file("limits.toml", LIMITS);
    // SHA-256 of `secret`.
    let line = "admin ops sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";
    let tokens = shell.file("tokens", line);
    let mut serving = Serving::start(
        &shell,
        &[
            "serve",
            "--policies",
            "limits.toml",
            "--tokens",
            "tokens",
            "--listen",
            "http://127.0.0.1:0",
            "--admin",
            "http://127.0.0.1:0",
        ],
    );
    let (data, admin) = (serving.address(), serving.address());
    let since = Instant::now();
    while !ask(&admin, "GET /readyz", "", "").starts_with("HTTP/1.1 200") {
        assert!(since.elapsed() < SOON, "it is not ready");
    }
    let check = |token: &str| ask(&data, "POST /v1/check", token, r#"{"policy":"api","key":"k"}"#);
    assert!(check("secret").contains(r#""remaining":1"#));
    assert!(check("other").starts_with("HTTP/1.1 401"));

    fs::write(&tokens, "nonsense\n").unwrap();
    serving.signal(Signal::SIGHUP);
    serving.wait_for("error reload_refused: nothing has changed");
    assert!(check("secret").contains(r#""remaining":0"#));
    fs::write(&tokens, line.replace("2bb8", "0000")).unwrap();
    serving.signal(Signal::SIGHUP);
    serving.wait_for("were read again");
    assert!(check("secret").starts_with("HTTP/1.1 401"));

    // The tokens that docs/server.md shows: the first is that of `secret`.
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/server.md")).unwrap();
    let (_, shown) = page.split_once("```text\ncheck ").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    fs::write(&tokens, format!("check {shown}")).unwrap();
    serving.signal(Signal::SIGHUP);
    serving.wait_for("were read again");
    assert!(check("secret").contains(r#""remaining":0"#));

    serving.signal(Signal::SIGTERM);
    serving.wait_for("info stopping: ");
    assert!(serving.end().success());
}

#[test]
fn what_cannot_be_served_is_wrong_usage() {
    let shell = Shell::new();
    let _ = shell.file("bad.toml", "polylimit = 1\n[policies.api]\nquotas = \"often\"\n");
    for (arguments, about) in [
        (&["serve", "--listen", "http://0.0.0.0:0"][..], "--insecure"),
        (&["serve", "--listen", "ftp://127.0.0.1:1"], "resp://HOST:PORT"),
        (&["serve", "--listen", "https://127.0.0.1:0", "--admin", "off"], "--certificate"),
        (&["serve", "--admin", "resp://127.0.0.1:0"], "speaks HTTP"),
        (&["serve", "--policies", "bad.toml"], "bad.toml: line 3"),
        (&["serve", "--policies", "none.toml"], "none.toml"),
        (&["serve", "--tokens", "none"], "none"),
        (&["serve", "--socket-mode", "888"], "octal"),
        (&["serve", "--trust", "everyone"], "everyone"),
        (&["serve", "--certificate", "a.pem"], "--key"),
    ] {
        shell.run(arguments).fails(64, about);
    }
}

#[test]
fn probe_ends_with_0_while_the_server_is_ready_and_with_1_otherwise() {
    let shell = Shell::with_redis();
    let socket = format!("unix:{}/http.sock", shell.folder().display());
    let mut serving =
        Serving::start(&shell, &["serve", "--listen", &socket, "--admin", "http://127.0.0.1:0"]);
    let (data, admin) = (serving.address(), serving.address());
    assert_eq!(data, socket);
    let probe = |arguments: &[&str]| shell.run(&[&["probe"], arguments].concat());
    // No document is published yet.
    for listener in [&*data, &*admin] {
        probe(&[listener]).fails(1, "no document of limits is active yet");
        assert_eq!(probe(&[listener, "--alive"]).fine(), "");
    }
    let _ = shell.file("limits.toml", LIMITS);
    let _ = shell.run(&["policies", "put", "limits.toml", "--expect", "0", "--why", "test"]).fine();
    let since = Instant::now();
    while probe(&[&admin]).status != 0 {
        assert!(since.elapsed() < SOON, "it is not ready");
    }
    assert_eq!(probe(&[&data]).fine(), "");

    serving.signal(Signal::SIGTERM);
    assert!(serving.end().success());
    probe(&[&admin]).fails(1, "cannot be reached");
    probe(&[&data]).fails(1, "cannot be reached");
    // A listener that takes connections and answers nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    probe(&[&silent, "--within", "50ms"]).fails(1, "does not answer within 50ms");
    for (listener, about) in
        [("https://a:1", "unix:/PATH"), ("resp://a:1", "unix:/PATH"), ("a:1", "http://HOST:PORT")]
    {
        probe(&[listener]).fails(64, about);
    }
}

#[test]
fn commands_of_the_page_listen_where_they_say() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/server.md")).unwrap();
    let (_, block) = page.split_once("```console\n").unwrap();
    let block = block.split_once("```").unwrap().0;
    let shell = Shell::with_redis();
    let _ = shell.file("limits.toml", LIMITS);
    for line in block.lines() {
        // Ports and folders that are free on this machine.
        let mut line = line.strip_prefix("$ polylimit ").unwrap().to_owned();
        for (named, free) in [
            ("redis://localhost", format!("redis://127.0.0.1:{}?deadline=5s", shell.server().port())),
            (":8180", ":0".to_owned()),
            (":8181", ":0".to_owned()),
            (":6380", ":0".to_owned()),
            ("/run/", format!("{}/", shell.folder().display())),
        ] {
            line = line.replace(named, &free);
        }
        if !line.contains("--admin") {
            line += " --admin off";
        }
        let arguments: Vec<&str> = line.split(' ').collect();
        let mut command = Shell::new().command(&arguments);
        let _ = command.current_dir(shell.folder());
        let mut program = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let errors = BufReader::new(program.stderr.take().unwrap());
        let mut serving = Serving { program, errors };
        for (at, argument) in arguments.iter().enumerate() {
            if ["--listen", "--admin"].contains(argument) && arguments[at + 1] != "off" {
                let (address, asked) = (serving.address(), arguments[at + 1].trim_end_matches('0'));
                assert!(address.starts_with(asked), "{address} is not {asked}");
            }
        }
        serving.signal(Signal::SIGTERM);
        assert!(serving.end().success(), "{line}");
    }
}
