//! A process hears the invalidation channels of the keys that it has denied, and no others.

use std::collections::BTreeMap;
use std::time::Duration;

use polylimit::decision::Source;
use polylimit::redis::{Lease, RedisOptions};
use polylimit::testing::script::invalidation_channel;
use polylimit::{Limiter, Policy, Request, blocking};
use polylimit_test_servers::{Cluster, Kind, Server, until};

const TIMEOUT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(3_600);

fn limiter(url: &str, denial_cache_max: Duration) -> blocking::Limiter {
    let options = RedisOptions::parse(url).unwrap().deadline(Duration::from_secs(30));
    let options = options.denial_cache_max(denial_cache_max).doctor_after(Duration::ZERO);
    let policy = Policy::parse("p", "3/day").unwrap();
    Limiter::builder().redis(options).policy(policy).build().unwrap().blocking()
}

fn channel_of(key: &str) -> String {
    invalidation_channel("polylimit", "p", key.as_bytes())
}

fn subscribers(server: &Server, channel: &str) -> u64 {
    server.query::<(String, u64)>(&["PUBSUB", "NUMSUB", channel]).1
}

fn channels(server: &Server) -> usize {
    server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "polylimit:1:invalidations:*"]).len()
}

fn deny(limiter: &blocking::Limiter, key: &str) {
    // Checks spend no more than the limit, so that one refund admits the key again.
    while limiter.check(key).unwrap().allowed() {}
}

/// Checks until the denial cache answers, which forgets a channel's keys once it is subscribed.
fn until_cached(limiter: &blocking::Limiter, key: &str) {
    until("the denial is cached", TIMEOUT, || {
        (limiter.check(key).unwrap().source() == Source::DenialCache).then_some(())
    });
}

/// Keys of different channels.
fn keys(count: usize) -> Vec<String> {
    let mut keys = BTreeMap::new();
    let mut names = (0..).map(|number| format!("user{number}"));
    while keys.len() < count {
        let key = names.next().unwrap();
        keys.entry(channel_of(&key)).or_insert(key);
    }
    keys.into_values().collect()
}

#[test]
fn process_receives_no_message_about_keys_of_other_channels() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = Server::start(kind, &[]);
        let processes = [(); 2].map(|()| limiter(&server.url(), LONG));
        // Limiters of one process share a subscriber: a different option gives each its own connections.
        let url = format!("{}?client_name=other", server.url());
        let other = limiter(&url, LONG);
        let keys = keys(2);
        let channels = [channel_of(&keys[0]), channel_of(&keys[1])];
        deny(&processes[0], &keys[0]);
        deny(&other, &keys[1]);
        for channel in &channels {
            until("the channel is subscribed", TIMEOUT, || {
                (subscribers(&server, channel) == 1).then_some(())
            });
        }
        // The number of receivers is what PUBLISH replies, also inside of the script.
        for (channel, listener) in channels.iter().zip([&processes[0], &other]) {
            let before = listener.asynchronous().stats().invalidations;
            assert_eq!(server.query::<u64>(&["PUBLISH", channel, "nothing"]), 1);
            until("the message has arrived", TIMEOUT, || {
                (listener.asynchronous().stats().invalidations > before).then_some(())
            });
        }
        let received = || {
            (processes[0].asynchronous().stats().invalidations, other.asynchronous().stats().invalidations)
        };
        let before = received();
        for _ in 0..100 {
            let _ = processes[1].refund(Request::new(&*keys[1])).unwrap();
        }
        until("all refunds are heard", TIMEOUT, || (received().1 == before.1 + 100).then_some(()));
        assert_eq!(received().0, before.0, "a message about a key of another channel");
    }
}

fn reopen_in_several_channels(here: &blocking::Limiter, other: &blocking::Limiter) {
    let keys = keys(24);
    for key in &keys {
        deny(here, key);
    }
    for key in &keys {
        until_cached(here, key);
    }
    for (number, key) in keys.iter().enumerate() {
        let _ =
            if number % 2 == 0 { other.reset(&**key) } else { other.refund(Request::new(&**key)) }.unwrap();
    }
    for key in &keys {
        until("the key is admitted again", TIMEOUT, || here.check(&**key).unwrap().allowed().then_some(()));
    }
}

#[test]
fn refund_by_another_process_reopens_keys_of_several_channels() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = Server::start(kind, &[]);
        let here = limiter(&server.url(), LONG);
        let other = limiter(&format!("{}?client_name=other", server.url()), Duration::ZERO);
        reopen_in_several_channels(&here, &other);
        assert_eq!(channels(&server), 24);
        // A lost connection loses all subscriptions; the next one has them all.
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        until("all channels are subscribed again", TIMEOUT, || (channels(&server) == 24).then_some(()));
        reopen_in_several_channels(&here, &other);
    }
}

#[test]
fn refund_by_another_process_reopens_keys_of_several_channels_in_a_cluster() {
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let here = limiter(&cluster.url(), LONG);
    let separator = if cluster.url().contains('?') { '&' } else { '?' };
    let other = limiter(&format!("{}{separator}client_name=other", cluster.url()), Duration::ZERO);
    reopen_in_several_channels(&here, &other);
}

#[test]
fn channel_is_left_when_no_key_of_it_is_denied_any_more() {
    let server = Server::start(Kind::Redis, &[]);
    let (brief, long) = (
        limiter(&server.url(), Duration::from_millis(50)),
        limiter(&format!("{}?client_name=other", server.url()), LONG),
    );
    let lease = Lease::new(1_000, Duration::from_secs(60)).unwrap();
    let leased = Limiter::builder()
        .store(&format!("{}?client_name=leased", server.url()))
        .policy(Policy::parse("leased", "100000/52w").unwrap())
        .lease("leased", lease)
        .build()
        .unwrap()
        .blocking();
    let keys = keys(2);
    deny(&brief, &keys[0]);
    deny(&long, &keys[1]);
    until_cached(&long, &keys[1]);
    until("units are leased", TIMEOUT, || {
        assert!(leased.check("key").unwrap().allowed());
        (leased.asynchronous().stats().lease_units_held > 0).then_some(())
    });
    let of = |key: &str| subscribers(&server, &channel_of(key));
    until("the channels are subscribed", TIMEOUT, || (of(&keys[0]) == 1 && of(&keys[1]) == 1).then_some(()));
    // It is looked every 10 s which channels are in use. The answer to a subscription may come late, and it forgets what was cached of
    // the channel before: a further check caches the denial again.
    until("the channel is left", 2 * TIMEOUT, || {
        assert!(!long.check(&*keys[1]).unwrap().allowed());
        (of(&keys[0]) == 0).then_some(())
    });
    let pubsub_clients = || server.query::<String>(&["CLIENT", "LIST", "TYPE", "PUBSUB"]).lines().count();
    until("the connection is closed", TIMEOUT, || (pubsub_clients() == 2).then_some(()));
    assert_eq!(of(&keys[1]), 1, "a denial is cached");
    assert_eq!(
        subscribers(&server, &invalidation_channel("polylimit", "leased", b"key")),
        1,
        "units are leased"
    );
    // It is subscribed again with the next denial.
    assert!(!brief.check(&*keys[0]).unwrap().allowed());
    until("the channel is subscribed again", TIMEOUT, || (of(&keys[0]) == 1).then_some(()));
}
