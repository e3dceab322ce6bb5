//! The process of the limiter: threads that are busy or suspended while replies arrive, event loops that write requests on
//! their own threads, forks, and a process without free file descriptors.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use polylimit::decision::{Degradation, Source};
use polylimit::raw::{Answer, Call, Completions};
use polylimit::storage::Outage;
use polylimit::{Decision, Limiter, Request};
use polylimit_redis_tests::{
    COUNTER_QUOTA, GENEROUS_DEADLINE, Noise, SLACK, assert_from_store, check, current_thread_runtime,
    limiter, options, repeated_if_noisy, stored_units, uncached,
};
use polylimit_test_servers::{ClientCertificates, Direction, FaultProxy, Kind, Row, Server, until};

const DEADLINE: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(10);

async fn poll_once(future: &mut (impl Future<Output = Decision> + Unpin)) -> Option<Decision> {
    poll_fn(|cx| {
        Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            Poll::Ready(decision) => Some(decision),
            Poll::Pending => None,
        })
    })
    .await
}

/// The reply arrives in time, while the thread that reads the socket is busy.
fn decide_with_a_busy_thread(url: &str) {
    let limiter = limiter(uncached(url).deadline(DEADLINE), COUNTER_QUOTA, Outage::Deny);
    let runtime = current_thread_runtime();
    runtime.block_on(async {
        limiter.ready(TIMEOUT).await.unwrap();
        for wakes_the_task in [false, true] {
            let sent = limiter.stats().calls;
            let mut first = pin!(async { limiter.check("k").await.unwrap() });
            assert!(poll_once(&mut first).await.is_none());
            while limiter.stats().calls == sent {
                tokio::task::yield_now().await;
            }
            sleep(3 * DEADLINE);
            if wakes_the_task {
                // The connection task runs before the runtime polls its sockets.
                let mut second = pin!(async { limiter.check("k").await.unwrap() });
                let first_poll = poll_once(&mut second).await;
                assert_from_store(&first.await);
                assert_from_store(&match first_poll {
                    Some(decision) => decision,
                    None => second.await,
                });
            } else {
                assert_from_store(&first.await);
            }
        }
    });
    assert_eq!(stored_units(url, COUNTER_QUOTA, "k"), 3);
}

#[test]
fn reply_that_arrives_in_time_counts_though_the_thread_was_busy() {
    let server = Server::start(Kind::Redis, &[]);
    decide_with_a_busy_thread(&server.url());
    server.command(&["FLUSHALL"]);
    decide_with_a_busy_thread(&format!("redis+unix://harness:harness@{}", server.socket().display()));
    let secure = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let ca = secure.certificates().unwrap().ca.display().to_string();
    decide_with_a_busy_thread(&format!("{}?tls_ca={ca}", secure.url()));
}

/// A waker that suspends the thread that calls it until the test resumes it.
struct SuspendingWaker {
    suspended: Sender<()>,
    resume: Mutex<Receiver<()>>,
}

impl Wake for SuspendingWaker {
    fn wake(self: Arc<Self>) {
        let _ = self.suspended.send(());
        let _ = self.resume.lock().unwrap().recv_timeout(3 * TIMEOUT);
    }
}

