//! What processes that share a Redis send each other.

use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::admin::top_denied;
use polylimit::{ErrorKind, Limiter, Policy};
use polylimit_server::ServerOptions;
use polylimit_test_servers::{Kind, Server as Redis};
use serde_json::json;

use crate::support::{Running, SOON, started};

const EVERY: Duration = Duration::from_secs(1);

fn limiter(url: &str) -> Limiter {
    let policy = Policy::parse("api", "3/hour").unwrap();
    Limiter::builder().store(url).policy(policy).observe_keys(64).report(EVERY).build().unwrap()
}

/// Waits until a condition holds.
fn until(mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < SOON, "it does not come");
        sleep(Duration::from_millis(50));
    }
}

fn url(redis: &Redis) -> String {
    format!("{}?deadline=5s", redis.url())
}

#[test]
fn processes_report_and_are_forgotten_once_they_end() {
    let redis = Redis::start(Kind::Redis, &[]);
    let server = Running::start(limiter(&url(&redis)), ServerOptions::default());
    let other = limiter(&url(&redis));
    for limiter in [&other, &other] {
        for _ in 0..400 {
            let _ = limiter.blocking().check("mallory").unwrap();
        }
    }
    for _ in 0..400 {
        let _ = server.http().post("/v1/check", &json!({ "policy": "api", "key": "mallory" }));
    }
    let admin = server.admin();
    let fleet = || admin.get("/v1/processes").json();
    let decided = |fleet: &serde_json::Value| -> u64 {
        let processes = fleet["processes"].as_array().unwrap().iter();
        let counts = processes.flat_map(|process| process["policies"].as_array().unwrap());
        counts.map(|counts| counts["allowed"].as_u64().unwrap() + counts["denied"].as_u64().unwrap()).sum()
    };
    until(|| decided(&fleet()) == 1_200);
    let told = fleet();
    assert_eq!(told["processes"].as_array().unwrap().len(), 2);
    let allowed = |at: usize| told["processes"][at]["policies"][0]["allowed"].as_u64().unwrap();
    assert_eq!(allowed(0) + allowed(1), 3);
    assert_eq!((&told["denied"][0]["policy"], &told["denied"][0]["key"]), (&json!("api"), &json!("mallory")));
    assert!(told["denied"][0]["count"].as_u64().unwrap() > 600, "{told}");
    let process = &told["processes"][0];
    assert_eq!((&process["pid"], &process["store_up"]), (&json!(std::process::id()), &json!(true)));

    let metrics = admin.get("/metrics/fleet").body;
    assert_eq!(metrics.matches("\npolylimit_fleet_store_up{").count(), 2, "{metrics}");
    assert!(
        metrics.contains("policy=\"api\",result=\"denied\"} ") && !metrics.contains("mallory"),
        "{metrics}"
    );

    drop(other);
    until(|| fleet()["processes"].as_array().unwrap().len() == 1);
}

#[test]
fn rights_of_the_documentation_suffice_and_are_needed() {
    let redis = Redis::start(Kind::Redis, &[]);
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let decides =
        "~polylimit:1:[^{]* resetchannels -@all +evalsha +eval +time +get +mget +set +setrange +del";
    for (user, rights) in [
        ("plain", ""),
        ("reader", "%R~polylimit:1:{fleet}* +zrange +mget"),
        ("reporter", "~polylimit:1:{fleet}* +set +zadd +zremrangebyscore +zrange +mget"),
    ] {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg(user).arg("on").arg(">secret");
        for right in decides.split(' ').chain(rights.split(' ')).filter(|right| !right.is_empty()) {
            command.arg(right);
        }
        command.exec(&mut connection).unwrap();
    }
    let of = |user: &str| {
        limiter(&url(&redis).replacen("redis://", &format!("redis://{user}:secret@"), 1)).blocking()
    };
    let reporter = of("reporter");
    until(|| reporter.admin().fleet().unwrap().len() == 1);
    // The reader has no right to report.
    let reader = of("reader");
    assert!(reader.check("k").unwrap().allowed());
    let reports = reader.admin().fleet().unwrap();
    assert_eq!((reports.len(), top_denied(&reports, 5).len()), (1, 0));
    let plain = of("plain");
    assert!(plain.check("k").unwrap().allowed());
    let refused = plain.admin().fleet().unwrap_err();
    assert!(refused.kind() == ErrorKind::StoreFailed && refused.message().contains("+zrange"), "{refused}");
}

#[test]
fn stores_of_one_host_have_no_fleet() {
    let reply = started().admin().get("/v1/processes");
    assert!(reply.status == 400 && reply.body.contains("another store"), "{reply:?}");
    for every in [Duration::from_millis(999), Duration::from_secs(3_601)] {
        let refused = Limiter::builder().store("redis://127.0.0.1:1").report(every).build().unwrap_err();
        assert!(refused.message().contains("allowed is 1s to 1h"), "{refused}");
    }
    assert!(Limiter::builder().option("report", "soon").build().is_err());
}
