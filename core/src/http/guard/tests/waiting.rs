//! Requests that a guard holds in place of a denial.

use std::time::Duration;

use crate::clock::ManualClock;
use crate::http::guard::{Guard, GuardBuilder, GuardCheck, RequestFacts, RequestLimits, Verdict};
use crate::http::headers::{GrpcStatus, HeaderSettings, Problem};
use crate::raw::{Answer, Call};
use crate::{Limiter, Policy, Request};

const WAIT: Duration = Duration::from_millis(200);

struct Service {
    clock: ManualClock,
    limiter: Limiter,
}

impl Service {
    fn new(quotas: &str) -> Self {
        Self::of(|builder| builder.policy(Policy::parse("api", quotas).unwrap()))
    }

    fn of(build: impl FnOnce(crate::LimiterBuilder) -> crate::LimiterBuilder) -> Self {
        let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
        let limiter = build(Limiter::builder()).clock(clock.clone()).build().unwrap();
        Self { clock, limiter }
    }

    fn guard(&self, build: impl FnOnce(GuardBuilder) -> GuardBuilder) -> Guard {
        build(Guard::builder(self.limiter.clone()).wait(WAIT)).build().unwrap()
    }

    /// Ends the time for which a check holds its request.
    fn pass(&self, check: &mut GuardCheck, expected_ms: u64) {
        let held = held(check).expect("it is held");
        assert_eq!(held, Duration::from_millis(expected_ms));
        self.clock.advance(held).unwrap();
        check.answer_call(Ok(Answer::Ready));
    }

    fn left(&self, policy: &str) -> u64 {
        self.limiter.blocking().peek(Request::new("key").policy(policy)).unwrap().remaining()
    }
}

fn start_in(guard: &Guard, limits: &RequestLimits) -> GuardCheck {
    let mut check = guard.start(limits, &RequestFacts::new().key(b"key")).unwrap();
    let is_answered = check.try_run();
    assert_eq!(is_answered, held(&check).is_none());
    check
}

fn start(guard: &Guard) -> GuardCheck {
    start_in(guard, &RequestLimits::default())
}

/// How long a check holds its request.
fn held(check: &GuardCheck) -> Option<Duration> {
    check.next_call(|_, call| match call {
        Call::Sleep(time) => *time,
        other => panic!("{other:?}"),
    })
}

fn is_admitted(check: &mut GuardCheck) -> bool {
    let is_admitted = matches!(check.conclude(), Verdict::Admit);
    while !check.try_run() {}
    is_admitted
}

fn retry_after(check: &GuardCheck) -> Option<String> {
    let fields = check.fields();
    fields.into_iter().find(|field| field.name == "retry-after").map(|field| field.value)
}

#[test]
fn denied_request_is_held_until_units_return() {
    let service = Service::new("10/second token_bucket burst=1");
    let guard = service.guard(|guard| guard);
    assert!(is_admitted(&mut start(&guard)));
    let mut second = start(&guard);
    assert_eq!(guard.waiting(), 1);
    service.pass(&mut second, 100);
    assert!(second.try_run() && is_admitted(&mut second));
    assert_eq!((guard.waiting(), service.left("api")), (0, 0));
    assert_eq!(retry_after(&second), None);
}

#[test]
fn request_that_finds_its_units_taken_is_held_again_for_the_rest_of_the_time() {
    let service = Service::new("10/second token_bucket burst=1");
    let guard = service.guard(|guard| guard);
    assert!(is_admitted(&mut start(&guard)));
    let mut waiting = start(&guard);
    for _ in 0..2 {
        service.pass(&mut waiting, 100);
        // Another request is faster.
        assert!(is_admitted(&mut start(&guard)));
        assert_eq!(waiting.try_run(), held(&waiting).is_none());
    }
    assert!(held(&waiting).is_none() && !is_admitted(&mut waiting), "200 ms have passed");
    assert_eq!((guard.waiting(), retry_after(&waiting)), (0, Some("1".to_owned())));
}

#[test]
fn request_is_denied_at_once_where_it_would_wait_too_long_or_no_wait_is_known() {
    for quotas in [
        "1/second token_bucket",
        "1 concurrent",
        // Each attempt would count.
        "10/second token_bucket burst=1 count_denied",
    ] {
        let service = Service::new(quotas);
        let guard = service.guard(|guard| guard);
        let mut first = start(&guard);
        assert!(is_admitted(&mut first));
        let mut second = start(&guard);
        assert!(held(&second).is_none() && !is_admitted(&mut second), "{quotas}");
        assert_eq!(guard.waiting(), 0);
    }
    let service = Service::new("10/second token_bucket burst=1");
    let guard = service.guard(|guard| guard.cost(0));
    let facts = RequestFacts::new().key(b"key").cost(2);
    let mut never = guard.start(&RequestLimits::default(), &facts).unwrap();
    assert!(never.try_run() && !is_admitted(&mut never));
}

