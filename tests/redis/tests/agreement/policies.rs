//! The cases of policies that concern headroom, excess, penalties and blocks, on every kind of server.

use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::decision::Cause;
use polylimit::raw::{Answer, Call, ReservationTerms};
use polylimit::reservation::ReservationId;
use polylimit::storage::Outage;
use polylimit::testing::limiter::with_penalty;
use polylimit::{Limiter, Policy, Request};
use polylimit_test_servers::{Kind, Server};
use serde_json::{Value, json};

use super::servers::Servers;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/policies.json");
/// Monday 2026-09-21, from which the times of cases count.
const START_US: u64 = 1_789_948_800_000_000;

fn duration(text: &str) -> Duration {
    let unit = text.find(|letter: char| !letter.is_ascii_digit()).unwrap();
    let seconds = match &text[unit..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        other => panic!("{other}"),
    };
    Duration::from_secs(text[..unit].parse::<u64>().unwrap() * seconds)
}

fn policy(document: &Value) -> Policy {
    let value = &document["policies"]["p"];
    let policy = Policy::parse("p", value["quotas"].as_str().unwrap()).unwrap();
    let Some(penalty) = value.get("penalty") else { return policy };
    let time = |name: &str| penalty.get(name).map(|text| duration(text.as_str().unwrap()));
    let (within, block) = (time("within").unwrap(), time("block").unwrap());
    let max = time("max").unwrap_or(block);
    let denials = penalty["denials"].as_u64().unwrap().try_into().unwrap();
    with_penalty(policy, denials, [within, block, max, time("forget").unwrap_or(max)])
}

fn call(op: &Value) -> Call<'_> {
    let number = |name: &str| op[name].as_u64();
    let request = Request::new(op["key"].as_str().unwrap_or("k"))
        .cost(number("cost").unwrap_or(1))
        .headroom(number("headroom").unwrap_or(0).try_into().unwrap());
    let id = || ReservationId::new(op["id"].as_str().unwrap()).unwrap();
    let ttl = || Duration::from_micros(number("ttl_us").unwrap());
    match op["op"].as_str().unwrap() {
        "check" => Call::Check(request),
        "peek" => Call::Peek(request),
        "take" => Call::Take(request),
        "charge" => Call::Charge(request),
        "refund" => Call::Refund(request),
        "reset" => Call::Reset(request),
        "reserve" => Call::Reserve(
            request,
            ReservationTerms { id: id(), ttl: ttl(), timeout: Duration::ZERO, remember: Duration::ZERO },
        ),
        "commit" => Call::Commit(request, id(), number("cost")),
        "cancel" => Call::Cancel(request, id()),
        "renew" => Call::Renew(request, id(), ttl()),
        "block" => Call::Block(request, Duration::from_micros(number("for_us").unwrap())),
        other => panic!("{other}"),
    }
}

/// An answer as cases have it.
fn shown(answer: &Answer) -> Value {
    match answer {
        Answer::Decision(decision) => json!({
            "allowed": decision.allowed(),
            "remaining": decision.remaining(),
            "retry_after_us": decision.retry_after_us(),
            "reset_after_us": decision.reset_after_us(),
            "delay_us": decision.delay_us(),
            "over": decision.over(),
            "crossed": decision.crossed(),
            "elastic": decision.elastic(),
            "shadowed": decision.shadowed(),
            "cause": decision.cause().map(Cause::name),
        }),
        Answer::Usage(usage) => json!({
            "remaining": usage.remaining(),
            "reset_after_us": usage.reset_after_us(),
            "taken": usage.taken(),
            "found": usage.found(),
        }),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cases_of_headroom_excess_penalties_and_blocks_are_answered_alike_by_every_server() {
    let servers = Servers::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(CASES).unwrap()).unwrap();
    let mut done = 0;
    for (number, case) in cases["cases"].as_array().unwrap().iter().enumerate() {
        let name = case["name"].as_str().unwrap();
        if !["headroom", "excess", "penalty", "block"].contains(&name.split(':').next().unwrap()) {
            continue;
        }
        for url in servers.urls() {
            let clock = ManualClock::new(START_US).unwrap();
            let builder = Limiter::builder().policy(policy(&case["document"])).clock(clock.clone());
            let builder = builder.store(&format!("{url}&prefix=case{number}")).outage("p", Outage::Deny);
            let limiter = builder.build().unwrap();
            for op in case["ops"].as_array().unwrap() {
                clock.set(START_US + op["t_us"].as_u64().unwrap()).unwrap();
                let shown = shown(&runtime.block_on(limiter.raw().call(&call(op))).unwrap());
                for (field, expected) in op["expect"].as_object().unwrap() {
                    assert_eq!(shown[field], *expected, "{name}: {field} of {op} at {url}");
                }
            }
        }
        done += 1;
    }
    assert_eq!(done, 17);
}

/// A key lives at least until its block has ended, its level is forgotten and its denials no longer count, by the server's clock.
#[test]
fn key_lives_as_long_as_its_record_of_blocks_says_something() {
    const SECOND: i64 = 1_000;
    let seconds = |times: [u64; 4]| times.map(Duration::from_secs);
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = Server::start(kind, &[]);
        let limiter = |prefix: &str, policy: Policy| {
            let url = format!("{}?deadline=30s&denial_cache_max=0&prefix={prefix}", server.url());
            Limiter::builder()
                .store(&url)
                .policy(policy)
                .outage("p", Outage::Deny)
                .build()
                .unwrap()
                .blocking()
        };
        let ttl = |prefix: &str| server.query::<i64>(&["PTTL", &format!("{prefix}:1:p:{{k}}")]);
        let quota = || Policy::parse("p", "1/s fixed_window").unwrap();
        let assert_lives = |prefix: &str, least: i64, what: &str| {
            let ttl = ttl(prefix);
            // The call itself took some time, and the key lives up to 10 s longer.
            assert!((least - 5 * SECOND..=least + 11 * SECOND).contains(&ttl), "{what}: {ttl} ms");
        };

        // The second denial within 100 s blocks for 200 s, and is forgotten 400 s after that.
        let penalized = limiter("a", with_penalty(quota(), 2, seconds([100, 200, 200, 400])));
        assert!(penalized.charge(Request::new("k").cost(5)).is_ok());
        assert!(!penalized.check("k").unwrap().allowed());
        assert_lives("a", 100 * SECOND, "a counted denial");
        assert_eq!(penalized.check("k").unwrap().cause(), Some(Cause::Blocked));
        assert_lives("a", 600 * SECOND, "a block and its level");
        assert!(penalized.charge("k").is_ok());
        assert_lives("a", 600 * SECOND, "what is charged to a blocked key");

        let plain = limiter("b", quota());
        assert!(plain.admin().block("k", Duration::from_secs(300)).is_ok());
        assert_lives("b", 300 * SECOND, "a block by hand");
        assert!(plain.charge("k").is_ok());
        assert_lives("b", 300 * SECOND, "a charged key that is blocked by hand");
        assert!(plain.admin().block("k", Duration::from_secs(5_000)).is_ok());
        assert_lives("b", 5_000 * SECOND, "a longer block");
        assert!(plain.admin().block("k", Duration::ZERO).is_ok());
        assert!(plain.reset("k").is_ok());
        assert_eq!(ttl("b"), -2);
    }
}
