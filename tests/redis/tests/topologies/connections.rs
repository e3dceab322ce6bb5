//! Ways to connect to a server: URL schemes, certificates, passwords, users, databases and connection names.

use std::time::Duration;

use polylimit::{Degradation, Source};
use polylimit_redis_tests::{assert_from_store, with};
use polylimit_test_servers::{Certificates, ClientCertificates, Kind, Sentinels, Server, until};
use tempfile::tempdir;

use super::support::{limiter, runtime, shared};

const QUOTAS: &str = "10/hour";

/// Asserts that the store at this URL makes decisions.
#[track_caller]
fn assert_decides(url: &str) {
    let limiter = limiter(&with(url, "deadline=2s"), QUOTAS);
    assert_from_store(&runtime().block_on(limiter.check("user")).unwrap());
    assert_from_store(&limiter.blocking().check("user").unwrap());
}

/// The reason why the store at this URL makes no decision.
fn failure(url: &str) -> Degradation {
    let limiter = limiter(&with(url, "deadline=300ms"), QUOTAS);
    let decision = runtime().block_on(limiter.check("user")).unwrap();
    assert_eq!(decision.source(), Source::Deny, "{url}");
    decision.degraded().unwrap()
}

#[test]
fn store_is_reached_by_port_host_name_and_unix_socket() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        assert_decides(&server.url());
        assert_decides(&server.url().replace("127.0.0.1", "localhost"));
        assert_decides(&format!("redis+unix://{}", server.socket().display()));
        assert_decides(&format!("redis+unix://harness:harness@{}?db=2", server.socket().display()));
        assert_eq!(server.query::<u64>(&["DBSIZE"]), 1);
    }
    assert_eq!(failure("redis+unix:///nowhere/socket"), Degradation::Unreachable);
}

#[test]
fn mutual_tls_needs_valid_certificates_of_both_sides() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::options(kind).tls(ClientCertificates::Required).password("word").start();
        let Certificates { ca, client, client_key, .. } = server.certificates().unwrap();
        assert!(server.url().starts_with("rediss://"));
        let trusted = with(&server.url(), &format!("tls_ca={}", ca.display()));
        let client_certificate = format!("tls_cert={}&tls_key={}", client.display(), client_key.display());
        assert_decides(&with(&trusted, &client_certificate));
        assert_decides(&with(&trusted.replace("127.0.0.1", "localhost"), &client_certificate));
        // The server refuses a client without a certificate, and the client refuses a certificate of an unknown authority.
        assert_eq!(failure(&trusted), Degradation::Unreachable);
        assert_eq!(failure(&with(&server.url(), &client_certificate)), Degradation::Unreachable);
        let dir = tempdir().unwrap();
        let other = Certificates::generate(dir.path());
        let other_authority = with(&server.url(), &format!("tls_ca={}", other.ca.display()));
        assert_eq!(failure(&with(&other_authority, &client_certificate)), Degradation::Unreachable);
        let other_name = with(&trusted, "tls_server_name=elsewhere.example");
        assert_eq!(failure(&with(&other_name, &client_certificate)), Degradation::Unreachable);
    }
}

#[test]
fn server_without_client_certificates_is_reached_over_tls_only() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let ca = server.certificates().unwrap().ca.display().to_string();
    assert_decides(&with(&server.url(), &format!("tls_ca={ca}")));
    // A plain connection to a TLS port fails, and TLS to a plain port.
    assert_eq!(failure(&server.url().replace("rediss", "redis")), Degradation::Unreachable);
    let plain = Server::start(Kind::Redis, &[]);
    let url = with(&plain.url().replace("redis:", "rediss:"), &format!("tls_ca={ca}"));
    assert_eq!(failure(&url), Degradation::Unreachable);
}

#[test]
fn wrong_password_or_user_is_reported_as_auth() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::options(kind).password("word").start();
        assert_decides(&server.url());
        assert_eq!(failure(&server.url().replace("word", "other")), Degradation::Auth);
        assert_eq!(failure(&server.url().replace(":word@", "")), Degradation::Auth);
        let server = Server::options(kind).user("limits", "word").start();
        assert!(server.url().contains("limits:word@"));
        assert_decides(&server.url());
        assert_eq!(failure(&server.url().replace("limits", "other")), Degradation::Auth);
        assert_eq!(failure(&server.url().replace("limits:word@", "")), Degradation::Auth);
    }
}

