//! Replies that end too early, arrive with wrong bytes, or are not the ones that were asked for.

use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::{Limiter, Outage, Request, Source};
use polylimit_redis_tests::{COUNTING, LONG, Load, Noise, limiter, options, used};
use polylimit_test_servers::{Direction, Fault, FaultProxy, Kind, Server};
use tokio::runtime::{Builder, Runtime};

const DEADLINE: Duration = Duration::from_millis(20);

/// Somebody who asks, one after the other, and knows what has to be answered.
struct Asker {
    server: Server,
    proxy: FaultProxy,
    limiter: Limiter,
    /// Where there is none it is a thread that waits.
    runtime: Option<Runtime>,
    quotas: &'static str,
    admitted: u64,
    unknown: u64,
    slowest: Duration,
}

impl Asker {
    fn start(kind: Kind, quotas: &'static str, as_task: bool) -> Self {
        let server = Server::start(kind, &[]);
        let proxy = FaultProxy::start(server.address());
        let limiter = limiter(options(&server.url_at(proxy.port())).deadline(DEADLINE), quotas, Outage::Deny);
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let runtime = as_task.then(runtime);
        let (admitted, unknown, slowest) = Default::default();
        let mut asker = Self { server, proxy, limiter, runtime, quotas, admitted, unknown, slowest };
        asker.until_sound();
        asker
    }

