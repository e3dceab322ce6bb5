//! Applications may read the configuration and not write it.

use polylimit::admin::Severity;
use polylimit::decision::Source;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy};
use polylimit_test_servers::{Kind, Server};

use super::support::{SOON, follow, key, until_document, until_error, until_no_error};

const RIGHTS: &str = "resetchannels &polylimit:* -@all +evalsha +eval +time +get +mget +set +setrange +del +getrange +strlen \
                      +append +pexpireat +publish +subscribe +client|setname";
const KEYS: &str = "%R~polylimit:1:{configuration}* ~polylimit:1:[^{]* +xread +hmget +hscan";

fn allow(server: &Server, rights: &str) {
    let mut command = vec!["ACL", "SETUSER", "limits", "reset", "on", ">word"];
    command.extend(rights.split_whitespace());
    server.command(&command);
}

fn as_limits(server: &Server) -> String {
    server.url().replacen("//", "//limits:word@", 1)
}

#[test]
fn applications_read_the_configuration_and_cannot_write_it() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        allow(&server, &format!("{RIGHTS} {KEYS}"));
        let manager = follow(&server.url());
        manager.publish("one", 0).unwrap().unwrap();
        manager.change(&[("deny user a", Some("{}"))]).unwrap();
        let application = follow(&as_limits(&server));
        application.ready(SOON).unwrap();
        assert_eq!((application.document().as_deref(), application.entries().len()), (Some("one"), 1));
        manager.publish("two", 1).unwrap().unwrap();
        until_document(&application, "two");
        until_no_error(&application);
        // Its scripts have the rights of their caller.
        for error in [
            application.publish("three", 2).unwrap_err(),
            application.change(&[("deny user a", None)]).unwrap_err(),
            application.rollback(1).unwrap_err(),
        ] {
            assert!(error.message().contains("the user may not do this"), "{error}");
        }
        // Every command that writes, on each of the keys.
        let attempts = [
            "HSET {P} document x",
            "DEL {P}",
            "SET {P} x",
            "HSET {P}:entries a b",
            "DEL {P}:entries",
            "DEL {P}:log",
            "XADD {P}:log * a b",
            "HDEL {P}:documents 1",
            "SET {P}:other x",
        ];
        for attempt in attempts {
            let command = attempt.replace("{P}", &key(""));
            let mut words = vec!["ACL", "DRYRUN", "limits"];
            words.extend(command.split(' '));
            let answer: String = server.query(&words);
            assert!(answer.contains("permission"), "{command}: {answer}");
        }
        let script = format!("redis.call('SET', '{}', 'x')", key(""));
        let set = |keys: &str| {
            let mut client = polylimit_test_servers::redis::Client::open(as_limits(&server))
                .unwrap()
                .get_connection()
                .unwrap();
            polylimit_test_servers::redis::cmd("EVAL").arg(&script).arg(keys).query::<()>(&mut client)
        };
        let refused = set("0").unwrap_err().to_string();
        assert!(refused.contains("can't access") || refused.contains("ACL failure"), "{refused}");
        let fields: Vec<String> = server.query(&["HMGET", &key(""), "version", "document"]);
        assert_eq!(fields, ["3", "two"]);
    }
}

#[test]
fn limits_are_decided_with_the_rights_of_an_application() {
    let server = Server::start(Kind::Redis, &[]);
    allow(&server, &format!("{RIGHTS} {KEYS}"));
    let policy = Policy::parse("p", "5/hour; 9/day sliding_log").unwrap();
    let limiter = Limiter::builder()
        .store(&format!("{}?deadline=10s&denial_cache_max=0", as_limits(&server)))
        .policy(policy);
    let limiter = limiter.outage("p", Outage::Deny).build().unwrap().blocking();
    for key in ["user", "", "{", "{configuration}", "a b"] {
        for _ in 0..7 {
            assert_eq!(limiter.check(key).unwrap().source(), Source::Store, "{key}");
        }
        assert_eq!(limiter.reset(key).unwrap().source(), Source::Store, "{key}");
    }
}

#[test]
fn each_right_to_read_is_needed_and_named_when_it_is_missing() {
    let server = Server::start(Kind::Redis, &[]);
    follow(&server.url()).publish("one", 0).unwrap().unwrap();
    for left_out in ["%R~polylimit:1:{configuration}*", "+xread", "+hmget", "+hscan"] {
        let rights = format!("{RIGHTS} {KEYS}").replace(left_out, "");
        allow(&server, &rights);
        let application = follow(&as_limits(&server));
        until_error(&application, "grant %R~{prefix}:1:{configuration}* +xread +hmget +hscan");
    }
}

#[test]
fn doctor_looks_whether_the_user_may_read_the_configuration() {
    let server = Server::start(Kind::Redis, &[]);
    let examine = |rights: &str| {
        allow(&server, rights);
        let findings = follow(&as_limits(&server)).doctor().unwrap();
        findings.into_iter().find(|finding| finding.subject == "configuration").unwrap()
    };
    assert_eq!(examine(&format!("{RIGHTS} {KEYS}")).severity, Severity::Fine);
    for left_out in ["%R~polylimit:1:{configuration}*", "+xread", "+hmget", "+hscan"] {
        let finding = examine(&format!("{RIGHTS} {KEYS}").replace(left_out, ""));
        assert_eq!(finding.severity, Severity::Problem, "{left_out}");
        // What the doctor names is enough.
        let (_, named) = finding.message.split_once("altogether the user needs ").unwrap();
        assert_eq!(examine(named).severity, Severity::Fine, "{named}");
    }
}

#[test]
fn managers_need_the_documented_rights() {
    let documentation = include_str!("../../../../docs/redis.md");
    let (_, rights) = documentation.split_once("ACL SETUSER manager on >secret ").unwrap();
    let rights = rights.lines().next().unwrap();
    let server = Server::start(Kind::Redis, &[]);
    let perform = |rights: &str| {
        allow(&server, rights);
        server.command(&["FLUSHALL"]);
        let manager = follow(&as_limits(&server));
        for version in 0..33 {
            manager.publish("one", version)?.unwrap();
        }
        manager.change(&[("deny user a", Some("{}")), ("deny user b", None)])?;
        manager.change(&[("deny user a", None)])?;
        manager.rollback(2)?.unwrap();
        manager.history(1)?;
        manager.load()?;
        manager.ready(SOON)
    };
    perform(rights).unwrap();
    for left_out in rights.split(' ').filter(|right| right.starts_with(['+', '~'])) {
        // Without XREAD a follower loads and does not follow.
        if left_out != "+xread" {
            let error = perform(&rights.replace(left_out, "")).expect_err(left_out);
            let is_named = left_out == "+time" || error.message().contains("the user may not do this");
            assert!(is_named, "without {left_out}: {error}");
        }
    }
}

#[test]
fn refused_follower_goes_on_with_other_credentials() {
    let server = Server::start(Kind::Redis, &[]);
    follow(&server.url()).publish("one", 0).unwrap().unwrap();
    allow(&server, &format!("{RIGHTS} {KEYS}"));
    let url = server.url().replacen("//", "//limits:wrong@", 1);
    let application = follow(&url);
    until_error(&application, "auth");
    assert!(!application.is_ready());
    application.set_credentials("limits", "word").unwrap();
    until_document(&application, "one");
    until_no_error(&application);
}
