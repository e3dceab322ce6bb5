//! The primary of a service is where its sentinels say.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use polylimit::{Limiter, Source};
use polylimit_test_servers::{Kind, Sentinels, Server, until};

use super::load::{Load, longest_gap, most_admitted, slowest};
use super::noise::Noise;
use super::{keys, limiter, quiet, runtime, with};

const DEADLINE: Duration = Duration::from_millis(50);
/// What a decision may take beyond its deadline.
const SLACK: Duration = Duration::from_millis(5);
const LIMIT: usize = 300;

fn quotas() -> String {
    format!("{LIMIT}/hour fixed_window")
}

#[test]
fn the_sentinels_say_where_the_primary_is() {
    let _shared = quiet::shared();
    let sentinels = Sentinels::start(Kind::Valkey);
    // One sentinel that is gone and one that does not answer are passed over.
    sentinels.sentinel(0).kill();
    sentinels.sentinel(1).stop();
    let limiter = limiter(&with(&sentinels.url(), "deadline=2s"), &quotas());
    let decision = runtime().block_on(limiter.check("user")).unwrap();
    assert_eq!(decision.source(), Source::Store, "{decision:?}");
    assert_eq!(sentinels.server(0).query::<u64>(&["DBSIZE"]), 1);
    sentinels.sentinel(1).cont();
}

#[test]
fn sentinels_that_hang_leave_time_for_the_one_that_answers() {
    let _shared = quiet::shared();
    let sentinels = Sentinels::start(Kind::Redis);
    // Connections are taken, and nobody reads from them. To wait for one after the other takes longer than connecting may.
    let hanging: [TcpListener; 8] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses: Vec<String> =
        hanging.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    let url = sentinels.url().replacen("://", &format!("://{},", addresses.join(",")), 1);
    let limiter = limiter(&with(&url, "deadline=5s"), &quotas());
    let start = Instant::now();
    let decision = runtime().block_on(limiter.check("user")).unwrap();
    assert_eq!(decision.source(), Source::Store, "{decision:?} after {:?}", start.elapsed());
}

#[test]
fn a_killed_primary_is_replaced_and_the_bound_holds() {
    let _shared = quiet::shared();
    let sentinels = Sentinels::start(Kind::Redis);
    let limiter = limiter(&sentinels.url(), &quotas());
    let (noise, load) = (Noise::watch(), Load::start(&limiter, &keys(40), 4));
    load.until_stored(Duration::from_secs(5), |_| true);
    let new = sentinels.failover();
    let known = Instant::now();
    let back = load.until_stored(Duration::from_secs(10), |_| true);
    // Long enough for what was lost to be spent anew.
    until("a limit is reached", Duration::from_secs(20), || {
        load.made()
            .iter()
            .rev()
            .take(40)
            .any(|made| made.source == Source::Store && !made.allowed)
            .then_some(())
    });
    let (made, noise) = (load.end(), noise.worst());
    let took = back - known;
    println!("back {took:?} after the sentinels knew, noise {noise:?}");
    assert!(took < Duration::from_secs(1) + noise, "back after {took:?}");
    assert!(slowest(&made) <= DEADLINE + SLACK + noise, "slowest: {:?}", slowest(&made));
    // One event, in which no more use can be lost than there was.
    let most = most_admitted(&made);
    assert!((LIMIT / 2..=2 * LIMIT).contains(&most), "{most} admitted of {LIMIT}");
    for made in made.iter().filter(|made| made.source != Source::Store) {
        assert!(!made.allowed && made.degraded.is_some(), "{made:?}");
    }
    assert!(sentinels.server(new).query::<u64>(&["DBSIZE"]) >= 40);
}

