//! Every way to a server: schemes, certificates, passwords, users, databases, names.

use std::time::Duration;

use polylimit::{Degradation, Limiter, Source};
use polylimit_test_servers::{Certificates, ClientCertificates, Kind, Sentinels, Server, until};
use tempfile::tempdir;

use super::{limiter, quiet, runtime, with};

const QUOTAS: &str = "10/hour";

/// Makes a decision, which the store has to make.
fn decides(url: &str) -> Limiter {
    let limiter = limiter(&with(url, "deadline=2s"), QUOTAS);
    let decision = runtime().block_on(limiter.check("user")).unwrap();
    assert_eq!((decision.source(), decision.degraded()), (Source::Store, None), "{url}");
    let decision = limiter.blocking().check("user").unwrap();
    assert_eq!((decision.source(), decision.degraded()), (Source::Store, None), "{url}");
    limiter
}

/// Why no decision is made.
fn fails(url: &str) -> Degradation {
    let limiter = limiter(&with(url, "deadline=300ms"), QUOTAS);
    let decision = runtime().block_on(limiter.check("user")).unwrap();
    assert_eq!(decision.source(), Source::Deny, "{url}");
    decision.degraded().unwrap()
}

#[test]
fn a_port_and_a_socket() {
    let _shared = quiet::shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        decides(&server.url());
        decides(&server.url().replace("127.0.0.1", "localhost"));
        decides(&format!("redis+unix://{}", server.socket().display()));
        decides(&format!("redis+unix://harness:harness@{}?db=2", server.socket().display()));
        assert_eq!(server.query::<u64>(&["DBSIZE"]), 1);
    }
    assert_eq!(fails("redis+unix:///nowhere/socket"), Degradation::Unreachable);
}

#[test]
fn certificates_of_both_sides() {
    let _shared = quiet::shared();
    for kind in Kind::ALL {
        let server = Server::options(kind).tls(ClientCertificates::Required).password("word").start();
        let Certificates { ca, client, client_key, .. } = server.certificates().unwrap();
        assert!(server.url().starts_with("rediss://"));
        let trusting = with(&server.url(), &format!("tls_ca={}", ca.display()));
        let shown = format!("tls_cert={}&tls_key={}", client.display(), client_key.display());
        decides(&with(&trusting, &shown));
        decides(&with(&trusting.replace("127.0.0.1", "localhost"), &shown));
        // Without its certificate the server knows no client, and no client trusts an authority that it does not know.
        assert_eq!(fails(&trusting), Degradation::Unreachable);
        assert_eq!(fails(&with(&server.url(), &shown)), Degradation::Unreachable);
        let dir = tempdir().unwrap();
        let stranger = Certificates::generate(dir.path());
        let trusting_another = with(&server.url(), &format!("tls_ca={}", stranger.ca.display()));
        assert_eq!(fails(&with(&trusting_another, &shown)), Degradation::Unreachable);
        let another_name = with(&trusting, "tls_server_name=elsewhere.example");
        assert_eq!(fails(&with(&another_name, &shown)), Degradation::Unreachable);
    }
}

#[test]
fn a_server_that_asks_no_client_for_a_certificate() {
    let _shared = quiet::shared();
    let server = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let ca = server.certificates().unwrap().ca.display().to_string();
    decides(&with(&server.url(), &format!("tls_ca={ca}")));
    // Plain text where TLS is spoken, and the other way round.
    assert_eq!(fails(&server.url().replace("rediss", "redis")), Degradation::Unreachable);
    let plain = Server::start(Kind::Redis, &[]);
    let url = with(&plain.url().replace("redis:", "rediss:"), &format!("tls_ca={ca}"));
    assert_eq!(fails(&url), Degradation::Unreachable);
}

#[test]
fn passwords_and_users() {
    let _shared = quiet::shared();
    for kind in Kind::ALL {
        let server = Server::options(kind).password("word").start();
        decides(&server.url());
        assert_eq!(fails(&server.url().replace("word", "other")), Degradation::Auth);
        assert_eq!(fails(&server.url().replace(":word@", "")), Degradation::Auth);
        let server = Server::options(kind).user("limits", "word").start();
        assert!(server.url().contains("limits:word@"));
        decides(&server.url());
        assert_eq!(fails(&server.url().replace("limits", "other")), Degradation::Auth);
        assert_eq!(fails(&server.url().replace("limits:word@", "")), Degradation::Auth);
    }
}

