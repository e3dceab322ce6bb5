//! Servers that differ from plain Redis and Valkey, imitated by a proxy, an ACL or a configuration, and other versions of them.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use polylimit::admin::{Finding, PublishOptions, Severity};
use polylimit::decision::Degradation;
use polylimit::metrics::DegradedEvent;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy, Request};
use polylimit_redis_tests::{GENEROUS_DEADLINE, assert_from_store, check, options, uncached, with};
use polylimit_test_servers::redis::Value;
use polylimit_test_servers::{
    Arguments, Cluster, FaultProxy, Kind, Sentinels, Server, Service, other_server,
};

use super::support::{keys, limiter, runtime, shared, slot};

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
    let findings = runtime().block_on(limiter(&generous(url), "5/minute").admin().doctor()).unwrap();
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
    let findings = runtime().block_on(limiter.admin().doctor()).unwrap();
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
        assert_says(&texts, &["unknown command 'evalsha'", "reports no version", "Redis 6.2 or newer"]);
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
        let renamed = ["INFO", "CLIENT", "CONFIG", "HELLO"].map(|name| format!("rename-command {name} \"\""));
        let renamed = Server::start(kind, &renamed.each_ref().map(String::as_str));
        for name in ["INFO", "CLIENT", "CONFIG"] {
            let error = renamed.try_command(&[name]).unwrap_err().to_string();
            assert!(error.contains("unknown command"), "{error}");
        }
        for url in [&by_proxy, &by_acl, &renamed.url()] {
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

/// Nodes that name their hosts by `?`, in `CLUSTER SLOTS` and in `MOVED`.
#[test]
fn unknown_hosts_of_a_cluster_are_those_of_the_node_that_was_asked() {
    let _shared = shared();
    for kind in Kind::ALL {
        let cluster = Cluster::start_with(kind, 3, 0, &["cluster-preferred-endpoint-type hostname"]);
        let slots: Value = cluster.node(0).query(&["CLUSTER", "SLOTS"]);
        assert!(format!("{slots:?}").contains("bulk-string('\"?\"')"), "{slots:?}");
        let limiter = limiter(&generous(&cluster.url()), "5/hour");
        for key in keys(50) {
            assert_from_store(&check(&limiter, &key));
        }
        // The slot moves, and the limiter is sent from a node to another one without a name.
        let moved = slot("user:0");
        let from = cluster.owner_of(moved);
        cluster.migrate_slot(moved, from, (from + 1) % 3, |_| {
            assert_from_store(&check(&limiter, "user:0"));
        });
        assert_eq!(admitted(&limiter, "user:1", 5), 4);
        assert!(limiter.stats().redirected > 0);
    }
}

/// A cluster that announces names which cannot be found here, as one does behind NAT or in containers.
fn unreachable_cluster() -> Cluster {
    let announced =
        ["cluster-preferred-endpoint-type hostname", "cluster-announce-hostname node.inner.invalid"];
    Cluster::start_with(Kind::Redis, 3, 0, &announced)
}

#[test]
fn address_map_gives_the_addresses_at_which_announced_ones_are_reached() {
    let _shared = shared();
    let cluster = unreachable_cluster();
    let by_port: Vec<String> = (0..3)
        .map(|i| cluster.node(i).port())
        .map(|port| format!("node.inner.invalid:{port}=127.0.0.1:{port}"))
        .collect();
    for map in ["node.inner.invalid=127.0.0.1".to_owned(), by_port.join(",")] {
        let url = with(&generous(&cluster.url()), &format!("address_map={map}"));
        let limiter = limiter(&url, "5/hour");
        for key in keys(20) {
            assert_from_store(&check(&limiter, &key));
        }
        let findings = runtime().block_on(limiter.admin().doctor()).unwrap();
        assert!(findings.iter().all(|finding| finding.subject != "connection"), "{findings:?}");
    }
}

#[test]
fn doctor_and_ready_name_announced_addresses_that_cannot_be_reached() {
    let _shared = shared();
    let cluster = unreachable_cluster();
    let limiter = limiter(&with(&cluster.url(), "deadline=2s"), "5/hour");
    let ready = runtime().block_on(limiter.ready(Duration::from_secs(3))).unwrap_err().to_string();
    let findings = runtime().block_on(limiter.admin().doctor()).unwrap();
    for i in 0..3 {
        let node =
            format!("node.inner.invalid:{}, an address that the cluster announces, ", cluster.node(i).port());
        let named =
            |finding: &&Finding| finding.message.contains(&node) && finding.message.contains("address_map");
        assert_eq!(findings.iter().filter(named).count(), 1, "{findings:?}");
        assert!(ready.contains(&node), "{ready}");
    }
}

/// Sentinels name a primary that is reached elsewhere.
#[test]
fn address_map_holds_for_the_primary_that_sentinels_name() {
    let _shared = shared();
    let sentinels = Sentinels::start(Kind::Redis);
    let primary = sentinels.server(sentinels.current_primary());
    let proxy = FaultProxy::start(primary.address());
    let map = format!("address_map={}=127.0.0.1:{}", primary.address(), proxy.port());
    let limiter = limiter(&with(&generous(&sentinels.url()), &map), "5/hour");
    assert_from_store(&check(&limiter, "k"));
    assert!(proxy.commands("EVAL") > 0);
}

/// Cluster mode with one address, which all nodes are reached by, as serverless services have it.
#[test]
fn cluster_with_one_address_works_by_its_url_of_a_cluster() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let service = one_address(&server);
    let url = format!("redis-cluster://127.0.0.1:{}", service.port());
    let limiter = limiter(&generous(&url), "5/hour");
    for key in keys(20) {
        assert_eq!(admitted(&limiter, &key, 6), 5);
    }
    assert_eq!(service.count("ASKING"), 0);
}

