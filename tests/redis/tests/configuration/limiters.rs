//! Limiters that take their configuration from Redis.

use polylimit::{Limiter, Request};
use polylimit_redis_tests::GENEROUS_DEADLINE;
use polylimit_test_servers::{Kind, Server, until};

use super::support::{SOON, follow, until_error};

const DOCUMENT: &str = "polylimit = 1\npolicies.p.quotas = '2/hour'\n";

fn build(url: &str) -> Limiter {
    let deadline = format!("{}ms", GENEROUS_DEADLINE.as_millis());
    Limiter::builder().store(url).option("deadline", &deadline).build().unwrap()
}

#[test]
fn limiter_decides_by_the_configuration_in_its_store_until_it_is_closed() {
    let server = Server::start(Kind::Redis, &[]);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let manager = follow(&server.url());
    manager.publish(DOCUMENT, 0).unwrap().unwrap();
    let url = format!("{}?configuration=store&copy={}", server.url(), copy.display());
    let limiter = build(&url);
    let blocking = limiter.clone().blocking();
    blocking.wait_for_version(1, SOON).unwrap();
    let check = || blocking.check(Request::new("key").policy("p")).unwrap();
    assert_eq!([check(), check(), check()].map(|decision| decision.allowed()), [true, true, false]);
    manager.publish(&DOCUMENT.replace("2/", "5/"), 1).unwrap().unwrap();
    assert_eq!(blocking.wait_for_version(2, SOON).unwrap().version, 2);
    assert!(check().allowed());
    // A bad document, and a server that is away, keep the configuration.
    manager.publish("polylimit = 2", 2).unwrap().unwrap();
    until("the error is told", SOON, || limiter.configuration().unwrap().error.map(drop));
    assert!(check().allowed());
    let readers = || {
        let list: String = server.query(&["CLIENT", "LIST"]);
        list.lines().filter(|line| line.contains(" cmd=xread ")).count()
    };
    until("two followers read", SOON, || (readers() == 2).then_some(()));
    limiter.close();
    until("the limiter reads no more", SOON, || (readers() == 1).then_some(()));
    server.kill();
    until_error(&manager, "cannot be reached");
    let limiter = build(&url);
    assert_eq!(limiter.configuration().unwrap().version, 2);
    assert!(limiter.policy("p").is_some());
}

#[test]
fn options_of_the_source_are_checked() {
    let error = |builder: polylimit::LimiterBuilder| builder.build().unwrap_err().message().to_owned();
    let redis = || Limiter::builder().store("redis://127.0.0.1:1?configuration=store");
    assert!(error(Limiter::builder().configuration("store")).contains("which is for a Redis store"));
    assert!(
        error(Limiter::builder().configuration("here"))
            .contains("allowed is file:PATH, store or store+file:PATH")
    );
    assert!(error(Limiter::builder().copy("/copy")).contains("copy is given without configuration"));
    assert!(error(redis().configuration("file:/limits.toml")).contains("leave one out"));
    assert!(error(redis().copy("")).contains("copy is"));
    redis().configuration("store").build().unwrap();
}
