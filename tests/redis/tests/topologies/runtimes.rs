//! Callers of every kind: tasks of several runtimes, threads, blocking calls inside tasks, and futures without a runtime.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use polylimit::admin::Severity;
use polylimit::decision::{Degradation, Source};
use polylimit::{Decision, ErrorKind, Limiter};
use polylimit_redis_tests::{assert_from_store, with};
use polylimit_test_servers::{Kind, Server, until};
use tokio::runtime::{Builder, Runtime};

use super::support::{connections, limiter, runtime, shared, with_time_limit};

const HIGH_LIMIT: &str = "1000000/hour fixed_window";

fn several_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// One of each flavour.
fn runtimes() -> [Runtime; 2] {
    [runtime(), several_threads()]
}

#[test]
fn runtime_without_timers_or_sockets_is_an_invalid_argument() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter_with_long_deadline(&server, HIGH_LIMIT);
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
    assert!(assert_from_store(&runtime().block_on(limiter.check("k")).unwrap()));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future without tokio.
fn drive<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn limiter_with_long_deadline(server: &Server, quotas: &str) -> Limiter {
    limiter(&with(&server.url(), "deadline=20s"), quotas)
}

#[test]
fn callers_of_all_kinds_share_one_limit() {
    const EACH: usize = 200;
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter_with_long_deadline(&server, "1500/day fixed_window");
    let admitted = with_time_limit(move || {
        let allowed =
            |decision: Result<Decision, polylimit::Error>| usize::from(assert_from_store(&decision.unwrap()));
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
                                    admitted +=
                                        usize::from(assert_from_store(&limiter.check("user").await.unwrap()));
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
                callers.push(
                    scope.spawn(move || (0..EACH).map(|_| allowed(drive(limiter.check("user")))).sum()),
                );
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
fn runtime_that_ends_closes_only_its_own_connections() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter_with_long_deadline(&server, HIGH_LIMIT);
    with_time_limit(move || {
        let lasting = several_threads();
        for _ in 0..20 {
            for runtime in runtimes() {
                assert_from_store(&runtime.block_on(limiter.check("user")).unwrap());
                let inner = limiter.clone();
                let task = async move { inner.check("user").await.unwrap() };
                assert_from_store(&runtime.block_on(runtime.spawn(task)).unwrap());
            }
            assert_from_store(&lasting.block_on(limiter.check("user")).unwrap());
            assert_from_store(&limiter.blocking().check("user").unwrap());
        }
        // The lasting runtime and the limiter's own one keep a connection each.
        until("the other connections are closed", Duration::from_secs(5), || {
            (connections(&server) == 2).then_some(())
        });
        let counters = limiter.stats();
        assert_eq!((counters.applied, counters.connections), (20 * 6, 42));
        drop((lasting, limiter));
        until("all connections are closed", Duration::from_secs(5), || {
            (connections(&server) == 0).then_some(())
        });
    });
}

#[test]
fn pending_decision_is_degraded_when_its_runtime_ends() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter_with_long_deadline(&server, HIGH_LIMIT);
    with_time_limit(move || {
        for sent in [false, true] {
            for runtime in runtimes() {
                // The connection is open, and the server does not reply.
                assert_from_store(&runtime.block_on(limiter.check("user")).unwrap());
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
                let decision = drive(pending).unwrap();
                assert_eq!((decision.source(), decision.allowed()), (Source::Deny, false));
                let reasons = [Degradation::Unreachable, Degradation::ConnectionLost].map(Some);
                assert!(reasons.contains(&decision.degraded()), "{decision:?}");
                if sent {
                    assert_eq!(
                        decision.degraded(),
                        Some(Degradation::ConnectionLost),
                        "the server may have applied it"
                    );
                }
                server.cont();
            }
        }
    });
}

#[test]
fn future_can_move_between_runtimes() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter_with_long_deadline(&server, HIGH_LIMIT);
    with_time_limit(move || {
        let first_runtime = several_threads();
        for other_runtime in runtimes() {
            for _ in 0..50 {
                let mut pending = Box::pin(limiter.check("user"));
                let first =
                    first_runtime.block_on(poll_fn(|context| Poll::Ready(pending.as_mut().poll(context))));
                if let Poll::Ready(decision) = first {
                    assert_from_store(&decision.unwrap());
                    continue;
                }
                assert_from_store(&other_runtime.block_on(pending).unwrap());
                let mut pending = Box::pin(limiter.check("user"));
                let first =
                    first_runtime.block_on(poll_fn(|context| Poll::Ready(pending.as_mut().poll(context))));
                if first.is_pending() {
                    assert_from_store(&drive(pending).unwrap());
                }
            }
        }
    });
}

