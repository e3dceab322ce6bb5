//! The limiter: selection of policies, refused input, changes of policies, and `policy_for`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use polylimit::clock::ManualClock;
use polylimit::decision::Cause;
use polylimit::reservation::ReserveOptions;
use polylimit::{Decision, ErrorKind, Limiter, Policy, Request};

fn policy(name: &str, quotas: &str) -> Policy {
    Policy::parse(name, quotas).unwrap()
}

#[test]
fn policy_is_selected_by_name_or_as_the_only_one() {
    let limiter = Limiter::builder().policy(policy("api", "5/minute")).build().unwrap().blocking();
    assert_eq!(limiter.check("user").unwrap().remaining(), 4);
    assert_eq!(limiter.check(Request::new("user").policy("api")).unwrap().remaining(), 3);

    limiter.asynchronous().set_policy(policy("login", "2/minute")).unwrap();
    assert_eq!(limiter.check(Request::new("user").policy("login")).unwrap().remaining(), 1);
    for (request, expected) in [
        (Request::new("user"), "no policy is named and there are several: this limiter has api, login"),
        (Request::new("user").policy("logon"), "policy \"logon\" is not known: this limiter has api, login"),
    ] {
        let error = limiter.check(request).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::InvalidArgument, expected));
    }
}

#[test]
fn invalid_request_is_refused_without_showing_the_key() {
    let limiter = Limiter::builder().policy(policy("api", "5/minute")).build().unwrap().blocking();
    let key = vec![b's'; Request::MAX_KEY_LENGTH + 1];
    let error = limiter.check(&key).unwrap_err().to_string();
    assert_eq!(error, "key has 1048577 bytes: allowed are up to 1048576");
    // A key with a state is decided on a fast path.
    assert!(limiter.check("known").unwrap().allowed());
    for (key, cost) in [("new", Request::MAX_COST + 1), ("known", Request::MAX_COST + 1), ("known", u64::MAX)]
    {
        let request = Request::new(key).cost(cost);
        let refused = format!("cost is {cost}: allowed is 0 to 1000000000000 units");
        for operation in [limiter.check(request).err(), limiter.charge(request).err()] {
            assert_eq!(operation.map(|error| error.to_string()), Some(refused.clone()));
        }
    }
    assert_eq!(limiter.peek("known").unwrap().remaining(), 4);
    assert_eq!(
        format!("{:?}", Request::new("secret")),
        "Request { key: 6 bytes, policy: None, cost: 1, headroom: 0, plan: None }"
    );
}

#[test]
fn each_of_many_policies_is_found_by_name() {
    // The first few policies are found by another way than the others, and so are quotas among them.
    let limiter = Limiter::builder().policy(policy("p1", "1/day")).build().unwrap();
    let blocking = limiter.blocking();
    let remaining = |name: &str| blocking.check(Request::new("user").policy(name)).unwrap().remaining();
    assert_eq!(remaining("100/day"), 99);
    for number in 2..=8 {
        limiter.set_policy(policy(&format!("p{number}"), &format!("{number}/day"))).unwrap();
    }
    for number in 1..=8 {
        assert_eq!(remaining(&format!("p{number}")), number - 1);
    }
    assert_eq!(remaining("100/day"), 98);
    limiter.set_policy(policy("p2", "20/day")).unwrap();
    assert_eq!(remaining("p2"), 18);
    let unknown = blocking.check(Request::new("user").policy("p9")).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::InvalidArgument);
    limiter.close();
    for name in ["p1", "p8", "100/day"] {
        let closed = blocking.check(Request::new("user").policy(name)).unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::Closed, "{name}");
    }
}

#[test]
fn builder_refuses_invalid_settings() {
    let twice = Limiter::builder().policy(policy("api", "5/minute")).policy(policy("api", "6/minute"));
    assert!(twice.build().unwrap_err().to_string().contains("two policies are named api"));
    let no_room = Limiter::builder().policy(policy("api", "5/minute")).max_keys(0);
    assert!(no_room.build().unwrap_err().to_string().contains("max_keys is 0"));
}

#[test]
fn current_policies_can_be_read() {
    let limiter = Limiter::builder().policy(policy("api", "5/minute")).build().unwrap();
    limiter.set_policy(policy("login", "2/minute")).unwrap();
    limiter.set_policy(policy("api", "6/minute")).unwrap();
    assert_eq!(limiter.policy("api"), Some(policy("api", "6/minute")));
    assert_eq!(limiter.policy("other"), None);
    assert_eq!(limiter.policies(), [policy("api", "6/minute"), policy("login", "2/minute")]);
}

