//! Reservations whose holder is killed, that many processes contend for, and that an outage policy makes.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use polylimit::decision::{Degradation, Source};
use polylimit::redis::Lease;
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::storage::Outage;
use polylimit::{ErrorKind, Limiter, Policy, Request, blocking};
use polylimit_redis_tests::uncached;
use polylimit_test_servers::redis::{Client, Connection, cmd};
use polylimit_test_servers::{FaultProxy, Kind, Server, until};
use tempfile::TempDir;

const KEY: &str = "held";
const LONG: Duration = Duration::from_secs(60);

/// The URL of a store of this host in a folder of its own.
fn local_store(folder: &TempDir) -> String {
    format!("file://{}", folder.path().join("store").display())
}

fn slots(store: &str, limit: u64) -> blocking::Limiter {
    let policy = Policy::parse("slots", &format!("{limit} concurrent")).unwrap();
    let builder = Limiter::builder().store(store).policy(policy);
    let is_redis = store.starts_with("redis");
    let builder = if is_redis { builder.outage("slots", Outage::Deny) } else { builder };
    builder.build().unwrap().blocking()
}

fn holder(
    store: &str,
    counter: &str,
    limit: u64,
    callers: u32,
    rounds: u32,
) -> (Child, BufReader<ChildStdout>) {
    let numbers = [limit.to_string(), callers.to_string(), rounds.to_string()];
    let mut holder = Command::new(env!("CARGO_BIN_EXE_polylimit-holder"))
        .args([store, counter])
        .args(numbers)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(holder.stdout.take().unwrap());
    (holder, output)
}

fn line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// The time of a store, in microseconds: that of the server, or of this host.
fn store_time_us(server: Option<&mut Connection>) -> u64 {
    let Some(connection) = server else {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        return u64::try_from(now.as_micros()).unwrap();
    };
    let (seconds, micros): (u64, u64) = cmd("TIME").query(connection).unwrap();
    seconds * 1_000_000 + micros
}

