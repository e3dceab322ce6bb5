//! Documents and entries are published, compared with what was expected, reported by the history, and published again.

use polylimit_test_servers::{Cluster, Kind, Server};

use super::support::{SOON, follow, follow_published, key, until_document, until_error};

#[test]
fn document_is_published_only_over_the_expected_one() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let manager = follow(&server.url());
        assert_eq!(manager.publish("one", 1).unwrap(), Err(0));
        assert_eq!(manager.publish("one", 0).unwrap(), Ok(1));
        assert_eq!(manager.publish("two", 0).unwrap(), Err(1));
        assert_eq!(manager.publish("two", 1).unwrap(), Ok(2));
        assert_eq!(manager.load().unwrap(), (Some("two".to_owned()), 0));
        let fields: Vec<String> =
            server.query(&["HMGET", &key(""), "version", "document_version", "document", "digest", "last"]);
        let sha256_of_two = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3";
        assert_eq!(fields[..4], ["2", "2", "two", sha256_of_two]);
        let last: Vec<(String, Vec<String>)> =
            server.query(&["XREVRANGE", &key(":log"), "+", "-", "COUNT", "1"]);
        assert_eq!(last[0].0, fields[4]);
        assert_eq!(last[0].1[..2], ["version", "2"]);
    }
}

/// Followers would refuse it, and nothing would change any more.
#[test]
fn document_that_has_lost_the_policies_is_not_published() {
    let server = Server::start(Kind::Redis, &[]);
    let manager = follow(&server.url());
    let [bare, policies] =
        ["{\"polylimit\":1}", "{\"policies\":{\"p\":{\"quotas\":\"2/hour\"}},\"polylimit\":1}"];
    assert_eq!(manager.publish(bare, 0).unwrap(), Ok(1));
    assert_eq!(manager.publish(policies, 1).unwrap(), Ok(2));
    for error in [manager.publish(bare, 2).unwrap_err(), manager.rollback(1).unwrap_err()] {
        assert!(error.message().contains("the one in force has 1: it may be incomplete"), "{error}");
    }
    assert_eq!(manager.publish(bare, 1).unwrap(), Err(2), "it has another version than the expected one");
    assert_eq!(manager.load().unwrap().0.as_deref(), Some(policies));
    assert_eq!(manager.publish("{\"policies\":{},\"polylimit\":1}", 2).unwrap(), Ok(3));
    assert_eq!(manager.publish(bare, 3).unwrap(), Ok(4));
    assert_eq!(manager.rollback(2).unwrap(), Ok(5));
    assert_eq!(manager.publish("{\"enabled\":false,\"polylimit\":1}", 5).unwrap(), Ok(6));
    // A document of a later version cannot be compared.
    assert_eq!(manager.publish("{\"polylimit\":2}", 6).unwrap(), Ok(7));
    assert_eq!(manager.publish(bare, 7).unwrap(), Ok(8));
}

