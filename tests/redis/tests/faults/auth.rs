//! The password is changed, or the user removed, while the store is in use.

use std::thread::sleep;
use std::time::Duration;

use polylimit::{Degradation, Limiter, Outage, Source};
use polylimit_redis_tests::{COUNTING, Load, held, limiter, options};
use polylimit_test_servers::{Kind, Server};

const DEADLINE: Duration = Duration::from_millis(50);
const OLD: &str = "0ld-passw0rd-of-the-store";
const NEW: &str = "n3w-passw0rd-of-the-store";
const USER: &str = "limits-user-name";

/// Asks while the credentials no longer hold, and while new ones do.
fn change(server: &Server, limiter: &Limiter, invalidate: impl FnOnce(), renew: impl FnOnce()) {
    let load = Load::on(limiter, 4);
    let (story, (from, to)) = load.run(Duration::from_millis(1_400), |start| {
        sleep(Duration::from_millis(150));
        invalidate();
        sleep(Duration::from_millis(150));
        let from = start.elapsed();
        sleep(Duration::from_millis(200));
        check_secrecy(limiter);
        let to = start.elapsed();
        renew();
        (from, to)
    });
    story.assert_in_time(DEADLINE);
    story.assert_explained();
    let during: Vec<_> =
        story.asked.iter().filter(|asked| asked.at() > from && asked.at() + asked.took() < to).collect();
    assert!(during.len() > 100, "{}", story.told());
    for asked in during {
        let told = (asked.source, asked.degraded, asked.allowed);
        assert_eq!(told, (Source::Deny, Some(Degradation::Auth), false), "{}", story.told());
    }
    let back = story.back_after(to);
    assert!(back < to + Duration::from_millis(400) + story.noise, "{back:?} {to:?} {}", story.told());
    let counters = limiter.stats();
    let held =
        held(&format!("redis+unix://harness:harness@{}", server.socket().display()), COUNTING, load.keys());
    let admitted = story.admitted_by_store();
    assert!((admitted..=admitted + counters.unknown).contains(&held), "{held} {counters:?} {}", story.told());
}

/// Nothing that is said of the trouble holds a secret.
fn check_secrecy(limiter: &Limiter) {
    let ready = limiter.blocking().ready(Duration::from_millis(1)).unwrap_err();
    let doctor = limiter.blocking().doctor().unwrap();
    let told = format!("{ready} {ready:?} {doctor:?} {limiter:?} {:?}", limiter.stats());
    assert!(ready.to_string().contains("auth") && format!("{doctor:?}").contains("password"), "{told}");
    for secret in [OLD, NEW, USER] {
        assert!(!told.contains(secret), "{told}");
    }
}

#[test]
fn the_password_is_changed() {
    for kind in Kind::ALL {
        let server = Server::options(kind).password(OLD).start();
        let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTING, Outage::Deny);
        let invalidate = || {
            server.command(&["CONFIG", "SET", "requirepass", NEW]);
            // Who is in stays in until the connection ends.
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        };
        change(&server, &limiter, invalidate, || limiter.set_credentials(None, NEW).unwrap());
    }
}

#[test]
fn the_user_is_removed() {
    let server = Server::options(Kind::Redis).user(USER, OLD).start();
    let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTING, Outage::Deny);
    let invalidate = || drop(server.command(&["ACL", "DELUSER", USER]));
    let renew = || {
        server.command(&["ACL", "SETUSER", USER, "on", &format!(">{NEW}"), "~*", "&*", "+@all"]);
        limiter.set_credentials(Some(USER), NEW).unwrap();
    };
    change(&server, &limiter, invalidate, renew);
}

/// A user that lacks a right is refused as well, and said to be.
#[test]
fn a_right_is_taken_away() {
    let server = Server::options(Kind::Valkey).user(USER, OLD).start();
    let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTING, Outage::Deny);
    let invalidate = || drop(server.command(&["ACL", "SETUSER", USER, "-evalsha", "-eval"]));
    let load = Load::on(&limiter, 1);
    let (story, from) = load.run(Duration::from_millis(500), |start| {
        sleep(Duration::from_millis(100));
        invalidate();
        sleep(Duration::from_millis(50));
        start.elapsed()
    });
    story.assert_in_time(DEADLINE);
    let after: Vec<_> = story.asked.iter().filter(|asked| asked.at() > from).collect();
    assert!(after.len() > 50, "{}", story.told());
    assert!(after.iter().all(|asked| asked.degraded == Some(Degradation::Auth)), "{}", story.told());
    let findings = limiter.blocking().doctor().unwrap();
    let told = format!("{findings:?}");
    assert!(told.contains("+evalsha") && ![OLD, USER].iter().any(|secret| told.contains(secret)), "{told}");
}
