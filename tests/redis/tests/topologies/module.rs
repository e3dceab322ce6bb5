//! Servers with polylimit's module: who uses it, what happens when it goes, and what its commands answer to people.

use std::time::Duration;

use polylimit::admin::Severity;
use polylimit::decision::{Degradation, Source};
use polylimit::reservation::ReserveOptions;
use polylimit::storage::Outage;
use polylimit::{Limiter, Request};
use polylimit_redis_tests::{options, with};
use polylimit_test_servers::redis::{self, Value};
use polylimit_test_servers::{Cluster, Dataset, Kind, Server, module, until};

use super::support::{limiter, runtime, shared};

const QUOTAS: &str = "1_000_000/day fixed_window; 2_000_000/day token_bucket; 3_000_000/day";
const LOGS: &str = "1_000_000/day sliding_log; 2_000_000/day token_bucket; 3_000_000/h sliding_log";
const BY_CALENDAR: &str = "1_000_000/year from=07-01; 2_000_000/month zone=Europe/Berlin; 3_000_000/day";
const BOUND: Duration = Duration::from_secs(20);

/// A limiter that does not wait for less than a busy machine needs.
fn patient(url: &str, quotas: &str) -> Limiter {
    limiter(&with(url, "deadline=20s&denial_cache_max=0"), quotas)
}

fn check_many(limiter: &Limiter, key: &str, count: u64) {
    for decision in limiter.blocking().check_many((0..count).map(|_| Request::new(key))) {
        let decision = decision.unwrap();
        assert_eq!((decision.source(), decision.allowed()), (Source::Store, true), "{decision:?}");
    }
}

fn spent(limiter: &Limiter, key: &str) -> u64 {
    let decision = limiter.blocking().peek(key).unwrap();
    assert_eq!(decision.source(), Source::Store, "{decision:?}");
    1_000_000 - decision.remaining()
}

/// A command by hand; an error in the server's words.
fn by_hand(server: &Server, command: &[&str]) -> Result<Value, String> {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut built = redis::cmd(command[0]);
    built.arg(&command[1..]);
    built.query(&mut connection).map_err(|error: redis::RedisError| error.to_string())
}

fn numbers(server: &Server, command: &[&str]) -> Vec<i64> {
    redis::from_redis_value(by_hand(server, command).unwrap()).unwrap()
}

/// The values of all keys, and when each expires.
fn contents(server: &Server) -> Vec<(String, Vec<u8>, i64)> {
    let mut keys: Vec<String> = server.query(&["KEYS", "*"]);
    keys.sort_unstable();
    let content = |key: String| {
        let (value, until) = (server.query(&["GET", &key]), server.query(&["PEXPIRETIME", &key]));
        (key, value, until)
    };
    keys.into_iter().map(content).collect()
}

/// Some of every operation.
fn operate(limiter: &Limiter) {
    let blocking = limiter.blocking();
    check_many(limiter, "checked", 40);
    blocking.charge(Request::new("charged").cost(5)).unwrap();
    blocking.refund(Request::new("charged").cost(2)).unwrap();
    blocking.take(Request::new("taken").cost(7)).unwrap();
    check_many(limiter, "forgotten", 1);
    blocking.reset("forgotten").unwrap();
    let options = ReserveOptions::default().ttl(Duration::from_secs(3_600));
    let kept = blocking.reserve(Request::new("reserved").cost(3), options).unwrap();
    let committed = blocking.reserve(Request::new("reserved").cost(4), options).unwrap();
    committed.commit_blocking(2).unwrap();
    blocking.admin().block("blocked", Duration::from_secs(600)).unwrap();
    std::mem::forget(kept);
}

