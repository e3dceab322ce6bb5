//! Servers that differ from plain Redis and Valkey, imitated by a proxy, an ACL or a configuration.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylimit::{DegradedEvent, Finding, Limiter, Outage, Policy, Request, Severity};
use polylimit_redis_tests::{GENEROUS_DEADLINE, assert_from_store, check, options, uncached, with};
use polylimit_test_servers::{Kind, Server, Service};

use super::support::{limiter, runtime, shared};

const ALGORITHMS: [&str; 5] =
    ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"];

fn generous(url: &str) -> String {
    with(url, "deadline=5s")
}

/// How many of `checks` are admitted, each decided by the store.
fn admitted(limiter: &Limiter, key: &str, checks: usize) -> usize {
    (0..checks).filter(|_| assert_from_store(&check(limiter, key))).count()
}

fn doctor(url: &str) -> Vec<Finding> {
    let findings = runtime().block_on(limiter(&generous(url), "5/minute").doctor()).unwrap();
    for finding in &findings {
        println!("{finding}");
    }
    findings
}

/// What `ready` says of a store that refuses, and the text of the event of its first decision.
fn refusal(url: &str) -> [String; 2] {
    let events = Arc::<Mutex<Vec<DegradedEvent>>>::default();
    let received = Arc::clone(&events);
    let limiter = Limiter::builder()
        .redis(options(url).deadline(GENEROUS_DEADLINE))
        .policy(Policy::parse("p", "5/minute").unwrap())
        .on_degraded(move |event| received.lock().unwrap().push(event.clone()))
        .build()
        .unwrap();
    let decision = check(&limiter, "a user's key");
    assert!(decision.source().is_outage(), "{decision:?}");
    let ready = runtime().block_on(limiter.ready(Duration::from_millis(300))).unwrap_err().to_string();
    let event = events.lock().unwrap()[0].to_string();
    let findings = runtime().block_on(limiter.doctor()).unwrap();
    let told = findings.iter().find(|finding| finding.subject == "decision").unwrap().to_string();
    for text in [&ready, &event, &told] {
        println!("{text}");
        assert!(!text.contains("user's key"), "{text}");
    }
    // The doctor says the same of a decision as the event.
    let cause = limiter_cause(&event);
    assert!(told.contains(cause), "{told}");
    [ready, event]
}

fn limiter_cause(event: &str) -> &str {
    let (_, cause) = event.split_once("; the server at").expect("the event has a cause");
    cause.split(" [").next().unwrap()
}

fn assert_says(texts: &[String; 2], words: &[&str]) {
    for text in texts {
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {text}");
        }
    }
}

#[test]
fn two_processes_share_a_limit_where_scripts_may_not_ask_for_the_time() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let service = Service::without_time_in_scripts(server.address());
        let url = server.url_at(service.port());
        for algorithm in ALGORITHMS {
            // Limiters with other settings share no connection, as if they were in two processes.
            let quota = format!("5/minute {algorithm}");
            let limiters = ["one", "two"].map(|name| {
                let url = with(&with(&url, &format!("client_name={name}")), &format!("prefix={algorithm}"));
                polylimit_redis_tests::limiter(
                    uncached(&url).deadline(GENEROUS_DEADLINE),
                    &quota,
                    Outage::Fallback,
                )
            });
            let admitted: usize = limiters.iter().map(|limiter| admitted(limiter, "k", 5)).sum();
            assert_eq!(admitted, 5, "{kind:?} {algorithm}");
        }
        // Keys expire, by the server's clock.
        let keys: Vec<String> = server.query(&["KEYS", "*"]);
        assert!(!keys.is_empty());
        for key in keys {
            let lives_ms: i64 = server.query(&["PTTL", &key]);
            assert!((1..=140_000).contains(&lives_ms), "{key}: {lives_ms}");
        }
    }
}

