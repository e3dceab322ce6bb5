//! Callers of every kind: tasks of several runtimes, threads, threads inside tasks, and futures without a runtime.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use polylimit::{Decision, Degradation, ErrorKind, Limiter, Severity, Source};
use polylimit_test_servers::{Kind, Server, until};
use tokio::runtime::{Builder, Runtime};

use super::patience::within_reason;
use super::{limiter, quiet, runtime, with};

const MANY: &str = "1000000/hour fixed_window";

fn several_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// One of each flavour.
fn runtimes() -> [Runtime; 2] {
    [runtime(), several_threads()]
}

#[test]
fn a_runtime_without_timers_or_sockets_is_refused() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = patient(&server, MANY);
    let mut builders =
        [Builder::new_current_thread(), Builder::new_current_thread(), Builder::new_current_thread()];
    let [_, only_timers, only_sockets] = &mut builders;
    only_timers.enable_time();
    only_sockets.enable_io();
    for mut builder in builders {
        let error = builder.build().unwrap().block_on(limiter.check("k")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("enable_all"), "{error}");
    }
    assert!(stored(&runtime().block_on(limiter.check("k")).unwrap()));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future as an executor does that is not tokio.
fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn stored(decision: &Decision) -> bool {
    assert_eq!((decision.source(), decision.degraded()), (Source::Store, None), "{decision:?}");
    decision.allowed()
}

fn patient(server: &Server, quotas: &str) -> Limiter {
    limiter(&with(&server.url(), "deadline=20s"), quotas)
}

/// How many connections there are besides the harness's own.
fn connections(server: &Server) -> usize {
    server
        .query::<String>(&["CLIENT", "LIST"])
        .lines()
        .filter(|line| line.contains(" name=polylimit "))
        .count()
}

#[test]
fn all_at_once_spend_one_limit() {
    const EACH: usize = 200;
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = patient(&server, "1500/day fixed_window");
    let admitted = within_reason(move || {
        let allowed = |decision: Result<Decision, polylimit::Error>| usize::from(stored(&decision.unwrap()));
        thread::scope(|scope| {
            let mut callers = Vec::new();
            let limiter = &limiter;
            for runtime in [runtimes(), runtimes()].into_iter().flatten() {
                callers.push(scope.spawn(move || {
                    let tasks: Vec<_> = (0..4)
                        .map(|_| {
                            let limiter = limiter.clone();
                            runtime.spawn(async move {
                                let mut admitted = 0;
                                for _ in 0..EACH / 4 {
                                    admitted += usize::from(stored(&limiter.check("user").await.unwrap()));
                                }
                                admitted
                            })
                        })
                        .collect();
                    let tasks = tasks.into_iter().map(|task| runtime.block_on(task).unwrap());
                    tasks.sum::<usize>()
                }));
            }
            for _ in 0..4 {
                callers.push(
                    scope.spawn(move || (0..EACH).map(|_| allowed(limiter.blocking().check("user"))).sum()),
                );
            }
            for _ in 0..2 {
                callers
                    .push(scope.spawn(move || (0..EACH).map(|_| allowed(wait(limiter.check("user")))).sum()));
            }
            for runtime in runtimes() {
                callers.push(scope.spawn(move || {
                    let inside = async { (0..EACH).map(|_| allowed(limiter.blocking().check("user"))).sum() };
                    runtime.block_on(inside)
                }));
            }
            callers.into_iter().map(|caller| caller.join().unwrap()).sum::<usize>()
        })
    });
    assert_eq!(admitted, 1500);
}

#[test]
fn a_runtime_that_ends_takes_only_its_connections_along() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = patient(&server, MANY);
    within_reason(move || {
        let lasting = several_threads();
        for _ in 0..20 {
            for runtime in runtimes() {
                stored(&runtime.block_on(limiter.check("user")).unwrap());
                let inner = limiter.clone();
                let task = async move { inner.check("user").await.unwrap() };
                stored(&runtime.block_on(runtime.spawn(task)).unwrap());
            }
            stored(&lasting.block_on(limiter.check("user")).unwrap());
            stored(&limiter.blocking().check("user").unwrap());
        }
        // One of the runtime that lasts, one of the limiter's own.
        until("the others are closed", Duration::from_secs(5), || (connections(&server) == 2).then_some(()));
        let counters = limiter.stats();
        assert_eq!((counters.applied, counters.connections), (20 * 6, 42));
        drop((lasting, limiter));
        until("all are closed", Duration::from_secs(5), || (connections(&server) == 0).then_some(()));
    });
}