#[tokio::test]
async fn check_together_spends_from_all_policies_or_none() {
    let builder = Limiter::builder().policy(policy("api", "2/minute")).policy(policy("login", "1/minute"));
    let limiter = builder.build().unwrap();
    for expected in [true, false] {
        let requests = ["api", "login"].map(|name| Request::new("a").policy(name));
        let decisions = limiter.check_together(&requests).await.unwrap();
        assert_eq!(decisions.iter().all(Decision::allowed), expected);
        assert_eq!(decisions[0].remaining(), 1);
        let peeked = limiter.peek_together(&requests).await.unwrap();
        let peeked: Vec<_> =
            peeked.iter().map(|decision| (decision.allowed(), decision.remaining())).collect();
        assert_eq!(peeked, [(true, 1), (false, 0)]);
    }
    let requests = ["api", "login"].map(|name| Request::new("b").policy(name).reserved());
    for expected in [true, false] {
        let terms = ReserveOptions::default().terms().unwrap();
        let decisions = limiter.reserve_together(&requests, &terms).await.unwrap();
        assert_eq!(decisions.iter().all(Decision::allowed), expected);
        assert_eq!(limiter.cancel(requests[1], terms.id).await.unwrap().found(), expected);
        if expected {
            assert!(limiter.commit(requests[0], terms.id, None).await.unwrap().found());
            assert!(limiter.check(Request::new("b").policy("login")).await.unwrap().allowed());
        }
    }
}

#[test]
fn check_many_decides_each_request_in_order() {
    let limiter = Limiter::builder()
        .policy(policy("api", "2/minute"))
        .policy(policy("login", "1/minute"))
        .build()
        .unwrap()
        .blocking();
    let answers = limiter.check_many([
        Request::new("a").policy("api"),
        Request::new("a").policy("api"),
        Request::new("a").policy("api"),
        Request::new("a").policy("login"),
        Request::new("b").policy("unknown"),
        Request::new("b").policy("api").cost(2),
    ]);
    let allowed: Vec<_> =
        answers.into_iter().map(|answer| answer.map(|decision| decision.allowed()).ok()).collect();
    assert_eq!(allowed, [Some(true), Some(true), Some(false), Some(true), None, Some(true)]);
}

#[test]
fn decision_shows_each_quota() {
    let clock = ManualClock::new(1_800_000_000_000_000).unwrap();
    let limiter = Limiter::builder()
        .policy(policy("api", "10/second token_bucket; 100/hour fixed_window"))
        .clock(clock)
        .build()
        .unwrap()
        .blocking();
    let decision = limiter.check(Request::new("user").cost(4)).unwrap();
    let views: Vec<_> =
        decision.quotas().iter().map(|view| (view.limit, view.remaining, view.reset_after_us)).collect();
    assert_eq!(views, [(10, 6, 400_000), (100, 96, 3_600_000_000)]);
    assert_eq!((decision.remaining(), decision.reset_after_us()), (6, 3_600_000_000));
    let usage = limiter.take(Request::new("user").cost(9)).unwrap();
    assert_eq!((usage.taken(), usage.quotas()[1].remaining), (6, 90));
}

#[test]
fn added_quota_starts_unused_and_changed_quota_keeps_its_usage() {
    let clock = ManualClock::new(1_800_000_000_000_000).unwrap();
    let limiter = Limiter::builder()
        .policy(policy("api", "5/minute sliding_log; 9/hour"))
        .clock(clock)
        .build()
        .unwrap();
    let change = |quotas| limiter.set_policy(policy("api", quotas)).unwrap();
    let limiter = limiter.blocking();
    let remaining = || {
        let peeked = limiter.peek("user").unwrap();
        peeked.quotas().iter().map(|view| view.remaining).collect::<Vec<_>>()
    };
    limiter.charge(Request::new("user").cost(3)).unwrap();
    // Another order and other numbers keep the usage.
    change("20/hour; 4/minute sliding_log");
    assert_eq!(remaining(), [17, 1]);
    // Another number of buckets makes another quota.
    change("20/hour buckets=1; 4/minute sliding_log");
    assert_eq!(remaining(), [20, 1]);
    // Without a write in between the old quota finds its state again. A write removes it.
    change("20/hour; 4/minute sliding_log");
    assert_eq!(remaining(), [17, 1]);
    change("20/hour buckets=1; 4/minute sliding_log");
    assert!(limiter.check("user").unwrap().allowed());
    change("20/hour; 4/minute sliding_log");
    assert_eq!(remaining(), [20, 0]);
}

