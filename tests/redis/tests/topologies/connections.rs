//! Ways to connect to a server: URL schemes, certificates, passwords, users, databases and connection names.

use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::admin::Severity;
use polylimit::decision::{Degradation, Source};
use polylimit::redis::Credentials;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy};
use polylimit_redis_tests::{assert_from_store, with};
use polylimit_test_servers::{
    Certificates, ClientCertificates, Dataset, FaultProxy, Kind, Sentinels, Server, until,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
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

fn line(name: &str, path: &Path) -> String {
    format!("{name} {}", path.display())
}

/// A server with a certificate that is not that of the harness.
fn server_with(certificate: &Path, key: &Path) -> Server {
    let lines = [line("tls-cert-file", certificate), line("tls-key-file", key)];
    let lines = lines.each_ref().map(String::as_str);
    Server::options(Kind::Redis).tls(ClientCertificates::Ignored).lines(&lines).start()
}

#[test]
fn self_signed_certificate_is_trusted_as_an_authority_and_by_its_fingerprint() {
    let _shared = shared();
    let dir = tempdir().unwrap();
    let (certificate, key) = Certificates::self_signed(dir.path());
    let server = server_with(&certificate, &key);
    let (url, ca) = (server.url(), certificate.display());
    let der = CertificateDer::from_pem_file(&certificate).unwrap();
    let bytes = Sha256::digest(&der);
    let fingerprint = bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":");
    assert_decides(&with(&url, &format!("tls_ca={ca}")));
    // The certificate is the server's own: its name does not matter.
    assert_decides(&with(&url, &format!("tls_ca={ca}&tls_server_name=elsewhere.example")));
    assert_decides(&with(&url, &format!("tls_fingerprint={fingerprint}")));
    let other = "ab".repeat(32);
    assert_decides(&with(&url, &format!("tls_fingerprint={other},{fingerprint}")));
    for parameter in [format!("tls_fingerprint={other}"), "db=0".to_owned()] {
        assert_eq!(failure(&with(&url, &parameter)), Degradation::Unreachable);
    }
}

