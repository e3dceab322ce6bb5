//! Decisions and usages: made of their parts, and as reports.

use polylimit::clock::ManualClock;
use polylimit::decision::{Cause, QuotaUsage, Source, Usage};
use polylimit::raw::{DecisionParts, UsageParts, report_json};
use polylimit::reservation::{ReservationId, ReserveOptions};
use polylimit::{Decision, Limiter, Policy, Request};

fn parts<'a>(decision: &'a Decision, quota_waits_us: &'a [Option<u64>]) -> DecisionParts<'a> {
    let wait_us = if decision.allowed() { Some(decision.delay_us()) } else { decision.retry_after_us() };
    DecisionParts {
        allowed: decision.allowed(),
        wait_us,
        source: decision.source(),
        degraded: decision.degraded(),
        cause: decision.cause(),
        crossed: decision.crossed(),
        elastic: decision.elastic(),
        shadowed: decision.shadowed(),
        remaining: decision.remaining(),
        quotas: decision.quotas(),
        quota_waits_us,
    }
}

fn waits_of(decision: &Decision) -> Vec<Option<u64>> {
    decision.verdicts().map(|verdict| verdict.retry_after_us).collect()
}

#[test]
fn a_decision_comes_back_from_its_parts() {
    for quotas in ["2/minute leaky_bucket", "2/minute; 10/hour sliding_log"] {
        let policy = Policy::parse("api", quotas).unwrap();
        let limiter = Limiter::builder().policy(policy).build().unwrap().blocking();
        for cost in [1, 1, 1, 100] {
            let decision = limiter.check(Request::new("a").cost(cost)).unwrap();
            assert_eq!(Decision::from_parts(parts(&decision, &waits_of(&decision))).unwrap(), decision);
            let json = serde_json::to_string(&decision).unwrap();
            assert_eq!(serde_json::from_str::<Decision>(&json).unwrap(), decision, "{json}");
        }
    }
}

#[test]
fn slots_are_no_units_of_a_decision_from_its_parts() {
    let policy = Policy::parse("model", "2 concurrent; 100/minute token_bucket").unwrap();
    let limiter = Limiter::builder().policy(policy).build().unwrap().blocking();
    for expected in [90, 0, 0] {
        let reservation = limiter.reserve(Request::new("a").cost(10), ReserveOptions::default()).unwrap();
        let decision = reservation.decision();
        let again = Decision::from_parts(parts(decision, &waits_of(decision))).unwrap();
        assert_eq!(waits_of(&again), waits_of(decision));
        assert_eq!((again.remaining(), again.allowed()), (expected, decision.allowed()));
        assert_eq!(again.quotas(), decision.quotas());
        let _ = reservation.detach();
    }
}

#[test]
fn a_usage_comes_back_from_its_parts() {
    for quotas in ["2/minute", "2/minute; 10/hour sliding_log", "2 concurrent; 100/minute token_bucket"] {
        let policy = Policy::parse("api", quotas).unwrap();
        let limiter = Limiter::builder().policy(policy).build().unwrap().blocking();
        let request = Request::new("a").cost(3);
        // No reservation is found.
        let mut usages = vec![limiter.commit(request, ReservationId::random().unwrap(), None).unwrap()];
        usages.push(limiter.charge(request).unwrap());
        usages.push(limiter.refund(request).unwrap());
        if !quotas.contains("concurrent") {
            usages.extend((0..2).map(|_| limiter.take(request).unwrap()));
        }
        for usage in usages {
            let parts = UsageParts {
                taken: usage.taken(),
                found: usage.found(),
                repeated: usage.repeated(),
                source: usage.source(),
                degraded: usage.degraded(),
                remaining: usage.remaining(),
                quotas: usage.quotas(),
            };
            let again = Usage::from_parts(parts).unwrap();
            let answer = |usage: &Usage| (usage.taken(), usage.found(), usage.repeated());
            assert_eq!(answer(&again), answer(&usage));
            assert_eq!((again.remaining(), again.over()), (usage.remaining(), usage.over()));
            assert_eq!((again.reset_after_us(), again.quotas()), (usage.reset_after_us(), usage.quotas()));
            assert_eq!((again.source(), again.degraded()), (usage.source(), usage.degraded()));
            Usage::from_parts(UsageParts { quotas: &[], ..parts }).unwrap_err();
            let endless = [QuotaUsage { reset_after_us: 1 << 63, ..usage.quotas()[0] }];
            Usage::from_parts(UsageParts { quotas: &endless, ..parts }).unwrap_err();
        }
    }
}

#[test]
fn what_no_decision_is_like_is_refused() {
    let quotas = [QuotaUsage { limit: 1, remaining: 0, reset_after_us: 5, over: 0 }];
    let denied = DecisionParts {
        allowed: false,
        wait_us: None,
        source: Source::Store,
        degraded: None,
        cause: Some(Cause::Quota),
        crossed: false,
        elastic: false,
        shadowed: false,
        remaining: 0,
        quotas: &quotas,
        quota_waits_us: &[None],
    };
    assert_eq!(Decision::from_parts(denied).unwrap().retry_after_us(), None);
    for quota_waits_us in [&[] as &[_], &[None, None], &[Some(1 << 63)]] {
        Decision::from_parts(DecisionParts { quota_waits_us, ..denied }).unwrap_err();
    }
    Decision::from_parts(DecisionParts { quotas: &[], ..denied }).unwrap_err();
    Decision::from_parts(DecisionParts { allowed: true, ..denied }).unwrap_err();
    Decision::from_parts(DecisionParts { wait_us: Some(1 << 63), ..denied }).unwrap_err();
    let endless = [QuotaUsage { reset_after_us: 1 << 63, ..quotas[0] }];
    Decision::from_parts(DecisionParts { quotas: &endless, ..denied }).unwrap_err();
}

#[test]
fn decision_and_usage_are_reported_with_every_field() {
    let clock = ManualClock::new(0).unwrap();
    let policy = Policy::parse("api", "2/minute token_bucket; 3/hour").unwrap();
    let limiter = Limiter::builder().policy(policy).clock(clock).build().unwrap().blocking();
    let usage = limiter.take(Request::new("a").cost(3)).unwrap();
    assert_eq!(
        report_json(&usage),
        r#"{"taken":2,"found":true,"repeated":false,"limit":2,"remaining":0,"over":0,"reset_after_us":3960000000,"source":"store","degraded":null,"quotas":[{"limit":2,"remaining":0,"over":0,"reset_after_us":60000000},{"limit":3,"remaining":1,"over":0,"reset_after_us":3960000000}]}"#
    );
    let decision = limiter.check("a").unwrap();
    assert_eq!(
        report_json(&decision),
        r#"{"allowed":false,"cause":"quota","retry_after_us":30000000,"delay_us":0,"crossed":false,"elastic":false,"shadowed":false,"limit":2,"remaining":0,"over":0,"reset_after_us":3960000000,"source":"store","degraded":null,"quotas":[{"limit":2,"remaining":0,"over":0,"reset_after_us":60000000,"allowed":false,"retry_after_us":30000000},{"limit":3,"remaining":1,"over":0,"reset_after_us":3960000000,"allowed":true,"retry_after_us":0}]}"#
    );
}