/// A holder is killed. Its slot stays taken until the end that every denial names, and is free from then on.
fn kill_a_holder(store: &str, mut server: Option<Connection>) {
    let (mut killed, mut output) = holder(store, "none", 1, 1, 0);
    assert_eq!(line(&mut output), "held");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let limiter = slots(store, 1);
    let reserve = || limiter.reserve(KEY, ReserveOptions::default()).unwrap();
    // The end lies in each of these spans: a denial was decided between two readings of the clock.
    let (mut earliest_us, mut latest_us) = (0, u64::MAX);
    let started = Instant::now();
    loop {
        let before_us = store_time_us(server.as_mut());
        let reservation = reserve();
        let after_us = store_time_us(server.as_mut());
        if reservation.allowed() {
            assert!(earliest_us > 0, "the slot was free at once");
            assert!(after_us >= earliest_us, "free at {after_us} us, at least {earliest_us} were named");
            return;
        }
        assert!(before_us < latest_us, "still taken at {before_us} us, at most {latest_us} were named");
        let retry_us = reservation.decision().retry_after_us().unwrap();
        earliest_us = earliest_us.max(before_us + retry_us);
        latest_us = latest_us.min(after_us + retry_us);
        assert!(earliest_us <= latest_us, "denials name different ends: {earliest_us} and {latest_us} us");
        assert!(started.elapsed() < LONG, "the slot never became free");
        if retry_us > 20_000 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn slot_of_a_killed_holder_is_free_at_its_end_in_redis() {
    let server = Server::start(Kind::Redis, &[]);
    let connection = Client::open(server.url()).unwrap().get_connection().unwrap();
    let store = format!("{}?deadline=30s", server.url());
    kill_a_holder(&store, Some(connection));
}

#[test]
fn slot_of_a_killed_holder_is_free_at_its_end_in_the_local_store() {
    let folder = TempDir::new().unwrap();
    kill_a_holder(&local_store(&folder), None);
}

/// 8 processes with 64 callers each hold the slots of one key.
fn contend(store: &str, counter: &Server) {
    const LIMIT: u64 = 20;
    let holders: Vec<_> = (0..8).map(|_| holder(store, &counter.url(), LIMIT, 64, 5)).collect();
    for (mut holder, mut output) in holders {
        let most: u64 = line(&mut output).parse().unwrap();
        assert!(holder.wait().unwrap().success());
        assert!((1..=LIMIT).contains(&most), "{most} held at a time");
    }
    assert_eq!(slots(store, LIMIT).peek(KEY).unwrap().remaining(), LIMIT);
}

#[test]
fn no_more_than_20_of_512_callers_hold_slots_in_redis() {
    let server = Server::start(Kind::Redis, &[]);
    contend(&format!("{}?deadline=30s", server.url()), &server);
}

#[test]
fn no_more_than_20_of_512_callers_hold_slots_in_the_local_store() {
    let counter = Server::start(Kind::Redis, &[]);
    let folder = TempDir::new().unwrap();
    contend(&local_store(&folder), &counter);
}

#[test]
fn reservation_of_an_outage_policy_ends_in_its_process() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let url = server.url_at(proxy.port());
    let policy = Policy::parse("model", "2 concurrent; 100/hour token_bucket").unwrap();
    let options = uncached(&url).deadline(Duration::from_millis(200));
    let builder = Limiter::builder().redis(options).policy(policy).outage("model", Outage::Fallback);
    let limiter = builder.build().unwrap();
    let blocking = limiter.blocking();
    let reserve = |id: &str| {
        let options = ReserveOptions::default().id(ReservationId::new(id).unwrap());
        blocking.reserve(Request::new(KEY).cost(10), options).unwrap()
    };
    blocking.ready(LONG).unwrap();
    let of_redis = reserve("of redis");
    assert!(of_redis.allowed() && of_redis.decision().source() == Source::Store);

    proxy.set_refusing(true);
    proxy.cut();
    // Redis had admitted one, so this process admits one more.
    let local = loop {
        let local = reserve("local");
        if local.decision().source() == Source::Fallback {
            break local;
        }
        local.cancel_blocking().unwrap();
    };
    assert!(local.allowed());
    let denied = reserve("denied");
    assert!(!denied.allowed() && denied.decision().source() == Source::Fallback);

    proxy.set_refusing(false);
    proxy.pass();
    blocking.ready(LONG).unwrap();
    // The server decides again. It has never heard of the local reservation, which is committed where it was made.
    let left = local.commit_blocking(4).unwrap();
    assert!(left.found() && left.source() == Source::Fallback && left.degraded().is_some());
    let again = blocking.commit(KEY, ReservationId::new("local").unwrap(), Some(4)).unwrap();
    assert!(!again.found(), "a repeated commit charges twice: {again:?}");
    let left = of_redis.commit_blocking(7).unwrap();
    assert!(left.found() && left.source() == Source::Store, "{left:?}");
    assert_eq!(left.remaining(), 93);
    assert_eq!(left.degraded(), None::<Degradation>);
}

#[test]
fn commit_during_an_outage_is_charged_by_redis_when_it_is_repeated() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let policy = Policy::parse("model", "100/day fixed_window").unwrap();
    let options = uncached(&server.url_at(proxy.port())).deadline(Duration::from_millis(200));
    let builder = Limiter::builder().redis(options).policy(policy).outage("model", Outage::Fallback);
    let blocking = builder.build().unwrap().blocking();
    blocking.ready(LONG).unwrap();
    let id = ReservationId::new("job-7").unwrap();
    let options = ReserveOptions::default().id(id).ttl(10 * LONG);
    let of_redis = blocking.reserve(Request::new(KEY).cost(10), options).unwrap();
    assert!(of_redis.allowed() && of_redis.decision().source() == Source::Store);

    proxy.set_refusing(true);
    proxy.cut();
    let left = of_redis.commit_blocking(7).unwrap();
    assert!(left.found() && left.source() == Source::Fallback, "{left:?}");

    proxy.set_refusing(false);
    proxy.pass();
    blocking.ready(LONG).unwrap();
    let by_redis = |ask: &dyn Fn() -> polylimit::Decision| {
        until("the server decides", LONG, || {
            Some(ask()).filter(|decision| decision.source() == Source::Store)
        })
    };
    assert_eq!(by_redis(&|| blocking.peek(KEY).unwrap()).remaining(), 90, "it is still set aside");
    let again = blocking.commit(KEY, id, Some(7)).unwrap();
    assert!(again.found() && again.source() == Source::Store, "{again:?}");
    assert_eq!(again.remaining(), 93);
}

