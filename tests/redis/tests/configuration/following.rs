//! Every follower notices every change, soon, whatever happens to the log.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylimit_test_servers::{Cluster, FaultProxy, Kind, Sentinels, Server, until};

use super::support::{
    SOON, follow, follow_published, key, publish_by_hand, until_document, until_error, until_no_error,
};

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

#[test]
fn processes_notice_100_changes_within_a_second() {
    const PROCESSES: usize = 8;
    const CHANGES: u64 = 100;
    let server = Server::start(Kind::Redis, &[]);
    let manager = follow(&server.url());
    manager.publish("polylimit = 1", 0).unwrap().unwrap();
    let (tell, told) = channel();
    let _processes: Vec<Process> = (0..PROCESSES)
        .map(|at| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_polylimit-follower"));
            command.arg(server.url());
            // Half of them are limiters in a forked child.
            if at % 2 == 1 {
                command.arg("fork");
            }
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let (output, tell) = (BufReader::new(child.stdout.take().unwrap()), tell.clone());
            std::thread::spawn(move || {
                for line in output.lines() {
                    let line = line.unwrap();
                    let (version, at_us) = line.split_once(' ').unwrap();
                    let _ = tell.send((version.parse::<u64>().unwrap(), at_us.parse::<u128>().unwrap()));
                }
            });
            Process(child)
        })
        .collect();
    let mut ready = 0;
    while ready < PROCESSES {
        assert_eq!(told.recv_timeout(SOON).unwrap().0, 1);
        ready += 1;
    }
    let mut slowest = Duration::ZERO;
    let mut sum = Duration::ZERO;
    for version in 2..2 + CHANGES {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        if version % 2 == 0 {
            manager.publish(&format!("polylimit = 1 # {version}"), version / 2).unwrap().unwrap();
        } else {
            manager.change(&[("deny user a", Some("{}"))]).unwrap();
        }
        for _ in 0..PROCESSES {
            let (seen, at_us) = told.recv_timeout(SOON).unwrap();
            assert_eq!(seen, version);
            let took = Duration::from_micros(u64::try_from(at_us.saturating_sub(began)).unwrap());
            (slowest, sum) = (slowest.max(took), sum + took);
        }
    }
    let mean = sum / u32::try_from(CHANGES).unwrap() / u32::try_from(PROCESSES).unwrap();
    println!(
        "{PROCESSES} processes noticed {CHANGES} changes after {mean:?} on average, the slowest after {slowest:?}"
    );
    // A second, and what a busy machine may take.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[test]
fn limiters_of_one_process_share_a_connection() {
    let server = Server::start(Kind::Redis, &[]);
    let followers = [(); 5].map(|()| follow(&server.url()));
    followers[0].publish("one", 0).unwrap().unwrap();
    for follower in &followers {
        until_document(follower, "one");
    }
    let clients = || {
        let list: String = server.query(&["CLIENT", "LIST"]);
        list.lines().filter(|line| line.contains(" cmd=xread ")).count()
    };
    until("one connection reads", SOON, || (clients() == 1).then_some(()));
    let late = follow(&server.url());
    assert_eq!(late.document().as_deref(), Some("one"));
    drop(followers);
    late.publish("two", 1).unwrap().unwrap();
    until_document(&late, "two");
    drop(late);
    until("the connection ends", SOON, || (clients() == 0).then_some(()));
}

#[test]
fn everything_is_loaded_again_when_the_log_was_cut() {
    let server = Server::start(Kind::Valkey, &[]);
    let proxy = FaultProxy::start(server.address());
    let manager = follow(&server.url());
    manager.publish("one", 0).unwrap().unwrap();
    let followed = follow_published(&server.url_at(proxy.port()));
    proxy.set_refusing(true);
    proxy.cut();
    until_error(&followed, "cannot be reached");
    for at in 0..20 {
        manager.change(&[(&format!("deny user {at}"), Some("{}"))]).unwrap();
    }
    manager.publish("two", 1).unwrap().unwrap();
    server.command(&["XTRIM", &key(":log"), "MAXLEN", "2"]);
    proxy.set_refusing(false);
    proxy.pass();
    assert!(followed.wait_for_version(22, SOON));
    assert_eq!((followed.document().as_deref(), followed.entries().len()), (Some("two"), 20));
    until_no_error(&followed);
}

