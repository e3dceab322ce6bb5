//! Redis is away when the process starts, or later: the copy and the last configuration serve.

use std::fs;
use std::time::Duration;

use polylimit::ErrorKind;
use polylimit::testing::configuration::Followed;
use polylimit_test_servers::{Dataset, Kind, Server, until};

use super::support::{SOON, follow, until_document, until_error, until_no_error};

#[test]
fn copy_serves_while_redis_is_down_at_start() {
    let server = Server::start(Kind::Redis, &["appendonly yes", "appendfsync always"]);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let start = || Followed::start(Some(&server.url()), "store", Some(&copy)).unwrap();
    let followed = start();
    followed.publish("one", 0).unwrap().unwrap();
    followed.change(&[("deny user a", Some("{}"))]).unwrap();
    assert!(followed.wait_for_version(2, SOON));
    until("the copy is written", SOON, || {
        fs::read_to_string(&copy).ok().filter(|copy| copy.contains("deny user a")).map(drop)
    });
    drop(followed);
    server.kill();
    let followed = start();
    assert!(followed.is_ready());
    assert_eq!((followed.document().as_deref(), followed.entries().len()), (Some("one"), 1));
    assert_eq!(followed.status().version, 2);
    until_error(&followed, "cannot be reached");
    let since = followed.status().unreachable_since_us.unwrap();
    server.restart(Dataset::Kept);
    until_no_error(&followed);
    assert_eq!(followed.status().unreachable_since_us, None);
    // What the copy has is what the store has: nothing was applied again.
    assert_eq!(followed.applied(), 1);
    followed.publish("two", 1).unwrap().unwrap();
    until_document(&followed, "two");
    assert!(followed.status().applied_at_us.unwrap() > since);
    // A copy of other limits is not used.
    let other = format!("{}?prefix=other", server.url());
    let other = Followed::start(Some(&other), "store", Some(&copy)).unwrap();
    assert!(!other.is_ready());
    until_error(&other, "no document is published");
}

#[test]
fn damaged_copy_is_told_and_replaced() {
    let server = Server::start(Kind::Redis, &[]);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    follow(&server.url()).publish("one", 0).unwrap().unwrap();
    fs::write(&copy, "{\"of\":").unwrap();
    let followed = Followed::start(Some(&server.url()), "store", Some(&copy)).unwrap();
    followed.ready(SOON).unwrap();
    until_no_error(&followed);
    assert!(fs::read_to_string(&copy).unwrap().contains("one"));
    // A folder that cannot be written to.
    let missing = folder.path().join("missing/copy");
    let followed = Followed::start(Some(&server.url()), "store", Some(&missing)).unwrap();
    followed.ready(SOON).unwrap();
    until_error(&followed, "cannot be written");
    until_document(&followed, "one");
}

#[test]
fn without_a_copy_operations_wait_for_the_configuration() {
    let server = Server::options(Kind::Redis).reserve();
    let followed = follow(&server.url());
    let error = followed.ready(Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().starts_with("there is no configuration yet"), "{error}");
    until_error(&followed, "cannot be reached");
    server.restart(Dataset::Empty);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| followed.ready(SOON));
        followed.publish("one", 0).unwrap().unwrap();
        waiting.join().unwrap().unwrap();
    });
    server.kill();
    until_error(&followed, "cannot be reached");
    assert!(followed.is_ready());
    assert_eq!(followed.document().as_deref(), Some("one"));
}
