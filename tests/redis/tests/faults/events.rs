//! What a limiter tells when it decides without its store, and what its doctor finds by itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylimit::{
    Degradation, DegradedEvent, Finding, Limiter, Outage, Policy, RedisOptions, Severity, Source,
};
use polylimit_redis_tests::options;
use polylimit_test_servers::{Kind, Server, until};

const PASSWORD: &str = "p4ssw0rd-nobody-sees";
const KEY: &str = "a key that nobody sees";
/// Room for a busy machine.
const DEADLINE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(20);

/// A limiter, and all that it tells.
struct Told {
    limiter: Limiter,
    events: Arc<Mutex<Vec<DegradedEvent>>>,
}

impl Told {
    fn by(options: RedisOptions) -> Self {
        let events = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&events);
        let limiter = Limiter::builder()
            .redis(options.deadline(DEADLINE))
            .policy(Policy::parse("p", "1000000/hour").unwrap())
            .outage("p", Outage::Deny)
            .on_degraded(move |event| kept.lock().unwrap().push(event.clone()))
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

    /// Goes on asking until it has told so much.
    fn until_told(&self, count: usize) -> Vec<DegradedEvent> {
        until("an event", PATIENCE, || {
            self.check();
            let events = self.events();
            (events.len() >= count).then_some(events)
        })
    }

    fn until_found(&self) -> Finding {
        let events = self.until_told(1);
        let [DegradedEvent::Finding(finding)] = events.as_slice() else { panic!("{events:?}") };
        finding.clone()
    }
}

#[test]
fn a_server_that_stops_and_goes_on_is_told_of_once() {
    let server = Server::options(Kind::Redis).password(PASSWORD).start();
    let told = Told::by(options(&server.url()));
    assert_eq!(told.check(), Source::Store);
    assert!(told.events().is_empty() && !told.limiter.has_events());
    server.stop();
    // Several threads notice it.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(told.check(), Source::Deny)));
        }
    });
    assert_eq!(told.events().len(), 1);
    server.cont();
    let events = told.until_told(2);
    let [started, ended] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((started.name(), started.decisions()), ("started", 0));
    assert!([Some(Degradation::Timeout), Some(Degradation::Unreachable)].contains(&started.reason()));
    assert_eq!((ended.name(), ended.reason()), ("ended", started.reason()));
    assert!(ended.decisions() >= 160, "{ended:?}");
    assert!(ended.lasted() > Duration::ZERO, "{ended:?}");
    for event in &events {
        let texts = [event.to_string(), format!("{event:?}")];
        assert!(texts.iter().all(|text| !text.contains(PASSWORD) && !text.contains("nobody")), "{texts:?}");
    }
    // The same for those that ask for them.
    assert!(told.limiter.has_events());
    assert_eq!(told.limiter.take_events(), events);
    assert!(!told.limiter.has_events() && told.limiter.take_events().is_empty());
}

#[test]
fn what_waits_in_line_notices_it_too() {
    let server = Server::options(Kind::Redis).reserve();
    let told = Told::by(options(&server.url()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let acquired = runtime.block_on(told.limiter.acquire(KEY, Duration::ZERO)).unwrap();
    assert_eq!((acquired.source(), told.events().len()), (Source::Deny, 1));
}

#[test]
fn many_at_once_notice_it_too() {
    let server = Server::options(Kind::Redis).reserve();
    let told = Told::by(options(&server.url()));
    for decision in told.limiter.blocking().check_many(["a", "b", "c"]) {
        assert_eq!(decision.unwrap().source(), Source::Deny);
    }
    assert_eq!(told.events().len(), 1);
}

#[test]
fn a_hook_that_panics_disturbs_no_decision() {
    let server = Server::options(Kind::Redis).reserve();
    let limiter = Limiter::builder()
        .redis(options(&server.url()))
        .policy(Policy::parse("p", "5/hour").unwrap())
        .on_degraded(|event| panic!("the hook was told: {event}"))
        .build()
        .unwrap();
    assert_eq!(limiter.blocking().check(KEY).unwrap().source(), Source::Fallback);
    assert!(limiter.has_events());
}

#[test]
fn the_doctor_looks_once_by_itself() {
    let memory = &["maxmemory 100mb", "maxmemory-policy allkeys-lru"];
    let server = Server::options(Kind::Redis).lines(memory).password(PASSWORD).start();
    let told = Told::by(options(&server.url()).doctor_after(Duration::from_millis(1)));
    let finding = told.until_found();
    assert_eq!((finding.severity, finding.subject), (Severity::Problem, "memory"));
    assert!(finding.message.contains("allkeys-lru") && !finding.message.contains(PASSWORD), "{finding}");
    let looked = connected(&server);
    for _ in 0..100 {
        assert_eq!(told.check(), Source::Store);
    }
    assert_eq!((told.events().len(), connected(&server)), (1, looked));
}

#[test]
fn the_doctor_can_be_turned_off() {
    let server = Server::start(Kind::Redis, &["maxmemory 100mb", "maxmemory-policy allkeys-lru"]);
    let told = Told::by(options(&server.url()).doctor_after(Duration::ZERO));
    told.check();
    let before = connected(&server);
    std::thread::sleep(Duration::from_millis(100));
    told.check();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(connected(&server), before);
    assert!(told.events().is_empty());
}

/// With no more rights than decisions need, it finds nothing and disturbs nothing.
#[test]
fn the_doctor_is_silent_where_it_may_not_look() {
    let server = Server::start(Kind::Redis, &["maxmemory 100mb", "maxmemory-policy allkeys-lru"]);
    let rights = "~polylimit:* resetchannels -@all +evalsha +eval +time +get +mget +set +setrange +del";
    let words: Vec<&str> =
        ["ACL", "SETUSER", "limits", "on", ">word"].into_iter().chain(rights.split(' ')).collect();
    server.command(&words);
    let url = server.url().replace("//", "//limits:word@");
    let told = Told::by(options(&url).doctor_after(Duration::from_millis(1)));
    // It has looked when it has been refused.
    until("the doctor is refused", PATIENCE, || {
        told.check();
        format!("{:?}", server.command(&["ACL", "LOG"])).contains("info").then_some(())
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(told.check(), Source::Store);
    assert!(told.events().is_empty(), "{:?}", told.events());
}

/// How many connections were made to the server: every look takes one.
fn connected(server: &Server) -> String {
    server.info("total_connections_received")
}