#[test]
fn many_changes_at_once_are_all_applied() {
    let server = Server::start(Kind::Redis, &[]);
    let manager = follow(&server.url());
    manager.publish("one", 0).unwrap().unwrap();
    let followed = follow_published(&format!("{}?client_name=other", server.url()));
    // Within one transaction, so that a reader finds more records than it reads at once.
    let add = "for i = 1, 350 do local after = redis.call('HGET', KEYS[1], 'last')
               local version = redis.call('HINCRBY', KEYS[1], 'version', 1)
               redis.call('HSET', KEYS[2], 'deny user ' .. i, '{}')
               local id = redis.call('XADD', KEYS[3], '*', 'version', version, 'after', after, 'deny user ' .. i, '{}')
               redis.call('HSET', KEYS[1], 'last', id) end";
    server.command(&["EVAL", add, "3", &key(""), &key(":entries"), &key(":log")]);
    assert!(followed.wait_for_version(351, SOON));
    assert_eq!(followed.entries().len(), 350);
    // Record by record, over several reads: everything was loaded once.
    assert!((4..=6).contains(&followed.applied()), "{}", followed.applied());
}

#[test]
fn log_that_begins_anew_with_older_ids_is_followed() {
    let server = Server::options(Kind::Redis).fake_clock().start();
    let followed = follow(&server.url());
    followed.publish("one", 0).unwrap().unwrap();
    until_document(&followed, "one");
    server.set_clock_offset_us(-3_600_000_000);
    followed.publish("two", 1).unwrap().unwrap();
    until_document(&followed, "two");
    server.command(&["FLUSHALL"]);
    until_error(&followed, "is gone");
    assert_eq!(followed.document().as_deref(), Some("two"));
    followed.publish("three", 0).unwrap().unwrap();
    until_document(&followed, "three");
    assert_eq!(followed.status().version, 1);
    until_no_error(&followed);
}

/// Every reply takes so long that the test can change the database between two commands of a load.
#[test]
fn configuration_stays_when_the_database_is_emptied_during_a_load() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let manager = follow(&server.url());
    manager.publish("one", 0).unwrap().unwrap();
    manager.change(&[("deny user a", Some("{}"))]).unwrap();
    let followed = follow_published(&server.url_at(proxy.port()));
    assert!(followed.wait_for_version(2, SOON));
    proxy.set_latency(Duration::from_millis(100), Duration::ZERO);
    // A gap in the log makes the follower load everything.
    let loads = proxy.commands("HSCAN");
    server.command(&["XTRIM", &key(":log"), "MAXLEN", "0"]);
    server.command(&["HINCRBY", &key(""), "version", "1"]);
    server.command(&["HSET", &key(""), "last", "1-1"]);
    // The main hash has been read, and the entries have not.
    until("a load", SOON, || (proxy.commands("HSCAN") > loads).then_some(()));
    server.command(&["FLUSHALL"]);
    until_error(&followed, "the configuration in Redis is gone");
    assert_eq!((followed.document().as_deref(), followed.entries().len()), (Some("one"), 1));
}

#[test]
fn document_stays_when_entries_are_set_in_an_emptied_database() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let manager = follow(&server.url());
    manager.publish("one", 0).unwrap().unwrap();
    manager.change(&[("deny user a", Some("{}"))]).unwrap();
    let followed = follow_published(&server.url_at(proxy.port()));
    assert!(followed.wait_for_version(2, SOON));
    server.command(&["FLUSHALL"]);
    manager.change(&[("deny user b", Some("{}"))]).unwrap();
    until_error(&followed, "the document in Redis is gone, and the last one stays: publish it again");
    let entries = || followed.entries().into_iter().map(|(entry, _)| entry).collect::<Vec<_>>();
    assert_eq!((followed.document().as_deref(), entries()), (Some("one"), vec!["deny user b".to_owned()]));
    // What is gone is looked up again and again, and nothing is loaded.
    let (loads, looks) = (proxy.commands("HSCAN"), proxy.commands("HMGET"));
    until("looks", SOON, || (proxy.commands("HMGET") > looks + 2).then_some(()));
    assert_eq!(proxy.commands("HSCAN"), loads);
    manager.publish("two", 0).unwrap().unwrap();
    until_document(&followed, "two");
    until_no_error(&followed);
    assert_eq!(entries(), ["deny user b"]);
}