#[test]
fn server_that_is_not_verified_is_reported_when_the_limiter_is_made_and_by_the_doctor() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let limiter = limiter(&with(&server.url(), "tls_insecure=true&deadline=2s"), QUOTAS);
    let events = limiter.raw().take_events();
    let [warning] = &events[..] else { panic!("{events:?}") };
    assert!(warning.to_string().contains("tls_insecure is set, so any certificate is accepted"), "{warning}");
    assert_from_store(&runtime().block_on(limiter.check("user")).unwrap());
    let findings = runtime().block_on(limiter.admin().doctor()).unwrap();
    assert!(findings.iter().any(|finding| finding.subject == "tls" && finding.severity >= Severity::Problem));
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
    let dir = tempdir().unwrap();
    let [old_ca, certificate, key] = Certificates::expired(dir.path(), (2020, 2, 3));
    let expired = server_with(&certificate, &key);
    let protocol = ["tls-protocols TLSv1.1", "tls-ciphers DEFAULT:@SECLEVEL=0"];
    let ancient = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).lines(&protocol).reserve();
    ancient.launch(Dataset::Empty);
    let demanding = Server::options(Kind::Redis).tls(ClientCertificates::Required).start();
    let trusted = |server: &Server, more: &str| {
        let ca = server.certificates().unwrap().ca.display().to_string();
        with(&server.url(), &format!("tls_ca={ca}{more}"))
    };
    for (url, cause) in [
        (
            with(&expired.url(), &format!("tls_ca={}", old_ca.display())),
            "has expired, on 2020-02-03T00:00:00Z",
        ),
        (trusted(&tls, "&tls_server_name=elsewhere.example"), "localhost, not for elsewhere.example"),
        (with(&tls.url(), &format!("tls_fingerprint={}", "ab".repeat(32))), "has another fingerprint"),
        (tls.url().replace("rediss", "redis"), "write rediss:// in the URL"),
        (guarded.url().replace("redis://", "rediss://"), "write redis:// in the URL"),
        (trusted(&ancient, ""), "no version of TLS in common"),
        (trusted(&demanding, ""), "by tls_cert and tls_key"),
        (tls.url(), "its certificate is not trusted"),
        (guarded.url().replace("word", "sesame"), "refuses the user or the password"),
        (restricted, "the user needs"),
        (nowhere.url(), "see that it runs"),
    ] {
        let limiter = limiter(&with(&url, "deadline=300ms&prefix=shop"), QUOTAS);
        let _ = runtime().block_on(limiter.check("user")).unwrap();
        let events = limiter.raw().take_events();
        let [started] = &events[..] else { panic!("{url}: {events:?}") };
        assert!(started.cause().is_some_and(|named| named.contains(cause)), "{url}: {started}");
        // A program with several limiters sees which one it is, and no secret.
        let store = started.store().unwrap();
        assert!(store.starts_with("127.0.0.1:") && store.ends_with(", prefix shop"), "{started:?}");
        assert!(started.to_string().ends_with(&format!(" [{store}]")), "{started}");
        let ready = runtime().block_on(limiter.ready(Duration::from_secs(2))).unwrap_err().to_string();
        assert!(ready.contains(cause), "{url}: {ready}");
        let findings = runtime().block_on(limiter.admin().doctor()).unwrap();
        assert!(findings.iter().any(|finding| finding.message.contains(cause)), "{url}: {findings:?}");
        for secret in ["sesame", "word@"] {
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
    limiter.admin().set_credentials(None, "new").unwrap();
    server.command(&["CLIENT", "KILL", "USER", "default"]);
    until("the new password is accepted", Duration::from_secs(5), || {
        (source() == Source::Store).then_some(())
    });
}

/// A limiter whose password comes from a file: by the store, by a program, or by a function of the program.
fn limiters_of_a_file(port: u16, file: &Path) -> Vec<Limiter> {
    let url = format!("redis://127.0.0.1:{port}?deadline=5s&doctor_after=0&denial_cache_max=0");
    let builder = |url: &str| {
        let policy = Policy::parse("p", "1000/hour").unwrap();
        Limiter::builder().store(url).policy(policy).outage("p", Outage::Deny)
    };
    let (named, path) = (with(&url, "username=limits"), file.to_owned());
    let password = move || std::fs::read_to_string(&path);
    let function = move || Ok::<_, std::io::Error>(Credentials::new(Some("limits"), password()?.trim()));
    let file = file.display();
    vec![
        builder(&with(&named, &format!("password_file={file}"))).build().unwrap(),
        builder(&with(&named, &format!("password_command=cat%20{file}"))).build().unwrap(),
        builder(&url).credentials(function).build().unwrap(),
    ]
}

#[test]
fn changed_password_is_read_again_and_degrades_no_decision() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).user("limits", "old").start();
    let dir = tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "old").unwrap();
    let (limiters, runtime) = (limiters_of_a_file(server.port(), &file), runtime());
    let all_decide = || {
        for limiter in &limiters {
            assert_from_store(&runtime.block_on(limiter.check("user")).unwrap());
            assert_from_store(&limiter.blocking().check("user").unwrap());
        }
    };
    let end_connections = || {
        server.command(&["CLIENT", "KILL", "USER", "limits"]);
        // The end arrives, and the connections have been silent for longer than busy ones are.
        sleep(Duration::from_millis(20));
    };
    all_decide();
    for (old, new) in [("old", "new"), ("new", "newer"), ("newer", "newest")] {
        server.command(&["ACL", "SETUSER", "limits", &format!(">{new}")]);
        end_connections();
        all_decide();
        std::fs::write(&file, format!("{new}\n")).unwrap();
        server.command(&["ACL", "SETUSER", "limits", &format!("<{old}")]);
        all_decide();
        end_connections();
        all_decide();
    }
    for limiter in &limiters {
        assert_eq!(limiter.stats().permanent, 0);
    }
}

