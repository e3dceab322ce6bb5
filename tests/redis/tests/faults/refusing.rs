//! A server that is there and refuses: it loads, is busy, or may not write.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::{Degradation, Limiter, Outage, Source};
use polylimit_redis_tests::{COUNTING, Load, Story, ask, held, limiter, options, used};
use polylimit_test_servers::{Dataset, Kind, Server, until};

const DEADLINE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(5);

/// For how long the breaker stays open at most, and a little.
const BACK_AFTER: Duration = Duration::from_millis(900);

/// When a server refused for sure, and from when on it restored again.
struct Refusal {
    from: Duration,
    to: Duration,
    restored: Duration,
}

/// Asks while a server begins to refuse and ends it.
fn ask_while(
    server: &Server,
    reason: Degradation,
    outage: Outage,
    refuse: impl FnOnce(&Server),
    serve: impl FnOnce(&Server),
) -> Story {
    let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTING, outage);
    let load = Load::on(&limiter, 4);
    let (story, refusal) = load.run(Duration::ZERO, |start| {
        sleep(Duration::from_millis(200));
        refuse(server);
        let from = start.elapsed();
        sleep(Duration::from_millis(300));
        let to = start.elapsed();
        serve(server);
        let restored = start.elapsed();
        sleep(BACK_AFTER);
        Refusal { from, to, restored }
    });
    check(&story, reason, outage, &refusal);
    check_held(&limiter, server, &story, &load);
    story
}

/// While the server refuses, all are answered by the outage policy and told that reason. Before, the store answers, and
/// soon after again.
fn check(story: &Story, reason: Degradation, outage: Outage, refusal: &Refusal) {
    story.assert_in_time(DEADLINE);
    story.assert_explained();
    let before = story.count(|asked| asked.is_sound() && asked.at() < refusal.from);
    let during: Vec<_> = story
        .asked
        .iter()
        .filter(|asked| asked.at() > refusal.from && asked.at() + asked.took() < refusal.to)
        .collect();
    assert!(before > 50 && during.len() > 100, "{before} {} {}", during.len(), story.told());
    let (all, mut others) = (during.len(), 0);
    for asked in during {
        assert_eq!(
            (asked.source, asked.allowed),
            (source(outage), outage != Outage::Deny),
            "{}",
            story.told()
        );
        others += usize::from(asked.degraded != Some(reason));
    }
    // On a busy machine the server itself may answer too late.
    assert!(others == 0 || others < all / 20 && story.noise > DEADLINE / 2, "{others} {}", story.told());
    let back = story.back_after(refusal.restored);
    assert!(back < refusal.restored + BACK_AFTER + story.noise, "{back:?} {}", story.told());
}