#[test]
fn module_decides_on_servers_that_have_it() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::options(kind).module().start();
        let limiter = patient(&server.url(), QUOTAS);
        operate(&limiter);
        let stats = limiter.stats();
        assert_eq!((stats.module_calls, stats.scripts_sent), (stats.calls, 0), "{kind:?} {stats:?}");
        let findings = runtime().block_on(limiter.admin().doctor()).unwrap();
        let found = findings.iter().find(|finding| finding.subject == "module").unwrap();
        assert_eq!(found.severity, Severity::Fine, "{found}");
        for (prefix, quotas) in [("logs", LOGS), ("calendar", BY_CALENDAR)] {
            let limiter = patient(&with(&server.url(), &format!("prefix={prefix}")), quotas);
            operate(&limiter);
            let stats = limiter.stats();
            assert_eq!((stats.module_calls, stats.scripts_sent), (stats.calls, 0), "{quotas} {stats:?}");
        }
        let forbidden = patient(&with(&server.url(), "module=false"), QUOTAS);
        assert_eq!(spent(&forbidden, "checked"), 40);
        assert_eq!(forbidden.stats().module_calls, 0);
    }
}

#[test]
fn cluster_with_the_module_decides_on_each_node() {
    let _shared = shared();
    let line = format!("loadmodule {}", module().display());
    let cluster = Cluster::start_with(Kind::Valkey, 3, 0, &[&line]);
    let limiter = patient(&cluster.url(), QUOTAS);
    let keys: Vec<String> = (0..200).map(|number| format!("user:{number}")).collect();
    for decision in limiter.blocking().check_many(&keys) {
        assert!(decision.unwrap().allowed());
    }
    assert!(keys.iter().all(|key| spent(&limiter, key) == 1));
    let stats = limiter.stats();
    assert_eq!((stats.module_calls, stats.scripts_sent), (stats.calls, 0), "{stats:?}");
    // The server knows the keys of a call, and refuses those of other nodes.
    let refused: Vec<bool> = (0..3)
        .map(|node| {
            let refusal = by_hand(cluster.node(node), &["POLYLIMIT.CHECK", "5/day token_bucket", "user"]);
            refusal.is_err_and(|refusal| refusal.to_lowercase().contains("moved"))
        })
        .collect();
    assert_eq!(refused.iter().filter(|refused| **refused).count(), 2, "{refused:?}");
}

#[test]
fn unloaded_module_leaves_everything_to_scripts_and_each_check_counts_once() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).module().start();
    let limiter = patient(&server.url(), QUOTAS);
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let limiter = limiter.clone();
            std::thread::spawn(move || (0..150).for_each(|_| check_many(&limiter, "user", 10)))
        })
        .collect();
    until("the module decides", BOUND, || (limiter.stats().module_calls > 20).then_some(()));
    server.command(&["MODULE", "UNLOAD", "polylimit"]);
    for caller in callers {
        caller.join().unwrap();
    }
    let stats = limiter.stats();
    assert!(stats.module_calls < stats.calls && stats.scripts_sent > 0, "{stats:?}");
    assert_eq!((stats.unknown, stats.permanent), (0, 0), "{stats:?}");
    assert_eq!(spent(&limiter, "user"), 4 * 150 * 10);
    // Later connections find it again.
    server.command(&["MODULE", "LOAD", module().to_str().unwrap()]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    std::thread::sleep(Duration::from_millis(50));
    let before = limiter.stats().module_calls;
    check_many(&limiter, "user", 1);
    assert!(limiter.stats().module_calls > before);
}