/// Sentinels get a new password one after the other, and the limiters find a new primary by it alone.
#[test]
fn changed_password_of_sentinels_is_read_again_for_each_of_them() {
    let _shared = shared();
    let sentinels = Sentinels::start_with_passwords(Kind::Redis, None, Some("old"));
    let dir = tempdir().unwrap();
    let file = dir.path().join("password");
    let url = sentinels.url().replace("?sentinel_password=old", "");
    // Limiters with other names share no connection.
    let by = |option: &str, name: &str| {
        let option = format!("sentinel_password_{option}{}&client_name={name}", file.display());
        limiter(&with(&with(&url, &option), "deadline=5s&denial_cache_max=0"), QUOTAS)
    };
    let (runtime, make_all) = (runtime(), |name| ["file=", "command=cat%20"].map(|option| by(option, name)));
    let source = |limiter: &Limiter| runtime.block_on(limiter.check("user")).unwrap().source();
    let set_password = |i: usize, rule: &str| {
        sentinels.sentinel(i).command(&["ACL", "SETUSER", "default", rule]);
    };
    std::fs::write(&file, "old").unwrap();
    let limiters = make_all("first");
    for limiter in &limiters {
        assert_eq!(source(limiter), Source::Store);
    }
    // The first sentinel refuses what the others accept.
    set_password(0, "<old");
    for limiter in make_all("second") {
        assert_eq!(source(&limiter), Source::Store);
    }
    (0..3).for_each(|i| set_password(i, ">new"));
    std::fs::write(&file, "new\n").unwrap();
    (1..3).for_each(|i| set_password(i, "<old"));
    let new = sentinels.planned_failover();
    until("the old primary follows", Duration::from_secs(20), || {
        (sentinels.server(1 - new).info("role") == "slave").then_some(())
    });
    for limiter in &limiters {
        until("the new primary decides", Duration::from_secs(30), || {
            (source(limiter) == Source::Store).then_some(())
        });
    }
    std::fs::write(&file, "wr0ng-hidden").unwrap();
    for (limiter, cause) in make_all("third")
        .iter()
        .zip(["sentinel_password_file /", "the program of sentinel_password_command gives"])
    {
        let ready = runtime.block_on(limiter.ready(Duration::from_secs(1))).unwrap_err().to_string();
        assert!(ready.contains(&format!("refuses the user or the password that {cause}")), "{ready}");
        assert!(!ready.contains("hidden"), "{ready}");
    }
}

#[test]
fn refused_password_of_a_source_is_named_and_seldom_sent_until_another_is_there() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).user("limits", "right").start();
    let dir = tempdir().unwrap();
    let file = dir.path().join("password");
    let causes = [
        "refuses the user or the password that password_file",
        "refuses the user or the password that the program of password_command gives",
        "refuses the user or the password that the function credentials gives",
    ];
    let (runtime, proxy) = (runtime(), FaultProxy::start(server.address()));
    for (limiter, cause) in limiters_of_a_file(proxy.port(), &file).iter().zip(causes) {
        std::fs::write(&file, "wr0ng-hidden").unwrap();
        let before = proxy.commands("AUTH");
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            let decision = runtime.block_on(limiter.check("user")).unwrap();
            assert_eq!(decision.degraded(), Some(Degradation::Auth), "{decision:?}");
        }
        // Two connections at most, each after a pause of 0.25 s and more; without pauses there are dozens.
        let sent = proxy.commands("AUTH") - before;
        assert!((1..=8).contains(&sent), "{cause}: {sent} attempts");
        let ready = runtime.block_on(limiter.ready(Duration::from_millis(200))).unwrap_err().to_string();
        let [started] = &limiter.raw().take_events()[..] else { panic!("{ready}") };
        let findings = format!("{:?}", runtime.block_on(limiter.admin().doctor()).unwrap());
        for text in [&ready, &started.to_string(), &findings] {
            assert!(text.contains(cause) && !text.contains("hidden"), "{text}");
        }
        std::fs::write(&file, "right").unwrap();
        until("the right password is used", Duration::from_secs(30), || {
            (runtime.block_on(limiter.check("user")).unwrap().source() == Source::Store).then_some(())
        });
    }
}

/// The function is called on a thread of its own, and decisions do not wait for it for longer than for the server.
#[test]
fn function_that_blocks_or_fails_leaves_decisions_their_deadline() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).user("limits", "right").start();
    let url = format!("redis://127.0.0.1:{}?deadline=50ms&doctor_after=0&first_connect_max=0", server.port());
    let limiter = |give: Box<dyn Fn() -> Result<Credentials, String> + Send + Sync>| {
        let policy = Policy::parse("p", "1000/hour").unwrap();
        Limiter::builder()
            .store(&url)
            .policy(policy)
            .outage("p", Outage::Deny)
            .credentials(give)
            .build()
            .unwrap()
    };
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let blocks = limiter(Box::new(move || {
        let _ = released.lock().unwrap().recv();
        Ok(Credentials::new(Some("limits"), "right"))
    }));
    for _ in 0..10 {
        let decision = blocks.blocking().check("user").unwrap();
        assert_eq!(decision.source(), Source::Deny, "{decision:?}");
    }
    drop(release);
    until("the function has returned", Duration::from_secs(30), || {
        (blocks.blocking().check("user").unwrap().source() == Source::Store).then_some(())
    });
    let fails = limiter(Box::new(|| Err("the token service is away".to_owned())));
    let decision = fails.blocking().check("user").unwrap();
    assert_eq!(decision.degraded(), Some(Degradation::Auth), "{decision:?}");
    let ready = fails.blocking().ready(Duration::from_millis(200)).unwrap_err().to_string();
    assert!(
        ready.contains("the function credentials gives no password: the token service is away"),
        "{ready}"
    );
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
