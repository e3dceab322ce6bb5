//! Operations of a limiter that has its limits from a document, by both of its faces, in memory and in a shared file.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "configuration/keys.rs"]
mod keys;

use std::time::Duration;

use polylimit::admin::PolicyMode;
use polylimit::clock::ManualClock;
use polylimit::decision::Cause;
use polylimit::document::{AttributeSource, Peer, RequestAttributes};
use polylimit::raw::ReservationTerms;
use polylimit::reservation::ReservationId;
use polylimit::{ErrorKind, Limiter, LimiterBuilder, Request};

const START_US: u64 = 1_800_000_000_000_000;

const DOCUMENT: &str = r#"
polylimit = 1

[policies.api]
quotas = "3/minute fixed_window"
plans = { gold = "9/minute fixed_window" }

[policies.tried]
quotas = "2/minute fixed_window"
candidate = { quotas = "1/minute fixed_window", compare = 1000 }

[policies.slots]
quotas = "1 concurrent"

[[rules]]
match = { path = "/slow" }
apply = [{ policy = "slots", key = "all" }, { policy = "api", key = "{user}" }]

[[rules]]
match = { path = "/v1/{name}" }
apply = [{ policy = "api", key = "{user}", cost = "{cost}", headroom = 20 }]
"#;

/// A limiter with the document, on a clock that stands.
fn configured(builder: LimiterBuilder) -> Limiter {
    builder.document(DOCUMENT).clock(ManualClock::new(START_US).unwrap()).build().unwrap()
}

/// The limiters of each store of one host, and the folder of their file.
fn limiters() -> (Vec<Limiter>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut limiters = vec![configured(Limiter::builder())];
    if cfg!(all(target_os = "linux", feature = "local")) {
        let url = format!("file://{}/store?size=1MiB", folder.path().display());
        limiters.push(configured(Limiter::builder().store(&url)));
    }
    (limiters, folder)
}

fn request<'a>(path: &'a str, user: &'a str) -> RequestAttributes<'a> {
    RequestAttributes::new().path(path).attribute("user", user).attribute("cost", "2")
}

fn terms() -> ReservationTerms {
    ReservationTerms {
        id: ReservationId::random().unwrap(),
        ttl: Duration::from_secs(30),
        timeout: Duration::ZERO,
        remember: Duration::ZERO,
    }
}

#[test]
fn request_is_matched_with_what_lists_modes_and_overrides_say() {
    let document = r#"
        polylimit = 1
        [policies.api]
        quotas = "5/minute"
        overrides = { alice = "9/minute" }
        plans = { gold = "70/minute" }
        [policies.tried]
        quotas = "1/day"
        mode = "shadow"
        [[rules]]
        match = { team = "*" }
        apply = [{ policy = "api", key = "{tenant}", missing = "deny" }]
        [[rules]]
        apply = [{ policy = "api", key = "{user}", headroom = 20 }, { policy = "tried", key = "{user}", missing = "deny" }]
        [lists]
        deny = ["user mallory"]
        allow = ["user root"]
    "#;
    let limiter = Limiter::builder().document(document).build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let of = |attributes: &[(&'static str, &'static str)]| {
        let request = attributes
            .iter()
            .fold(RequestAttributes::new(), |request, (name, value)| request.attribute(name, *value));
        runtime.block_on(limiter.admin().match_request(&request)).unwrap()
    };
    let decided = |attributes| of(attributes).decided.map(|decided| (decided.allowed, decided.cause));
    assert_eq!(decided(&[("user", "mallory")]), Some((false, Some(Cause::DenyList))));
    assert_eq!(decided(&[("user", "root")]), Some((true, Some(Cause::AllowList))));
    assert_eq!(decided(&[("team", "a")]), Some((false, Some(Cause::MissingKey))));

    let bob = of(&[("user", "bob"), ("plan", "gold")]);
    assert_eq!((bob.decided, bob.plan.as_deref()), (None, Some(&b"gold"[..])));
    let found: Vec<_> =
        bob.policies.iter().map(|one| (&*one.policy, &*one.key, one.headroom, one.mode)).collect();
    let on_and_shadow = [PolicyMode::On, PolicyMode::Shadow];
    assert_eq!(found, [("api", &b"bob"[..], 20, on_and_shadow[0]), ("tried", b"bob", 0, on_and_shadow[1])]);
    assert_eq!(bob.policies[0].effective_policy.quotas()[0].limit(), 70);
    assert_eq!(of(&[("user", "alice")]).policies[0].effective_policy.quotas()[0].limit(), 9);
    // A policy in shadow denies no request for a key that is missing.
    let nothing = of(&[]);
    assert_eq!((nothing.decided, nothing.policies.len()), (None, 1));
}