#[test]
fn request_beyond_the_number_that_may_wait_is_denied_at_once() {
    let service = Service::new("10/second token_bucket burst=1");
    let guard = service.guard(|guard| guard.max_waiting(1));
    assert!(is_admitted(&mut start(&guard)));
    let waiting = start(&guard);
    let mut further = start(&guard);
    assert!(held(&waiting).is_some() && held(&further).is_none() && !is_admitted(&mut further));
    // The client of the first one leaves.
    drop(waiting);
    assert_eq!(guard.waiting(), 0);
    assert!(held(&start(&guard)).is_some());
}

#[test]
fn dry_run_and_a_guard_without_a_wait_hold_nothing() {
    let service = Service::new("10/second token_bucket burst=1");
    for guard in
        [service.guard(|guard| guard.dry_run(true)), service.guard(|guard| guard.wait(Duration::ZERO))]
    {
        drop(start(&guard));
        assert!(held(&start(&guard)).is_none());
    }
}

#[test]
fn request_waits_in_a_leaky_bucket_until_its_turn() {
    let service = Service::new("10/second leaky_bucket burst=10");
    let guard = service.guard(|guard| guard);
    assert!(is_admitted(&mut start(&guard)));
    let (mut second, mut third) = (start(&guard), start(&guard));
    assert_eq!((held(&second), held(&third)), (Some(Duration::from_millis(100)), Some(WAIT)));
    // Its turn comes after 300 ms.
    let mut fourth = start(&guard);
    assert!(held(&fourth).is_none());
    let Verdict::Deny(problem) = fourth.conclude() else { panic!("admitted") };
    assert_eq!((problem.status(), problem.violated()), (429, &["api".to_owned()][..]));
    assert_eq!(
        (fourth.try_run(), service.left("api"), retry_after(&fourth)),
        (true, 7, Some("1".to_owned()))
    );
    let wait_us = fourth.outcomes()[0].1.retry_after_us();
    assert_eq!(wait_us, Some(100_000), "after this its turn comes in time");
    service.pass(&mut second, 100);
    assert!(second.try_run() && is_admitted(&mut second));
    service.clock.advance(Duration::from_millis(100)).unwrap();
    third.answer_call(Ok(Answer::Ready));
    assert!(third.try_run() && is_admitted(&mut third));
    assert_eq!(guard.waiting(), 0);
}

#[test]
fn leaky_bucket_without_a_place_to_wait_denies_and_gives_back() {
    let service = Service::new("10/second leaky_bucket burst=10");
    let guard = service.guard(|guard| guard.max_waiting(1));
    assert!(is_admitted(&mut start(&guard)));
    let waiting = start(&guard);
    let mut further = start(&guard);
    assert!(held(&waiting).is_some() && !is_admitted(&mut further));
    assert_eq!((service.left("api"), further.outcomes()[0].1.retry_after_us()), (8, Some(200_000)));
}

#[test]
fn client_that_leaves_before_its_turn_has_spent_nothing() {
    for quotas in ["10/second leaky_bucket burst=10", "10/second token_bucket burst=1"] {
        let service = Service::new(quotas);
        let guard = service.guard(|guard| guard);
        assert!(is_admitted(&mut start(&guard)));
        let before = service.left("api");
        let waiting = start(&guard);
        assert!(held(&waiting).is_some());
        drop(waiting);
        assert_eq!((guard.waiting(), service.left("api")), (0, before), "{quotas}");
    }
}

#[test]
fn deadline_of_the_request_ends_its_wait_with_a_denial() {
    for quotas in ["10/second leaky_bucket burst=10", "10/second token_bucket burst=1"] {
        let service = Service::new(quotas);
        let guard = service.guard(|guard| guard);
        assert!(is_admitted(&mut start(&guard)));
        let before = service.left("api");
        let mut waiting = start(&guard);
        waiting.give_up();
        assert!(held(&waiting).is_none() && waiting.outage().is_none());
        let Verdict::Deny(problem) = waiting.conclude() else { panic!("admitted") };
        assert_eq!(problem.status(), 429);
        assert_eq!((waiting.try_run(), guard.waiting(), service.left("api")), (true, 0, before), "{quotas}");
    }
}