#[test]
fn replica_without_the_module_and_append_only_file_have_the_same_keys() {
    let _shared = shared();
    let primary = Server::options(Kind::Redis).module().lines(&["appendonly yes"]).start();
    let replica = Server::start(Kind::Redis, &[&format!("replicaof 127.0.0.1 {}", primary.port())]);
    until("the replica follows", BOUND, || (replica.info("master_link_status") == "up").then_some(()));
    let limiter = patient(&primary.url(), QUOTAS);
    operate(&limiter);
    let logs = patient(&with(&primary.url(), "prefix=logs"), LOGS);
    operate(&logs);
    operate(&patient(&with(&primary.url(), "prefix=calendar"), BY_CALENDAR));
    // A log of more than 4 KiB is written in part.
    for _ in 0..450 {
        check_many(&logs, "checked", 1);
    }
    let written = contents(&primary);
    assert!(written.len() >= 20 && written.iter().all(|(.., until)| *until > 0), "{written:?}");
    until("the replica has everything", BOUND, || (contents(&replica) == written).then_some(()));
    // Without the module, and as primary.
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let promoted = patient(&replica.url(), QUOTAS);
    check_many(&promoted, "checked", 2);
    assert_eq!((spent(&promoted, "checked"), promoted.stats().module_calls), (42, 0));
    assert_eq!(spent(&patient(&with(&replica.url(), "prefix=logs"), LOGS), "checked"), 490);
    assert_eq!(spent(&patient(&with(&replica.url(), "prefix=calendar"), BY_CALENDAR), "checked"), 40);
    assert!(!promoted.blocking().check("blocked").unwrap().allowed());
    // From the file, with the module again.
    primary.kill();
    primary.restart(Dataset::Kept);
    assert_eq!(contents(&primary), written);
    assert_eq!(spent(&limiter, "checked"), 40);
}

#[test]
fn full_memory_wrong_types_and_foreign_values_are_handled_as_by_scripts() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).module().start();
    let limiters =
        [true, false].map(|module| patient(&with(&server.url(), &format!("module={module}")), QUOTAS));
    server.command(&["RPUSH", "polylimit:1:p:{list}", "x"]);
    server.command(&["RPUSH", "polylimit:1:p:{logged}:log:86400000000", "x"]);
    for module in [true, false] {
        let logs = patient(&with(&server.url(), &format!("module={module}")), LOGS);
        let decision = logs.blocking().check("logged").unwrap();
        assert_eq!(decision.degraded(), Some(Degradation::WrongType), "{decision:?}");
        assert_eq!(server.query::<Vec<String>>(&["KEYS", "*logged*"]).len(), 1);
    }
    for limiter in &limiters {
        let decision = limiter.blocking().check("list").unwrap();
        assert_eq!(decision.degraded(), Some(Degradation::WrongType), "{decision:?}");
        server.command(&["SET", "polylimit:1:p:{text}", "not a state"]);
        let decision = limiter.blocking().check("text").unwrap();
        assert_eq!((decision.source(), decision.allowed()), (Source::Store, false), "{decision:?}");
        assert_eq!(limiter.stats().healed, 1);
        let value: Vec<u8> = server.query(&["GET", "polylimit:1:p:{text}"]);
        assert!(value.len() > 60, "{value:?}");
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let decision = limiter.blocking().check("full").unwrap();
        assert_eq!(decision.degraded(), Some(Degradation::OutOfMemory), "{decision:?}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
    let [module, scripts] = limiters.map(|limiter| limiter.stats().module_calls);
    assert!(module > 0 && scripts == 0);
}

#[test]
fn user_without_the_right_to_the_module_gets_scripts() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).module().start();
    server.command(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-polylimit.decide"]);
    let url = server.url().replacen("://", "://app:secret@", 1);
    let limiter = patient(&url, QUOTAS);
    check_many(&limiter, "user", 20);
    assert_eq!(spent(&limiter, "user"), 20);
    let stats = limiter.stats();
    assert!(stats.module_calls < stats.calls && stats.permanent == 0, "{stats:?}");
    server.command(&["ACL", "SETUSER", "app", "-polylimit.version"]);
    let findings = runtime().block_on(patient(&url, QUOTAS).admin().doctor()).unwrap();
    let found = findings.iter().find(|finding| finding.subject == "module").unwrap();
    assert_eq!(found.severity, Severity::Advice, "{found}");
    assert!(found.message.contains("+polylimit.version +polylimit.decide"), "{found}");
}

