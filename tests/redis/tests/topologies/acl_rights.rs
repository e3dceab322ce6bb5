//! The ACL rights that the doctor names are sufficient for all operations, and each of them is necessary.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polylimit::admin::Severity;
use polylimit::decision::Source;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy, Request};
use polylimit_redis_tests::with;
use polylimit_test_servers::{Cluster, Kind, Server};

use super::support::{limiter, runtime, shared, slot};

const POLICIES: [(&str, &str); 7] = [
    ("token", "10/hour token_bucket burst=20"),
    ("leaky", "10/hour leaky_bucket"),
    ("stepped", "10/hour token_bucket step=5"),
    ("fixed", "10/hour fixed_window count_denied"),
    ("sliding", "10/hour sliding_window buckets=4"),
    ("log", "10/hour sliding_log"),
    (
        "all",
        "20/s leaky_bucket; 20/s token_bucket step=5; 20/s fixed_window; 20/s buckets=4; 20/s sliding_log",
    ),
];
/// Its log becomes too long to be read and written as a whole, and lasts for more than one period.
const LONG_LOG: &str = "1000000/s sliding_log";
/// From 4,096 bytes on a log is long; an entry has 10.
const LONG_LOG_ENTRIES: u32 = 450;
/// A key whose slot is being migrated to another node.
const MIGRATING: &str = "migrating";

/// The rights that the doctor names to a user without any.
fn least_rights(url: &str, servers: &[&Server]) -> Vec<String> {
    allow(servers, &["+time"]);
    let findings = runtime().block_on(limiter(url, "1/s").admin().doctor()).unwrap();
    let (_, line) = findings
        .iter()
        .find_map(|finding| finding.message.split_once("the user needs "))
        .unwrap_or_else(|| panic!("no finding names the rights: {findings:?}"));
    line.split(' ').map(str::to_owned).collect()
}

fn allow(servers: &[&Server], rights: &[impl AsRef<str>]) {
    let mut command = vec!["ACL", "SETUSER", "limits", "reset", "on", ">word"];
    command.extend(rights.iter().map(AsRef::as_ref));
    for server in servers {
        server.command(&command);
        // The limiter has to send the scripts again.
        server.command(&["SCRIPT", "FLUSH"]);
    }
}

/// Performs every operation of a limiter. Returns the first one that the store did not perform.
fn perform_everything(url: &str, servers: &[&Server]) -> Result<(), String> {
    let mut builder = Limiter::builder().store(&with(url, "deadline=2s&denial_cache_max=0"));
    for (name, quotas) in POLICIES.into_iter().chain([("long", LONG_LOG)]) {
        builder = builder.policy(Policy::parse(name, quotas).unwrap()).outage(name, Outage::Deny);
    }
    let limiter = builder.build().unwrap();
    runtime().block_on(async {
        for (policy, _) in POLICIES {
            // Keys of several slots.
            let keys = ["a", "b", "c", "d", "e", "f"];
            for key in keys {
                operations(&limiter, Request::new(key).policy(policy)).await?;
            }
            for decision in limiter.check_many(keys.map(|key| Request::new(key).policy(policy))).await {
                expect_store("check_many", &decision.unwrap())?;
            }
        }
        if servers.len() > 1 {
            check(&limiter, Request::new(MIGRATING).policy("fixed")).await?;
        }
        extend_expiry_of_long_log(&limiter).await?;
        check(&limiter, Request::new("a").policy("long").cost(2)).await?;
        let findings = limiter.admin().doctor().await.unwrap();
        let mut channel = findings.iter().filter(|finding| finding.subject == "channel").peekable();
        if channel.peek().is_none() || channel.any(|finding| finding.severity != Severity::Fine) {
            return Err(format!("the channel: {findings:?}"));
        }
        let named =
            |server: &&Server| server.query::<String>(&["CLIENT", "LIST"]).contains(" name=polylimit ");
        if servers.iter().all(named) { Ok(()) } else { Err("the connection has no name".to_owned()) }
    })
}

/// Checks until a log that was long has reached its next period twice: on one of these occasions it may be written as a whole.
async fn extend_expiry_of_long_log(limiter: &Limiter) -> Result<(), String> {
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let start = Instant::now();
    let (mut period, mut entries, mut extended) = (second(), 0, 0);
    while extended < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "{entries} checks in the last second");
        check(limiter, Request::new("a").policy("long")).await?;
        let now = second();
        if now > period {
            extended += u32::from(entries >= LONG_LOG_ENTRIES);
            (period, entries) = (now, 0);
        }
        entries += 1;
    }
    Ok(())
}

