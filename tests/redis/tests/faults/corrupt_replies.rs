//! Replies that are truncated, changed, duplicated, or preceded by bytes that belong to no reply.

use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::decision::Source;
use polylimit::storage::Outage;
use polylimit::{Limiter, Request};
use polylimit_redis_tests::{
    COUNTER_QUOTA, GENEROUS_DEADLINE, Load, Noise, Observation, SLACK, limiter, options, repeated_if_noisy,
    stored_units, uncached,
};
use polylimit_test_servers::{Direction, Fault, FaultProxy, Kind, Row, Server};
use tokio::runtime::{Builder, Runtime};

const DEADLINE: Duration = Duration::from_millis(20);

/// A caller that makes one request after the other behind a proxy, and checks every decision.
struct Caller {
    server: Server,
    proxy: FaultProxy,
    limiter: Limiter,
    /// `None` for a caller that blocks its thread.
    runtime: Option<Runtime>,
    quotas: &'static str,
    decisions: u64,
    admitted: u64,
    unknown: u64,
    slowest: Duration,
}

impl Caller {
    fn start(kind: Kind, quotas: &'static str, as_task: bool) -> Self {
        let server = Server::start(kind, &[]);
        let proxy = FaultProxy::start(server.address());
        let limiter = limiter(options(&server.url_at(proxy.port())).deadline(DEADLINE), quotas, Outage::Deny);
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let runtime = as_task.then(runtime);
        let (decisions, admitted, unknown, slowest) = Default::default();
        let mut caller =
            Self { server, proxy, limiter, runtime, quotas, decisions, admitted, unknown, slowest };
        caller.until_healthy();
        caller
    }

    /// Makes one decision. It has to be right, or to name another source than the store. Returns whether the store made it.
    fn check(&mut self, case: &str) -> bool {
        let start = Instant::now();
        let decision = match &self.runtime {
            Some(runtime) => runtime.block_on(self.limiter.check("k")),
            None => self.limiter.blocking().check("k"),
        };
        let decision = decision.unwrap_or_else(|error| panic!("{case}: {error}"));
        self.slowest = self.slowest.max(start.elapsed());
        self.decisions += 1;
        let by_store = decision.source() == Source::Store;
        if by_store {
            assert!(decision.allowed() && decision.degraded().is_none(), "{case}: {decision:?}");
            self.admitted += 1;
        } else {
            assert!(!decision.allowed() && decision.degraded().is_some(), "{case}: {decision:?}");
        }
        self.unknown = self.limiter.stats().unknown;
        by_store
    }

    fn until_healthy(&mut self) {
        let start = Instant::now();
        while !self.check("without a fault") {
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", self.limiter.stats());
            sleep(Duration::from_millis(1));
        }
    }

    /// The number of bytes in one direction for a decision on an open connection, and on a new one.
    fn lengths(&mut self, direction: Direction) -> (u64, u64) {
        let before = self.proxy.bytes(direction);
        self.until_healthy();
        let open = self.proxy.bytes(direction) - before;
        self.proxy.cut();
        sleep(DEADLINE);
        let before = self.proxy.bytes(direction);
        self.until_healthy();
        (open, self.proxy.bytes(direction) - before)
    }

    /// Makes requests until the armed fault has occurred, and then until the store answers again.
    fn until_fault(&mut self, case: &str) {
        let faults = self.proxy.triggered_faults();
        self.check(case);
        let start = Instant::now();
        while self.proxy.triggered_faults() == faults {
            assert!(start.elapsed() < Duration::from_secs(5), "{case} did not occur: {:?}", self.proxy);
            sleep(Duration::from_millis(1));
            self.check(case);
        }
        self.proxy.pass();
        self.until_healthy();
    }

    /// Asserts that the server has stored the admitted units, and at most the unknown ones on top. Records a case of a row.
    #[track_caller]
    fn finish(self, noise: Noise, row: &str, case: &str) {
        let noise = noise.finish();
        let stored = stored_units(&self.server.url(), self.quotas, "k");
        let most = self.admitted + self.unknown;
        println!(
            "{} admitted, {} unknown, {stored} stored, slowest {:?}",
            self.admitted, self.unknown, self.slowest
        );
        assert!((self.admitted..=most).contains(&stored), "{stored} {} {}", self.admitted, self.unknown);
        assert!(self.slowest <= DEADLINE + SLACK + noise, "{:?} {noise:?}", self.slowest);
        Row::new(row, case)
            .decisions(self.decisions)
            .admitted(self.admitted)
            .slowest(self.slowest, DEADLINE)
            .noise(noise)
            .stored(stored, self.admitted)
            .unknown(self.unknown)
            .measured(format!("{} faults", self.proxy.triggered_faults()))
            .record();
    }
}