/// A service that answers `CLUSTER SLOTS` with its own address.
fn one_address(server: &Server) -> CountingService {
    CountingService::start(server, |port, command| {
        (command[0].eq_ignore_ascii_case(b"CLUSTER")).then(|| slots_of(port))
    })
}

/// All slots, of a node at an unknown host with this port.
fn slots_of(port: u16) -> Vec<u8> {
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$1\r\n?\r\n:{port}\r\n$2\r\nid\r\n").into_bytes()
}

/// A service that counts the commands it got.
struct CountingService {
    service: Service,
    commands: Arc<Mutex<Vec<String>>>,
}

impl CountingService {
    fn start(
        server: &Server,
        answer: impl Fn(u16, &Arguments) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let commands = Arc::<Mutex<Vec<String>>>::default();
        let (port, seen) = (Arc::new(OnceLock::new()), Arc::clone(&commands));
        let of_service = Arc::clone(&port);
        let service = Service::start(server.address(), move |command| {
            seen.lock().unwrap().push(String::from_utf8_lossy(&command[0]).to_ascii_uppercase());
            answer(*of_service.get()?, command)
        });
        port.set(service.port()).unwrap();
        Self { service, commands }
    }

    fn port(&self) -> u16 {
        self.service.port()
    }

    fn count(&self, name: &str) -> usize {
        self.commands.lock().unwrap().iter().filter(|command| *command == name).count()
    }
}

const CHECKS: usize = 20;

/// A node that sends every caller back to itself, for good or while a slot moves.
#[test]
fn redirect_storms_are_bounded() {
    let _shared = shared();
    for kind in ["MOVED", "ASK"] {
        let server = Server::start(Kind::Redis, &[]);
        let service = CountingService::start(&server, move |port, command| {
            let name = command[0].to_ascii_uppercase();
            match name.as_slice() {
                b"CLUSTER" => Some(slots_of(port)),
                b"EVAL" | b"EVALSHA" => Some(format!("-{kind} 1 127.0.0.1:{port}\r\n").into_bytes()),
                b"ASKING" => Some(b"+OK\r\n".to_vec()),
                _ => None,
            }
        });
        let url = format!("redis-cluster://127.0.0.1:{}", service.port());
        let limiter = limiter(&generous(&url), "5/hour");
        let start = Instant::now();
        for i in 0..CHECKS {
            let decision = check(&limiter, &format!("user:{i}"));
            assert_eq!(decision.degraded(), Some(Degradation::ClusterDown), "{decision:?}");
        }
        assert_eq!(service.count("EVALSHA"), CHECKS * 6, "{kind}");
        // Once in 50 ms at most, and what is read at the start.
        let reads = usize::try_from(start.elapsed().as_millis()).unwrap() / 50 + 3;
        assert!(service.count("CLUSTER") <= reads, "{kind}: {} of {reads}", service.count("CLUSTER"));
    }
}