/// A request of which each attribute takes a minute to read.
struct SlowRequest<'a> {
    request: RequestAttributes<'a>,
    clock: ManualClock,
}

impl AttributeSource for SlowRequest<'_> {
    fn method(&self) -> Option<&[u8]> {
        AttributeSource::method(&self.request)
    }

    fn path(&self) -> Option<&[u8]> {
        AttributeSource::path(&self.request)
    }

    fn peer(&self) -> Option<Peer<'_>> {
        AttributeSource::peer(&self.request)
    }

    fn header<'a>(&'a self, name: &str, line: &mut dyn FnMut(&'a [u8])) {
        AttributeSource::header(&self.request, name, line);
    }

    fn attribute(&self, name: &str) -> Option<&[u8]> {
        self.clock.advance(Duration::from_secs(60)).unwrap();
        AttributeSource::attribute(&self.request, name)
    }
}

#[test]
fn decision_names_the_quotas_that_decided_even_if_an_override_ends_meanwhile() {
    let document = r#"
        polylimit = 1
        [policies.api]
        quotas = "3/minute fixed_window"
        overrides = { alice = { numbers = "9/minute fixed_window", until = "2027-01-15T08:00:30Z" } }
        [[rules]]
        apply = [{ policy = "api", key = "{user}" }]
    "#;
    let clock = ManualClock::new(START_US).unwrap();
    let limiter = Limiter::builder().document(document).clock(clock.clone()).build().unwrap().blocking();
    let request = SlowRequest { request: RequestAttributes::new().attribute("user", "alice"), clock };
    for expected in [9, 3] {
        let decided = limiter.decide(&request, &terms()).unwrap();
        let [api] = decided.decisions.as_slice() else { panic!("{decided:?}") };
        let named = api.effective_policy().quotas()[0].limit();
        assert_eq!((named, api.decision.limit()), (expected, expected));
    }
}