fn cut_at_every_byte(direction: Direction, as_task: bool) {
    let noise = Noise::measure();
    let mut caller = Caller::start(Kind::Redis, COUNTER_QUOTA, as_task);
    let (open, new) = caller.lengths(direction);
    for offset in 0..=open {
        for fault in [Fault::Cut, Fault::Reset] {
            let case = format!("{fault:?} after {offset}");
            caller.proxy.after(direction, offset, fault);
            caller.until_fault(&case);
        }
    }
    for offset in 0..=new {
        let case = format!("cut of a new connection after {offset}");
        caller.proxy.cut();
        caller.proxy.after(direction, offset, Fault::Cut);
        caller.until_fault(&case);
    }
    let face = if as_task { "a task" } else { "a thread" };
    caller.finish(noise, "F22", &format!("{direction:?} of {face} cut at every byte"));
}

#[test]
fn reply_cut_at_any_byte_gives_a_task_no_wrong_decision() {
    repeated_if_noisy(|| {
        cut_at_every_byte(Direction::Replies, true);
    });
}

#[test]
fn reply_cut_at_any_byte_gives_a_thread_no_wrong_decision() {
    repeated_if_noisy(|| {
        cut_at_every_byte(Direction::Replies, false);
    });
}

#[test]
fn request_cut_at_any_byte_gives_no_wrong_decision() {
    repeated_if_noisy(|| {
        cut_at_every_byte(Direction::Requests, false);
    });
}

#[test]
fn reply_that_stalls_gives_no_wrong_decision() {
    repeated_if_noisy(|| {
        let noise = Noise::measure();
        let mut caller = Caller::start(Kind::Valkey, COUNTER_QUOTA, true);
        let (open, _) = caller.lengths(Direction::Replies);
        for offset in (0..open).step_by(5) {
            caller.proxy.after(Direction::Replies, offset, Fault::Stall);
            caller.until_fault(&format!("stalled after {offset}"));
        }
        caller.finish(noise, "F22", "replies stall");
    });
}

/// The bits that are flipped in each byte of a reply, one mask after the other.
const MASKS: [u8; 4] = [0x01, 0x10, 0x80, 0xff];
/// In the long form every single bit, and all of them.
const LONG_MASKS: [u8; 9] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff];

/// A flipped bit may change the state in the reply, but not whether the request was admitted.
#[test]
fn reply_with_any_byte_flipped_gives_no_wrong_admission() {
    repeated_if_noisy(|| {
        let masks: &[u8] = if Row::is_long() { &LONG_MASKS } else { &MASKS };
        // Quotas that refill nothing during the test, so that the server has stored what it admitted.
        for quotas in [
            COUNTER_QUOTA,
            "1_000_000/52w token_bucket step=1_000_000; 1_000_000/52w sliding_log",
            "1_000_000/52w",
            "1_000_000/52w leaky_bucket burst=1_000_000; 1_000_000/52w buckets=1",
        ] {
            let noise = Noise::measure();
            let mut caller = Caller::start(Kind::Redis, quotas, false);
            let (open, new) = caller.lengths(Direction::Replies);
            for bits in masks {
                for offset in 0..open.min(150) {
                    caller.proxy.after(Direction::Replies, offset, Fault::Flip(*bits));
                    caller.until_fault(&format!("{bits:#x} flipped at {offset}"));
                }
            }
            for offset in 0..new - open {
                caller.proxy.cut();
                caller.proxy.after(Direction::Replies, offset, Fault::Flip(0x08));
                caller.until_fault(&format!("flipped in the handshake at {offset}"));
            }
            caller.finish(noise, "F24", &format!("{} masks in every byte, {quotas}", masks.len()));
        }
    });
}

