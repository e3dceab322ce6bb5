//! The server's CPU time per decision, by its own count, for decisions that arrive in a pipeline.

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