#[test]
fn blocking_limiter_has_the_operations_of_a_configuration() {
    let (limiters, _folder) = limiters();
    for limiter in limiters {
        let limiter = limiter.blocking();
        let matched = limiter.admin().matching(&request("/v1/a", "alice")).unwrap();
        let found: Vec<_> =
            matched.iter().map(|one| (&*one.policy, &*one.key, one.cost, one.headroom)).collect();
        assert_eq!(found, [("api", &b"alice"[..], 2, 20)]);

        let hold = terms();
        assert!(limiter.decide(&request("/slow", "alice"), &hold).unwrap().allowed);
        let denied = limiter.decide(&request("/slow", "bob"), &terms()).unwrap();
        assert_eq!((denied.cause, denied.status()), (Some(Cause::Concurrency), Some(429)));
        assert!(limiter.cancel(Request::new("all").policy("slots"), hold.id).unwrap().found());
        // What bob's request has spent was given back, and alice's was not.
        let left = |user| limiter.peek(Request::new(user).policy("api")).unwrap().remaining();
        assert_eq!((left("alice"), left("bob")), (2, 3));

        let before = limiter.admin().configuration().unwrap();
        assert_eq!((&*before.source, before.digest.len()), ("document", 64));
        let after = limiter.admin().set_entry("override api bob", r#"{"numbers": "gold"}"#).unwrap();
        assert_eq!((after.version, left("bob")), (before.version + 1, 9));
        limiter.admin().set_entry("deny user bob", "{}").unwrap();
        assert_eq!(limiter.decide(&request("/slow", "bob"), &terms()).unwrap().status(), Some(403));
        limiter.admin().delete_entry("deny user bob").unwrap();
        // An entry is the same however it is spelled.
        limiter.admin().set_entry("deny user é", "{}").unwrap();
        assert_eq!(limiter.decide(&request("/slow", "é"), &terms()).unwrap().status(), Some(403));
        limiter.admin().delete_entry("deny user %c3%A9").unwrap();
        assert_ne!(limiter.decide(&request("/slow", "é"), &terms()).unwrap().status(), Some(403));
        let last = limiter.admin().delete_entry("override api %62ob").unwrap();
        assert_eq!((left("bob"), limiter.admin().configuration().unwrap()), (3, last.clone()));
        assert_eq!(limiter.admin().wait_for_version(last.version, Duration::ZERO).unwrap(), last);
        let late = limiter.admin().wait_for_version(last.version + 1, Duration::from_millis(1)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::StoreUnavailable);

        let bob = || Request::new("bob").policy("api");
        assert_eq!(limiter.admin().block(bob(), Duration::from_secs(60)).unwrap().remaining(), 0);
        assert_eq!(limiter.check(bob()).unwrap().cause(), Some(Cause::Blocked));
        assert_eq!(limiter.admin().block(bob(), Duration::ZERO).unwrap().remaining(), 3);
        assert!(limiter.check(bob()).unwrap().allowed());

        assert_eq!(limiter.admin().candidate_counts("api"), None);
        for _ in 0..3 {
            let _ = limiter.check(Request::new("carol").policy("tried")).unwrap();
        }
        let counts = limiter.admin().candidate_counts("tried").unwrap();
        assert_eq!(
            (counts.both_allow, counts.only_live_denies, counts.only_candidate_denies, counts.both_deny),
            (1, 0, 1, 1)
        );

        let error = limiter.admin().set_document("polylimit = 1\nrule = 2\n").unwrap_err();
        assert!(error.message().starts_with("line 2, column 1: "), "{error}");
        assert_eq!(limiter.admin().configuration().unwrap(), last);
        let replaced = limiter.admin().set_document(&DOCUMENT.replace("3/minute", "4/minute")).unwrap();
        assert_eq!((replaced.version, left("alice")), (last.version + 1, 3));
    }
}

#[tokio::test]
async fn asynchronous_limiter_has_the_operations_of_a_configuration() {
    let (limiters, _folder) = limiters();
    for limiter in limiters {
        let slow = request("/slow", "alice");
        assert!(limiter.decide(&slow, &terms()).await.unwrap().allowed);
        let denied = limiter.decide(&slow, &terms()).await.unwrap();
        assert_eq!((denied.cause, denied.decisions.len()), (Some(Cause::Concurrency), 2));

        let before = limiter.admin().configuration().unwrap().version;
        limiter.admin().set_entry("deny user alice", r#"{"by": "ann", "why": "a test"}"#).await.unwrap();
        assert_eq!(limiter.decide(&slow, &terms()).await.unwrap().status(), Some(403));
        let status = limiter.admin().delete_entry("deny user alice").await.unwrap();
        assert_eq!(status.version, before + 2);
        assert_eq!(limiter.admin().wait_for_version(before, Duration::ZERO).await.unwrap(), status);
        let late = limiter.admin().wait_for_version(before + 3, Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::StoreUnavailable);

        let alice = || Request::new("alice").policy("api");
        assert_eq!(limiter.admin().block(alice(), Duration::from_secs(60)).await.unwrap().remaining(), 0);
        assert_eq!(limiter.check(alice()).await.unwrap().cause(), Some(Cause::Blocked));
        assert_eq!(limiter.admin().block(alice(), Duration::ZERO).await.unwrap().remaining(), 2);
    }
}

#[test]
fn operations_of_a_configuration_are_refused_without_one() {
    let limiter = Limiter::builder().build().unwrap().blocking();
    assert_eq!(limiter.admin().configuration(), None);
    assert_eq!(limiter.admin().candidate_counts("api"), None);
    let refused = [
        limiter.admin().matching(&request("/slow", "alice")).err(),
        limiter.decide(&request("/slow", "alice"), &terms()).err(),
        limiter.admin().set_entry("deny user alice", "{}").err(),
        limiter.admin().delete_entry("deny user alice").err(),
        limiter.admin().wait_for_version(0, Duration::ZERO).err(),
        limiter.admin().publish(DOCUMENT, polylimit::admin::PublishOptions::default()).err(),
        limiter.admin().rollback(1, polylimit::admin::PublishOptions::default()).err(),
        limiter.admin().configuration_history(1).err(),
    ];
    for error in refused {
        assert_eq!(error.unwrap().kind(), ErrorKind::InvalidArgument);
    }
}

const BILLING: &str = r#"
polylimit = 1

[policies.api]
quotas = "3/month"
plans = { gold = "9/month; 4/day zone=UTC" }
overrides = { tokyo = { numbers = "3/month", zone = "Asia/Tokyo", from = "20" } }
zone = "{zone}"
from = "{billing_day}"

[policies.slots]
quotas = "2 concurrent; 5/month"
zone = "{zone}"

[[rules]]
match = { path = "/slow" }
apply = [{ policy = "slots", key = "{user}" }]

[[rules]]
apply = [{ policy = "api", key = "{user}" }]
"#;

/// The time from 2027-01-15 08:00 UTC to the first of the next month, and to the 20th in Tokyo.
const TO_MONTH: Duration = Duration::from_secs((16 * 24 + 16) * 3_600);
const TO_TOKYO: Duration = Duration::from_secs((4 * 24 + 7) * 3_600);

#[test]
fn windows_of_a_key_start_where_its_override_or_the_request_says() {
    let clock = ManualClock::new(START_US).unwrap();
    let limiter = Limiter::builder().document(BILLING).clock(clock).build().unwrap().blocking();
    let of = |user: &'static str, more: &[(&'static str, &'static str)]| {
        let request = RequestAttributes::new().path("/").attribute("user", user);
        more.iter().fold(request, |request, (name, value)| request.attribute(name, *value))
    };
    let decide =
        |request: &RequestAttributes<'_>| limiter.decide(request, &terms()).unwrap().decisions.remove(0);
    let seen =
        |made: &polylimit::document::PolicyDecision| (made.decision.remaining(), made.decision.reset_after());
    let plain = decide(&of("plain", &[]));
    assert_eq!((seen(&plain), plain.plan), ((2, TO_MONTH), None));
    assert_eq!(seen(&decide(&of("tokyo", &[]))), (2, TO_TOKYO));
    // The override goes first.
    assert_eq!(seen(&decide(&of("tokyo", &[("billing_day", "7"), ("zone", "UTC")]))), (1, TO_TOKYO));

    let in_tokyo = of("ann", &[("zone", "Asia/Tokyo"), ("billing_day", "20")]);
    let made = decide(&in_tokyo);
    assert_eq!((seen(&made), made.plan.as_deref()), ((2, TO_TOKYO), Some("zone=Asia/Tokyo from=20")));
    // Further operations on the key take the same plan; the order of settings does not matter.
    let ann = |plan| Request::new("ann").policy("api").plan(plan);
    assert_eq!(limiter.peek(ann(made.plan.as_deref().unwrap())).unwrap().remaining(), 2);
    assert_eq!(limiter.check(ann("from=20 zone=Asia/Tokyo")).unwrap().remaining(), 1);
    let _ = limiter.refund(ann("from=20 zone=Asia/Tokyo")).unwrap();
    assert_eq!(seen(&decide(&in_tokyo)), (1, TO_TOKYO));
    let explained = limiter.admin().explain(ann("from=20 zone=Asia/Tokyo")).unwrap();
    assert_eq!(explained.quotas[0].words, "2 of 3 since 20 December, Asia/Tokyo; resets on 20 January");
    let explained = limiter.admin().explain_request(&in_tokyo).unwrap();
    assert_eq!(
        explained.policies[0].quotas[0].words,
        "2 of 3 since 20 December, Asia/Tokyo; resets on 20 January"
    );

    let gold = decide(&of("gus", &[("plan", "gold"), ("zone", "Asia/Tokyo")]));
    assert_eq!(gold.plan.as_deref(), Some("gold zone=Asia/Tokyo"));
    assert_eq!(gold.effective_policy().to_string(), "api: 9/month zone=Asia/Tokyo; 4/day zone=Asia/Tokyo");

    for (name, value, about) in [
        ("zone", "Asia/Tokio", "did you mean Asia/Tokyo?"),
        ("zone", "\u{1}", "which is not known"),
        ("billing_day", "32", "from is \"32\": allowed are a day of the month, 1 to 31"),
        ("billing_day", "15 zone=UTC", "from is \"15 zone=UTC\""),
    ] {
        let refused = limiter.decide(&of("eve", &[(name, value)]), &terms()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.message().contains(about), "{refused}");
    }
    let refused = limiter.check(ann("gold from=32")).unwrap_err();
    assert!(
        refused.message().starts_with("what follows the plan is \"from=32\": from is \"32\""),
        "{refused}"
    );
}

#[test]
fn reservation_of_a_request_is_committed_under_the_calendar_of_its_key() {
    let (clock, folder) = (ManualClock::new(START_US).unwrap(), tempfile::tempdir().unwrap());
    let mut stores = vec![Limiter::builder()];
    if cfg!(all(target_os = "linux", feature = "local")) {
        let url = format!("file://{}/store?size=1MiB", folder.path().display());
        stores.push(Limiter::builder().store(&url));
    }
    for store in stores {
        let limiter = store.document(BILLING).clock(clock.clone()).build().unwrap().blocking();
        let request = || {
            RequestAttributes::new().path("/slow").attribute("user", "ann").attribute("zone", "Asia/Tokyo")
        };
        for left in [4, 3] {
            let terms = terms();
            let made = limiter.decide(&request(), &terms).unwrap().decisions.remove(0);
            assert_eq!(made.plan.as_deref(), Some("zone=Asia/Tokyo"));
            let ann = Request::new("ann").policy("slots").plan(made.plan.as_deref().unwrap());
            let _ = limiter.commit(ann, terms.id, None).unwrap();
            assert_eq!(limiter.peek(ann).unwrap().remaining(), left);
        }
    }
}

/// A customer changes the plan in the middle of a month, and the billing day after that.
#[test]
fn another_plan_keeps_what_was_used_and_another_start_does_not() {
    let clock = ManualClock::new(START_US).unwrap();
    let limiter = Limiter::builder().document(BILLING).clock(clock).build().unwrap().blocking();
    let check = |plan| limiter.check(Request::new("ann").policy("api").plan(plan)).unwrap().remaining();
    assert_eq!((check("free"), check("free")), (2, 1));
    // The day's four come with the plan.
    assert_eq!(check("gold"), 3);
    assert_eq!(check("free"), 0);
    assert_eq!(check("from=10"), 2);
}

const USAGE: &str = r#"
polylimit = 1

[policies.tokens]
quotas = "1000/hour fixed_window"

[policies.requests]
quotas = "3/hour fixed_window"

[[rules]]
match = { path = "/usage" }
apply = [{ policy = "tokens", key = "{user}", cost = "{tokens}", spend = "always" }]

[[rules]]
apply = [
  { policy = "tokens", key = "{user}", cost = "{tokens}", spend = "always" },
  { policy = "requests", key = "{user}" },
]
"#;

#[test]
fn usage_that_has_happened_is_spent_whether_it_fits_or_not() {
    const HOUR_US: u64 = 3_600_000_000;
    let folder = tempfile::tempdir().unwrap();
    let mut stores = vec![Limiter::builder()];
    if cfg!(all(target_os = "linux", feature = "local")) {
        let url = format!("file://{}/store?size=1MiB", folder.path().display());
        stores.push(Limiter::builder().store(&url));
    }
    for store in stores {
        let clock = ManualClock::new(START_US).unwrap();
        let limiter = store.document(USAGE).clock(clock.clone()).build().unwrap().blocking();
        let report = |path: &'static str, user: &'static str, tokens: &'static str| {
            let request =
                RequestAttributes::new().path(path).attribute("user", user).attribute("tokens", tokens);
            let decided = limiter.decide(&request, &terms()).unwrap();
            let left: Vec<_> = decided.decisions.iter().map(|made| made.decision.remaining()).collect();
            (decided.allowed, decided.retry_after_us, left)
        };
        assert_eq!(report("/usage", "ann", "901"), (true, Some(0), vec![99]));
        for _ in 0..3 {
            // More than the limit never fits.
            assert_eq!(report("/usage", "ann", "1200"), (false, None, vec![0]));
        }
        assert_eq!(report("/usage", "ann", "1"), (false, Some(HOUR_US), vec![0]));
        assert_eq!(limiter.peek(Request::new("ann").policy("tokens")).unwrap().remaining(), 0);
        // Of a request, the rest is spent only if it is admitted.
        assert_eq!(report("/", "bob", "600"), (true, Some(0), vec![400, 2]));
        assert_eq!(report("/", "bob", "600"), (false, Some(HOUR_US), vec![0, 2]));
        // What has happened is spent even if another policy denies.
        for left in [2, 1, 0] {
            assert_eq!(report("/", "eve", "1").2[1], left);
        }
        assert_eq!(report("/", "eve", "500"), (false, Some(HOUR_US), vec![497, 0]));
        assert_eq!(limiter.peek(Request::new("eve").policy("tokens")).unwrap().remaining(), 497);
        clock.advance(Duration::from_secs(3_600)).unwrap();
        assert_eq!(report("/", "eve", "500"), (true, Some(0), vec![500, 2]));
    }
}

