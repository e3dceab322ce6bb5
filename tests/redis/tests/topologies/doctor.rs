//! Findings of the doctor, each on a server that has the fault.

use std::time::Duration;

use polylimit::admin::{Finding, Severity};
use polylimit_redis_tests::with;
use polylimit_test_servers::{
    Certificates, ClientCertificates, Cluster, Direction, Fault, FaultProxy, Kind, Server, until,
};

use super::support::{limiter, runtime, shared};

const BOUNDED: &[&str] = &["maxmemory 100mb", "maxmemory-policy noeviction"];

/// Findings about the servers, with a deadline that a busy machine does not miss.
fn findings(url: &str) -> Vec<Finding> {
    findings_within(url, "2s")
}

fn findings_within(url: &str, deadline: &str) -> Vec<Finding> {
    let limiter = limiter(&with(url, &format!("deadline={deadline}")), "10/hour; 10/day sliding_log");
    let mut findings = runtime().block_on(limiter.admin().doctor()).unwrap();
    for finding in &findings {
        println!("{finding}");
    }
    // The last one is about this program; no other process reports.
    let time_zones = findings.pop().map(|finding| (finding.severity, finding.subject));
    assert_eq!(time_zones, Some((Severity::Fine, "time_zones")));
    findings
}

/// Asserts that there is one finding of this severity or worse, with this subject and these words in its message.
fn assert_finding(url: &str, severity: Severity, subject: &str, words: &str) {
    let findings = findings(url);
    let found: Vec<&Finding> = findings.iter().filter(|finding| finding.severity >= severity).collect();
    let [finding] = found.as_slice() else { panic!("expected one finding about {subject}: {found:?}") };
    assert_eq!((finding.severity, finding.subject), (severity, subject));
    assert!(finding.message.contains(words), "{finding}");
}

fn subjects(findings: &[Finding]) -> Vec<(Severity, &'static str)> {
    findings.iter().map(|finding| (finding.severity, finding.subject)).collect()
}

#[test]
fn healthy_server_has_only_fine_findings() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, BOUNDED);
        let findings = findings(&server.url());
        let fine = ["latency", "clock", "version", "memory", "channel", "decision"];
        assert_eq!(subjects(&findings), fine.map(|subject| (Severity::Fine, subject)));
        assert!(findings[2].message.starts_with(&format!("{kind:?} ")), "{}", findings[2]);
        assert_eq!(server.query::<u64>(&["DBSIZE"]), 0, "the doctor leaves keys behind");
        let limiter = limiter(&with(&server.url(), "deadline=2s"), "10/hour");
        let blocking = limiter.blocking().admin().doctor().unwrap();
        assert_eq!(subjects(&blocking[..blocking.len() - 1]), subjects(&findings));
    }
}

#[test]
fn server_that_stops_replying_is_a_connection_problem() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, BOUNDED);
    let proxy = FaultProxy::start(server.address());
    // After the handshake and some round trips.
    proxy.after(Direction::Replies, 200, Fault::Stall);
    let findings = findings(&server.url_at(proxy.port()));
    assert_eq!(subjects(&findings), [(Severity::Problem, "connection"), (Severity::Fine, "decision")]);
    assert!(findings[0].message.contains("answered no more"), "{}", findings[0]);
}

#[test]
fn every_node_of_a_cluster_is_examined() {
    let _shared = shared();
    let cluster = Cluster::start_with(Kind::Redis, 3, 0, BOUNDED);
    let all = findings(&cluster.url());
    let expected = ["latency", "clock", "version", "memory", "channel"]
        .map(|subject| (Severity::Fine, subject))
        .repeat(3);
    assert_eq!(subjects(&all), [expected, vec![(Severity::Fine, "decision")]].concat());
    cluster.kill_primary(2);
    let findings = findings(&cluster.url());
    let unreachable = findings.iter().filter(|finding| finding.subject == "connection");
    assert_eq!(unreachable.map(|finding| finding.severity).collect::<Vec<_>>(), [Severity::Problem]);
}

