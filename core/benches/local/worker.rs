//! A worker process that makes decisions.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use polylimit::{Limiter, Policy};

/// The environment variable with a worker's role: the store and the number of keys.
pub(crate) const ROLE: &str = "POLYLIMIT_BENCH_LOCAL";

pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts the worker with this number and waits until it has used every key once.
    pub(crate) fn start(store: &str, keys: usize, number: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, format!("{keys} {number} {store}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut worker = Self { child, input, output };
        assert!(worker.hear() > 0.0);
        worker
    }

    pub(crate) fn tell(&mut self, length_ms: u64) {
        writeln!(self.input, "{length_ms}").unwrap();
    }

    /// The worker's decisions per second.
    pub(crate) fn hear(&mut self) -> f64 {
        self.output.next().unwrap().unwrap().parse().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a worker until it is killed.
pub(crate) fn work(role: &str) {
    let mut words = role.splitn(3, ' ');
    let mut number = || words.next().unwrap().parse::<usize>().unwrap();
    let (keys, process) = (number(), number());
    // The bucket gets a token every microsecond and is never empty.
    let policy = Policy::parse("api", "1000000000/1000s token_bucket").unwrap();
    let limiter = Limiter::builder().store(words.next().unwrap()).max_keys(2_000_000).policy(policy);
    let limiter = limiter.build().unwrap().blocking();
    let keys: Vec<String> = (0..keys).map(|key| format!("user:{key}")).collect();
    for some in keys.chunks(1_000) {
        limiter.check_many(some.iter().map(String::as_str)).into_iter().for_each(|decision| {
            assert!(decision.unwrap().degraded().is_none());
        });
    }
    println!("1");
    let mut random = 88_172_645_463_325_252 + process as u64;
    for line in std::io::stdin().lines() {
        let length = Duration::from_millis(line.unwrap().parse().unwrap());
        let (started, mut decisions) = (Instant::now(), 0_u32);
        while started.elapsed() < length {
            for _ in 0..100 {
                // xorshift64 (Marsaglia 2003).
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let key = &keys[usize::try_from(random % keys.len() as u64).unwrap()];
                assert!(limiter.check(key).unwrap().allowed());
            }
            decisions += 100;
        }
        println!("{}", f64::from(decisions) / started.elapsed().as_secs_f64());
    }
}