#[test]
fn what_has_happened_cannot_be_reserved_and_has_no_pool() {
    for (policy, about) in [
        ("quotas = '2 concurrent; 9/minute'", "policy p has 2 concurrent, and a rule applies it with spend"),
        (
            "quotas = '9/minute'\nelastic = { policy = 'f', key = '' }",
            "policy p is elastic, and a rule applies it",
        ),
    ] {
        let document = format!(
            "polylimit = 1\n[policies.f]\nquotas = '1/s'\n[policies.p]\n{policy}\n\
             [[rules]]\napply = [{{ policy = 'p', key = '', spend = 'always' }}]\n"
        );
        let refused = Limiter::builder().document(&document).build().unwrap_err();
        assert!(refused.message().contains(about), "{refused}");
    }
}

/// A program that forks, as servers do for their workers: in memory, each process counts for itself.
#[test]
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "a fork is unsafe")]
fn forked_child_decides_by_the_same_configuration() {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    let limiter = configured(Limiter::builder()).blocking();
    let left = || limiter.check(Request::new("alice").policy("api").plan("gold")).unwrap().remaining();
    assert_eq!((left(), left()), (8, 7));
    // SAFETY: The child makes decisions and ends.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (left(), left())));
            // SAFETY: It ends the process, and nothing else.
            unsafe { nix::libc::_exit(i32::from(made.ok() != Some((8, 7)))) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            assert_eq!(left(), 6);
        }
    }
}