/// One of the waiting threads drives the connections for all of them.
#[test]
fn blocked_call_ends_by_its_deadline_though_the_driving_thread_is_suspended() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let deadline = Duration::from_secs(1);
    let limiter =
        limiter(options(&server.url_at(proxy.port())).deadline(deadline), COUNTER_QUOTA, Outage::Deny);
    limiter.blocking().ready(TIMEOUT).unwrap();
    proxy.set_stalled_direction(Direction::Replies, true);
    let ((send_suspended, suspended), (resume, receive_resume)) = (channel(), channel());
    let waker = Waker::from(Arc::new(SuspendingWaker {
        suspended: send_suspended,
        resume: Mutex::new(receive_resume),
    }));
    scope(|scope| {
        let sent = proxy.bytes(Direction::Requests);
        let driving = scope.spawn(|| check(&limiter, "driving"));
        until("the request is sent", TIMEOUT, || (proxy.bytes(Direction::Requests) > sent).then_some(()));
        // The driving thread completes this future, too, and calls its waker.
        let mut other = Box::pin(limiter.check("other"));
        assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        proxy.set_stalled_direction(Direction::Replies, false);
        suspended.recv_timeout(TIMEOUT).unwrap();
        let start = Instant::now();
        let decision = check(&limiter, "waiting");
        let taken = start.elapsed();
        resume.send(()).unwrap();
        assert_eq!((decision.source(), decision.degraded()), (Source::Deny, Some(Degradation::Timeout)));
        assert!(taken < deadline + TIMEOUT, "{taken:?}");
        drop(driving.join().unwrap());
        until("the store answers again", TIMEOUT, || {
            (check(&limiter, "after").source() == Source::Store).then_some(())
        });
    });
}

const EVENT_LOOP_DEADLINE: Duration = Duration::from_millis(200);

/// An event loop that makes one request at a time and sends it on its own thread, while another thread drives the
/// connection.
struct EventLoop {
    completions: Completions<()>,
    woken: Receiver<()>,
}

impl EventLoop {
    fn new() -> Self {
        let (wake, woken) = channel();
        Self { completions: Completions::new(move || _ = wake.send(())), woken }
    }

