//! Limiters that take their configuration from Redis.

use std::time::Duration;

use polylimit::admin::PublishOptions;
use polylimit::document::RequestAttributes;
use polylimit::raw::ReservationTerms;
use polylimit::reservation::ReservationId;
use polylimit::{ErrorKind, Limiter, Request};
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
    blocking.admin().wait_for_version(1, SOON).unwrap();
    let check = || blocking.check(Request::new("key").policy("p")).unwrap();
    assert_eq!([check(), check(), check()].map(|decision| decision.allowed()), [true, true, false]);
    manager.publish(&DOCUMENT.replace("2/", "5/"), 1).unwrap().unwrap();
    assert_eq!(blocking.admin().wait_for_version(2, SOON).unwrap().version, 2);
    assert!(check().allowed());
    // A bad document, and a server that is away, keep the configuration.
    manager.publish("polylimit = 2", 2).unwrap().unwrap();
    until("the error is reported", SOON, || limiter.admin().configuration().unwrap().error.map(drop));
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
    assert_eq!(limiter.admin().configuration().unwrap().version, 2);
    assert!(limiter.policy("p").is_some());
}

/// The limiter of one process publishes, and that of another one follows.
fn two_limiters(server: &Server) -> [Limiter; 2] {
    [(); 2].map(|()| build(&format!("{}?configuration=store", server.url())))
}

#[test]
fn blocking_limiters_publish_change_and_roll_back() {
    let server = Server::start(Kind::Redis, &[]);
    let [writer, reader] = two_limiters(&server).map(|limiter| limiter.blocking());
    let first =
        writer.admin().publish(DOCUMENT, PublishOptions::default().by("ann").why("the first")).unwrap();
    assert_eq!((first.version, &*first.source), (1, "store"));
    assert_eq!(reader.admin().wait_for_version(1, SOON).unwrap().digest, first.digest);
    let remaining = || reader.check(Request::new("key").policy("p")).unwrap().remaining();
    assert_eq!(remaining(), 1);
    let conflict =
        writer.admin().publish(DOCUMENT, PublishOptions::default().expected_version(9)).unwrap_err();
    assert_eq!(conflict.kind(), ErrorKind::InvalidArgument);
    let larger = DOCUMENT.replace("2/", "5/");
    let second = writer.admin().publish(&larger, PublishOptions::default().expected_version(1)).unwrap();
    assert_eq!(
        (second.version, reader.admin().wait_for_version(2, SOON).unwrap().digest),
        (2, second.digest)
    );
    assert_eq!(remaining(), 3);

    let entry =
        writer.admin().set_entry("override p key", r#"{"numbers": "9/hour", "why": "has paid"}"#).unwrap();
    assert_eq!((entry.version, reader.admin().wait_for_version(3, SOON).unwrap().version), (3, 3));
    assert_eq!(remaining(), 6);
    writer.admin().delete_entry("override p key").unwrap();
    // Changes of entries raise the version alone.
    let there = reader.admin().wait_for_version(4, SOON).unwrap();
    assert_eq!((there.version, there.document_version), (4, 2));
    let expecting =
        |version| writer.admin().publish(&larger, PublishOptions::default().expected_version(version));
    expecting(there.version).unwrap_err();
    let back = writer.admin().rollback(1, PublishOptions::default().by("bob")).unwrap();
    assert_eq!((back.version, back.digest), (5, first.digest));
    assert_eq!(reader.admin().wait_for_version(5, SOON).unwrap().version, 5);
    assert!(!reader.check(Request::new("key").policy("p")).unwrap().allowed());
    let history = reader.admin().configuration_history(9).unwrap();
    let told: Vec<_> =
        history.iter().map(|change| (change.version, change.document_version, &*change.by)).collect();
    assert_eq!(told[0], (5, Some(3), "bob"));
    assert_eq!(told.iter().map(|(version, ..)| *version).collect::<Vec<_>>(), [5, 4, 3, 2, 1]);
    assert_eq!((told[4].1, told[4].2, &*history[4].why), (Some(1), "ann", "the first"));
    assert_eq!(&*history[2].entries[0].0, "override p key");
}

#[test]
fn limiters_refuse_to_publish_a_document_that_has_lost_the_policies() {
    let server = Server::start(Kind::Redis, &[]);
    let [writer, reader] = two_limiters(&server).map(|limiter| limiter.blocking());
    let bare = "polylimit = 1\n";
    writer.admin().publish(bare, PublishOptions::default()).unwrap();
    writer.admin().publish(DOCUMENT, PublishOptions::default()).unwrap();
    for error in [
        writer.admin().publish(bare, PublishOptions::default()).unwrap_err(),
        writer.admin().publish(bare, PublishOptions::default().expected_version(2)).unwrap_err(),
        writer.admin().rollback(1, PublishOptions::default()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("it may be incomplete"), "{error}");
    }
    let there = reader.admin().wait_for_version(2, SOON).unwrap();
    assert_eq!((there.version, there.document_version), (2, 2));
    let off = writer.admin().publish("polylimit = 1\nenabled = false\n", PublishOptions::default()).unwrap();
    assert_eq!((off.version, reader.admin().wait_for_version(3, SOON).unwrap().digest), (3, off.digest));
}

/// As a file whose writing was interrupted after its first line.
#[test]
fn file_that_has_lost_the_policies_keeps_the_document_before() {
    let folder = tempfile::tempdir().unwrap();
    let (path, next) = (folder.path().join("limits.toml"), folder.path().join("next"));
    let replace = |text: &str| {
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &path).unwrap();
    };
    replace(DOCUMENT);
    let limiter = Limiter::builder().configuration(&format!("file:{}", path.display())).build().unwrap();
    replace("polylimit = 1\n");
    let error = until("the error is reported", SOON, || limiter.admin().configuration().unwrap().error);
    assert!(error.contains("it may be incomplete"), "{error}");
    assert!(limiter.policy("p").is_some());
    replace("polylimit = 1\n[policies]\n");
    until("no policies are active", SOON, || limiter.policy("p").is_none().then_some(()));
    until("no error is reported", SOON, || {
        limiter.admin().configuration().unwrap().error.is_none().then_some(())
    });
}

