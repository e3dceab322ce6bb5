//! A server that answers with an error: it is out of memory, busy, loading or full, or no longer accepts the credentials.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::Limiter;
use polylimit::decision::{Degradation, Source};
use polylimit::storage::Outage;
use polylimit_redis_tests::{
    COUNTER_QUOTA, Load, LoadReport, check, limiter, options, repeated_if_noisy, stored_units,
    total_stored_units,
};
use polylimit_test_servers::{Dataset, Kind, Server, until};

const DEADLINE: Duration = Duration::from_millis(50);
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time for which the circuit breaker stays open, and some slack.
const RECOVERY: Duration = Duration::from_millis(900);

/// Within `from` and `to` the server certainly refused. From `restored` on it served again.
struct Refusal {
    from: Duration,
    to: Duration,
    restored: Duration,
}

/// Runs a load while the server begins to refuse and serves again, and checks all decisions.
fn run_refusal(
    row: &str,
    server: &Server,
    reason: Degradation,
    outage: Outage,
    refuse: impl FnOnce(&Server),
    serve: impl FnOnce(&Server),
) -> LoadReport {
    let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTER_QUOTA, outage);
    let load = Load::new(&limiter, 4);
    let (report, refusal) = load.run(Duration::ZERO, |start| {
        sleep(Duration::from_millis(200));
        refuse(server);
        let from = start.elapsed();
        sleep(Duration::from_millis(300));
        let to = start.elapsed();
        serve(server);
        let restored = start.elapsed();
        sleep(RECOVERY);
        Refusal { from, to, restored }
    });
    let recovered = assert_refused(&report, reason, outage, &refusal);
    let stored = assert_stored(&limiter, server, &report, &load);
    report
        .row(row, format!("{:?}, outage policy {outage:?}", server.kind()), DEADLINE)
        .stored(stored, report.admitted_by_store())
        .unknown(limiter.stats().unknown)
        .recovered(recovered)
        .measured(format!("{} decisions with the reason {}", report.with_reason(reason), reason.name()))
        .record();
    report
}

/// While the server refuses, the outage policy answers with that reason. The store answers before, and again soon after.
/// Returns how soon.
fn assert_refused(report: &LoadReport, reason: Degradation, outage: Outage, refusal: &Refusal) -> Duration {
    report.assert_deadlines(DEADLINE);
    report.assert_reasons();
    let before = report.count(|seen| seen.is_healthy() && seen.at() < refusal.from);
    let during = report.between(refusal.from, refusal.to);
    assert!(before > 50 && during.len() > 100, "{before} {} {}", during.len(), report.summary());
    let (all, mut others) = (during.len(), 0);
    for seen in during {
        assert_eq!(
            (seen.source, seen.allowed),
            (source(outage), outage != Outage::Deny),
            "{}",
            report.summary()
        );
        others += usize::from(seen.degraded != Some(reason));
    }
    // On a busy machine the server itself may miss the deadline.
    assert!(others == 0 || others < all / 20 && report.noise > DEADLINE / 2, "{others} {}", report.summary());
    let recovered = report.recovered_at(refusal.restored);
    assert!(recovered < refusal.restored + RECOVERY + report.noise, "{recovered:?} {}", report.summary());
    recovered.saturating_sub(refusal.restored)
}

/// Refused operations were not applied. Returns the units that the server has stored.
fn assert_stored(limiter: &Limiter, server: &Server, report: &LoadReport, load: &Load) -> u64 {
    let stored = total_stored_units(&server.url(), COUNTER_QUOTA, load.keys());
    report.assert_stored(stored, limiter.stats().unknown);
    stored
}

fn source(outage: Outage) -> Source {
    match outage {
        Outage::Allow => Source::Allow,
        Outage::Deny => Source::Deny,
        _ => Source::Fallback,
    }
}

fn set(server: &Server, name: &str, value: &str) {
    server.command(&["CONFIG", "SET", name, value]);
}