#[test]
fn of_concurrent_publishers_one_wins() {
    let server = Server::start(Kind::Redis, &[]);
    let managers = [(); 4].map(|()| follow(&server.url()));
    let wins: usize = std::thread::scope(|scope| {
        let publish = |manager| {
            move || {
                let publish =
                    |expected| polylimit::testing::configuration::Followed::publish(manager, "x", expected);
                (0..10).filter(|expected| publish(*expected).unwrap().is_ok()).count()
            }
        };
        let threads: Vec<_> = managers.iter().map(|manager| scope.spawn(publish(manager))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let versions: u64 = server.query(&["HGET", &key(""), "document_version"]);
    assert_eq!(wins as u64, versions);
}

#[test]
fn last_32_documents_can_be_published_again() {
    let server = Server::start(Kind::Valkey, &[]);
    let manager = follow(&server.url());
    for version in 0..40 {
        manager.publish(&format!("document {}", version + 1), version).unwrap().unwrap();
    }
    // Each in canonical form and as its author has written it.
    assert_eq!(server.query::<u64>(&["HLEN", &key(":documents")]), 2 * 32);
    assert_eq!(manager.rollback(9).unwrap(), Ok(41));
    until_document(&manager, "document 9");
    let error = manager.rollback(8).unwrap_err();
    assert!(error.message().contains("document 8 does not exist"), "{error}");
    assert_eq!(manager.rollback(40).unwrap(), Ok(42));
    until_document(&manager, "document 40");
}

#[test]
fn history_has_author_change_and_reason() {
    let server = Server::start(Kind::Redis, &[]);
    let manager = follow(&server.url());
    manager.publish("one", 0).unwrap().unwrap();
    manager.change(&[("deny user a", Some("{}")), ("allow user b", Some(r#"{"why":"x"}"#))]).unwrap();
    manager.publish("two", 1).unwrap().unwrap();
    manager.change(&[("deny user a", None)]).unwrap();
    manager.rollback(1).unwrap().unwrap();
    let history = manager.history(10).unwrap();
    let told: Vec<_> = history.iter().map(|(version, by, why, _)| (*version, &**by, &**why)).collect();
    let author = [(5, "it was better"), (4, "entries"), (3, "a change"), (2, "entries"), (1, "a change")];
    assert_eq!(told, author.map(|(version, why)| (version, "tests", why)));
    let documents: Vec<_> = history.iter().filter_map(|(.., what)| what.as_ref().ok().copied()).collect();
    assert_eq!(documents, [3, 2, 1]);
    assert_eq!(history[1].3, Err(vec![("deny user a".to_owned(), None)]));
    assert_eq!(manager.history(2).unwrap(), history[..2]);
    // Over several reads of the log.
    for at in 0..450 {
        manager.change(&[("deny user c", Some(&format!("{{\"at\":{at}}}")))]).unwrap();
    }
    let versions: Vec<u64> = manager.history(1_000).unwrap().iter().map(|past| past.0).collect();
    assert_eq!(versions, (1..=455).rev().collect::<Vec<_>>());
}

#[test]
fn up_to_100_entries_change_at_once() {
    let server = Server::start(Kind::Redis, &[]);
    let manager = follow(&server.url());
    manager.publish("one", 0).unwrap().unwrap();
    let entries: Vec<String> = (0..101).map(|at| format!("deny user {at}")).collect();
    let sets: Vec<_> = entries.iter().map(|entry| (&**entry, Some("{}"))).collect();
    let error = manager.change(&sets).unwrap_err();
    assert!(error.message().contains("101 entries are changed at once: allowed are 1 to 100"), "{error}");
    assert!(manager.change(&[]).is_err());
    assert!(manager.change(&[("deny", Some("{}"))]).is_err());
    assert!(manager.change(&[("deny user a", Some(""))]).is_err());
    for part in sets.chunks(100) {
        manager.change(part).unwrap();
    }
    assert!(manager.wait_for_version(3, SOON));
    assert_eq!(manager.entries().len(), 101);
    // One entry twice: the last change counts.
    assert_eq!(
        manager.change(&[("deny user 0", None), ("deny user 0", Some("{}")), ("deny user 1", None)]).unwrap(),
        4
    );
    assert!(manager.wait_for_version(4, SOON));
    assert_eq!(manager.entries().len(), 100);
    assert_eq!(manager.load().unwrap(), (Some("one".to_owned()), 100));
}

#[test]
fn entries_beyond_the_bound_are_refused_and_all_those_below_are_loaded() {
    let server = Server::start(Kind::Redis, &[]);
    let manager = follow(&server.url());
    manager.publish("one", 0).unwrap().unwrap();
    let fill = "for i = 1, 99999 do redis.call('HSET', KEYS[1], 'deny user ' .. i, '{}') end";
    server.command(&["EVAL", fill, "1", &key(":entries")]);
    assert!(manager.change(&[("deny user a", Some("{}")), ("deny user b", Some("{}"))]).is_err());
    manager
        .change(&[("deny user a", Some("{}")), ("deny user b", Some("{}")), ("deny user 1", None)])
        .unwrap();
    manager.change(&[("deny user a", Some("[]"))]).unwrap();
    let error = manager.change(&[("deny user c", Some("{}"))]).unwrap_err();
    assert!(error.message().contains("there would be 100001 entries: allowed are up to 100000"), "{error}");
    let followed = follow_published(&server.url());
    // The other limiter of this process has not seen what was set by hand; a follower of its own has.
    drop((manager, followed));
    let followed = follow(&server.url());
    followed.ready(6 * SOON).unwrap();
    assert_eq!(followed.entries().len(), 100_000);
    server.command(&["HSET", &key(":entries"), "deny user c", "{}"]);
    server.command(&["HSET", &key(""), "last", "1-1"]);
    until_error(&followed, "more than 100000 entries");
    assert_eq!(followed.entries().len(), 100_000);
}

#[test]
fn configuration_in_a_cluster_is_on_one_node() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 3, 0);
        let manager = follow(&cluster.url());
        manager.publish("one", 0).unwrap().unwrap();
        manager.change(&[("deny user a", Some("{}"))]).unwrap();
        assert!(manager.wait_for_version(2, SOON));
        let owner = cluster.owner_of(cluster.slot_of(key("")));
        assert_eq!(cluster.node(owner).query::<u64>(&["DBSIZE"]), 4);
        assert_eq!(manager.rollback(1).unwrap(), Ok(2));
        assert!(manager.wait_for_version(3, SOON));
    }
}