/// The URL of the other one of a cluster and a server alone.
#[test]
fn wrong_scheme_for_a_cluster_is_named() {
    let _shared = shared();
    // The node of a cluster of two that owns no slot.
    let cluster = Cluster::start(Kind::Redis, 1, 1);
    assert_says(&refusal(&cluster.node(1).url()), &["MOVED", "write redis-cluster://"]);
    let server = Server::start(Kind::Redis, &[]);
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    assert_says(&refusal(&url), &["cluster support disabled", "write redis://"]);
}

/// Some servers, such as those of Redis 6.2, do not know the first line of scripts.
#[test]
fn scripts_without_their_first_line_decide_and_find_out_what_it_would() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, &["maxmemory-policy noeviction"]);
        let service = Service::without_first_line_of_scripts(server.address());
        let url = generous(&server.url_at(service.port()));
        for algorithm in ALGORITHMS {
            let url = with(&url, &format!("prefix={algorithm}"));
            let limiter = limiter(&url, &format!("5/minute {algorithm}"));
            assert_eq!(admitted(&limiter, "k", 10), 5, "{kind:?} {algorithm}");
            assert_eq!(limiter.stats().permanent, 0);
        }
        let denied = |degraded| {
            let limiter = limiter(&with(&url, "prefix=fixed_window"), "5/minute fixed_window");
            let decision = check(&limiter, "k");
            assert_eq!((decision.allowed(), decision.degraded()), (false, Some(degraded)), "{decision:?}");
        };
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        denied(Degradation::OutOfMemory);
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        // A replica must not go on denying by what it knows.
        let primary = Server::start(kind, &[]);
        server.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        denied(Degradation::ReadOnly);
        server.command(&["REPLICAOF", "NO", "ONE"]);
        // The key of another type fails as it does elsewhere.
        let limiter = limiter(&with(&url, "prefix=type"), "5/minute fixed_window");
        assert_from_store(&check(&limiter, "k"));
        let keys: Vec<String> = server.query(&["KEYS", "type:*"]);
        server.command(&["DEL", &keys[0]]);
        server.command(&["LPUSH", &keys[0], "x"]);
        assert_eq!(check(&limiter, "k").degraded(), Some(Degradation::WrongType));
    }
}

/// Answers of Redis 6.0, whose `SET` lacks `PXAT`, and of an imitation whose Lua lacks something.
#[test]
fn server_that_is_too_old_or_an_imitation_is_named_with_its_version() {
    let _shared = shared();
    let old =
        "-ERR Error running script (call to f_0): @user_script:9: @user_script: 9: ERR syntax error\r\n";
    let info = "redis_version:6.0.16\r\n";
    let info = format!("${}\r\n{info}\r\n", info.len());
    let lacking = "-ERR Error compiling script (new function): :16: Script attempted to access nonexistent global \
                     variable 'redis' stack traceback:  [G]: in function 'error'\r\n";
    let hello = "*4\r\n$6\r\nserver\r\n$9\r\nimitation\r\n$7\r\nversion\r\n$5\r\n8.4.0\r\n";
    let cases = [
        (old, info, "", &["(Redis 6.0.16)", "ERR syntax error", "Redis 6.2 or newer or Valkey is needed"]),
        (
            lacking,
            String::new(),
            hello,
            &["(imitation 8.4.0)", "'redis'", "Redis 6.2 or newer or Valkey is needed"],
        ),
    ];
    for (script, info, hello, words) in cases {
        let server = Server::start(Kind::Redis, &[]);
        let service = Service::start(server.address(), move |command| {
            let answer = match command[0].to_ascii_uppercase().as_slice() {
                b"EVALSHA" => "-NOSCRIPT No matching script. Please use EVAL.\r\n",
                b"EVAL" if command[1].starts_with(b"#!") => {
                    "-ERR Error compiling script (new function): <string> line:1(column:1) near '#':   syntax error\r\n"
                }
                b"EVAL" => script,
                b"INFO" if info.is_empty() => "-section (server) is not supported\r\n",
                b"INFO" => &info,
                b"HELLO" => hello,
                _ => return None,
            };
            Some(answer.as_bytes().to_vec())
        });
        assert_says(&refusal(&server.url_at(service.port())), words);
    }
}