#[test]
fn server_out_of_memory_is_reported_as_out_of_memory() {
    repeated_if_noisy(|| {
        for (kind, outage) in [(Kind::Redis, Outage::Fallback), (Kind::Valkey, Outage::Deny)] {
            let server = Server::start(kind, &["maxmemory-policy noeviction"]);
            let refuse = |server: &Server| set(server, "maxmemory", "1");
            let serve = |server: &Server| set(server, "maxmemory", "0");
            let report = run_refusal("F10", &server, Degradation::OutOfMemory, outage, refuse, serve);
            assert_eq!(report.with_reason(Degradation::Refused), 0, "{}", report.summary());
        }
    });
}

#[test]
fn missing_replicas_are_reported_as_no_replicas() {
    repeated_if_noisy(|| {
        let server = Server::start(Kind::Valkey, &[]);
        let refuse = |server: &Server| set(server, "min-replicas-to-write", "1");
        let serve = |server: &Server| set(server, "min-replicas-to-write", "0");
        run_refusal("F13", &server, Degradation::NoReplicas, Outage::Allow, refuse, serve);
    });
}

/// The server cannot save, since a folder is in the place of its file.
#[test]
fn failed_save_to_disk_is_reported_as_misconfigured() {
    repeated_if_noisy(|| {
        let server = Server::start(Kind::Redis, &["save 3600 1000000000"]);
        let file = server.dir().join("dump.rdb");
        let saved = |server: &Server, status: &str| {
            server.command(&["BGSAVE"]);
            until("the save ends", TIMEOUT, || {
                let ended = server.info("rdb_bgsave_in_progress") == "0";
                (ended && server.info("rdb_last_bgsave_status") == status).then_some(())
            });
        };
        let refuse = |server: &Server| {
            fs::create_dir_all(file.join("obstacle")).unwrap();
            saved(server, "err");
        };
        let serve = |server: &Server| {
            fs::remove_dir_all(&file).unwrap();
            saved(server, "ok");
        };
        run_refusal("F12", &server, Degradation::Misconfigured, Outage::Fallback, refuse, serve);
    });
}

/// The script of another client does not end.
#[test]
fn endless_script_of_another_client_is_reported_as_busy() {
    repeated_if_noisy(|| {
        for (kind, outage) in [(Kind::Redis, Outage::Deny), (Kind::Valkey, Outage::Fallback)] {
            let server = Server::start(kind, &["busy-reply-threshold 30"]);
            let mut other_client = TcpStream::connect(server.address()).unwrap();
            let refuse = |_: &Server| {
                let script = "while true do end";
                write!(other_client, "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len())
                    .unwrap();
                // Until the threshold the server does not reply at all.
                sleep(Duration::from_millis(250));
            };
            let serve = |server: &Server| drop(server.command(&["SCRIPT", "KILL"]));
            run_refusal("F9", &server, Degradation::Busy, outage, refuse, serve);
        }
    });
}

/// A restarted server loads its data first.
#[test]
fn loading_server_is_reported_as_loading() {
    repeated_if_noisy(|| {
        let lines = ["key-load-delay 500", "loading-process-events-interval-bytes 1024"];
        let server = Server::start(Kind::Redis, &lines);
        for i in 0..2_000 {
            server.command(&["SET", &format!("filler{i}"), "x"]);
        }
        let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTER_QUOTA, Outage::Deny);
        let load = Load::new(&limiter, 4);
        let (report, refusal) = load.run(Duration::ZERO, |start| {
            sleep(Duration::from_millis(200));
            server.launch(Dataset::Kept);
            // The limiter reconnects as soon as the server listens.
            sleep(Duration::from_millis(400));
            let from = start.elapsed();
            sleep(Duration::from_millis(200));
            let to = start.elapsed();
            assert!(!server.answers(), "the server has already loaded its data");
            server.wait_until_ready();
            let restored = start.elapsed();
            sleep(RECOVERY);
            Refusal { from, to, restored }
        });
        let recovered = assert_refused(&report, Degradation::Loading, Outage::Deny, &refusal);
        // Operations after the last save are lost.
        let most = report.admitted_by_store() + limiter.stats().unknown;
        let stored = total_stored_units(&server.url(), COUNTER_QUOTA, load.keys());
        assert!((1..=most).contains(&stored), "{stored} {}", report.summary());
        report
            .row("F8", "restarted with 2,000 other keys to load", DEADLINE)
            .unknown(limiter.stats().unknown)
            .recovered(recovered)
            .measured(format!(
                "{} decisions with the reason loading",
                report.with_reason(Degradation::Loading)
            ))
            .record();
    });
}

