//! Costs that responses report.

use super::{check_of, gateway, left_of};
use crate::Limiter;
use crate::document::RequestAttributes;
use crate::http::guard::{Guard, GuardBuilder, Verdict};

#[test]
fn rules_charge_what_the_response_reports() {
    let document = r#"
        polylimit = 1
        [policies.requests]
        quotas = "60/hour"
        [policies.tokens]
        quotas = "1000/hour; 5 concurrent"
        [policies.micro_dollars]
        quotas = "10000/hour"
        [[rules]]
        apply = [
            { policy = "requests", key = "{user}" },
            { policy = "tokens", key = "{user}", cost = "{estimate}", spent = "usage:total" },
            { policy = "micro_dollars", key = "{user}", cost = 5000, spent = "3*usage:input + 15*usage:output" },
        ]
    "#;
    let limiter = Limiter::builder().document(document).build().unwrap();
    let guard = Guard::builder(limiter.clone()).by_configuration().build().unwrap();
    let left = || ["requests", "tokens", "micro_dollars"].map(|policy| left_of(&limiter, policy));
    let attributes = RequestAttributes::new().attribute("user", "key").attribute("estimate", "400");
    let body = br#"{"usage": {"prompt_tokens": 100, "completion_tokens": 20}}"#;
    // A function of the program is for policies without a meter, of which none is reserved here.
    for (head, spent, expected) in [
        (Some("application/json"), None, [59, 880, 9_400]),
        (Some("application/json"), Some(7), [58, 760, 8_800]),
        (Some("text/plain"), Some(7), [57, 360, 3_800]),
    ] {
        let (mut check, verdict) = check_of(&guard, &attributes);
        assert!(matches!(verdict, Verdict::Admit) && check.reads_response());
        check.read_head(head.map(|head| ("content-type", head.as_bytes())));
        assert_eq!(check.reads_body(), head == Some("application/json"));
        body.chunks(5).for_each(|piece| check.read_body(piece));
        check.finish(true);
        check.end(spent).unwrap();
        check.run_blocking();
        assert_eq!(left(), expected);
    }
    // A client that leaves before there is a response has spent the cost.
    let other = RequestAttributes::new().attribute("user", "key").attribute("estimate", "60");
    let refused = RequestAttributes::new().attribute("user", "key").attribute("estimate", "400");
    assert!(matches!(check_of(&guard, &refused).1, Verdict::Deny(_)));
    assert_eq!(left(), [57, 360, 3_800]);
    assert!(matches!(check_of(&guard, &other).1, Verdict::Deny(_)));

    let refused = Guard::builder(limiter).by_configuration().spent_by("usage:total").build().unwrap_err();
    assert!(
        refused.message().starts_with("spent is given to a guard that decides by the configuration"),
        "{refused}"
    );
}

#[test]
fn meters_that_cannot_be_used_are_refused_at_creation() {
    let refused = |build: fn(GuardBuilder) -> GuardBuilder| {
        build(Guard::builder(gateway())).build().unwrap_err().message().to_owned()
    };
    let message = refused(|builder| builder.policy("tokens").spent_by("usage"));
    assert!(
        message.starts_with("spent is \"usage\", where \"usage\" is not a source: allowed are"),
        "{message}"
    );
    let message =
        refused(|builder| builder.policy("tokens").spent_by_each([None, Some("usage:total".into())]));
    assert!(message.starts_with("spent has 2 texts: allowed is at most 1,"), "{message}");
    let message = refused(|builder| builder.per_request(true).spent_by_each([Some("usage:total".into())]));
    assert!(message.starts_with("spent is given for single policies"), "{message}");
}
