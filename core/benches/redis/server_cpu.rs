//! The server's CPU time per decision, by its own count, for decisions that arrive in a pipeline.

use std::time::Duration;

use polylimit::reservation::ReserveOptions;
use polylimit::{Limiter, Policy};
use polylimit_test_servers::Server;
use tokio::runtime::Runtime;

use crate::contender::Contender;
use crate::load::{self, Keys, Outcome, Workload, median};

pub(crate) fn report(server: &Server, runtime: &Runtime, quick: bool) {
    println!("\nCPU of the server, us a decision, 128 callers (median)\n");
    println!("| quotas | redis_rate | script | polylimit, batched | to redis_rate |");
    println!("|---:|---:|---:|---:|---:|");
    for quotas in [1, 3] {
        let workload =
            Workload { keys: Keys::Uniform, quotas, outcome: Outcome::Allowed, callers: 128, quick };
        let contenders = runtime.block_on(Contender::all(server, &workload));
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..if quick { 1 } else { 3 } {
            for (contender, figures) in contenders.iter().zip(&mut figures) {
                let before = cpu_us(server);
                let started = std::time::Instant::now();
                let measured = load::run(runtime, contender, &workload);
                let decisions = measured.per_second * started.elapsed().as_secs_f64();
                figures.push((cpu_us(server) - before) / decisions);
            }
        }
        let [rate, script, polylimit] = figures.map(median);
        println!("| {quotas} | {rate:.2} | {script:.2} | {polylimit:.2} | {:.2} |", polylimit / rate);
    }
}

pub(crate) fn cpu_us(server: &Server) -> f64 {
    let seconds = |field: &str| server.info(field).parse::<f64>().unwrap();
    (seconds("used_cpu_user") + seconds("used_cpu_sys")) * 1e6
}

/// Lone operations on a key with this number of reservations, compared with a check of a key without any.
pub(crate) fn report_reservations(server: &Server, quick: bool) {
    println!(
        "\nCPU of the server, us an operation, one caller (median; reserve and commit: the mean of both)\n"
    );
    println!("| alive | check | reserve and commit | to a check | check of that key | to a check |");
    println!("|---:|---:|---:|---:|---:|---:|");
    for alive in [1, 4, 20, 100] {
        let policy = Policy::parse("reserved", "1000000000/minute token_bucket").unwrap();
        let limiter = Limiter::builder().store(&server.url()).policy(policy).build().unwrap().blocking();
        let options = ReserveOptions::default().ttl(Duration::from_secs(3_600)).max_age(Duration::ZERO);
        let key = format!("with {alive}");
        let reserve = || limiter.reserve(&key, options).unwrap();
        // One more comes and goes with each round.
        let kept: Vec<_> = (1..alive).map(|_| reserve()).collect();
        let rounds = if quick { 50 } else { 2_000 };
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..if quick { 1 } else { 5 } {
            let mut measure = |at: usize, operations: f64, operate: &dyn Fn()| {
                let before = cpu_us(server);
                (0..rounds).for_each(|_| operate());
                figures[at].push((cpu_us(server) - before) / (operations * f64::from(rounds)));
            };
            measure(0, 1.0, &|| assert!(limiter.check("without").unwrap().allowed()));
            measure(1, 2.0, &|| assert!(reserve().commit_blocking(1).unwrap().found()));
            measure(2, 1.0, &|| assert!(limiter.check(&key).unwrap().allowed()));
        }
        let [check, pair, held] = figures.map(median);
        println!(
            "| {alive} | {check:.1} | {pair:.1} | {:.2} | {held:.1} | {:.2} |",
            pair / check,
            held / check
        );
        drop(kept);
    }
}

/// A call of as many keys as a batch has with 64 callers.
const KEYS_OF_CALL: usize = 32;

/// What the parts of a call cost: scripts of which each does more of what polylimit's does, on the states that it has written.
pub(crate) fn report_parts(server: &Server, quick: bool) {
    const PARTS: [(&str, &str); 4] = [
        ("the call and its keys", "return ''"),
        ("and TIME", "redis.call('TIME') return ''"),
        (
            "and MGET, and the states as the reply",
            "redis.call('TIME') return table.concat(redis.call('MGET', unpack(KEYS)))",
        ),
        (
            "and SETRANGE of each",
            "redis.call('TIME') local states = redis.call('MGET', unpack(KEYS)) \
             for i = 1, #KEYS do redis.call('SETRANGE', KEYS[i], '0', states[i]) end return table.concat(states)",
        ),
    ];
    let rounds = if quick { 1 } else { 15 };
    let calls = if quick { 20 } else { 2_000 };
    let policy = Policy::parse("parts", "1000000/1000s token_bucket").unwrap();
    let url = format!("{}?deadline=10s&outage=deny", server.url());
    let limiter = Limiter::builder().store(&url).policy(policy).build().unwrap().blocking();
    let users: Vec<_> = (0..2 * KEYS_OF_CALL).map(|user| format!("user:{user}")).collect();
    let check = || limiter.check_many(&users).into_iter().all(|decision| decision.unwrap().allowed());
    assert!(check());
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let keys: Vec<_> =
        users[..KEYS_OF_CALL].iter().map(|user| format!("polylimit:1:parts:{{{user}}}")).collect();
    let mut figures = [const { Vec::new() }; PARTS.len() + 1];
    for _ in 0..rounds {
        for ((_, source), figures) in PARTS.iter().zip(&mut figures) {
            let hash: String = redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut connection).unwrap();
            let mut both = redis::pipe();
            for _ in 0..2 {
                both.cmd("EVALSHA").arg(&hash).arg(keys.len()).arg(&keys);
            }
            let before = cpu_us(server);
            (0..calls / 2).for_each(|_| both.exec(&mut connection).unwrap());
            figures.push((cpu_us(server) - before) / (calls * KEYS_OF_CALL) as f64);
        }
        let before = cpu_us(server);
        (0..calls / 2).for_each(|_| assert!(check()));
        figures[PARTS.len()].push((cpu_us(server) - before) / (calls * KEYS_OF_CALL) as f64);
    }
    println!("\nCPU of the server, us a key in calls of {KEYS_OF_CALL} keys (median of {rounds} rounds)\n");
    println!("| what the script does | all together | this part |\n|---|---:|---:|");
    let names = PARTS.iter().map(|(name, _)| *name).chain(["and decides: polylimit's script"]);
    let mut before = 0.0;
    for (name, figure) in names.zip(figures.map(median)) {
        println!("| {name} | {figure:.2} | {:.2} |", figure - before);
        before = figure;
    }
}