/// Other clients hold all connections that the server allows.
#[test]
fn exhausted_client_limit_is_reported_as_max_clients() {
    repeated_if_noisy(|| {
        for kind in Kind::ALL {
            let server = Server::start(kind, &["maxclients 16"]);
            let others: Vec<TcpStream> =
                (0..20).map(|_| TcpStream::connect(server.address()).unwrap()).filter(is_accepted).collect();
            let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTER_QUOTA, Outage::Deny);
            let load = Load::new(&limiter, 1);
            let (report, restored) = load.run(Duration::from_millis(900), |start| {
                sleep(Duration::from_millis(400));
                let restored = start.elapsed();
                drop(others);
                restored
            });
            let recovered = assert_max_clients(&report, restored);
            let stored = assert_stored(&limiter, &server, &report, &load);
            assert_eq!(check(&limiter, "k0").degraded(), None);
            assert!(stored_units(&server.url(), COUNTER_QUOTA, "k0") > 0);
            report
                .row("F14", format!("{kind:?}"), DEADLINE)
                .stored(stored, report.admitted_by_store())
                .unknown(limiter.stats().unknown)
                .recovered(recovered)
                .record();
        }
    });
}

fn assert_max_clients(report: &LoadReport, restored: Duration) -> Duration {
    report.assert_deadlines(DEADLINE);
    report.assert_reasons();
    let before = report.between(Duration::ZERO, restored);
    assert!(before.len() > 50, "{}", report.summary());
    for seen in before {
        let actual = (seen.source, seen.degraded, seen.allowed);
        assert_eq!(actual, (Source::Deny, Some(Degradation::MaxClients), false), "{}", report.summary());
    }
    let recovered = report.recovered_at(restored);
    assert!(
        recovered < restored + Duration::from_millis(300) + report.noise,
        "{recovered:?} {restored:?} {}",
        report.summary()
    );
    recovered.saturating_sub(restored)
}

fn is_accepted(client: &TcpStream) -> bool {
    let (mut client, start) = (client, Instant::now());
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut sign = [0];
    let replied = client.write_all(b"PING\r\n").is_ok() && client.read_exact(&mut sign).is_ok();
    assert!(start.elapsed() < TIMEOUT);
    replied && sign == *b"+"
}

const OLD_PASSWORD: &str = "0ld-passw0rd-of-the-store";
const NEW_PASSWORD: &str = "n3w-passw0rd-of-the-store";
const USER: &str = "limits-user-name";

/// Runs a load while the credentials are invalid, and after the limiter is given new ones.
fn change_credentials(
    case: &str,
    server: &Server,
    limiter: &Limiter,
    invalidate: impl FnOnce(),
    renew: impl FnOnce(),
) {
    let load = Load::new(limiter, 4);
    let (report, (from, to)) = load.run(Duration::from_millis(1_400), |start| {
        sleep(Duration::from_millis(150));
        invalidate();
        sleep(Duration::from_millis(150));
        let from = start.elapsed();
        sleep(Duration::from_millis(200));
        assert_no_secrets(limiter);
        let to = start.elapsed();
        renew();
        (from, to)
    });
    report.assert_deadlines(DEADLINE);
    report.assert_reasons();
    let during = report.between(from, to);
    assert!(during.len() > 100, "{}", report.summary());
    for seen in during {
        let actual = (seen.source, seen.degraded, seen.allowed);
        assert_eq!(actual, (Source::Deny, Some(Degradation::Auth), false), "{}", report.summary());
    }
    let recovered = report.recovered_at(to);
    assert!(
        recovered < to + Duration::from_millis(400) + report.noise,
        "{recovered:?} {to:?} {}",
        report.summary()
    );
    let url = format!("redis+unix://harness:harness@{}", server.socket().display());
    let (stored, unknown) = (total_stored_units(&url, COUNTER_QUOTA, load.keys()), limiter.stats().unknown);
    report.assert_stored(stored, unknown);
    report
        .row("F15", format!("{:?}, {case}", server.kind()), DEADLINE)
        .stored(stored, report.admitted_by_store())
        .unknown(unknown)
        .recovered(recovered.saturating_sub(to))
        .record();
}