    /// One decision, which has to be right or say that it is not the store's. Says which.
    fn ask(&mut self, case: &str) -> bool {
        let began = Instant::now();
        let decision = match &self.runtime {
            Some(runtime) => runtime.block_on(self.limiter.check("k")),
            None => self.limiter.blocking().check("k"),
        };
        let decision = decision.unwrap_or_else(|error| panic!("{case}: {error}"));
        self.slowest = self.slowest.max(began.elapsed());
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

    fn until_sound(&mut self) {
        let began = Instant::now();
        while !self.ask("without a fault") {
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", self.limiter.stats());
            sleep(Duration::from_millis(1));
        }
    }

    /// How many bytes go one way in a decision on a connection that stands, and on a new one.
    fn lengths(&mut self, direction: Direction) -> (u64, u64) {
        let before = self.proxy.bytes(direction);
        self.until_sound();
        let standing = self.proxy.bytes(direction) - before;
        self.proxy.cut();
        sleep(DEADLINE);
        let before = self.proxy.bytes(direction);
        self.until_sound();
        (standing, self.proxy.bytes(direction) - before)
    }

    /// Asks until the armed fault has struck, and then until the store answers again.
    fn strike(&mut self, case: &str) {
        let struck = self.proxy.struck();
        self.ask(case);
        let began = Instant::now();
        while self.proxy.struck() == struck {
            assert!(began.elapsed() < Duration::from_secs(5), "{case} did not strike: {:?}", self.proxy);
            sleep(Duration::from_millis(1));
            self.ask(case);
        }
        self.proxy.pass();
        self.until_sound();
    }

    /// The server holds what it said it admitted, and not more than what it did not say it admitted.
    fn end(self, noise: Noise) {
        let noise = noise.end();
        let held = used(&self.server.url(), self.quotas, "k");
        let most = self.admitted + self.unknown;
        println!(
            "{} admitted, {} unknown, {held} held, slowest {:?}",
            self.admitted, self.unknown, self.slowest
        );
        assert!((self.admitted..=most).contains(&held), "{held} {} {}", self.admitted, self.unknown);
        assert!(self.slowest <= DEADLINE + Duration::from_millis(5) + noise, "{:?} {noise:?}", self.slowest);
    }
}

fn end_at_every_byte(direction: Direction, as_task: bool) {
    let noise = Noise::watch();
    let mut asker = Asker::start(Kind::Redis, COUNTING, as_task);
    let (standing, anew) = asker.lengths(direction);
    for offset in 0..=standing {
        for fault in [Fault::Cut, Fault::Reset] {
            let case = format!("{fault:?} after {offset}");
            asker.proxy.after(direction, offset, fault);
            asker.strike(&case);
        }
    }
    for offset in 0..=anew {
        let case = format!("cut of a new connection after {offset}");
        asker.proxy.cut();
        asker.proxy.after(direction, offset, Fault::Cut);
        asker.strike(&case);
    }
    asker.end(noise);
}

#[test]
fn replies_that_end_at_any_byte_to_a_task() {
    end_at_every_byte(Direction::Replies, true);
}

#[test]
fn replies_that_end_at_any_byte_to_a_thread() {
    end_at_every_byte(Direction::Replies, false);
}

#[test]
fn requests_that_end_at_any_byte() {
    end_at_every_byte(Direction::Requests, false);
}

#[test]
fn replies_that_stop_at_some_bytes() {
    let noise = Noise::watch();
    let mut asker = Asker::start(Kind::Valkey, COUNTING, true);
    let (standing, _) = asker.lengths(Direction::Replies);
    for offset in (0..standing).step_by(5) {
        asker.proxy.after(Direction::Replies, offset, Fault::Stall);
        asker.strike(&format!("stopped after {offset}"));
    }
    asker.end(noise);
}

/// A flipped byte may garble what the reply says of the state; whether the request was admitted it cannot.
#[test]
fn replies_with_any_byte_flipped() {
    for quotas in [COUNTING, "1_000_000/day token_bucket; 1_000_000/h sliding_log", "1_000_000/h"] {
        let noise = Noise::watch();
        let mut asker = Asker::start(Kind::Redis, quotas, false);
        let (standing, anew) = asker.lengths(Direction::Replies);
        for bits in [0x01, 0x10, 0xff] {
            for offset in 0..standing.min(150) {
                asker.proxy.after(Direction::Replies, offset, Fault::Flip(bits));
                asker.strike(&format!("{bits:#x} flipped at {offset}"));
            }
        }
        for offset in 0..anew - standing {
            asker.proxy.cut();
            asker.proxy.after(Direction::Replies, offset, Fault::Flip(0x08));
            asker.strike(&format!("flipped in the greeting at {offset}"));
        }
        if quotas == COUNTING {
            asker.end(noise);
        }
    }
}

#[test]
fn replies_with_something_before_them() {
    let noise = Noise::watch();
    let mut asker = Asker::start(Kind::Redis, COUNTING, true);
    let foreign: [&[u8]; 7] = [
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"$3\r\nabc\r\n",
        b"*2\r\n:1\r\n:2\r\n",
        b"\0\xff garbage",
        b"*1000000000\r\n",
    ];
    let (standing, _) = asker.lengths(Direction::Replies);
    for bytes in foreign {
        for offset in [0, 1, standing / 2, standing - 1] {
            let case = format!("{:?} at {offset}", String::from_utf8_lossy(bytes));
            asker.proxy.after(Direction::Replies, offset, Fault::Insert(bytes.to_vec()));
            asker.strike(&case);
        }
    }
    asker.end(noise);
}

/// An error says nothing of what it is an answer to: it is believed, at most once, and ends the connection when the answer
/// proper comes.
#[test]
fn replies_with_a_foreign_error_before_them() {
    for error in [
        "ERR no",
        "NOSCRIPT No matching script.",
        "OOM not allowed",
        "READONLY no",
        "BUSY busy",
        "MOVED 1 a:1",
    ] {
        let mut asker = Asker::start(Kind::Valkey, COUNTING, false);
        let bytes = format!("-{error}\r\n").into_bytes();
        for _ in 0..10 {
            asker.proxy.after(Direction::Replies, 0, Fault::Insert(bytes.clone()));
            asker.strike(error);
        }
        let held = used(&asker.server.url(), COUNTING, "k");
        let most = asker.admitted + asker.unknown + 20;
        assert!(
            (asker.admitted..=most).contains(&held),
            "{error}: {held} {} {}",
            asker.admitted,
            asker.unknown
        );
    }
}

/// Of many that are answered at once nobody gets what is another's.
#[test]
fn replies_that_come_twice_or_unasked_under_load() {
    const LIMIT: u64 = 1_000_000;
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let quotas = "1_000_000/day fixed_window";
    let patient = limiter(options(&server.url()).deadline(LONG), quotas, Outage::Deny);
    let options = options(&server.url_at(proxy.port())).deadline(DEADLINE);
    let limiter = limiter(options, quotas, Outage::Deny);
    let load = Load::on(&limiter, 4).pause(Duration::from_micros(200));
    // Whoever asks for an odd key is to be denied.
    for key in load.keys().iter().skip(1).step_by(2) {
        let usage = patient.blocking().charge(Request::new(key).cost(LIMIT)).unwrap();
        assert_eq!(usage.source(), Source::Store);
    }
    let struck = proxy.struck();
    let (story, ()) = load.run(Duration::ZERO, |_| {
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
    assert!(proxy.struck() > struck + 20, "{}", proxy.struck());
    story.assert_in_time(DEADLINE);
    story.assert_explained();
    let sound = story.count(polylimit_redis_tests::Asked::is_sound);
    assert!(sound > story.asked.len() as u64 / 2, "{}", story.told());
    for asked in story.asked.iter().filter(|asked| asked.is_sound()) {
        assert_eq!(asked.allowed, asked.key() % 2 == 0, "{asked:?}");
    }
    let unknown = limiter.stats().unknown;
    for key in [0, 2] {
        let held = used(&server.url(), quotas, &load.keys()[key]);
        let admitted = story.admitted_of(key);
        assert!((admitted..=admitted + unknown).contains(&held), "{held} {unknown} {}", story.told());
    }
}
