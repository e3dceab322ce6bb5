//! Callers that send what they ask on a thread of their own, while another one drives the connection.

use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::{Answer, Call, Completions, Decision, Degradation, Limiter, Outage, Request, Source};
use polylimit_redis_tests::{COUNTING, LONG, Noise, asked_each_time, limiter, used};
use polylimit_test_servers::{ClientCertificates, Kind, Server, until};

const DEADLINE: Duration = Duration::from_millis(200);

/// An event loop that asks one thing at a time.
struct Loop {
    completions: Completions<()>,
    woken: Receiver<()>,
}

impl Loop {
    fn new() -> Self {
        let (wake, woken) = channel();
        Self { completions: Completions::new(move || _ = wake.send(())), woken }
    }

    fn check(&self, limiter: &Limiter) -> Decision {
        let held = self.completions.hold(limiter, &Call::Check(Request::new("user")), ());
        assert!(held.is_none(), "{held:?}");
        self.completions.start_held();
        let mut answers = Vec::new();
        while answers.is_empty() {
            self.woken.recv_timeout(Duration::from_secs(30)).unwrap();
            self.completions.drain(|(), answer| answers.push(answer));
        }
        assert_eq!((answers.len(), self.completions.pending()), (1, 0));
        match answers.pop() {
            Some(Ok(Answer::Decision(decision))) => decision,
            other => panic!("{other:?}"),
        }
    }
}

/// Every answer is the store's, and it counts each once.
fn counts_each_once(url: &str) {
    const EACH: u64 = 200;
    let limiter = limiter(asked_each_time(url).deadline(Duration::from_secs(5)), COUNTING, Outage::Deny);
    let decides = |decision: &Decision| decision.allowed() && decision.source() == Source::Store;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let this = Loop::new();
                for at in 0..EACH {
                    if at % 100 == 0 {
                        // Longer than a connection is trusted without a look.
                        sleep(Duration::from_millis(600));
                    }
                    let decision = this.check(&limiter);
                    assert!(decides(&decision), "{decision:?}");
                }
            });
            scope.spawn(|| {
                for _ in 0..EACH {
                    let decision = limiter.blocking().check("user").unwrap();
                    assert!(decides(&decision), "{decision:?}");
                }
            });
        }
    });
    let counters = limiter.stats();
    assert_eq!(counters.applied, 4 * EACH, "{counters:?}");
    assert_eq!(used(url, COUNTING, "user"), 4 * EACH);
}

#[test]
fn what_is_sent_elsewhere_counts_once() {
    let server = Server::start(Kind::Redis, &[]);
    counts_each_once(&server.url());
    server.command(&["FLUSHALL"]);
    counts_each_once(&format!("redis+unix://harness:harness@{}", server.socket().display()));
    let secure = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let ca = secure.certificates().unwrap().ca.display().to_string();
    counts_each_once(&format!("{}?tls_ca={ca}", secure.url()));
}

/// The thread of the connection is not woken for what is sent, and yet has to see that no answer comes.
#[test]
fn no_answer_is_missed_by_its_deadline() {
    let server = Server::start(Kind::Redis, &[]);
    let ages = [Duration::ZERO, Duration::from_secs(600)];
    let idle = [Duration::ZERO, DEADLINE / 2, 2 * DEADLINE, 4 * DEADLINE];
    for (age, idle) in ages.into_iter().flat_map(|age| idle.map(|idle| (age, idle))) {
        let options = asked_each_time(&server.url()).deadline(DEADLINE).max_connection_age(age);
        let (limiter, this) = (limiter(options, COUNTING, Outage::Deny), Loop::new());
        until("the store answers", LONG, || (this.check(&limiter).source() == Source::Store).then_some(()));
        sleep(idle);
        let noise = Noise::watch();
        server.stop();
        let asked = Instant::now();
        let decision = this.check(&limiter);
        let taken = asked.elapsed();
        server.cont();
        let most = DEADLINE + Duration::from_millis(5) + noise.end();
        assert!(taken <= most, "{taken:?} after {idle:?}, {most:?}");
        assert_eq!(decision.source(), Source::Deny);
        // Late is what could not be sent in time on a machine that is that busy.
        let why = decision.degraded();
        assert!(matches!(why, Some(Degradation::Timeout | Degradation::Late)), "{decision:?}");
    }
}