/// `ready` does not wait for a server that refuses the credentials, and says what the doctor says. No message contains a secret.
fn assert_no_secrets(limiter: &Limiter) {
    let start = std::time::Instant::now();
    let ready = limiter.blocking().ready(Duration::from_secs(600)).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(60), "{ready} after {:?}", start.elapsed());
    assert!(ready.to_string().contains("password"), "{ready}");
    let doctor = limiter.blocking().admin().doctor().unwrap();
    let texts = format!("{ready} {ready:?} {doctor:?} {limiter:?} {:?}", limiter.stats());
    assert!(ready.to_string().contains("auth") && format!("{doctor:?}").contains("password"), "{texts}");
    for secret in [OLD_PASSWORD, NEW_PASSWORD, USER] {
        assert!(!texts.contains(secret), "{texts}");
    }
}

#[test]
fn changed_password_is_reported_as_auth_until_the_limiter_has_it() {
    repeated_if_noisy(|| {
        for kind in Kind::ALL {
            let server = Server::options(kind).password(OLD_PASSWORD).start();
            let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTER_QUOTA, Outage::Deny);
            let invalidate = || {
                server.command(&["CONFIG", "SET", "requirepass", NEW_PASSWORD]);
                // Open connections stay authenticated.
                server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            };
            change_credentials("password changed", &server, &limiter, invalidate, || {
                limiter.admin().set_credentials(None, NEW_PASSWORD).unwrap();
            });
        }
    });
}

#[test]
fn removed_user_is_reported_as_auth_until_the_limiter_has_another() {
    repeated_if_noisy(|| {
        let server = Server::options(Kind::Redis).user(USER, OLD_PASSWORD).start();
        let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTER_QUOTA, Outage::Deny);
        let invalidate = || drop(server.command(&["ACL", "DELUSER", USER]));
        let renew = || {
            server.command(&["ACL", "SETUSER", USER, "on", &format!(">{NEW_PASSWORD}"), "~*", "&*", "+@all"]);
            limiter.admin().set_credentials(Some(USER), NEW_PASSWORD).unwrap();
        };
        change_credentials("user removed", &server, &limiter, invalidate, renew);
    });
}

/// A missing permission is reported as `auth`, and the doctor names it.
#[test]
fn revoked_permission_is_reported_as_auth() {
    repeated_if_noisy(|| {
        let server = Server::options(Kind::Valkey).user(USER, OLD_PASSWORD).start();
        let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTER_QUOTA, Outage::Deny);
        let invalidate = || drop(server.command(&["ACL", "SETUSER", USER, "-evalsha", "-eval"]));
        let load = Load::new(&limiter, 1);
        let (report, from) = load.run(Duration::from_millis(500), |start| {
            sleep(Duration::from_millis(100));
            invalidate();
            sleep(Duration::from_millis(50));
            start.elapsed()
        });
        report.assert_deadlines(DEADLINE);
        let after: Vec<_> = report.observations.iter().filter(|seen| seen.at() > from).collect();
        assert!(after.len() > 50, "{}", report.summary());
        assert!(after.iter().all(|seen| seen.degraded == Some(Degradation::Auth)), "{}", report.summary());
        let findings = limiter.blocking().admin().doctor().unwrap();
        let texts = format!("{findings:?}");
        assert!(
            texts.contains("+evalsha") && ![OLD_PASSWORD, USER].iter().any(|secret| texts.contains(secret)),
            "{texts}"
        );
    });
}