#[test]
fn characters_that_a_url_has_to_escape() {
    let _shared = quiet::shared();
    let server =
        Server::start(Kind::Redis, &["user l@mits on >p@ss/w:rd%#? ~* &* +@all", "user default off"]);
    let url = format!("redis://l%40mits:p%40ss%2Fw%3Ard%25%23%3F@127.0.0.1:{}", server.port());
    decides(&url);
}

#[test]
fn databases() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    decides(&format!("{}/3", server.url()));
    decides(&with(&server.url(), "db=5"));
    decides(&server.url());
    let keyspace: String = server.query(&["INFO", "keyspace"]);
    for db in ["db0:keys=1", "db3:keys=1", "db5:keys=1"] {
        assert!(keyspace.contains(db), "{keyspace}");
    }
    assert_eq!(fails(&with(&server.url(), "db=99")), Degradation::Refused);
}

#[test]
fn the_name_of_a_connection() {
    let _shared = quiet::shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        for (parameter, name) in [("db=0", "polylimit"), ("client_name=shop-7", "shop-7")] {
            // Its connections live as long as the runtime that they are used from.
            let runtime = runtime();
            let limiter = limiter(&with(&with(&server.url(), "deadline=2s"), parameter), QUOTAS);
            let decision = runtime.block_on(limiter.check("user")).unwrap();
            assert_eq!(decision.source(), Source::Store);
            let list: String = server.query(&["CLIENT", "LIST"]);
            assert!(list.contains(&format!(" name={name} ")), "{list}");
            drop(limiter);
            runtime.block_on(tokio::task::yield_now());
            drop(runtime);
            until("the connection ends", Duration::from_secs(5), || {
                let list: String = server.query(&["CLIENT", "LIST"]);
                (!list.contains(&format!(" name={name} "))).then_some(())
            });
        }
    }
}

#[test]
fn sentinels_with_passwords() {
    let _shared = quiet::shared();
    let sentinels = Sentinels::start_with_passwords(Kind::Redis, Some("data"), Some("watch"));
    decides(&sentinels.url());
    assert_eq!(fails(&sentinels.url().replace("watch", "other")), Degradation::Auth);
    assert_eq!(fails(&sentinels.url().replace("?sentinel_password=watch", "")), Degradation::Auth);
    assert_eq!(fails(&sentinels.url().replace(":data@", ":other@")), Degradation::Auth);
    assert_eq!(fails(&sentinels.url().replace("/main/", "/other/")), Degradation::Unreachable);
}

#[test]
fn a_new_password_is_used_for_new_connections() {
    let _shared = quiet::shared();
    let server = Server::options(Kind::Redis).password("old").start();
    let limiter = limiter(&with(&server.url(), "deadline=1s"), QUOTAS);
    let runtime = runtime();
    let source = || runtime.block_on(limiter.check("user")).unwrap().source();
    assert_eq!(source(), Source::Store);
    server.command(&["CONFIG", "SET", "requirepass", "new"]);
    limiter.set_credentials(None, "new").unwrap();
    server.command(&["CLIENT", "KILL", "USER", "default"]);
    until("the new password opens the door", Duration::from_secs(5), || {
        (source() == Source::Store).then_some(())
    });
}

/// A connection that the server has closed while nothing was asked is replaced before anything is sent over it.
#[test]
fn a_server_that_closes_what_is_idle() {
    let _shared = quiet::shared();
    let idle = ["timeout 1"];
    for server in [
        Server::start(Kind::Redis, &idle),
        Server::options(Kind::Redis).lines(&idle).tls(ClientCertificates::Ignored).start(),
    ] {
        let url = match server.certificates() {
            Some(certificates) => with(&server.url(), &format!("tls_ca={}", certificates.ca.display())),
            None => server.url(),
        };
        // Nobody drives its connection while nobody asks.
        let limiter = limiter(&with(&url, "deadline=2s"), QUOTAS);
        for _ in 0..2 {
            let decision = limiter.blocking().check("user").unwrap();
            assert_eq!((decision.source(), decision.degraded()), (Source::Store, None), "{url}");
            until("the server closes the connection", Duration::from_secs(10), || {
                let list: String = server.query(&["CLIENT", "LIST"]);
                (!list.contains(" name=polylimit ")).then_some(())
            });
        }
    }
}