#[test]
fn eviction_policy_and_missing_memory_limit_are_found() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, BOUNDED);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    assert_finding(&server.url(), Severity::Problem, "memory", "volatile-ttl");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_finding(&server.url(), Severity::Advice, "memory", "set maxmemory");
}

#[test]
fn missing_permissions_are_named() {
    let _shared = shared();
    for kind in Kind::ALL {
        let server = Server::start(kind, BOUNDED);
        let url = server.url().replace("//", "//limits:word@");
        server.command(&["ACL", "SETUSER", "limits", "reset", "on", ">word"]);
        // The doctor reads the time first, which this user may not.
        let all = findings(&url);
        let problems = [(Severity::Problem, "connection"), (Severity::Problem, "decision")];
        assert_eq!(subjects(&all), problems);
        assert!(all[1].message.contains("+evalsha") && all[1].message.contains("auth"), "{}", all[1]);
        server.command(&["ACL", "SETUSER", "limits", "+time", "+info"]);
        assert_finding(&url, Severity::Problem, "decision", "~polylimit:1:[^{]* ");
        assert_finding(&with(&url, "prefix=shop"), Severity::Problem, "decision", "~shop:1:[^{]* ");
        server.command(&["ACL", "SETUSER", "limits", "+@all", "-info", "~*", "&*"]);
        assert_finding(&url, Severity::Advice, "version", "+info");
    }
}

#[test]
fn replica_is_a_problem_of_its_role() {
    let _shared = shared();
    let primary = Server::start(Kind::Redis, BOUNDED);
    let replica = format!("replicaof 127.0.0.1 {}", primary.port());
    let replica = Server::start(Kind::Redis, &[BOUNDED, &[&replica]].concat());
    until("the replica has its data", Duration::from_secs(10), || {
        (replica.info("master_link_status") == "up").then_some(())
    });
    let findings = findings(&replica.url());
    let problems: Vec<&Finding> =
        findings.iter().filter(|finding| finding.severity == Severity::Problem).collect();
    assert_eq!(problems.iter().map(|finding| finding.subject).collect::<Vec<_>>(), ["role", "decision"]);
    assert!(problems[1].message.contains("read_only"), "{}", problems[1]);
    // More permissions would not help.
    assert!(!problems[1].message.contains("+eval"), "{}", problems[1]);
}

#[test]
fn wrong_password_is_a_connection_problem_without_secrets() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).password("right-word").start();
    let all = findings(&server.url().replace("right-word", "wrong-word"));
    assert_eq!(subjects(&all), [(Severity::Problem, "connection"), (Severity::Problem, "decision")]);
    assert!(all[0].message.contains("the user or the password"), "{}", all[0]);
    assert!(all.iter().all(|finding| !finding.to_string().contains("word@")));
    assert!(all.iter().all(|finding| !finding.to_string().contains("wrong-word")));
}

#[test]
fn absent_server_is_unreachable() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).reserve();
    let all = findings(&server.url());
    assert_eq!(subjects(&all), [(Severity::Problem, "connection"), (Severity::Problem, "decision")]);
    assert!(all[0].message.contains("accepts no connections"), "{}", all[0]);
    assert!(all[1].message.contains("unreachable"), "{}", all[1]);
    assert!(!all[1].message.contains("+eval"), "{}", all[1]);
}

#[test]
fn exhausted_client_limit_is_named() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, BOUNDED);
    server.command(&["CONFIG", "SET", "maxclients", "1"]);
    let all = findings(&server.url());
    assert_eq!(all[0].subject, "connection");
    assert!(all[0].message.contains("maxclients"), "{}", all[0]);
}

