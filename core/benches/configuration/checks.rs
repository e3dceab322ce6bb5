//! What overrides cost a check: by a policy of a document without overrides, and by one that has many.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use polylimit::{Limiter, Policy, Request, blocking};
use polylimit_test_servers::{Kind, Server};

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    overrides: usize,
    /// Rounds in this process and on this host.
    rounds: usize,
    /// Rounds on Redis.
    redis_rounds: usize,
}

/// As many overrides as a document of 1 MiB has room for.
pub(crate) const WHOLE: Sizes = Sizes { overrides: 20_000, rounds: 10_000, redis_rounds: 1_000 };
pub(crate) const QUICK: Sizes = Sizes { overrides: 400, rounds: 10, redis_rounds: 2 };
/// How many checks a round has.
const ROUND: usize = 200;
const QUOTAS: &str = "1000000/s token_bucket burst=4000000000";

/// Prints a table of times, of rounds in turns.
pub(crate) fn report(Sizes { overrides, rounds, redis_rounds }: Sizes) {
    println!("\nns a check on one thread, as the median of rounds of {ROUND} in turns\n");
    println!(
        "| store | policy of the program | of a document | and {overrides} overrides of other keys | ratio | of these keys | ratio |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let server = Server::start(Kind::Redis, &[]);
    let keys: Vec<String> = (0..overrides).map(|user| format!("user=u{user}")).collect();
    let [program, plain] =
        [Limiter::builder().policy(policy()), Limiter::builder().document(&document("", 0))];
    let [others, these] = ["v", "u"].map(|prefix| Limiter::builder().document(&document(prefix, overrides)));
    let builders = [program, plain, others, these];
    for (name, rounds) in [("memory", rounds), ("local", rounds), ("Redis", redis_rounds)] {
        let limiters: Vec<blocking::Limiter> = (0..)
            .zip(&builders)
            .map(|(number, builder)| {
                let store = match name {
                    "memory" => "memory:".to_owned(),
                    "local" => format!("local:polylimit-bench-{}-{number}", std::process::id()),
                    _ => server.url(),
                };
                builder.clone().store(&store).build().expect("a limiter").blocking()
            })
            .collect();
        let mut times: [Vec<f64>; 4] = Default::default();
        for round in 0..rounds {
            for (place, limiter) in limiters.iter().enumerate() {
                times[place].push(round_ns(limiter, &keys, round));
            }
        }
        let [program, plain, others, these] = times.map(median);
        let [other_ratio, this_ratio] = [others / plain, these / plain];
        println!(
            "| {name} | {program:.0} | {plain:.0} | {others:.0} | {other_ratio:.3} | {these:.0} | {this_ratio:.3} |"
        );
    }
}

fn policy() -> Policy {
    Policy::parse("api", QUOTAS).expect("a quota")
}

/// A document with this number of overrides of users whose names begin so.
fn document(prefix: &str, overrides: usize) -> String {
    let mut text = format!(
        "polylimit = 1\n[policies.api]\nquotas = \"{QUOTAS}\"\nplans = {{ gold = \"500000/s token_bucket burst=4000000000\" }}\n"
    );
    if overrides > 0 {
        text.push_str("[policies.api.overrides]\n");
        for user in 0..overrides {
            let _ = writeln!(text, "\"user={prefix}{user}\" = \"gold\"");
        }
    }
    text
}

/// Each round has keys of its own until all had their turn.
fn round_ns(limiter: &blocking::Limiter, keys: &[String], round: usize) -> f64 {
    let keys = keys[round * ROUND % keys.len()..].iter().take(ROUND);
    let start = Instant::now();
    for key in keys {
        let decision = limiter.check(Request::new(key.as_str()).policy("api")).expect("a decision");
        assert!(black_box(decision).allowed());
    }
    start.elapsed().as_nanos() as f64 / ROUND as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