#[test]
fn bad_document_keeps_the_one_before_and_entries_go_on() {
    let server = Server::start(Kind::Redis, &[]);
    let followed = follow(&server.url());
    until_error(&followed, "no document is published");
    publish_by_hand(&server, "bad one");
    until_error(&followed, "line 1, column 1");
    assert!(!followed.is_ready());
    let error = followed.ready(Duration::ZERO).unwrap_err();
    assert!(error.message().starts_with("there is no configuration yet: line 1, column 1"), "{error}");
    publish_by_hand(&server, "good");
    followed.ready(SOON).unwrap();
    until_no_error(&followed);
    publish_by_hand(&server, "bad two");
    until_error(&followed, "line 1, column 1");
    assert_eq!(followed.document().as_deref(), Some("good"));
    assert_eq!(followed.status().digest.as_deref(), Some("doog"));
    followed.change(&[("deny user a", Some("{}"))]).unwrap();
    assert!(followed.wait_for_version(4, SOON));
    assert_eq!((followed.document().as_deref(), followed.entries().len()), (Some("good"), 1));
    until_error(&followed, "line 1, column 1");
    followed.publish("better", 3).unwrap().unwrap();
    until_document(&followed, "better");
    until_no_error(&followed);
    // What is no configuration at all.
    server.command(&["SET", &key(""), "text"]);
    until_error(&followed, "another form");
    assert_eq!(followed.document().as_deref(), Some("better"));
}

/// Waits until two of these servers have the document.
fn until_replicated(servers: &[&Server]) {
    until("the replica has the document", SOON, || {
        let having = servers.iter().filter(|server| server.query::<u64>(&["DBSIZE"]) == 3);
        (having.count() == 2).then_some(())
    });
}

#[test]
fn new_primary_is_followed() {
    let sentinels = Sentinels::start(Kind::Redis);
    let followed = follow(&sentinels.url());
    followed.publish("one", 0).unwrap().unwrap();
    until_document(&followed, "one");
    until_replicated(&[sentinels.server(0), sentinels.server(1)]);
    sentinels.failover();
    let publish = |document: &str, expected| {
        until(document, SOON, || followed.publish(document, expected).ok()).unwrap();
    };
    publish("two", 1);
    until_document(&followed, "two");
}

#[test]
fn planned_failover_is_followed_while_the_old_primary_goes_on() {
    let sentinels = Sentinels::start(Kind::Redis);
    let followed = follow(&sentinels.url());
    followed.publish("one", 0).unwrap().unwrap();
    until_document(&followed, "one");
    until_replicated(&[sentinels.server(0), sentinels.server(1)]);
    sentinels.planned_failover();
    until("the document is published", SOON, || followed.publish("two", 1).ok()).unwrap();
    until_document(&followed, "two");
}

#[test]
fn failover_in_a_cluster_is_followed() {
    let cluster = Cluster::start(Kind::Redis, 3, 1);
    let followed = follow(&cluster.url());
    followed.publish("one", 0).unwrap().unwrap();
    until_document(&followed, "one");
    until_replicated(&(0..cluster.len()).map(|node| cluster.node(node)).collect::<Vec<_>>());
    let owner = cluster.owner_of(cluster.slot_of(key("")));
    cluster.kill_primary(owner);
    cluster.wait_until_ok();
    until("the document is published", SOON, || followed.publish("two", 1).ok()).unwrap();
    until_document(&followed, "two");
}

#[test]
fn server_that_hangs_is_told_and_followed_again() {
    let server = Server::start(Kind::Redis, &[]);
    let followed = follow(&server.url());
    followed.publish("one", 0).unwrap().unwrap();
    until_document(&followed, "one");
    server.stop();
    until_error(&followed, "cannot be reached");
    let status = followed.status();
    assert!(status.unreachable_since_us.unwrap() > status.applied_at_us.unwrap());
    server.cont();
    until_no_error(&followed);
    assert_eq!(followed.status().unreachable_since_us, None);
    followed.publish("two", 1).unwrap().unwrap();
    until_document(&followed, "two");
}

#[test]
fn process_ends_while_it_follows() {
    let server = Server::start(Kind::Redis, &[]);
    follow(&server.url()).publish("one", 0).unwrap().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylimit-follower"));
    let mut child = command.arg(server.url()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("1 "), "{line}");
    child.stdin.take().unwrap().flush().unwrap();
    until("the process ends", SOON, || child.try_wait().unwrap());
}
