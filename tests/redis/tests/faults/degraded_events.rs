//! Events of a limiter that decides without its store, and findings of the automatic run of the doctor.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylimit::admin::{Finding, Severity};
use polylimit::decision::{Degradation, Source};
use polylimit::metrics::DegradedEvent;
use polylimit::redis::RedisOptions;
use polylimit::storage::Outage;
use polylimit::{Limiter, Policy};
use polylimit_redis_tests::options;
use polylimit_test_servers::{Kind, Server, until};

const PASSWORD: &str = "p4ssw0rd-secret";
const KEY: &str = "a secret key";
/// A deadline that a busy machine does not miss.
const DEADLINE: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(20);

/// A limiter, and the events that its hook received.
struct Observed {
    limiter: Limiter,
    events: Arc<Mutex<Vec<DegradedEvent>>>,
}

impl Observed {
    fn limiter(options: RedisOptions) -> Self {
        let events = Arc::<Mutex<Vec<_>>>::default();
        let received = Arc::clone(&events);
        let limiter = Limiter::builder()
            .redis(options.deadline(DEADLINE))
            .policy(Policy::parse("p", "1000000/hour").unwrap())
            .outage("p", Outage::Deny)
            .on_degraded(move |event| received.lock().unwrap().push(event.clone()))
            .build()
            .unwrap();
        Self { limiter, events }
    }

    fn check(&self) -> Source {
        self.limiter.blocking().check(KEY).unwrap().source()
    }

    fn events(&self) -> Vec<DegradedEvent> {
        self.events.lock().unwrap().clone()
    }

    /// Makes requests until the hook has received this number of events.
    fn until_events(&self, count: usize) -> Vec<DegradedEvent> {
        until("an event", TIMEOUT, || {
            self.check();
            let events = self.events();
            (events.len() >= count).then_some(events)
        })
    }

    fn until_finding(&self) -> Finding {
        let events = self.until_events(1);
        let [DegradedEvent::Finding(finding)] = events.as_slice() else { panic!("{events:?}") };
        finding.clone()
    }
}

#[test]
fn stopped_server_causes_one_started_and_one_ended_event() {
    let server = Server::options(Kind::Redis).password(PASSWORD).start();
    let observed = Observed::limiter(options(&server.url()));
    assert_eq!(observed.check(), Source::Store);
    assert!(observed.events().is_empty() && !observed.limiter.raw().has_events());
    server.stop();
    // Decisions of several threads are degraded.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(observed.check(), Source::Deny)));
        }
    });
    assert_eq!(observed.events().len(), 1);
    server.cont();
    let events = observed.until_events(2);
    let [started, ended] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((started.name(), started.decisions()), ("started", 0));
    // On a busy machine a deadline may pass before the operation is sent.
    let reasons = [Degradation::Timeout, Degradation::Unreachable, Degradation::Late];
    assert!(started.reason().is_some_and(|reason| reasons.contains(&reason)), "{started:?}");
    assert_eq!((ended.name(), ended.reason()), ("ended", started.reason()));
    assert!(ended.decisions() >= 160, "{ended:?}");
    assert!(ended.lasted() > Duration::ZERO, "{ended:?}");
    for event in &events {
        let texts = [event.to_string(), format!("{event:?}")];
        assert!(texts.iter().all(|text| !text.contains(PASSWORD) && !text.contains("secret")), "{texts:?}");
    }
    // The event queue holds the same events.
    assert!(observed.limiter.raw().has_events());
    assert_eq!(observed.limiter.raw().take_events(), events);
    assert!(!observed.limiter.raw().has_events() && observed.limiter.raw().take_events().is_empty());
}

#[test]
fn acquire_during_an_outage_causes_an_event() {
    let server = Server::options(Kind::Redis).reserve();
    let observed = Observed::limiter(options(&server.url()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let acquired = runtime.block_on(observed.limiter.acquire(KEY, Duration::ZERO)).unwrap();
    assert_eq!((acquired.source(), observed.events().len()), (Source::Deny, 1));
}

#[test]
fn check_many_during_an_outage_causes_one_event() {
    let server = Server::options(Kind::Redis).reserve();
    let observed = Observed::limiter(options(&server.url()));
    for decision in observed.limiter.blocking().check_many(["a", "b", "c"]) {
        assert_eq!(decision.unwrap().source(), Source::Deny);
    }
    assert_eq!(observed.events().len(), 1);
}

#[test]
fn panicking_hook_affects_no_decision() {
    let server = Server::options(Kind::Redis).reserve();
    let limiter = Limiter::builder()
        .redis(options(&server.url()))
        .policy(Policy::parse("p", "5/hour").unwrap())
        .on_degraded(|event| panic!("the hook received: {event}"))
        .build()
        .unwrap();
    assert_eq!(limiter.blocking().check(KEY).unwrap().source(), Source::Fallback);
    assert!(limiter.raw().has_events());
}

#[test]
fn automatic_doctor_runs_once_and_reports_its_finding() {
    let memory = &["maxmemory 100mb", "maxmemory-policy allkeys-lru"];
    let server = Server::options(Kind::Redis).lines(memory).password(PASSWORD).start();
    let observed = Observed::limiter(options(&server.url()).doctor_after(Duration::from_millis(1)));
    let finding = observed.until_finding();
    assert_eq!((finding.severity, finding.subject), (Severity::Problem, "memory"));
    assert!(finding.message.contains("allkeys-lru") && !finding.message.contains(PASSWORD), "{finding}");
    let before = connections_received(&server);
    for _ in 0..100 {
        assert_eq!(observed.check(), Source::Store);
    }
    assert_eq!((observed.events().len(), connections_received(&server)), (1, before));
}

#[test]
fn doctor_after_of_zero_turns_the_automatic_doctor_off() {
    let server = Server::start(Kind::Redis, &["maxmemory 100mb", "maxmemory-policy allkeys-lru"]);
    let observed = Observed::limiter(options(&server.url()).doctor_after(Duration::ZERO));
    observed.check();
    let before = connections_received(&server);
    std::thread::sleep(Duration::from_millis(100));
    observed.check();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(connections_received(&server), before);
    assert!(observed.events().is_empty());
}

/// The user has only the permissions that decisions need.
#[test]
fn automatic_doctor_without_permissions_reports_nothing() {
    let server = Server::start(Kind::Redis, &["maxmemory 100mb", "maxmemory-policy allkeys-lru"]);
    let rights = "~polylimit:* resetchannels -@all +evalsha +eval +time +get +mget +set +setrange +del";
    let words: Vec<&str> =
        ["ACL", "SETUSER", "limits", "on", ">word"].into_iter().chain(rights.split(' ')).collect();
    server.command(&words);
    let url = server.url().replace("//", "//limits:word@");
    let observed = Observed::limiter(options(&url).doctor_after(Duration::from_millis(1)));
    // The refused command shows that the doctor has run.
    until("the doctor is refused", TIMEOUT, || {
        observed.check();
        format!("{:?}", server.command(&["ACL", "LOG"])).contains("info").then_some(())
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(observed.check(), Source::Store);
    assert!(observed.events().is_empty(), "{:?}", observed.events());
}

/// How many connections the server has accepted. Each run of the doctor makes one.
fn connections_received(server: &Server) -> String {
    server.info("total_connections_received")
}