#[test]
fn started_event_and_ready_name_the_cause_as_the_doctor_does() {
    let _shared = shared();
    let tls = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let guarded = Server::options(Kind::Redis).password("word").start();
    let restricted =
        Server::start(Kind::Redis, &["user limits on >word ~* &* +@all -eval -evalsha", "user default off"]);
    let restricted = format!("redis://limits:word@127.0.0.1:{}", restricted.port());
    let nowhere = Server::options(Kind::Redis).reserve();
    for (url, cause) in [
        (tls.url(), "its certificate is not trusted"),
        (guarded.url().replace("word", "other"), "refuses the user or the password"),
        (restricted, "the user needs"),
        (nowhere.url(), "see that it runs"),
    ] {
        let limiter = limiter(&with(&url, "deadline=300ms&prefix=shop"), QUOTAS);
        let _ = runtime().block_on(limiter.check("user")).unwrap();
        let events = limiter.take_events();
        let [started] = &events[..] else { panic!("{url}: {events:?}") };
        assert!(started.cause().is_some_and(|named| named.contains(cause)), "{url}: {started}");
        // A program with several limiters sees which one it is, and no secret.
        let store = started.store().unwrap();
        assert!(store.starts_with("127.0.0.1:") && store.ends_with(", prefix shop"), "{started:?}");
        assert!(started.to_string().ends_with(&format!(" [{store}]")), "{started}");
        let ready = runtime().block_on(limiter.ready(Duration::from_secs(2))).unwrap_err().to_string();
        assert!(ready.contains(cause), "{url}: {ready}");
        for secret in ["other", "word@"] {
            assert!(!started.to_string().contains(secret) && !ready.contains(secret), "{started} {ready}");
        }
    }
}

#[test]
fn escaped_characters_in_credentials_are_decoded() {
    let _shared = shared();
    let server =
        Server::start(Kind::Redis, &["user l@mits on >p@ss/w:rd%#? ~* &* +@all", "user default off"]);
    let url = format!("redis://l%40mits:p%40ss%2Fw%3Ard%25%23%3F@127.0.0.1:{}", server.port());
    assert_decides(&url);
}

#[test]
fn database_is_selected_by_path_or_parameter() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    assert_decides(&format!("{}/3", server.url()));
    assert_decides(&with(&server.url(), "db=5"));
    assert_decides(&server.url());
    let keyspace: String = server.query(&["INFO", "keyspace"]);
    for db in ["db0:keys=1", "db3:keys=1", "db5:keys=1"] {
        assert!(keyspace.contains(db), "{keyspace}");
    }
    assert_eq!(failure(&with(&server.url(), "db=99")), Degradation::Refused);
}

#[test]
fn connection_has_the_configured_client_name_and_ends_with_its_runtime() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        for (parameter, name) in [("db=0", "polylimit"), ("client_name=shop-7", "shop-7")] {
            // A connection lives as long as the runtime that uses it.
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
fn sentinels_and_servers_have_passwords_of_their_own() {
    let _shared = shared();
    let sentinels = Sentinels::start_with_passwords(Kind::Redis, Some("data"), Some("watch"));
    assert_decides(&sentinels.url());
    assert_eq!(failure(&sentinels.url().replace("watch", "other")), Degradation::Auth);
    assert_eq!(failure(&sentinels.url().replace("?sentinel_password=watch", "")), Degradation::Auth);
    assert_eq!(failure(&sentinels.url().replace(":data@", ":other@")), Degradation::Auth);
    assert_eq!(failure(&sentinels.url().replace("/main/", "/other/")), Degradation::Unreachable);
}

#[test]
fn new_password_is_used_for_new_connections() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).password("old").start();
    let limiter = limiter(&with(&server.url(), "deadline=1s"), QUOTAS);
    let runtime = runtime();
    let source = || runtime.block_on(limiter.check("user")).unwrap().source();
    assert_eq!(source(), Source::Store);
    server.command(&["CONFIG", "SET", "requirepass", "new"]);
    limiter.set_credentials(None, "new").unwrap();
    server.command(&["CLIENT", "KILL", "USER", "default"]);
    until("the new password is accepted", Duration::from_secs(5), || {
        (source() == Source::Store).then_some(())
    });
}

/// The limiter replaces such a connection before it sends anything over it.
#[test]
fn idle_connection_closed_by_the_server_degrades_no_decision() {
    let _shared = shared();
    let idle = ["timeout 1"];
    for server in [
        Server::start(Kind::Redis, &idle),
        Server::options(Kind::Redis).lines(&idle).tls(ClientCertificates::Ignored).start(),
    ] {
        let url = match server.certificates() {
            Some(certificates) => with(&server.url(), &format!("tls_ca={}", certificates.ca.display())),
            None => server.url(),
        };
        // No thread drives the connection between blocking calls.
        let limiter = limiter(&with(&url, "deadline=2s"), QUOTAS);
        for _ in 0..2 {
            assert_from_store(&limiter.blocking().check("user").unwrap());
            until("the server closes the connection", Duration::from_secs(10), || {
                let list: String = server.query(&["CLIENT", "LIST"]);
                (!list.contains(" name=polylimit ")).then_some(())
            });
        }
    }
}