#[test]
fn blocking_limiter_works_inside_a_task() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter_with_long_deadline(&server, "5/s token_bucket");
    with_time_limit(move || {
        for (i, runtime) in runtimes().into_iter().enumerate() {
            let (limiter, key) = (limiter.blocking(), format!("user:{i}"));
            runtime.block_on(async move {
                let key = &key;
                limiter.ready(Duration::from_secs(5)).unwrap();
                assert!(assert_from_store(&limiter.check(key).unwrap()));
                assert!(assert_from_store(&limiter.peek(key).unwrap()));
                for decision in limiter.check_many([key, key]) {
                    assert!(assert_from_store(&decision.unwrap()));
                }
                assert_eq!(limiter.take(key).unwrap().source(), Source::Store);
                assert_eq!(limiter.charge(key).unwrap().source(), Source::Store);
                // This call has to wait.
                assert!(assert_from_store(&limiter.acquire(key, Duration::from_secs(10)).unwrap()));
                assert_eq!(limiter.reset(key).unwrap().source(), Source::Store);
                let findings = limiter.admin().doctor().unwrap();
                assert!(findings.iter().all(|finding| finding.severity < Severity::Problem), "{findings:?}");
            });
        }
    });
}

#[test]
fn future_without_a_runtime_decides_and_refuses_timers() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter_with_long_deadline(&server, "3/hour fixed_window");
    with_time_limit(move || {
        assert!(assert_from_store(&drive(limiter.check("user")).unwrap()));
        for decision in drive(limiter.check_many(["user", "user"])) {
            assert!(assert_from_store(&decision.unwrap()));
        }
        assert!(!assert_from_store(&drive(limiter.acquire("user", Duration::ZERO)).unwrap()));
        // Operations that need a timer are refused.
        for error in [
            drive(limiter.acquire("user", Duration::from_secs(10_000))).unwrap_err(),
            drive(limiter.ready(Duration::from_secs(1))).unwrap_err(),
            drive(limiter.admin().doctor()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains("tokio"), "{error}");
        }
    });
}

#[test]
fn limiter_dropped_in_a_task_closes_its_connections() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let url = with(&server.url(), "deadline=20s");
    with_time_limit(move || {
        for runtime in runtimes() {
            for used in 0..4 {
                let limiter = limiter(&url, HIGH_LIMIT);
                match used {
                    0 => {}
                    1 => drop(limiter.blocking().check("user").unwrap()),
                    2 => drop(drive(limiter.check("user")).unwrap()),
                    _ => drop(runtime.block_on(limiter.check("user")).unwrap()),
                }
                runtime.block_on(async move {
                    assert_from_store(&limiter.check("user").await.unwrap());
                    assert_from_store(&limiter.blocking().check("user").unwrap());
                    drop(limiter);
                });
            }
            // The runtime ends before its task does.
            let limiter = limiter(&url, HIGH_LIMIT);
            assert_from_store(&limiter.blocking().check("user").unwrap());
            runtime.spawn(async move {
                loop {
                    assert_from_store(&limiter.check("user").await.unwrap());
                }
            });
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
            drop(runtime);
        }
        until("all connections are closed", Duration::from_secs(5), || {
            (connections(&server) == 0).then_some(())
        });
    });
}

#[test]
fn idle_runtime_degrades_no_decision() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter(&with(&server.url(), "deadline=1s"), HIGH_LIMIT);
    with_time_limit(move || {
        let runtime = runtime();
        let check = || {
            assert_from_store(&runtime.block_on(limiter.check("user")).unwrap());
            assert_from_store(&limiter.blocking().check("user").unwrap());
        };
        check();
        // No thread drives the connections during the pause, so the limiter does not notice that the server closes them.
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
fn blocking_calls_recover_when_the_server_restarts() {
    let _shared = shared();
    let server = Server::start(Kind::Redis, &[]);
    let limiter = limiter(&server.url(), HIGH_LIMIT);
    with_time_limit(move || {
        let source = || limiter.blocking().check("user").unwrap().source();
        until("the server decides", Duration::from_secs(5), || (source() == Source::Store).then_some(()));
        server.kill();
        until("the server is missed", Duration::from_secs(5), || (source() == Source::Deny).then_some(()));
        thread::sleep(Duration::from_millis(200));
        server.restart(polylimit_test_servers::Dataset::Empty);
        until("the server decides", Duration::from_secs(2), || (source() == Source::Store).then_some(()));
    });
}
