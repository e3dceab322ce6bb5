//! Many callers in many processes, and one key: exactly its limit is admitted.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use polylimit_test_servers::{Kind, Server};

use super::servers::patient;

const PROCESSES: usize = 8;
/// Each of which has 64 callers.
const LIMIT: usize = 100;
const ROUNDS: usize = 1_000;
/// What does not fit is left.
const TIME: Duration = Duration::from_secs(20);
/// Fewer rounds than these are no test.
const LEAST_ROUNDS: usize = 50;

/// A process that contends for keys when it is told to.
struct Contender {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Contender {
    fn start(url: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_polylimit-contender"))
            .args([url, &LIMIT.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, orders, answers }
    }

    fn order(&mut self, round: usize) {
        writeln!(self.orders.as_mut().unwrap(), "{round}").unwrap();
    }

    /// How many of its callers were admitted.
    fn admitted(&mut self) -> usize {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("a contender says {line:?}"))
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // The end of its orders is its end.
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

#[test]
fn exactly_the_limit_is_admitted() {
    let server = Server::start(Kind::Redis, &[]);
    let url = patient(&server.url());
    let mut contenders: Vec<Contender> = (0..PROCESSES).map(|_| Contender::start(&url)).collect();
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS && (start.elapsed() < TIME || rounds < LEAST_ROUNDS) {
        for contender in &mut contenders {
            contender.order(rounds);
        }
        let each: Vec<usize> = contenders.iter_mut().map(Contender::admitted).collect();
        assert_eq!(each.iter().sum::<usize>(), LIMIT, "round {rounds}: {each:?}");
        rounds += 1;
    }
    println!("{rounds} rounds in {:?}", start.elapsed());
}