#[test]
fn refunds_through_the_module_reach_other_processes() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).module().start();
    let cached = || {
        let options = options(&server.url()).deadline(BOUND).denial_cache_max(Duration::from_secs(3_600));
        polylimit_redis_tests::limiter(options, "1/day token_bucket", Outage::Deny)
    };
    let (denied, other) = (cached(), cached());
    assert!(denied.blocking().check("user").unwrap().allowed());
    until("the denial cache denies", BOUND, || {
        let decision = denied.blocking().check("user").unwrap();
        assert!(!decision.allowed());
        (decision.source() == Source::DenialCache).then_some(())
    });
    other.blocking().refund("user").unwrap();
    until("the denial is forgotten", BOUND, || {
        denied.blocking().check("user").unwrap().allowed().then_some(())
    });
    assert!(denied.stats().module_calls > 0 && other.stats().module_calls > 0);
}

#[test]
fn throttle_answers_as_redis_cell_does() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::options(kind).module().start();
        let throttle = |arguments: &[&str]| numbers(&server, &[&["CL.THROTTLE"], arguments].concat());
        // A burst of 15 and one more, 30 in a minute: one each 2 s.
        assert_eq!(throttle(&["user", "15", "30", "60"]), [0, 16, 15, -1, 2]);
        assert_eq!(throttle(&["user", "15", "30", "60", "15"])[..3], [0, 16, 0]);
        let [limited, limit, remaining, retry, reset] = throttle(&["user", "15", "30", "60", "1"])[..] else {
            panic!("five numbers")
        };
        assert_eq!((limited, limit, remaining), (1, 16, 0));
        assert!((1..=2).contains(&retry) && (20..=32).contains(&reset), "{retry} {reset}");
        // More than ever fits is never admitted, and nothing is always.
        assert_eq!(throttle(&["other", "15", "30", "60", "17"]), [1, 16, 16, -1, 0]);
        assert_eq!(throttle(&["other", "15", "30", "60", "0"]), [0, 16, 16, -1, 0]);
        assert_eq!(server.query::<Vec<String>>(&["KEYS", "*"]), ["user"]);
        assert!(server.query::<i64>(&["PTTL", "user"]) > 0);
    }
}

/// The commands of docs/module.md and the replies that it shows. A busy machine lets a second pass, or a minute.
#[test]
fn commands_of_the_page_reply_as_it_says() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).module().start();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/module.md")).unwrap();
    let block = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines: Vec<&str> = block.lines().collect();
    assert_eq!(lines.len(), 10);
    for pair in lines.chunks(2) {
        let command = pair[0].strip_prefix("> ").unwrap();
        // Words, of which those between quotes contain spaces.
        let parts = command.split('"').enumerate();
        let words: Vec<&str> = parts
            .flat_map(|(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
            .collect();
        let expected: Vec<i64> = serde_json::from_str(pair[1]).unwrap();
        let found = numbers(&server, &words);
        let is_near = |(found, expected): (&i64, &i64)| {
            found.abs_diff(*expected) <= if *expected > 1_000 { 60_000 } else { 1 }
        };
        assert_eq!(found[0], expected[0], "{command}");
        assert!(found.len() == 5 && found.iter().zip(&expected).all(is_near), "{command}: {found:?}");
    }
}

#[test]
fn check_by_hand_decides_by_any_quotas_and_shares_keys_with_limiters() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).module().start();
    let check = |arguments: &[&str]| numbers(&server, &[&["POLYLIMIT.CHECK"], arguments].concat());
    let limiter = patient(&server.url(), "3/day fixed_window; 10/day token_bucket");
    assert_eq!(limiter.blocking().check("user").unwrap().remaining(), 2);
    let key = "polylimit:1:p:{user}";
    let quotas = "3/day fixed_window; 10/day token_bucket";
    assert_eq!(check(&[quotas, key, "2"])[..3], [1, 0, -1]);
    let [allowed, remaining, retry, reset, delay] = check(&[quotas, key])[..] else { panic!("five numbers") };
    assert_eq!((allowed, remaining, delay), (0, 0, 0));
    assert!(retry > 60_000_000 && reset >= retry, "{retry} {reset}");
    assert!(!limiter.blocking().check("user").unwrap().allowed());
    // A window by the calendar is that of the server's clock.
    let monthly = patient(&server.url(), "7/month zone=Asia/Tokyo");
    assert_eq!(monthly.blocking().check("monthly").unwrap().remaining(), 6);
    let key = "polylimit:1:p:{monthly}";
    let [allowed, remaining, _, reset, _] = check(&["7/month zone=Asia/Tokyo", key, "4"])[..] else {
        panic!("five numbers")
    };
    let left_ms: i64 = server.query(&["PTTL", key]);
    assert_eq!((allowed, remaining), (1, 2));
    assert!(reset > 0 && reset.abs_diff(left_ms) < 60_000, "{reset} {left_ms}");
    assert_eq!(monthly.blocking().peek("monthly").unwrap().remaining(), 2);
}