#[test]
fn several_policies_spend_together_after_the_wait() {
    let service = Service::of(|builder| {
        let policies = [("tokens", "10/second token_bucket burst=1"), ("requests", "100/hour fixed_window")];
        policies
            .into_iter()
            .fold(builder, |builder, (name, quotas)| builder.policy(Policy::parse(name, quotas).unwrap()))
    });
    let guard = service.guard(|guard| guard.policies(["tokens", "requests"]));
    assert!(is_admitted(&mut start(&guard)));
    let mut second = start(&guard);
    assert_eq!(service.left("requests"), 99);
    service.pass(&mut second, 100);
    assert!(second.try_run() && is_admitted(&mut second));
    assert_eq!((service.left("tokens"), service.left("requests")), (0, 98));
}

#[test]
fn list_with_a_leaky_bucket_gives_everything_back_when_the_turn_is_late() {
    let service = Service::of(|builder| {
        let policies = [("even", "2/second leaky_bucket burst=10"), ("requests", "100/hour fixed_window")];
        policies
            .into_iter()
            .fold(builder, |builder, (name, quotas)| builder.policy(Policy::parse(name, quotas).unwrap()))
    });
    let guard = service.guard(|guard| guard.policies(["even", "requests"]));
    assert!(is_admitted(&mut start(&guard)));
    let mut second = start(&guard);
    let Verdict::Deny(problem) = second.conclude() else { panic!("admitted") };
    assert_eq!(problem.violated(), ["even"]);
    assert!(second.try_run());
    assert_eq!((service.left("even"), service.left("requests")), (9, 99));
}

#[test]
fn outer_guard_keeps_its_units_while_an_inner_one_waits() {
    let service = Service::of(|builder| {
        let policies = [("all", "100/hour fixed_window"), ("one", "10/second token_bucket burst=1")];
        policies
            .into_iter()
            .fold(builder, |builder, (name, quotas)| builder.policy(Policy::parse(name, quotas).unwrap()))
    });
    let outer = service.guard(|guard| guard.policy("all"));
    let inner = service.guard(|guard| guard.policy("one"));
    assert!(is_admitted(&mut start(&inner)));
    for (is_admitted_late, left) in [(true, 99), (false, 99)] {
        let limits = RequestLimits::default();
        let mut first = start_in(&outer, &limits);
        assert!(is_admitted(&mut first));
        let mut second = start_in(&inner, &limits);
        assert_eq!(service.left("all"), if is_admitted_late { 99 } else { 98 });
        if is_admitted_late {
            service.pass(&mut second, 100);
            assert!(second.try_run());
        } else {
            second.give_up();
        }
        assert_eq!(is_admitted(&mut second), is_admitted_late);
        first.finish(true);
        first.run_blocking();
        assert_eq!(service.left("all"), left);
    }
}

#[test]
fn guard_that_waits_asks_for_no_later_guard() {
    let service = Service::new("10/second token_bucket burst=1");
    let guard = service.guard(|guard| guard);
    let later = service.guard(|guard| guard.wait(Duration::ZERO).policy("5/hour"));
    for (first, second) in [(&guard, &later), (&later, &guard)] {
        let facts = RequestFacts::new().key(b"key");
        let mut check = first.start(&RequestLimits::default(), &facts).unwrap();
        check.ask_ahead(second, &facts);
        assert!(check.next_call(|_, call| matches!(call, Call::Check(_))).unwrap());
    }
}

const DOCUMENT: &str = r#"
    polylimit = 1
    [policies.token]
    quotas = "10/second token_bucket burst=1"
    [policies.even]
    quotas = "10/second leaky_bucket burst=10"
    [policies.all]
    quotas = "100/hour fixed_window"
    [policies.strict]
    quotas = "10/second token_bucket burst=1"
    penalty = { denials = 3, within = "1m", block = "1m" }
    [[rules]]
    match = { path = "/token" }
    apply = [{ policy = "token", key = "{user}" }, { policy = "all", key = "{user}" }]
    [[rules]]
    match = { path = "/even" }
    apply = [{ policy = "even", key = "{user}" }, { policy = "all", key = "{user}" }]
    [[rules]]
    match = { path = "/strict" }
    apply = [{ policy = "strict", key = "{user}" }]
"#;

