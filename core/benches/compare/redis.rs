//! The Redis store, with one server for both revisions. A lone caller's figure is the time that passes; that of many callers
//! is the processor time that they and the server take, which other programs disturb less.

use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use polylimit_test_servers::{Kind, Server};
use tokio::runtime::Builder;

use crate::turns::Turns;

pub(crate) const ROWS: [&str; 9] = [
    "redis, lone blocking",
    "redis, lone future",
    "redis, 64 futures",
    "redis, 1024 futures",
    "redis, 1024 futures, 3 quotas",
    "redis, 16 threads",
    "redis, check_many of 100",
    "redis, request over three policies",
    "redis, 64 futures, three policies",
];

/// A limiter's store is examined one second after its first decision, which takes some milliseconds.
const EXAMINED_AFTER: Duration = Duration::from_millis(1_200);

/// The names of a revision's policies: of one length, so that both revisions send as many bytes.
fn names(revision: &str) -> [String; 3] {
    ["a", "b", "c"].map(|policy| format!("{revision:_<8}{policy}"))
}

/// A new limiter of one of the revisions, with the first `policies` of its policies.
macro_rules! limiter {
    ($revision:ident, $server:expr, $quotas:expr, $policies:expr) => {{
        use crate::$revision::{Limiter, Policy, Request};
        let store = format!("{}?deadline=10s&outage=deny", $server.url());
        let names = names(stringify!($revision));
        let policies = names.iter().take($policies).map(|name| Policy::parse(name, $quotas).unwrap());
        let builder =
            policies.fold(Limiter::builder().store(&store), |builder, policy| builder.policy(policy));
        let limiter = builder.build().unwrap();
        let first = Request::new("first").policy(&names[0]);
        assert!(limiter.blocking().check(first).unwrap().allowed());
        limiter
    }};
}

pub(crate) fn measure(row: &str, after_first: bool) -> Turns {
    let server = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut quotas = "1000000/1000s token_bucket".to_owned();
    quotas += if row.ends_with("3 quotas") {
        "; 2000000/2000s token_bucket; 3000000/3000s token_bucket"
    } else {
        ""
    };
    let policies = if row.ends_with("three policies") { 3 } else { 1 };
    let (before, after);
    if after_first {
        after = limiter!(after, server, &quotas, policies);
        before = limiter!(before, server, &quotas, policies);
    } else {
        before = limiter!(before, server, &quotas, policies);
        after = limiter!(after, server, &quotas, policies);
    }
    thread::sleep(EXAMINED_AFTER);
    // Few enough that most requests over three policies find states: writing a new key takes much longer.
    let keys: Vec<String> =
        (0..if policies > 1 { 5_000 } else { 100_000 }).map(|number| format!("user:{number}")).collect();
    let key = |number: usize| keys[number * 7_919 % keys.len()].as_str();
    let callers = row.split(' ').find_map(|word| word.parse().ok()).unwrap_or(1_usize);
    let clocks =
        [Pid::this(), Pid::from_raw(server.pid().cast_signed())].map(|pid| clock_getcpuclockid(pid).unwrap());
    let processor_time = || clocks.map(|clock| Duration::from(clock.now().unwrap())).iter().sum::<Duration>();
    // A macro, because the limiters are of two types.
    macro_rules! turn {
        ($limiter:expr, $revision:ident) => {
            |numbers| {
                let (limiter, blocking) = (&$limiter, &$limiter.blocking());
                let (started, processor_before) = (Instant::now(), processor_time());
                let numbers_of = |caller: usize| numbers.clone().skip(caller).step_by(callers);
                if policies > 1 && callers > 1 {
                    let names = names(stringify!($revision));
                    let ask = async |caller| {
                        for number in numbers_of(caller) {
                            let request = |name| crate::$revision::Request::new(key(number)).policy(name);
                            let decisions =
                                limiter.check_together(&names.each_ref().map(|name| request(name))).await;
                            assert!(decisions.unwrap().iter().all(|decision| decision.allowed()));
                        }
                    };
                    runtime.block_on(join_all((0..callers).map(ask)));
                } else if policies > 1 {
                    let names = names(stringify!($revision));
                    for number in numbers.clone() {
                        let request = |name| crate::$revision::Request::new(key(number)).policy(name);
                        let decisions = blocking.check_together(&names.each_ref().map(|name| request(name)));
                        assert!(decisions.unwrap().iter().all(|decision| decision.allowed()));
                    }
                } else if row.contains("check_many") {
                    for first in numbers.clone().step_by(100) {
                        let decisions = blocking.check_many((first..numbers.end.min(first + 100)).map(key));
                        assert!(decisions.into_iter().all(|decision| decision.unwrap().allowed()));
                    }
                } else if row.contains("future") {
                    let ask = async |caller| {
                        for number in numbers_of(caller) {
                            assert!(limiter.check(key(number)).await.unwrap().allowed());
                        }
                    };
                    runtime.block_on(join_all((0..callers).map(ask)));
                } else {
                    let ask = |caller| {
                        numbers_of(caller)
                            .for_each(|number| assert!(blocking.check(key(number)).unwrap().allowed()));
                    };
                    thread::scope(|scope| {
                        (1..callers).for_each(|caller| drop(scope.spawn(move || ask(caller))));
                        ask(0);
                    });
                }
                if callers == 1 {
                    started.elapsed()
                } else {
                    processor_time().saturating_sub(processor_before)
                }
            }
        };
    }
    Turns::take(turn!(before, before), turn!(after, after))
}