#[test]
fn clock_difference_is_advised_about() {
    let _shared = shared();
    let server = Server::options(Kind::Redis).lines(BOUNDED).fake_clock().start();
    for hours in [-1, 1] {
        server.set_clock_offset_us(hours * 3_600_000_000);
        assert_finding(&server.url(), Severity::Advice, "clock", "differ by 3");
    }
    server.set_clock_offset_us(0);
}

#[test]
fn latency_beyond_the_deadline_is_a_problem() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, BOUNDED);
    let proxy = FaultProxy::start(server.address());
    proxy.set_latency(Duration::from_millis(15), Duration::ZERO);
    let all = findings_within(&server.url_at(proxy.port()), "50ms");
    assert_eq!((all[0].severity, all[0].subject), (Severity::Problem, "latency"));
    assert!(all[0].message.contains("raise the option deadline"), "{}", all[0]);
    // The connection takes as long again, so the first decision may fail, but not for lack of permissions.
    assert!(!all[all.len() - 1].message.contains("+eval"), "{}", all[all.len() - 1]);
}

/// The only finding about the connection of a server that cannot be reached.
fn cause(url: &str) -> String {
    let found = findings(url);
    let mut causes = found.iter().filter(|finding| finding.subject == "connection");
    let cause = causes.next().expect("a finding about the connection").message.clone();
    assert!(causes.next().is_none());
    cause
}

#[test]
fn connection_that_fails_has_its_cause() {
    let _shared = shared();
    let other = tempfile::tempdir().unwrap();
    let unknown = Certificates::generate(other.path());
    let tls = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let (certificates, plain) = (tls.certificates().unwrap(), Server::start(Kind::Redis, BOUNDED));
    let with_tls = |port: u16, host: &str, ca: &std::path::Path| {
        format!("rediss://{host}:{port}?tls_ca={}", ca.display())
    };
    for (url, words) in [
        (format!("redis://127.0.0.1:{}", tls.port()), "write rediss:// in the URL"),
        (with_tls(plain.port(), "localhost", &certificates.ca), "redis:// in the URL"),
        (
            with_tls(tls.port(), "localhost", &unknown.ca),
            "not trusted: name the certificate of its authority, or its own if it is self-signed, by tls_ca",
        ),
        (
            format!("{}&tls_server_name=elsewhere.test", with_tls(tls.port(), "localhost", &certificates.ca)),
            "localhost, not for elsewhere.test",
        ),
        (
            "redis://127.0.0.1:1".to_owned(),
            "the server at 127.0.0.1:1 cannot be used: it accepts no connections",
        ),
        ("redis://nowhere.invalid".to_owned(), "its name has no address"),
    ] {
        let cause = cause(&url);
        assert!(cause.contains(words), "{url}: {cause}");
    }
}

#[test]
fn policies_are_tried_that_need_other_rights() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, BOUNDED);
    // Without the commands of a sliding log.
    let rules = "on >secret ~polylimit:1:[^{]* &polylimit:* -@all +evalsha +eval +time +get +mget +set +setrange +del +publish \
                 +subscribe +client|setname +info";
    let arguments: Vec<&str> =
        ["ACL", "SETUSER", "app"].into_iter().chain(rules.split_whitespace()).collect();
    let _: String = server.query(&arguments);
    let url = format!("redis://app:secret@127.0.0.1:{}?deadline=2s", server.port());
    let limiter = polylimit::Limiter::builder()
        .store(&url)
        .policy(polylimit::Policy::parse("api", "10/hour").unwrap())
        .policy(polylimit::Policy::parse("login", "5/15m sliding_log").unwrap())
        .build()
        .unwrap();
    let found = runtime().block_on(limiter.admin().doctor()).unwrap();
    let problem = found.iter().find(|finding| finding.severity == Severity::Problem).unwrap();
    assert!(problem.message.starts_with("a decision of policy login could not be made (auth)"), "{problem}");
    assert!(problem.message.contains("+pexpireat"), "{problem}");
}