#[test]
fn rules_of_a_document_are_applied_again_after_the_wait() {
    let service = Service::of(|builder| builder.document(DOCUMENT));
    let guard = service.guard(GuardBuilder::by_configuration);
    let start = |path| {
        let attributes =
            crate::document::RequestAttributes::new().method("GET").path(path).attribute("user", "key");
        let mut check =
            guard.start(&RequestLimits::default(), &RequestFacts::new().attributes(&attributes)).unwrap();
        assert_eq!(check.try_run(), held(&check).is_none());
        check
    };
    assert!(is_admitted(&mut start("/token")));
    let mut second = start("/token");
    assert_eq!(service.left("all"), 99);
    service.pass(&mut second, 100);
    assert!(second.try_run() && is_admitted(&mut second));
    assert_eq!((service.left("token"), service.left("all"), guard.waiting()), (0, 98, 0));

    // A leaky bucket: one proceeds, two wait, and the turn of the fourth comes too late.
    assert!(is_admitted(&mut start("/even")));
    let (mut second, third) = (start("/even"), start("/even"));
    assert_eq!((held(&second), held(&third)), (Some(Duration::from_millis(100)), Some(WAIT)));
    let mut fourth = start("/even");
    let Verdict::Deny(problem) = fourth.conclude() else { panic!("admitted") };
    assert_eq!((problem.status(), problem.violated()), (429, &["even".to_owned()][..]));
    assert!(fourth.try_run());
    assert_eq!((service.left("even"), service.left("all")), (7, 95));
    drop(third);
    assert_eq!((service.left("even"), service.left("all")), (8, 96));
    service.pass(&mut second, 100);
    assert!(second.try_run() && is_admitted(&mut second));

    // A denied attempt counts towards the penalty.
    assert!(is_admitted(&mut start("/strict")));
    let mut denied = start("/strict");
    assert!(held(&denied).is_none() && !is_admitted(&mut denied));
}

#[test]
fn options_out_of_range_are_refused() {
    let builder = || Guard::builder(Limiter::builder().build().unwrap()).policy("1/minute");
    for (builder, message) in [
        (
            builder().wait(Duration::from_secs(61)),
            "wait is \"61s\": allowed is 0 to 60 s, in which the connection of a waiting request stays open",
        ),
        (builder().max_waiting(0), "max_waiting is 0: allowed is 1 to 1000000"),
        (builder().max_waiting(1_000_001), "max_waiting is 1000001: allowed is 1 to 1000000"),
    ] {
        assert_eq!(builder.build().unwrap_err().to_string(), message);
    }
    builder().wait(Duration::from_secs(60)).max_waiting(1_000_000).build().unwrap();
}

#[test]
fn jitter_is_the_same_whenever_the_fields_of_a_request_are_written() {
    let service = Service::new("1/hour fixed_window");
    let headers: HeaderSettings = "both jitter=3600s".parse().unwrap();
    let guard = service.guard(|guard| guard.headers(headers));
    let mut admitted = start(&guard);
    assert!(is_admitted(&mut admitted) && retry_after(&admitted).is_none());
    let exact_us = service.limiter.blocking().peek("key").unwrap().retry_after_us().unwrap();
    let exact = exact_us.div_ceil(1_000_000);
    let mut found = std::collections::HashSet::new();
    for _ in 0..50 {
        let mut denied = start(&guard);
        assert!(!is_admitted(&mut denied));
        let seconds = retry_after(&denied).unwrap();
        assert_eq!(retry_after(&denied).as_ref(), Some(&seconds));
        let seconds: u64 = seconds.parse().unwrap();
        assert!((exact..=exact + 3600).contains(&seconds));
        assert_eq!(denied.outcomes()[0].1.retry_after_us(), Some(exact_us));
        found.insert(seconds);
    }
    assert!(found.len() > 1, "50 of 3601 numbers are not all equal");
}

#[test]
fn status_of_grpc_has_the_jitter_that_the_fields_have() {
    let service = Service::new("1/hour fixed_window");
    let headers: HeaderSettings = "ietf jitter=3600s".parse().unwrap();
    let guard = service.guard(|guard| guard.headers(headers));
    assert!(is_admitted(&mut start(&guard)));
    let exact_us = service.limiter.blocking().peek("key").unwrap().retry_after_us().unwrap();
    let mut longest_us = 0;
    for _ in 0..20 {
        let mut denied = start(&guard);
        let Verdict::Deny(problem) = denied.conclude() else { panic!("the request is admitted") };
        let seconds: u64 = retry_after(&denied).unwrap().parse().unwrap();
        let jitter_us = (seconds - exact_us.div_ceil(1_000_000)) * 1_000_000;
        let expected = GrpcStatus::with_delay(&problem, Some(exact_us + jitter_us));
        assert_eq!(problem.grpc_status(), expected);
        longest_us = longest_us.max(jitter_us);
        let response = problem.response(Some(Problem::GRPC_TYPE));
        let names: Vec<_> = response.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["content-type", "vary", "grpc-status", "grpc-message", "grpc-status-details-bin"]);
        assert_eq!(response.fields[2].value, "8");
    }
    assert!(longest_us > 0, "20 of 3601 numbers are not all 0");
}