#[test]
fn every_operation_works_where_scripts_may_not_ask_for_the_time() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let service = Service::without_time_in_scripts(server.address());
    let limiter = limiter(&generous(&server.url_at(service.port())), "10/hour; 20/day fixed_window");
    runtime().block_on(async {
        let request = Request::new("k");
        assert!(limiter.check(request.cost(4)).await.unwrap().allowed());
        assert_eq!(limiter.peek(request).await.unwrap().remaining(), 6);
        limiter.refund(request.cost(2)).await.unwrap();
        limiter.charge(request.cost(3)).await.unwrap();
        assert_eq!(limiter.peek(request).await.unwrap().remaining(), 5);
        // Different keys and equal ones, in one call.
        let keys = ["a", "b", "a", "c", "k"];
        for decision in limiter.check_many(keys.map(Request::new)).await {
            assert_from_store(&decision.unwrap());
        }
        assert_eq!(limiter.peek(request).await.unwrap().remaining(), 4);
        assert_eq!(limiter.peek(Request::new("a")).await.unwrap().remaining(), 8);
        limiter.reset(request).await.unwrap();
        assert_eq!(limiter.peek(request).await.unwrap().remaining(), 10);
    });
    assert_eq!(limiter.stats().permanent, 0);
}

/// Time passes for a limiter that estimates it: a fixed window of a second ends.
#[test]
fn quotas_refill_and_the_time_is_asked_again_where_scripts_may_not_ask_for_it() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let service = Service::without_time_in_scripts(server.address());
    let limiter = limiter(&generous(&server.url_at(service.port())), "1/s fixed_window");
    assert!(assert_from_store(&check(&limiter, "k")));
    let calls = |server: &Server| {
        let stats: String = server.query(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_time:calls=")).unwrap_or("0,");
        line.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let asked = calls(&server);
    polylimit_test_servers::until("the window ends", Duration::from_secs(10), || {
        assert_from_store(&check(&limiter, "k")).then_some(())
    });
    polylimit_test_servers::until("the time is asked again", Duration::from_secs(10), || {
        assert_from_store(&check(&limiter, "other"));
        (calls(&server) > asked).then_some(())
    });
}

#[test]
fn doctor_says_that_scripts_may_not_ask_for_the_time() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let service = Service::without_time_in_scripts(server.address());
    let findings = doctor(&server.url_at(service.port()));
    let clock =
        findings.iter().filter(|finding| finding.subject == "clock" && finding.severity == Severity::Advice);
    let [finding] = clock.collect::<Vec<_>>()[..] else { panic!("{findings:?}") };
    assert!(finding.message.contains("not allowed from script"), "{finding}");
    assert!(findings.iter().all(|finding| finding.severity != Severity::Problem), "{findings:?}");
}

#[test]
fn server_without_scripts_is_named_with_its_version_and_the_command() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let service = Service::without_commands(server.address(), &["EVAL", "EVALSHA", "FCALL"]);
        let version = server.info("redis_version");
        let name = if kind == Kind::Valkey { "(Valkey " } else { &*format!("(Redis {version}") };
        assert_says(&refusal(&server.url_at(service.port())), &["unknown command 'evalsha'", name]);
        // The version is known without INFO, too, and with neither the words remain.
        let service = Service::without_commands(server.address(), &["EVAL", "EVALSHA", "INFO"]);
        assert_says(&refusal(&server.url_at(service.port())), &["unknown command 'evalsha'", name]);
        let service = Service::without_commands(server.address(), &["EVAL", "EVALSHA", "INFO", "HELLO"]);
        let texts = refusal(&server.url_at(service.port()));
        assert_says(
            &texts,
            &["unknown command 'evalsha'", "does not tell its version", "Redis 7.0 or newer"],
        );
    }
}

#[test]
fn commands_that_are_optional_may_be_refused_or_renamed() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let service =
            Service::without_commands(server.address(), &["INFO", "CLIENT", "CONFIG", "SELECT", "HELLO"]);
        let by_proxy = server.url_at(service.port());
        let other = Server::start(kind, &[]);
        other.command(&[
            "ACL", "SETUSER", "limits", "on", ">word", "~*", "+@all", "-info", "-client", "-config",
            "-select",
        ]);
        let by_acl = other.url().replacen("//", "//limits:word@", 1);
        for url in [&by_proxy, &by_acl] {
            let limiter = limiter(&generous(url), "5/minute");
            runtime().block_on(limiter.ready(GENEROUS_DEADLINE)).unwrap();
            assert_eq!(admitted(&limiter, "k", 10), 5, "{kind:?} {url}");
            limiter.blocking().refund("k").unwrap();
            assert!(
                doctor(url).iter().all(|finding| finding.severity != Severity::Problem),
                "{kind:?} {url}"
            );
        }
    }
}

#[test]
fn server_without_databases_is_said_to_refuse_select() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let service = Service::without_commands(server.address(), &["SELECT"]);
    let url = format!("{}/3", server.url_at(service.port()));
    let texts = refusal(&url);
    assert_says(&texts, &["unknown command 'select'"]);
}