#[test]
fn a_planned_hand_over_is_followed() {
    let _shared = quiet::shared();
    let sentinels = Sentinels::start(Kind::Redis);
    let limiter = limiter(&sentinels.url(), &quotas());
    let (noise, load) = (Noise::watch(), Load::start(&limiter, &keys(40), 4));
    load.until_stored(Duration::from_secs(5), |_| true);
    let new = sentinels.hand_over();
    until("the old primary follows", Duration::from_secs(10), || {
        (sentinels.server(1 - new).info("role") == "slave").then_some(())
    });
    load.until_stored(Duration::from_secs(5), |_| true);
    let (made, noise) = (load.end(), noise.worst());
    let gap = longest_gap(&made);
    println!("without the store for {gap:?}, noise {noise:?}");
    assert!(gap <= DEADLINE + Duration::from_millis(250) + noise, "without the store for {gap:?}");
    assert!(slowest(&made) <= DEADLINE + SLACK + noise, "slowest: {:?}", slowest(&made));
    assert!(most_admitted(&made) <= 2 * LIMIT);
    // It is the new primary that answers.
    assert!(runtime().block_on(limiter.check("afterwards")).unwrap().allowed());
    let exists = sentinels.server(new).query::<u64>(&["EXISTS", "polylimit:1:p:{afterwards}"]);
    assert_eq!(exists, 1);
}

/// The old primary takes writes for as long as no sentinel has demoted it, which takes seconds more.
#[test]
fn a_planned_hand_over_splits_no_budget() {
    let _shared = quiet::shared();
    let sentinels = Sentinels::start(Kind::Redis);
    let url = with(&sentinels.url(), "deadline=1s");
    // As in processes of their own: limiters with the same settings would share connections.
    let named = |name| limiter(&with(&url, &format!("client_name={name}")), "1000000/hour fixed_window");
    let [awaiting, waiting] = ["awaiting", "waiting"].map(named);
    let runtime = runtime();
    let check = |limiter: &Limiter, key: &str| limiter.blocking().check(key).unwrap();
    let load = Load::start(&awaiting, &keys(4), 2);
    load.until_stored(Duration::from_secs(5), |_| true);
    assert_eq!(check(&waiting, "before").source(), Source::Store);
    // One that is not used meanwhile has to hear of it, too.
    until("the sentinels are listened to", Duration::from_secs(5), || {
        let clients = |i| sentinels.sentinel(i).query::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        (0..3).all(|i| clients(i).lines().count() == 2).then_some(())
    });
    let new = sentinels.hand_over();
    let opened = named("opened");
    std::thread::sleep(Duration::from_secs(1));
    let is_primary_still = sentinels.server(1 - new).info("role") == "master";
    for spent in 0..3 {
        for (at, limiter) in [&awaiting, &waiting, &opened].into_iter().enumerate() {
            let decision = check(limiter, "after");
            assert_eq!(decision.source(), Source::Store, "{decision:?}");
            let counted = decision.limit() - decision.remaining();
            assert_eq!(counted, 3 * spent + at as u64 + 1, "limiter {at}");
        }
        let decision = runtime.block_on(awaiting.peek("after")).unwrap();
        assert_eq!(decision.limit() - decision.remaining(), 3 * (spent + 1));
    }
    drop(load.end());
    let holds = |server: usize| sentinels.server(server).query::<u64>(&["EXISTS", "polylimit:1:p:{after}"]);
    assert_eq!(holds(new), 1);
    assert!(is_primary_still, "the old primary was demoted before anything could be seen");
}

#[test]
fn the_sentinels_are_asked_again_from_time_to_time() {
    let _shared = quiet::shared();
    let sentinels = Sentinels::start(Kind::Redis);
    let url = with(&with(&sentinels.url(), "topology_refresh=1s"), "deadline=1s");
    let limiter = limiter(&url, "1000000/hour fixed_window");
    let load = Load::start(&limiter, &keys(4), 2);
    load.until_stored(Duration::from_secs(5), |_| true);
    // The service is another server now. The old one knows nothing of it, and keeps its sockets and its role.
    let other = Server::start(Kind::Redis, &[]);
    let port = other.port().to_string();
    for i in 0..3 {
        sentinels.sentinel(i).command(&["SENTINEL", "REMOVE", "main"]);
        sentinels.sentinel(i).command(&["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "2"]);
    }
    until("the other server is asked", Duration::from_secs(4), || {
        (other.query::<u64>(&["DBSIZE"]) == 4).then_some(())
    });
    for made in load.end() {
        assert_eq!(made.source, Source::Store, "{made:?}");
    }
}
