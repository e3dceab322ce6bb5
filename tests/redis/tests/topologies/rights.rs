//! The rights that the doctor asks for are enough for everything, and none of them is too many.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use polylimit::{Limiter, Outage, Policy, Request, Severity, Source};
use polylimit_test_servers::{Cluster, Kind, Server};

use super::shards::slot;
use super::{limiter, quiet, runtime, with};

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
/// Its log grows beyond what is read and written as a whole, and lives on from one second to the next.
const LONG: &str = "1000000/s sliding_log";
/// A key whose slot is on its way to another node.
const MOVING: &str = "moving";

/// The line that the doctor prints for a user without rights.
fn least_rights(url: &str, servers: &[&Server]) -> Vec<String> {
    allow(servers, &["+time"]);
    let findings = runtime().block_on(limiter(url, "1/s").doctor()).unwrap();
    let (_, line) = findings
        .iter()
        .find_map(|finding| finding.message.split_once("the user needs "))
        .expect("the doctor says which rights are needed");
    line.split(' ').map(str::to_owned).collect()
}

fn allow(servers: &[&Server], rights: &[impl AsRef<str>]) {
    let mut command = vec!["ACL", "SETUSER", "limits", "reset", "on", ">word"];
    command.extend(rights.iter().map(AsRef::as_ref));
    for server in servers {
        server.command(&command);
        // So that the scripts have to be sent.
        server.command(&["SCRIPT", "FLUSH"]);
    }
}

/// Does everything that a limiter can do; says what the store did not do.
fn everything(url: &str, servers: &[&Server]) -> Result<(), String> {
    let mut builder = Limiter::builder().store(&with(url, "deadline=2s&denial_cache_max=0"));
    for (name, quotas) in POLICIES.into_iter().chain([("long", LONG)]) {
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
                answered("check_many", &decision.unwrap())?;
            }
        }
        if servers.len() > 1 {
            decided(&limiter, Request::new(MOVING).policy("fixed")).await?;
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1_200) {
            decided(&limiter, Request::new("a").policy("long")).await?;
        }
        decided(&limiter, Request::new("a").policy("long").cost(2)).await?;
        let findings = limiter.doctor().await.unwrap();
        let mut of_channel = findings.iter().filter(|finding| finding.subject == "channel").peekable();
        if of_channel.peek().is_none() || of_channel.any(|finding| finding.severity != Severity::Fine) {
            return Err(format!("the channel: {findings:?}"));
        }
        let named =
            |server: &&Server| server.query::<String>(&["CLIENT", "LIST"]).contains(" name=polylimit ");
        if servers.iter().all(named) { Ok(()) } else { Err("the connection has no name".to_owned()) }
    })
}

async fn decided(limiter: &Limiter, request: Request<'_>) -> Result<(), String> {
    answered("check", &limiter.check(request).await.unwrap())
}

fn answered(what: &str, decision: &polylimit::Decision) -> Result<(), String> {
    if decision.source() == Source::Store { Ok(()) } else { Err(format!("{what}: {decision:?}")) }
}

async fn operations(limiter: &Limiter, request: Request<'_>) -> Result<(), String> {
    // Denied ones among them.
    for _ in 0..11 {
        decided(limiter, request).await?;
    }
    answered("peek", &limiter.peek(request).await.unwrap())?;
    for decision in limiter.check_many([request, request.cost(2), request]).await {
        answered("check_many", &decision.unwrap())?;
    }
    let usages = [
        ("charge", limiter.charge(request.cost(3)).await),
        ("refund", limiter.refund(request.cost(5)).await),
        ("take", limiter.take(request.cost(7)).await),
        // Nothing is left: the state goes.
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

/// All of the rights suffice, and without any one of them something fails.
fn none_too_few_and_none_too_many(url: &str, servers: &[&Server], of_interest: impl Fn(&str) -> bool) {
    let rights = least_rights(url, servers);
    println!("{}", rights.join(" "));
    allow(servers, &rights);
    everything(url, servers).unwrap();
    let given = rights.iter().filter(|right| right.starts_with(['+', '~', '&']) && of_interest(right));
    for left_out in given {
        let fewer: Vec<&String> = rights.iter().filter(|right| *right != left_out).collect();
        allow(servers, &fewer);
        let failure = everything(url, servers).expect_err(&format!("{left_out} is not needed"));
        println!("without {left_out}: {failure}");
    }
}

fn as_limits(url: &str) -> String {
    url.replacen("//", "//limits:word@", 1)
}

#[test]
fn of_one_server() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    none_too_few_and_none_too_many(&as_limits(&server.url()), &[&server], |_| true);
}

#[test]
fn the_documentation_names_the_same() {
    let _shared = quiet::shared();
    let cluster = Cluster::start(Kind::Redis, 1, 0);
    let asked_for = least_rights(&as_limits(&cluster.url()), &[cluster.node(0)]);
    let documentation = include_str!("../../../../docs/redis.md");
    let (_, section) = documentation.split_once("\n## Rights\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let is_right = |word: &&str| word.starts_with(['+', '-', '~', '&']);
    let words = section.split_whitespace().map(|word| word.trim_matches(['`', ',', '.']));
    // What is good to have or depends on the URL is not in every line of the doctor's.
    let documented: BTreeSet<&str> =
        words.filter(is_right).filter(|word| !["+info", "+select"].contains(word)).collect();
    assert_eq!(documented, asked_for.iter().map(String::as_str).filter(is_right).collect());
}

#[test]
fn of_another_database() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Valkey, &[]);
    let url = format!("{}/1?prefix=shop", as_limits(&server.url()));
    none_too_few_and_none_too_many(&url, &[&server], |right| right.contains('~') || right.contains("select"));
}

#[test]
fn of_a_cluster() {
    let _shared = quiet::shared();
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind, 2, 0);
        let nodes = [cluster.node(0), cluster.node(1)];
        let from = cluster.owner_of(slot(MOVING));
        let ids: Vec<String> = nodes.iter().map(|node| node.query(&["CLUSTER", "MYID"])).collect();
        let moving = slot(MOVING).to_string();
        nodes[1 - from].command(&["CLUSTER", "SETSLOT", &moving, "IMPORTING", &ids[from]]);
        nodes[from].command(&["CLUSTER", "SETSLOT", &moving, "MIGRATING", &ids[1 - from]]);
        let only = |right: &str| right.contains("cluster") || right.contains("asking");
        none_too_few_and_none_too_many(&as_limits(&cluster.url()), &nodes, only);
    }
}