#[test]
fn a_decision_whose_runtime_ends_is_answered() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = patient(&server, MANY);
    within_reason(move || {
        for sent in [false, true] {
            for runtime in runtimes() {
                // The connection stands, and the server does not answer.
                stored(&runtime.block_on(limiter.check("user")).unwrap());
                server.stop();
                let mut pending = Box::pin(limiter.check("user"));
                runtime.block_on(async {
                    poll_fn(|context| {
                        assert!(pending.as_mut().poll(context).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    if sent {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                });
                drop(runtime);
                let decision = wait(pending).unwrap();
                assert_eq!((decision.source(), decision.allowed()), (Source::Deny, false));
                let reasons = [Degradation::Unreachable, Degradation::ConnectionLost].map(Some);
                assert!(reasons.contains(&decision.degraded()), "{decision:?}");
                if sent {
                    assert_eq!(decision.degraded(), Some(Degradation::ConnectionLost), "it may have run");
                }
                server.cont();
            }
        }
    });
}

#[test]
fn a_future_goes_on_where_it_is_polled() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = patient(&server, MANY);
    within_reason(move || {
        let home = several_threads();
        for elsewhere in runtimes() {
            for _ in 0..50 {
                let mut pending = Box::pin(limiter.check("user"));
                let first = home.block_on(poll_fn(|context| Poll::Ready(pending.as_mut().poll(context))));
                if let Poll::Ready(decision) = first {
                    stored(&decision.unwrap());
                    continue;
                }
                stored(&elsewhere.block_on(pending).unwrap());
                let mut pending = Box::pin(limiter.check("user"));
                let first = home.block_on(poll_fn(|context| Poll::Ready(pending.as_mut().poll(context))));
                if first.is_pending() {
                    stored(&wait(pending).unwrap());
                }
            }
        }
    });
}

#[test]
fn the_blocking_face_inside_a_task() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = patient(&server, "5/s token_bucket");
    within_reason(move || {
        for (i, runtime) in runtimes().into_iter().enumerate() {
            let (limiter, key) = (limiter.blocking(), format!("user:{i}"));
            runtime.block_on(async move {
                let key = &key;
                limiter.ready(Duration::from_secs(5)).unwrap();
                assert!(stored(&limiter.check(key).unwrap()));
                assert!(stored(&limiter.peek(key).unwrap()));
                for decision in limiter.check_many([key, key]) {
                    assert!(stored(&decision.unwrap()));
                }
                assert_eq!(limiter.take(key).unwrap().source(), Source::Store);
                assert_eq!(limiter.charge(key).unwrap().source(), Source::Store);
                // It has to wait.
                assert!(stored(&limiter.acquire(key, Duration::from_secs(10)).unwrap()));
                assert_eq!(limiter.reset(key).unwrap().source(), Source::Store);
                let findings = limiter.doctor().unwrap();
                assert!(findings.iter().all(|finding| finding.severity < Severity::Problem), "{findings:?}");
            });
        }
    });
}

#[test]
fn a_future_without_a_runtime() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = patient(&server, "3/hour fixed_window");
    within_reason(move || {
        assert!(stored(&wait(limiter.check("user")).unwrap()));
        for decision in wait(limiter.check_many(["user", "user"])) {
            assert!(stored(&decision.unwrap()));
        }
        assert!(!stored(&wait(limiter.acquire("user", Duration::ZERO)).unwrap()));
        // What needs a timer says so.
        for error in [
            wait(limiter.acquire("user", Duration::from_secs(10_000))).unwrap_err(),
            wait(limiter.ready(Duration::from_secs(1))).unwrap_err(),
            wait(limiter.doctor()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains("tokio"), "{error}");
        }
    });
}

#[test]
fn a_limiter_that_is_dropped_in_a_task() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let url = with(&server.url(), "deadline=20s");
    within_reason(move || {
        for runtime in runtimes() {
            for used in 0..4 {
                let limiter = limiter(&url, MANY);
                match used {
                    0 => {}
                    1 => drop(limiter.blocking().check("user").unwrap()),
                    2 => drop(wait(limiter.check("user")).unwrap()),
                    _ => drop(runtime.block_on(limiter.check("user")).unwrap()),
                }
                runtime.block_on(async move {
                    stored(&limiter.check("user").await.unwrap());
                    stored(&limiter.blocking().check("user").unwrap());
                    drop(limiter);
                });
            }
            // With a runtime that ends before its task does.
            let limiter = limiter(&url, MANY);
            stored(&limiter.blocking().check("user").unwrap());
            runtime.spawn(async move {
                loop {
                    stored(&limiter.check("user").await.unwrap());
                }
            });
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
            drop(runtime);
        }
        until("all are closed", Duration::from_secs(5), || (connections(&server) == 0).then_some(()));
    });
}

#[test]
fn a_runtime_that_sleeps_between_decisions() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter(&with(&server.url(), "deadline=1s"), MANY);
    within_reason(move || {
        let runtime = runtime();
        let check = || {
            stored(&runtime.block_on(limiter.check("user")).unwrap());
            stored(&limiter.blocking().check("user").unwrap());
        };
        check();
        // Nobody drives the connections meanwhile, and nobody sees that the server closes them.
        for closed in [false, true] {
            if closed {
                server.command(&["CLIENT", "KILL", "USER", "default"]);
            }
            thread::sleep(Duration::from_millis(700));
            check();
        }
        assert_eq!(limiter.stats().unknown, 0);
    });
}

#[test]
fn threads_find_a_server_that_comes_back() {
    let _shared = quiet::shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter(&server.url(), MANY);
    within_reason(move || {
        let source = || limiter.blocking().check("user").unwrap().source();
        until("the server decides", Duration::from_secs(5), || (source() == Source::Store).then_some(()));
        server.kill();
        until("the server is missed", Duration::from_secs(5), || (source() == Source::Deny).then_some(()));
        thread::sleep(Duration::from_millis(200));
        server.restart(polylimit_test_servers::Dataset::Empty);
        until("the server decides", Duration::from_secs(2), || (source() == Source::Store).then_some(()));
    });
}