#[test]
fn arguments_by_hand_are_checked() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).module().start();
    server.command(&["RPUSH", "list", "x"]);
    server.command(&["SET", "text", "12345678901234567890"]);
    for (command, words) in [
        (&["POLYLIMIT.CHECK", "5/day", "list"][..], "WRONGTYPE"),
        (&["POLYLIMIT.CHECK", "5/day", "text"], "none of polylimit's"),
        (&["POLYLIMIT.CHECK", "5/day", "key", "-1"], "the cost is \"-1\": allowed are 0 to 1000000000000"),
        (&["POLYLIMIT.CHECK", "5/days and nights", "key"], "quota"),
        (&["POLYLIMIT.CHECK", "5/day sliding_log", "key"], "key of its own"),
        (&["POLYLIMIT.DECIDE", "5/day sliding_log", "call", "", "key", "other"], "main key and its logs"),
        (&["POLYLIMIT.DECIDE", "5/day sliding_log", "call", "", "key"], "main key and its logs"),
        (&["POLYLIMIT.CHECK", "5 concurrent", "key"], "reserved"),
        (&["POLYLIMIT.CHECK", "5/day\nnow", "key"], "several lines"),
        (&["POLYLIMIT.CHECK", "5/day", "key", "1", "2"], "allowed are POLYLIMIT.CHECK"),
        (&["POLYLIMIT.CHECK"], ""),
        (&["CL.THROTTLE", "list", "1", "1", "1"], "WRONGTYPE"),
        (&["CL.THROTTLE", "text", "1", "1", "1"], "none of polylimit's"),
        (&["CL.THROTTLE", "key", "1", "1"], "allowed are CL.THROTTLE"),
        (&["CL.THROTTLE", "key", "x", "1", "1"], "max_burst is \"x\""),
        (&["CL.THROTTLE", "key", "1", "0", "1"], "count_per_period is \"0\""),
        (&["CL.THROTTLE", "key", "1", "1", "0"], "period is \"0\""),
        (&["CL.THROTTLE", "key", "1", "1", "1", "9999999999999"], "quantity is"),
        (&["POLYLIMIT.DECIDE", "5/day", "call", "", "key"], "the call is cut off"),
        (&["POLYLIMIT.DECIDE", "5/day", "call"], "an argument is missing"),
        (&["POLYLIMIT.DECIDE", "5/month", "call", "", "key"], "no window"),
        (&["POLYLIMIT.DECIDE", "5/month\nwindow 1 2\nwindow 2 3", "call", "", "key"], "has 2 windows"),
        (&["POLYLIMIT.DECIDE"], ""),
    ] {
        let refusal = by_hand(&server, command).unwrap_err();
        assert!(refusal.contains(words), "{command:?}: {refusal}");
    }
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 2);
}