#[test]
fn bytes_inserted_before_a_reply_give_no_wrong_decision() {
    repeated_if_noisy(|| {
        let noise = Noise::measure();
        let mut caller = Caller::start(Kind::Redis, COUNTER_QUOTA, true);
        let foreign: [&[u8]; 7] = [
            b"+OK\r\n",
            b":1\r\n",
            b"$-1\r\n",
            b"$3\r\nabc\r\n",
            b"*2\r\n:1\r\n:2\r\n",
            b"\0\xff garbage",
            b"*1000000000\r\n",
        ];
        let (open, _) = caller.lengths(Direction::Replies);
        for bytes in foreign {
            for offset in [0, 1, open / 2, open - 1] {
                let case = format!("{:?} at {offset}", String::from_utf8_lossy(bytes));
                caller.proxy.after(Direction::Replies, offset, Fault::Insert(bytes.to_vec()));
                caller.until_fault(&case);
            }
        }
        caller.finish(noise, "F25", "foreign bytes in a reply");
    });
}

/// An inserted error cannot be distinguished from the reply to a request. It counts as that reply once, and the connection is closed
/// when the real reply follows.
#[test]
fn error_inserted_before_a_reply_is_believed_at_most_once() {
    for error in [
        "ERR no",
        "NOSCRIPT No matching script.",
        "OOM not allowed",
        "READONLY no",
        "BUSY busy",
        "MOVED 1 a:1",
    ] {
        let mut caller = Caller::start(Kind::Valkey, COUNTER_QUOTA, false);
        let bytes = format!("-{error}\r\n").into_bytes();
        for _ in 0..10 {
            caller.proxy.after(Direction::Replies, 0, Fault::Insert(bytes.clone()));
            caller.until_fault(error);
        }
        let stored = stored_units(&caller.server.url(), COUNTER_QUOTA, "k");
        let most = caller.admitted + caller.unknown + 20;
        assert!(
            (caller.admitted..=most).contains(&stored),
            "{error}: {stored} {} {}",
            caller.admitted,
            caller.unknown
        );
        Row::new("F25", format!("the error {error} before a reply"))
            .decisions(caller.decisions)
            .admitted(caller.admitted)
            .stored(stored, caller.admitted)
            .unknown(caller.unknown)
            .record();
    }
}

/// No caller gets the reply to another one.
#[test]
fn duplicated_and_unsolicited_replies_under_load_reach_no_wrong_caller() {
    repeated_if_noisy(|| {
        const LIMIT: u64 = 1_000_000;
        let server = Server::start(Kind::Redis, &[]);
        let proxy = FaultProxy::start(server.address());
        let quotas = "1_000_000/day fixed_window";
        let direct = limiter(options(&server.url()).deadline(GENEROUS_DEADLINE), quotas, Outage::Deny);
        // Without the denial cache: every denial has a reply, which an admitted caller could get.
        let options = uncached(&server.url_at(proxy.port())).deadline(DEADLINE);
        let limiter = limiter(options, quotas, Outage::Deny);
        let load = Load::new(&limiter, 4).pause(Duration::from_micros(200));
        // Keys with odd numbers are used up, so that each request of them has to be denied.
        for key in load.keys().iter().skip(1).step_by(2) {
            let usage = direct.blocking().charge(Request::new(key).cost(LIMIT)).unwrap();
            assert_eq!(usage.source(), Source::Store);
        }
        let faults = proxy.triggered_faults();
        let (report, ()) = load.run(Duration::ZERO, |_| {
            for round in 0..40 {
                match round % 4 {
                    0 => proxy.after(Direction::Replies, 0, Fault::Insert(b"$3\r\nabc\r\n".to_vec())),
                    1 => proxy.after(Direction::Replies, 0, Fault::Flip(0x20)),
                    _ => proxy.duplicate_reply(),
                }
                sleep(Duration::from_millis(50));
            }
            proxy.pass();
        });
        assert!(proxy.triggered_faults() > faults + 20, "{}", proxy.triggered_faults());
        report.assert_deadlines(DEADLINE);
        report.assert_reasons();
        let healthy = report.count(Observation::is_healthy);
        assert!(healthy > report.observations.len() as u64 / 2, "{}", report.summary());
        for seen in report.observations.iter().filter(|seen| seen.is_healthy()) {
            assert_eq!(seen.allowed, seen.key() % 2 == 0, "{seen:?}");
        }
        let unknown = limiter.stats().unknown;
        for key in [0, 2] {
            let stored = stored_units(&server.url(), quotas, &load.keys()[key]);
            let admitted = report.admitted_of(key);
            assert!(
                (admitted..=admitted + unknown).contains(&stored),
                "{stored} {unknown} {}",
                report.summary()
            );
        }
        report.row("F25", "replies sent twice, under load", DEADLINE).unknown(unknown).record();
    });
}