#[test]
fn policy_for_returns_the_policy_that_decides() {
    let api = Policy::parse("api", "100/minute").unwrap();
    let limiter = Limiter::builder().policy(api.clone()).build().unwrap();
    assert_eq!(limiter.policy_for(None, None), Ok(api.clone()));
    assert_eq!(limiter.policy_for(Some("api"), None), Ok(api));

    let quotas = "5/s; 7/m";
    assert_eq!(limiter.policy_for(Some(quotas), None).unwrap().name(), "5|second&7|minute");
    let asked = limiter.blocking().check(Request::new("k").policy(quotas)).unwrap();
    assert_eq!(limiter.policy_for(Some(quotas), None).unwrap().quotas().len(), asked.quotas().len());
    assert_eq!(limiter.policy_for(None, None).unwrap().name(), "api");

    limiter.set_policy(Policy::parse("login", "1/s").unwrap()).unwrap();
    assert_eq!(limiter.policy_for(None, None).unwrap_err().kind(), ErrorKind::InvalidArgument);
    limiter.close();
    assert_eq!(limiter.policy_for(Some("api"), None).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn policy_for_gives_each_scope_a_policy_of_its_own() {
    let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute").unwrap()).build().unwrap();
    let login = limiter.policy_for(Some("2 per minute"), Some("/login")).unwrap();
    let search = limiter.policy_for(Some("2/60s"), Some("/search")).unwrap();
    assert_eq!(login, limiter.policy_for(Some("2/minute"), Some("/login")).unwrap());
    assert_ne!(login.name(), search.name());
    let remaining =
        |policy: &str| limiter.blocking().check(Request::new("k").policy(policy)).unwrap().remaining();
    assert_eq!([login.name(), search.name(), "2/minute", login.name()].map(remaining), [1, 1, 1, 0]);
    // Quotas without a name do not change the policy for requests that name none.
    assert_eq!(limiter.policy_for(None, Some("/login")).unwrap().name(), "api");
}

#[test]
fn policy_for_refuses_unknown_policies_and_invalid_quotas() {
    let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute").unwrap()).build().unwrap();
    let refused = |policy, scope| {
        let error = limiter.policy_for(policy, scope).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    };
    assert!(refused(Some("apy"), None).contains("policy \"apy\" is not known: this limiter has api"));
    assert!(refused(Some("apy"), Some("/login")).contains("this limiter has api"));
    assert!(refused(Some("100/minut"), None).contains("read \"minut\""));
    assert!(refused(Some("100/minut"), Some("/login")).contains("read \"minut\""));
    assert!(refused(Some("100/minute"), Some("")).contains("allowed is a text of 1 to 256 bytes"));
}

#[test]
fn blocked_key_is_denied_until_the_block_ends_or_is_forgotten() {
    let clock = ManualClock::new(1_700_000_000_000_000).unwrap();
    let policy = Policy::parse("api", "5/minute fixed_window").unwrap();
    let limiter = Limiter::builder().clock(clock.clone()).policy(policy).build().unwrap().blocking();
    let blocked = limiter.admin().block("a", Duration::from_secs(10)).unwrap();
    assert_eq!((blocked.remaining(), blocked.reset_after()), (0, Duration::from_secs(10)));
    let denied = limiter.check("a").unwrap();
    assert_eq!((denied.cause(), denied.retry_after_us()), (Some(Cause::Blocked), Some(10_000_000)));
    assert!(limiter.check("b").unwrap().allowed());
    clock.advance(Duration::from_secs(10)).unwrap();
    assert_eq!(limiter.check("a").unwrap().remaining(), 4);
    limiter.admin().block("a", Duration::from_secs(10)).unwrap();
    assert_eq!(limiter.admin().block("a", Duration::ZERO).unwrap().remaining(), 4);
    for time in [Duration::from_micros(999), Duration::from_secs(366 * 86_400 + 1), Duration::MAX] {
        let refused = limiter.admin().block("a", time).unwrap_err().to_string();
        assert!(refused.contains("allowed is 1 ms to 366 days, or 0 to forget the block"), "{refused}");
    }
}

#[test]
fn headroom_is_left_for_others_and_bounded() {
    let policy = Policy::parse("api", "10/minute fixed_window excess=2").unwrap();
    let limiter = Limiter::builder().policy(policy).build().unwrap().blocking();
    let check = |cost, headroom| limiter.check(Request::new("a").cost(cost).headroom(headroom)).unwrap();
    assert_eq!((check(7, 25).remaining(), check(3, 25).cause()), (2, Some(Cause::Quota)));
    let crossed = check(4, 0);
    assert_eq!((crossed.allowed(), crossed.crossed(), crossed.over()), (true, true, 1));
    assert!(!check(1, 0).crossed());
    assert_eq!(check(1, 99).retry_after_us(), None);
    let reserve = |headroom| {
        limiter.reserve(Request::new("b").cost(6).headroom(headroom), ReserveOptions::default()).unwrap()
    };
    assert_eq!((reserve(40).allowed(), reserve(41).allowed()), (true, false));
    let refused = limiter.check(Request::new("a").headroom(100)).unwrap_err().to_string();
    assert_eq!(refused, "headroom is 100 %: allowed is 0 to 99 %");
}