/// What was refused has not run.
fn check_held(limiter: &Limiter, server: &Server, story: &Story, load: &Load) {
    let counters = limiter.stats();
    let (held, admitted) = (held(&server.url(), COUNTING, load.keys()), story.admitted_by_store());
    assert!((admitted..=admitted + counters.unknown).contains(&held), "{held} {counters:?} {}", story.told());
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
fn out_of_memory() {
    for (kind, outage) in [(Kind::Redis, Outage::Fallback), (Kind::Valkey, Outage::Deny)] {
        let server = Server::start(kind, &["maxmemory-policy noeviction"]);
        let refuse = |server: &Server| set(server, "maxmemory", "1");
        let serve = |server: &Server| set(server, "maxmemory", "0");
        let story = ask_while(&server, Degradation::OutOfMemory, outage, refuse, serve);
        assert_eq!(story.with_reason(Degradation::Refused), 0, "{}", story.told());
    }
}

#[test]
fn fewer_replicas_than_needed() {
    let server = Server::start(Kind::Valkey, &[]);
    let refuse = |server: &Server| set(server, "min-replicas-to-write", "1");
    let serve = |server: &Server| set(server, "min-replicas-to-write", "0");
    ask_while(&server, Degradation::NoReplicas, Outage::Allow, refuse, serve);
}

/// It could not save, since a folder is where its file belongs.
#[test]
fn a_disk_that_cannot_be_written() {
    let server = Server::start(Kind::Redis, &["save 3600 1000000000"]);
    let file = server.dir().join("dump.rdb");
    let saved = |server: &Server, status: &str| {
        server.command(&["BGSAVE"]);
        until("the save ends", PATIENCE, || {
            let ended = server.info("rdb_bgsave_in_progress") == "0";
            (ended && server.info("rdb_last_bgsave_status") == status).then_some(())
        });
    };
    let refuse = |server: &Server| {
        fs::create_dir_all(file.join("in the way")).unwrap();
        saved(server, "err");
    };
    let serve = |server: &Server| {
        fs::remove_dir_all(&file).unwrap();
        saved(server, "ok");
    };
    ask_while(&server, Degradation::Misconfigured, Outage::Fallback, refuse, serve);
}

/// Somebody else's script does not end.
#[test]
fn busy_with_a_script() {
    for (kind, outage) in [(Kind::Redis, Outage::Deny), (Kind::Valkey, Outage::Fallback)] {
        let server = Server::start(kind, &["busy-reply-threshold 30"]);
        let mut somebody = TcpStream::connect(server.address()).unwrap();
        let refuse = |_: &Server| {
            let script = "while true do end";
            write!(somebody, "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len()).unwrap();
            // For the first moments it answers nothing at all.
            sleep(Duration::from_millis(250));
        };
        let serve = |server: &Server| drop(server.command(&["SCRIPT", "KILL"]));
        ask_while(&server, Degradation::Busy, outage, refuse, serve);
    }
}

/// A server that was started anew reads its data first.
#[test]
fn loading() {
    let lines = ["key-load-delay 500", "loading-process-events-interval-bytes 1024"];
    let server = Server::start(Kind::Redis, &lines);
    for i in 0..2_000 {
        server.command(&["SET", &format!("filler{i}"), "x"]);
    }
    let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTING, Outage::Deny);
    let load = Load::on(&limiter, 4);
    let (story, refusal) = load.run(Duration::ZERO, |start| {
        sleep(Duration::from_millis(200));
        server.launch(Dataset::Kept);
        // Reached again as soon as it listens.
        sleep(Duration::from_millis(400));
        let from = start.elapsed();
        sleep(Duration::from_millis(200));
        let to = start.elapsed();
        assert!(!server.answers(), "it has loaded already");
        server.wait_until_ready();
        let restored = start.elapsed();
        sleep(BACK_AFTER);
        Refusal { from, to, restored }
    });
    check(&story, Degradation::Loading, Outage::Deny, &refusal);
    // What came between its last save and its end is lost.
    let most = story.admitted_by_store() + limiter.stats().unknown;
    assert!((1..=most).contains(&held(&server.url(), COUNTING, load.keys())), "{}", story.told());
}

/// Others hold all connections that the server allows.
#[test]
fn too_many_clients() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &["maxclients 16"]);
        let others: Vec<TcpStream> =
            (0..20).map(|_| TcpStream::connect(server.address()).unwrap()).filter(is_let_in).collect();
        let limiter = limiter(options(&server.url()).deadline(DEADLINE), COUNTING, Outage::Deny);
        let load = Load::on(&limiter, 1);
        let (story, restored) = load.run(Duration::from_millis(900), |start| {
            sleep(Duration::from_millis(400));
            let restored = start.elapsed();
            drop(others);
            restored
        });
        check_too_many(&story, restored);
        check_held(&limiter, &server, &story, &load);
        assert_eq!(ask(&limiter, "k0").degraded(), None);
        assert!(used(&server.url(), COUNTING, "k0") > 0);
    }
}

fn check_too_many(story: &Story, restored: Duration) {
    story.assert_in_time(DEADLINE);
    story.assert_explained();
    let before: Vec<_> = story.asked.iter().filter(|asked| asked.at() + asked.took() < restored).collect();
    assert!(before.len() > 50, "{}", story.told());
    for asked in before {
        let told = (asked.source, asked.degraded, asked.allowed);
        assert_eq!(told, (Source::Deny, Some(Degradation::MaxClients), false), "{}", story.told());
    }
    let back = story.back_after(restored);
    assert!(
        back < restored + Duration::from_millis(300) + story.noise,
        "{back:?} {restored:?} {}",
        story.told()
    );
}

fn is_let_in(client: &TcpStream) -> bool {
    let (mut client, asked) = (client, Instant::now());
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut sign = [0];
    let replied = client.write_all(b"PING\r\n").is_ok() && client.read_exact(&mut sign).is_ok();
    assert!(asked.elapsed() < PATIENCE);
    replied && sign == *b"+"
}
