//! The local store next to the memory store and Redis, in one run: `make bench-local`.
//!
//! Each process is one caller that sends a request as soon as the previous one is answered. Rounds of all stores are
//! interleaved, so that a change of the machine's speed affects all of them; each figure is the median of its rounds.
//! Processes share their budget in the local store and in Redis; in memory each has its own.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

mod worker;

use polylimit_test_servers::{Kind, Server};

use worker::{ROLE, Worker};

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        worker::work(&role);
        return;
    }
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, length_ms) = if quick { (1, 20) } else { (9, 300) };
    let many = if quick { 10_000 } else { 1_000_000 };
    let server = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);
    println!("Thousands of decisions a second (ns a decision of each process), median of {rounds} rounds\n");
    println!("| keys | processes | memory | local | Redis | local to Redis |");
    println!("|---:|---:|---:|---:|---:|---:|");
    for keys in [1, many] {
        for processes in [1, 2] {
            let file = format!("/dev/shm/polylimit-bench-{}", std::process::id());
            let stores = [
                "memory:".to_owned(),
                format!("file://{file}?size=256MiB"),
                format!("{}?deadline=60s", server.url()),
            ];
            let mut workers: Vec<Vec<Worker>> = stores
                .iter()
                .map(|store| (0..processes).map(|number| Worker::start(store, keys, number)).collect())
                .collect();
            let mut figures = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..rounds {
                for (workers, figures) in workers.iter_mut().zip(&mut figures) {
                    for worker in workers.iter_mut() {
                        worker.tell(length_ms);
                    }
                    let each: Vec<f64> = workers.iter_mut().map(Worker::hear).collect();
                    figures.push(each.iter().sum::<f64>());
                }
            }
            std::fs::remove_file(file).unwrap();
            let [memory, local, redis] = figures.map(median);
            print!("| {keys} | {processes} |");
            for per_second in [memory, local, redis] {
                print!(" {:.0} ({:.0}) |", per_second / 1e3, 1e9 * f64::from(processes) / per_second);
            }
            println!(" {:.1} |", local / redis);
        }
    }
    println!("\nrepeat: cargo bench -p polylimit --bench local");
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
