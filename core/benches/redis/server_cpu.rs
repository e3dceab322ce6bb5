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

fn cpu_us(server: &Server) -> f64 {
    let seconds = |field: &str| server.info(field).parse::<f64>().unwrap();
    (seconds("used_cpu_user") + seconds("used_cpu_sys")) * 1e6
}

/// Lone operations on a key with so many reservations, beside a check of a key without any.
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