    fn check(&self, limiter: &Limiter) -> Decision {
        let held = self.completions.defer(limiter, &Call::Check(Request::new("user")), ());
        assert!(held.is_none(), "{held:?}");
        self.completions.flush();
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

/// Asserts that the store answers every request of event loops and threads, and counts each once.
fn assert_counted_once(url: &str) {
    const EACH: u64 = 200;
    let limiter = limiter(uncached(url).deadline(Duration::from_secs(5)), COUNTER_QUOTA, Outage::Deny);
    let decides = |decision: &Decision| decision.allowed() && decision.source() == Source::Store;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let event_loop = EventLoop::new();
                for at in 0..EACH {
                    if at % 100 == 0 {
                        // After such a pause the connection is probed before it is used.
                        sleep(Duration::from_millis(600));
                    }
                    let decision = event_loop.check(&limiter);
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
    assert_eq!(stored_units(url, COUNTER_QUOTA, "user"), 4 * EACH);
}

#[test]
fn requests_written_by_an_event_loop_are_counted_once() {
    let server = Server::start(Kind::Redis, &[]);
    assert_counted_once(&server.url());
    server.command(&["FLUSHALL"]);
    assert_counted_once(&format!("redis+unix://harness:harness@{}", server.socket().display()));
    let secure = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let ca = secure.certificates().unwrap().ca.display().to_string();
    assert_counted_once(&format!("{}?tls_ca={ca}", secure.url()));
}

/// The connection thread is not woken when an event loop writes a request, and yet has to enforce its deadline.
#[test]
fn missing_reply_to_an_event_loop_ends_at_the_deadline() {
    repeated_if_noisy(|| {
        let server = Server::start(Kind::Redis, &[]);
        let ages = [Duration::ZERO, Duration::from_secs(600)];
        let idle =
            [Duration::ZERO, EVENT_LOOP_DEADLINE / 2, 2 * EVENT_LOOP_DEADLINE, 4 * EVENT_LOOP_DEADLINE];
        for (age, idle) in ages.into_iter().flat_map(|age| idle.map(|idle| (age, idle))) {
            let options = uncached(&server.url()).deadline(EVENT_LOOP_DEADLINE).max_connection_age(age);
            let (limiter, event_loop) = (limiter(options, COUNTER_QUOTA, Outage::Deny), EventLoop::new());
            until("the store answers", GENEROUS_DEADLINE, || {
                (event_loop.check(&limiter).source() == Source::Store).then_some(())
            });
            sleep(idle);
            let noise = Noise::measure();
            server.stop();
            let start = Instant::now();
            let decision = event_loop.check(&limiter);
            let taken = start.elapsed();
            server.cont();
            let most = EVENT_LOOP_DEADLINE + SLACK + noise.finish();
            assert!(taken <= most, "{taken:?} after {idle:?}, {most:?}");
            assert_eq!(decision.source(), Source::Deny);
            // `late`: a busy machine could not send the request in time.
            let why = decision.degraded();
            assert!(matches!(why, Some(Degradation::Timeout | Degradation::Late)), "{decision:?}");
        }
    });
}

/// How often the program forks, in the short and in the long form.
const FORKS: [u64; 2] = [200, 1_000];

fn forks() -> u64 {
    FORKS[usize::from(Row::is_long())]
}

/// Runs a program that forks while its threads decide.
fn fork_repeatedly(urls: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylimit-forks"));
    let output = command.arg(urls[0]).arg(forks().to_string()).args(&urls[1..]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{output:?}");
}

/// Reads the head of an array or of a bulk string, such as `*3`, and returns its number.
fn read_head(bytes: &mut &[u8], mark: u8) -> usize {
    let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a whole line");
    let (head, rest) = bytes.split_at(end);
    assert_eq!(head[0], mark, "{}", head.escape_ascii());
    *bytes = &rest[2..];
    std::str::from_utf8(&head[1..]).unwrap().parse().expect("a number")
}

/// The processes whose keys are in these requests of one connection, which have to be whole commands.
fn requesting_processes(mut bytes: &[u8]) -> BTreeSet<u32> {
    let mut processes = BTreeSet::new();
    while !bytes.is_empty() {
        for _ in 0..read_head(&mut bytes, b'*') {
            let length = read_head(&mut bytes, b'$');
            let (argument, rest) = bytes.split_at(length);
            bytes = rest.strip_prefix(b"\r\n").expect("the end of a string");
            let text = String::from_utf8_lossy(argument);
            let names = text.split("pid-").skip(1);
            processes.extend(names.filter_map(|name| name.split_once('-')?.0.parse::<u32>().ok()));
        }
    }
    processes
}

/// A child never writes to a socket of its parent: each connection carries the keys of one process, in whole commands.
#[test]
fn forked_children_share_the_quota_in_redis_with_the_parent() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    proxy.record_requests();
    let parameter = "deadline=10s";
    let [through_proxy, direct] =
        [server.url_at(proxy.port()), server.url()].map(|url| format!("{url}?{parameter}"));
    fork_repeatedly(&[&through_proxy, &direct]);
    let requests = proxy.take_requests();
    let processes: Vec<BTreeSet<u32>> = requests.values().map(|bytes| requesting_processes(bytes)).collect();
    assert!(processes.iter().all(|of_connection| of_connection.len() <= 1), "{processes:?}");
    let all: BTreeSet<&u32> = processes.iter().flatten().collect();
    assert_eq!(all.len() as u64, forks() + 1);
    let bytes: usize = requests.values().map(Vec::len).sum();
    Row::new("F60", "Rust, Redis")
        .decisions(2 * forks())
        .measured(format!(
            "{} forks; {} connections of {bytes} bytes in all, each with whole commands of one process",
            forks(),
            requests.len()
        ))
        .record();
}

#[test]
fn forked_children_have_a_memory_store_of_their_own() {
    fork_repeatedly(&["memory:"]);
    Row::new("F60", "Rust, memory").decisions(2 * forks()).measured(format!("{} forks", forks())).record();
}

#[test]
fn process_without_free_descriptors_gets_decisions_of_the_outage_policy() {
    let server = Server::start(Kind::Redis, &[]);
    let output =
        Command::new(env!("CARGO_BIN_EXE_polylimit-descriptor-limit")).arg(server.url()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{output:?}");
}
