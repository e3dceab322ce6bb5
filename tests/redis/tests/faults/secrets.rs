//! Passwords, user names and keys are nowhere to be read.

use std::fmt::{Debug, Display};
use std::net::TcpListener;
use std::time::Duration;

use polylimit::{Limiter, LimiterBuilder, Policy, RedisOptions, Request};
use polylimit_test_servers::{FaultProxy, Kind, Server};

const USER: &str = "us3r-nobody-sees";
const PASSWORD: &str = "p4ssw0rd-nobody-sees";
const ESCAPED: &str = "p%34ssw0rd-nobody-sees";
const KEY_SECRET: &str = "k3ysecret-nobody-sees";
const KEY: &str = "a key that nobody sees, since it is a person's name and so long that it is kept only as a hash of itself";
const SECRETS: [&str; 5] = [USER, PASSWORD, ESCAPED, KEY_SECRET, "nobody"];

/// All that was said.
#[derive(Default)]
struct Told(Vec<String>);

impl Told {
    fn shown(&mut self, what: &impl Debug) {
        self.0.push(format!("{what:?}"));
        self.0.push(format!("{what:#?}"));
    }

    fn written(&mut self, what: &(impl Display + Debug)) {
        self.0.push(what.to_string());
        self.shown(what);
    }

    fn check(&self) {
        assert!(!self.0.is_empty());
        for text in &self.0 {
            for secret in SECRETS {
                assert!(!text.contains(secret), "{secret} stands in {text}");
            }
        }
    }
}

fn builder() -> LimiterBuilder {
    Limiter::builder().policy(Policy::parse("p", "5/m").unwrap())
}

/// Uses a limiter in every way that says something.
fn use_all(told: &mut Told, options: RedisOptions) {
    told.shown(&options);
    let builder = builder().redis(options);
    told.shown(&builder);
    let limiter = match builder.build() {
        Ok(limiter) => limiter,
        Err(error) => return told.written(&error),
    };
    told.shown(&limiter);
    let limiter = limiter.blocking();
    told.shown(&limiter);
    for _ in 0..7 {
        told.shown(&limiter.check(KEY).unwrap());
    }
    told.shown(&Request::new(KEY));
    told.shown(&limiter.peek(KEY).unwrap());
    told.shown(&limiter.take(KEY).unwrap());
    if let Err(error) = limiter.ready(Duration::from_millis(20)) {
        told.written(&error);
    }
    for finding in limiter.doctor().unwrap() {
        told.written(&finding);
    }
    let limiter = limiter.asynchronous();
    limiter.set_credentials(Some(USER), PASSWORD).unwrap();
    told.shown(limiter);
    told.shown(&limiter.stats());
}

/// A store that works, one with another password, one that garbles what it says, and none at all.
#[test]
fn a_secret_of_a_store_in_use() {
    let mut told = Told::default();
    let server = Server::options(Kind::Redis).user(USER, PASSWORD).start();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxy = FaultProxy::start(server.address());
    proxy.after(
        polylimit_test_servers::Direction::Replies,
        0,
        polylimit_test_servers::Fault::Insert(format!("-ERR {PASSWORD} {USER}\r\n").into_bytes()),
    );
    for port in [server.port(), closed, proxy.port()] {
        for password in [PASSWORD, ESCAPED, "wrong-nobody-sees"] {
            let url =
                format!("redis://{USER}:{password}@127.0.0.1:{port}?key_secret={KEY_SECRET}&deadline=20ms");
            use_all(&mut told, RedisOptions::parse(&url).unwrap());
            told.shown(&builder().store(&url));
        }
        let url = format!("redis://127.0.0.1:{port}?deadline=20ms");
        let options =
            RedisOptions::parse(&url).unwrap().username(USER).password(PASSWORD).key_secret(KEY_SECRET);
        use_all(&mut told, options);
    }
    told.check();
    // The server knows neither the key nor the secret it is hashed with.
    for name in server.query::<Vec<String>>(&["KEYS", "*"]) {
        assert!(!name.contains("nobody") && name.contains("{#"), "{name}");
    }
    let clients: String = server.query(&["CLIENT", "LIST"]);
    assert!(!clients.contains(PASSWORD) && !clients.contains(KEY_SECRET), "{clients}");
}

#[test]
fn a_secret_in_a_url_that_is_refused() {
    let mut told = Told::default();
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
    // Passwords with a character that has a meaning in a URL, and is not written as it should be there.
    let unescaped = "@/?#%&=: []\\\"\n\u{e9}".chars().flat_map(|it| {
        let password = format!("{it}p4ss{it}{it}w0rd-nobody{it}nobody");
        ["redis", "rediss", "redis+unix", "redis-sentinel", "redis-cluster"]
            .map(|scheme| format!("{scheme}://{USER}:{password}@host/1?deadline=20ms"))
    });
    for url in urls.into_iter().chain(unescaped) {
        let url = &url;
        match RedisOptions::parse(url) {
            Ok(options) => {
                told.shown(&options);
                match builder().redis(options).build() {
                    Ok(limiter) => told.shown(&limiter),
                    Err(error) => told.written(&error),
                }
            }
            Err(error) => told.written(&error),
        }
        let builder = builder().store(url);
        told.shown(&builder);
    }
    for name in ["password", "username", "key_secret", "sentinel_password", "sentinel_username"] {
        let long = PASSWORD.repeat(2_000);
        for text in [PASSWORD, "nobody\0nobody", &long] {
            match RedisOptions::parse("redis://127.0.0.1:1?deadline=5ms").unwrap().set(name, text) {
                Ok(options) => use_all(&mut told, options),
                Err(error) => told.written(&error),
            }
        }
    }
    told.check();
}