#[test]
fn denial_in_which_reservations_count_is_not_cached() {
    let server = Server::start(Kind::Redis, &[]);
    let limiter = || {
        let policy = Policy::parse("p", "10/hour token_bucket").unwrap();
        Limiter::builder().store(&server.url()).policy(policy).build().unwrap().blocking()
    };
    let (here, elsewhere) = (limiter(), limiter());
    let held = elsewhere.reserve(Request::new(KEY).cost(10), ReserveOptions::default()).unwrap();
    for _ in 0..3 {
        let denied = here.check(KEY).unwrap();
        assert!(!denied.allowed() && denied.source() == Source::Store, "{denied:?}");
    }
    held.cancel_blocking().unwrap();
    assert!(here.check(KEY).unwrap().allowed());
    // Without reservations, a denial is cached.
    assert!(here.check(Request::new(KEY).cost(9)).unwrap().allowed());
    assert_eq!(here.check(KEY).unwrap().source(), Source::Store);
    assert_eq!(here.check(KEY).unwrap().source(), Source::DenialCache);
}

#[test]
fn record_of_a_later_version_is_kept() {
    let server = Server::start(Kind::Redis, &[]);
    let policy = Policy::parse("p", "10/hour token_bucket; 100/day").unwrap();
    let limiter = Limiter::builder()
        .redis(uncached(&server.url()).deadline(LONG))
        .policy(policy)
        .outage("p", Outage::Deny)
        .build()
        .unwrap()
        .blocking();
    assert!(limiter.check(KEY).unwrap().allowed());
    let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
    let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let [key] = keys.as_slice() else { panic!("{keys:?}") };
    // Form, tag, length, the time until which the key has to live, and the bytes of a record that no version knows yet.
    let later = b"\xC8tag!\0\0\x0C\0\0\0\0\0\0\x01later";
    let mut state: Vec<u8> = cmd("GET").arg(key).query(&mut connection).unwrap();
    state.extend_from_slice(later);
    let () = cmd("SET").arg(key).arg(&state[..]).arg("KEEPTTL").query(&mut connection).unwrap();

    let checked = limiter.check(KEY).unwrap();
    assert!(checked.source() == Source::Store && checked.remaining() == 8, "{checked:?}");
    let held = limiter.reserve(Request::new(KEY).cost(3), ReserveOptions::default()).unwrap();
    assert!(held.allowed() && held.decision().remaining() == 5);
    assert_eq!(held.commit_blocking(2).unwrap().remaining(), 6);
    assert_eq!(limiter.refund(KEY).unwrap().remaining(), 7);
    let state: Vec<u8> = cmd("GET").arg(key).query(&mut connection).unwrap();
    assert!(state.ends_with(later), "{}", state.escape_ascii());
    assert_eq!(limiter.asynchronous().stats().healed, 0);
}

#[test]
fn leased_policy_is_not_reserved() {
    let policy = Policy::parse("p", "10/hour token_bucket").unwrap();
    let builder = Limiter::builder().store("redis://127.0.0.1:1").policy(policy);
    let limiter = builder.lease("p", Lease::auto()).build().unwrap().blocking();
    let refused = limiter.reserve(KEY, ReserveOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.message().contains("use one without a lease"), "{refused}");
}

#[test]
fn reservation_of_the_fallback_that_no_caller_receives_is_cancelled() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let policy = Policy::parse("slots", "1 concurrent").unwrap();
    let options = uncached(&server.url_at(proxy.port())).deadline(Duration::from_millis(200));
    let builder = Limiter::builder().redis(options).policy(policy).outage("slots", Outage::Fallback);
    let limiter = builder.build().unwrap();
    let blocking = limiter.blocking();
    let runtime = polylimit_redis_tests::current_thread_runtime();
    blocking.ready(LONG).unwrap();
    runtime.block_on(async {
        // Each runtime has a connection of its own.
        limiter.ready(LONG).await.unwrap();
        proxy.set_stalled(true);
        let reserve = limiter.reserve(KEY, ReserveOptions::default().timeout(LONG));
        let left = tokio::time::timeout(Duration::from_millis(20), reserve).await;
        assert!(left.is_err(), "the store does not answer: {left:?}");
        // The answer comes at the deadline, when the caller has gone.
        tokio::time::sleep(Duration::from_millis(400)).await;
    });
    // By its ttl it would be free in 30 s.
    until("the slot is free", Duration::from_secs(15), || {
        let peeked = blocking.peek(KEY).unwrap();
        (peeked.source() == Source::Fallback && peeked.remaining() == 1).then_some(())
    });
    assert!(limiter.stats().answered_fallback > 1);
}
