//! Passwords, user names and keys appear in no message, `Debug` output or name in the server.

use std::fmt::{Debug, Display};
use std::net::TcpListener;
use std::time::Duration;

use polylimit::redis::RedisOptions;
use polylimit::{Limiter, LimiterBuilder, Policy, Request};
use polylimit_test_servers::{FaultProxy, Kind, Row, Server};

const USER: &str = "us3r-hidden";
const PASSWORD: &str = "p4ssw0rd-hidden";
const ESCAPED: &str = "p%34ssw0rd-hidden";
const KEY_SECRET: &str = "k3ysecret-hidden";
const KEY: &str = "a hidden key, since it is the name of a person and so long that the store keeps only a hash of it, and not the key";
const SECRETS: [&str; 5] = [USER, PASSWORD, ESCAPED, KEY_SECRET, "hidden"];

/// All texts that the limiter produced.
#[derive(Default)]
struct Output(Vec<String>);

impl Output {
    fn debug(&mut self, what: &impl Debug) {
        self.0.push(format!("{what:?}"));
        self.0.push(format!("{what:#?}"));
    }

    fn display(&mut self, what: &(impl Display + Debug)) {
        self.0.push(what.to_string());
        self.debug(what);
    }

    fn record(&self, case: &str) {
        Row::new("S5", case).measured(format!("{} texts without a secret", self.0.len())).record();
    }

    fn assert_no_secrets(&self) {
        assert!(!self.0.is_empty());
        for text in &self.0 {
            for secret in SECRETS {
                assert!(!text.contains(secret), "{secret} appears in {text}");
            }
        }
    }
}

fn builder() -> LimiterBuilder {
    Limiter::builder().policy(Policy::parse("p", "5/m").unwrap())
}

/// Uses a limiter in every way that produces text.
fn use_all(output: &mut Output, options: RedisOptions) {
    output.debug(&options);
    let builder = builder().redis(options);
    output.debug(&builder);
    let limiter = match builder.build() {
        Ok(limiter) => limiter,
        Err(error) => return output.display(&error),
    };
    output.debug(&limiter);
    let limiter = limiter.blocking();
    output.debug(&limiter);
    for _ in 0..7 {
        output.debug(&limiter.check(KEY).unwrap());
    }
    output.debug(&Request::new(KEY));
    output.debug(&limiter.peek(KEY).unwrap());
    output.debug(&limiter.take(KEY).unwrap());
    if let Err(error) = limiter.ready(Duration::from_millis(20)) {
        output.display(&error);
    }
    for finding in limiter.admin().doctor().unwrap() {
        output.display(&finding);
    }
    let limiter = limiter.asynchronous();
    limiter.admin().set_credentials(Some(USER), PASSWORD).unwrap();
    output.debug(limiter);
    output.debug(&limiter.stats());
}

/// A server that works, one that is absent, and one whose replies quote the secrets, each with right and wrong passwords.
#[test]
fn store_in_use_reveals_no_secret() {
    let mut output = Output::default();
    let server = Server::options(Kind::Redis).user(USER, PASSWORD).start();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxy = FaultProxy::start(server.address());
    proxy.after(
        polylimit_test_servers::Direction::Replies,
        0,
        polylimit_test_servers::Fault::Insert(format!("-ERR {PASSWORD} {USER}\r\n").into_bytes()),
    );
    for port in [server.port(), closed, proxy.port()] {
        for password in [PASSWORD, ESCAPED, "wrong-hidden"] {
            let url =
                format!("redis://{USER}:{password}@127.0.0.1:{port}?key_secret={KEY_SECRET}&deadline=20ms");
            use_all(&mut output, RedisOptions::parse(&url).unwrap());
            output.debug(&builder().store(&url));
        }
        let url = format!("redis://127.0.0.1:{port}?deadline=20ms");
        let options =
            RedisOptions::parse(&url).unwrap().username(USER).password(PASSWORD).key_secret(KEY_SECRET);
        use_all(&mut output, options);
    }
    output.assert_no_secrets();
    // The server has neither the key nor the secret of its hash.
    for name in server.query::<Vec<String>>(&["KEYS", "*"]) {
        assert!(!name.contains("hidden") && name.contains("{#"), "{name}");
    }
    let clients: String = server.query(&["CLIENT", "LIST"]);
    assert!(!clients.contains(PASSWORD) && !clients.contains(KEY_SECRET), "{clients}");
    output.record("store in use");
}

#[test]
fn invalid_url_reveals_no_secret() {
    let mut output = Output::default();
    let login = format!("{USER}:{PASSWORD}");
    let urls = [
        format!("redis:/{login}@host"),
        format!("redis://{login}@"),
        format!("redis://{login}@host:port"),
        format!("redis://{login}@host:99999"),
        format!("redis://{login}@ho st"),
        format!("redis://{login}@host/db"),
        format!("redis://{login}@host/1?db=2"),
        format!("redis://{login}@host?password={PASSWORD}x"),
        format!("redis://{login}@host?key_secret={KEY_SECRET}&key_secret={KEY_SECRET}"),
        format!("redis://{login}%@host"),
        format!("redis://{login}%zz@host"),
        format!("redis://{login}@{login}@host"),
        format!("{login}@host"),
        format!("http://{login}@host"),
        format!("redis-cluster://{login}@host,{login}@host/3"),
        format!("redis-sentinel://{login}@host"),
        format!("redis://{login}@host?sentinel_password={PASSWORD}"),
        format!("redis+unix://{login}@relative?db=x"),
    ];
    // Passwords with special characters of URLs that are not escaped.
    let unescaped = "@/?#%&=: []\\\"\n\u{e9}".chars().flat_map(|it| {
        let password = format!("{it}p4ss{it}{it}w0rd-hidden{it}hidden");
        ["redis", "rediss", "redis+unix", "redis-sentinel", "redis-cluster"]
            .map(|scheme| format!("{scheme}://{USER}:{password}@host/1?deadline=20ms"))
    });
    for url in urls.into_iter().chain(unescaped) {
        let url = &url;
        match RedisOptions::parse(url) {
            Ok(options) => {
                output.debug(&options);
                match builder().redis(options).build() {
                    Ok(limiter) => output.debug(&limiter),
                    Err(error) => output.display(&error),
                }
            }
            Err(error) => output.display(&error),
        }
        let builder = builder().store(url);
        output.debug(&builder);
    }
    for name in ["password", "username", "key_secret", "sentinel_password", "sentinel_username"] {
        let long = PASSWORD.repeat(2_000);
        for text in [PASSWORD, "hidden\0hidden", &long] {
            match RedisOptions::parse("redis://127.0.0.1:1?deadline=5ms").unwrap().set(name, text) {
                Ok(options) => use_all(&mut output, options),
                Err(error) => output.display(&error),
            }
        }
    }
    output.assert_no_secrets();
    output.record("invalid URLs and options");
}