#[tokio::test]
async fn asynchronous_limiters_publish_and_change() {
    let server = Server::start(Kind::Redis, &[]);
    let [writer, reader] = two_limiters(&server);
    let document = format!("{DOCUMENT}rules = [{{ apply = [{{ policy = 'p', key = '{{user}}' }}] }}]\n");
    let published = writer.admin().publish(&document, PublishOptions::default()).await.unwrap();
    assert_eq!(
        reader.admin().wait_for_version(published.version, SOON).await.unwrap().digest,
        published.digest
    );
    let terms = || ReservationTerms {
        id: ReservationId::random().unwrap(),
        ttl: Duration::from_secs(30),
        timeout: Duration::ZERO,
        remember: Duration::ZERO,
    };
    let alice = RequestAttributes::new().attribute("user", "alice");
    assert_eq!(reader.decide(&alice, &terms()).await.unwrap().decisions[0].decision.remaining(), 1);
    let denied = writer.admin().set_entry("deny user alice", "{}").await.unwrap();
    reader.admin().wait_for_version(denied.version, SOON).await.unwrap();
    assert_eq!(reader.decide(&alice, &terms()).await.unwrap().status(), Some(403));
    let admitted = writer.admin().delete_entry("deny user alice").await.unwrap();
    reader.admin().wait_for_version(admitted.version, SOON).await.unwrap();
    assert!(reader.decide(&alice, &terms()).await.unwrap().allowed);
}

#[test]
fn options_of_the_source_are_checked() {
    let error = |builder: polylimit::LimiterBuilder| builder.build().unwrap_err().message().to_owned();
    let redis = || Limiter::builder().store("redis://127.0.0.1:1?configuration=store");
    assert!(error(Limiter::builder().configuration("store")).contains("this store keeps no document"));
    assert!(
        error(Limiter::builder().configuration("here"))
            .contains("allowed is file:PATH, store or store+file:PATH")
    );
    assert!(error(Limiter::builder().copy("/copy")).contains("copy is given without configuration"));
    assert!(error(redis().configuration("file:/limits.toml")).contains("leave one out"));
    assert!(error(redis().copy("")).contains("copy is"));
    redis().configuration("store").build().unwrap();
}