async fn check(limiter: &Limiter, request: Request<'_>) -> Result<(), String> {
    expect_store("check", &limiter.check(request).await.unwrap())
}

fn expect_store(what: &str, decision: &polylimit::Decision) -> Result<(), String> {
    if decision.source() == Source::Store { Ok(()) } else { Err(format!("{what}: {decision:?}")) }
}

async fn operations(limiter: &Limiter, request: Request<'_>) -> Result<(), String> {
    // Some of them are denied.
    for _ in 0..11 {
        check(limiter, request).await?;
    }
    expect_store("peek", &limiter.peek(request).await.unwrap())?;
    for decision in limiter.check_many([request, request.cost(2), request]).await {
        expect_store("check_many", &decision.unwrap())?;
    }
    let usages = [
        ("charge", limiter.charge(request.cost(3)).await),
        ("refund", limiter.refund(request.cost(5)).await),
        ("take", limiter.take(request.cost(7)).await),
        // This removes the state.
        ("refund", limiter.refund(request.cost(1_000)).await),
        ("charge", limiter.charge(request).await),
        ("reset", limiter.reset(request).await),
        ("take", limiter.take(request).await),
    ];
    for (what, usage) in usages {
        let usage = usage.unwrap();
        if usage.source() != Source::Store {
            return Err(format!("{what}: {usage:?}"));
        }
    }
    Ok(())
}

/// Asserts that all rights together are sufficient, and that an operation fails without any one of those selected.
fn assert_sufficient_and_necessary(url: &str, servers: &[&Server], is_selected: impl Fn(&str) -> bool) {
    let rights = least_rights(url, servers);
    println!("{}", rights.join(" "));
    allow(servers, &rights);
    perform_everything(url, servers).unwrap();
    let selected = rights.iter().filter(|right| right.starts_with(['+', '~', '&']) && is_selected(right));
    for left_out in selected {
        let fewer: Vec<&String> = rights.iter().filter(|right| *right != left_out).collect();
        allow(servers, &fewer);
        let failure = perform_everything(url, servers).expect_err(&format!("{left_out} is not needed"));
        println!("without {left_out}: {failure}");
    }
}

fn as_limits(url: &str) -> String {
    url.replacen("//", "//limits:word@", 1)
}

#[test]
fn rights_for_one_server_are_sufficient_and_necessary() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    assert_sufficient_and_necessary(&as_limits(&server.url()), &[&server], |_| true);
}

#[test]
fn documentation_lists_the_rights_that_the_doctor_names() {
    let _shared = shared();
    let cluster = Cluster::start(Kind::Redis, 1, 0);
    let named_by_doctor = least_rights(&as_limits(&cluster.url()), &[cluster.node(0)]);
    let documentation = include_str!("../../../../docs/redis.md");
    let (_, section) = documentation.split_once("\n## Rights\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let is_right = |word: &&str| word.starts_with(['+', '-', '~', '&']);
    let words = section.split_whitespace().map(|word| word.trim_matches(['`', ',', '.']));
    // The doctor does not name optional rights and rights that depend on the URL and on the configuration.
    let others = ["+info", "+select", "+xread", "+hmget", "+hscan", "+scan", "+pttl"];
    let documented: BTreeSet<&str> = words.filter(is_right).filter(|word| !others.contains(word)).collect();
    assert_eq!(documented, named_by_doctor.iter().map(String::as_str).filter(is_right).collect());
}

#[test]
fn rights_for_another_database_and_prefix_are_sufficient_and_necessary() {
    let _shared = shared();
    let server = Server::start(Kind::Valkey, &[]);
    let url = format!("{}/1?prefix=shop", as_limits(&server.url()));
    assert_sufficient_and_necessary(&url, &[&server], |right| {
        right.contains('~') || right.contains("select")
    });
}

#[test]
fn rights_for_a_cluster_are_sufficient_and_necessary() {
    let _shared = shared();
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 2, 0);
        let nodes = [cluster.node(0), cluster.node(1)];
        let from = cluster.owner_of(slot(MIGRATING));
        let ids: Vec<String> = nodes.iter().map(|node| node.query(&["CLUSTER", "MYID"])).collect();
        let migrating = slot(MIGRATING).to_string();
        nodes[1 - from].command(&["CLUSTER", "SETSLOT", &migrating, "IMPORTING", &ids[from]]);
        nodes[from].command(&["CLUSTER", "SETSLOT", &migrating, "MIGRATING", &ids[1 - from]]);
        let only = |right: &str| right.contains("cluster") || right.contains("asking");
        assert_sufficient_and_necessary(&as_limits(&cluster.url()), &nodes, only);
    }
}