const DOCUMENT: &str = "polylimit = 1\n[policies.p]\nquotas = '5/hour'\n";

/// Starts a server in another version; without one, the test is reported as skipped.
fn started(name: &str) -> Option<Server> {
    match other_server(name) {
        Ok(program) => Some(Server::options(Kind::Redis).program(program).start()),
        Err(reason) => {
            let thread = std::thread::current();
            // The harness captures what `eprintln!` writes, but not this.
            let test = thread.name().unwrap_or("?");
            let _ = writeln!(std::io::stderr(), "test {test} ... skipped, a real {name}: {reason}");
            None
        }
    }
}

/// Asserts that a server decides by every algorithm, and returns what it says when a document is published in it.
fn decides(server: &Server) -> Result<(), String> {
    for algorithm in ALGORITHMS {
        let url = with(&generous(&server.url()), &format!("prefix={algorithm}"));
        let limiter = limiter(&url, &format!("5/minute {algorithm}"));
        runtime().block_on(limiter.ready(GENEROUS_DEADLINE)).unwrap();
        assert_eq!(admitted(&limiter, "k", 10), 5, "{algorithm}");
        assert_eq!(limiter.stats().permanent, 0);
    }
    let problems = doctor(&server.url()).into_iter().filter(|finding| finding.severity == Severity::Problem);
    assert_eq!(problems.collect::<Vec<_>>(), []);
    let manager = Limiter::builder().store(&server.url()).configuration("store").build().unwrap();
    match manager.blocking().admin().publish(DOCUMENT, PublishOptions::default()) {
        Ok(_) => {
            let published = manager.blocking().admin().published_document(None).unwrap().unwrap();
            assert_eq!(&*published.text, DOCUMENT);
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn real_redis_6_0_is_named_as_too_old() {
    let _shared = shared();
    let Some(server) = started("redis-6.0") else { return };
    let limiter = limiter(&generous(&server.url()), "5/minute");
    assert_eq!(check(&limiter, "k").degraded(), Some(Degradation::Refused));
    let needed = "Redis 6.2 or newer or Valkey is needed";
    let [event] = &limiter.raw().take_events()[..] else { panic!("one event") };
    for words in ["(Redis 6.0.", "ERR syntax error", needed] {
        assert!(event.to_string().contains(words), "{event}");
    }
    let problems = doctor(&server.url()).into_iter().filter(|finding| finding.severity == Severity::Problem);
    let problems: Vec<String> = problems.map(|finding| finding.message).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.iter().all(|problem| problem.contains(needed)), "{problems:?}");
}

#[test]
fn real_redis_6_2_decides_and_refuses_documents() {
    let _shared = shared();
    let Some(server) = started("redis-6.2") else { return };
    let refused = decides(&server).unwrap_err();
    assert!(refused.contains("near '#'") && refused.contains("Redis 7.0 or newer"), "{refused}");
}

#[test]
fn real_redis_8_decides_and_keeps_documents() {
    let _shared = shared();
    let Some(server) = started("redis-8") else { return };
    assert_eq!(decides(&server), Ok(()));
}

#[test]
fn real_valkey_9_decides_and_keeps_documents() {
    let _shared = shared();
    let Some(server) = started("valkey-9") else { return };
    assert_eq!(decides(&server), Ok(()));
}
