//! Threads of this process that are not let run, in front of a server that answers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use polylimit::{Decision, Degradation, Outage, Source};
use polylimit_redis_tests::{COUNTING, ask, asked_each_time, limiter, options, used};
use polylimit_test_servers::{ClientCertificates, Direction, FaultProxy, Kind, Server, until};
use tokio::runtime::Builder;

const DEADLINE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);

async fn poll_once(future: &mut (impl Future<Output = Decision> + Unpin)) -> Option<Decision> {
    poll_fn(|cx| {
        Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            Poll::Ready(decision) => Some(decision),
            Poll::Pending => None,
        })
    })
    .await
}

/// The reply has come in time; only the thread that is to read it was busy.
fn a_reply_in_the_socket_counts(url: &str) {
    let limiter = limiter(asked_each_time(url).deadline(DEADLINE), COUNTING, Outage::Deny);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let by_the_store = |decision: &Decision| {
        assert_eq!((decision.source(), decision.degraded()), (Source::Store, None), "{decision:?}");
    };
    runtime.block_on(async {
        limiter.ready(PATIENCE).await.unwrap();
        for wakes_the_task in [false, true] {
            let sent = limiter.stats().calls;
            let mut first = pin!(async { limiter.check("k").await.unwrap() });
            assert!(poll_once(&mut first).await.is_none());
            while limiter.stats().calls == sent {
                tokio::task::yield_now().await;
            }
            sleep(3 * DEADLINE);
            if wakes_the_task {
                // The connection's task runs before the runtime has looked at its sockets.
                let mut second = pin!(async { limiter.check("k").await.unwrap() });
                let known = poll_once(&mut second).await;
                by_the_store(&first.await);
                by_the_store(&match known {
                    Some(decision) => decision,
                    None => second.await,
                });
            } else {
                by_the_store(&first.await);
            }
        }
    });
    assert_eq!(used(url, COUNTING, "k"), 3);
}

#[test]
fn a_reply_that_came_while_the_thread_was_busy_counts() {
    let server = Server::start(Kind::Redis, &[]);
    a_reply_in_the_socket_counts(&server.url());
    server.command(&["FLUSHALL"]);
    a_reply_in_the_socket_counts(&format!("redis+unix://harness:harness@{}", server.socket().display()));
    let secure = Server::options(Kind::Redis).tls(ClientCertificates::Ignored).start();
    let ca = secure.certificates().unwrap().ca.display().to_string();
    a_reply_in_the_socket_counts(&format!("{}?tls_ca={ca}", secure.url()));
}

/// Suspends the thread that wakes it, until it is let go.
struct Suspending {
    is_suspended: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
}

impl Wake for Suspending {
    fn wake(self: Arc<Self>) {
        let _ = self.is_suspended.send(());
        let _ = self.goes_on.lock().unwrap().recv_timeout(3 * PATIENCE);
    }
}

/// One thread drives the connections for all that wait.
#[test]
fn a_call_ends_by_its_deadline_though_the_thread_that_drives_is_suspended() {
    let server = Server::start(Kind::Redis, &[]);
    let proxy = FaultProxy::start(server.address());
    let deadline = Duration::from_secs(1);
    let limiter = limiter(options(&server.url_at(proxy.port())).deadline(deadline), COUNTING, Outage::Deny);
    limiter.blocking().ready(PATIENCE).unwrap();
    proxy.set_stalled_direction(Direction::Replies, true);
    let ((is_suspended, suspended), (go_on, goes_on)) = (channel(), channel());
    let waker = Waker::from(Arc::new(Suspending { is_suspended, goes_on: Mutex::new(goes_on) }));
    scope(|scope| {
        let sent = proxy.bytes(Direction::Requests);
        let driving = scope.spawn(|| ask(&limiter, "driving"));
        until("it is sent", PATIENCE, || (proxy.bytes(Direction::Requests) > sent).then_some(()));
        // The thread that drives answers this one, too.
        let mut other = Box::pin(limiter.check("other"));
        assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        proxy.set_stalled_direction(Direction::Replies, false);
        suspended.recv_timeout(PATIENCE).unwrap();
        let asked = Instant::now();
        let decision = ask(&limiter, "waits");
        let taken = asked.elapsed();
        go_on.send(()).unwrap();
        assert_eq!((decision.source(), decision.degraded()), (Source::Deny, Some(Degradation::Timeout)));
        assert!(taken < deadline + PATIENCE, "{taken:?}");
        drop(driving.join().unwrap());
        until("the store answers again", PATIENCE, || {
            (ask(&limiter, "after").source() == Source::Store).then_some(())
        });
    });
}
