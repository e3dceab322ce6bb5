//! No input makes anything panic: it is answered or refused.

use polylimit::{ErrorKind, Policy, Quota, Request};
use proptest::collection::vec;
use proptest::prelude::*;

use super::quotas::policy;
use super::session::Session;

fn decided(request: Request<'_>, policy: &Policy) -> Result<(), ErrorKind> {
    let session = Session::new(policy, 1_700_000_000_000_000);
    let limiter = session.limiter();
    let mut refused = Vec::new();
    refused.extend(limiter.check(request).err());
    // A key that is known takes shorter ways, whatever the cost then is; what else is wrong is refused here as well.
    let _ = limiter.charge(request.cost(1));
    refused.extend(limiter.check(request).err());
    refused.extend(limiter.peek(request).err());
    refused.extend(limiter.take(request).err());
    refused.extend(limiter.charge(request).err());
    refused.extend(limiter.refund(request).err());
    refused.extend(limiter.reset(request).err());
    assert!(refused.is_empty() || refused.len() == 7, "{refused:?}");
    refused.first().map_or(Ok(()), |error| Err(error.kind()))
}

proptest! {
    #[test]
    fn any_text_is_a_quota_or_refused(text in any::<String>()) {
        if let Err(refused) = text.parse::<Quota>() {
            prop_assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            prop_assert!(refused.message().len() < 1_000);
        }
        let _ = Policy::parse(&text, &text);
    }

    #[test]
    fn nearly_a_quota_is_a_quota_or_refused(
        text in concat!(
            "[0-9_]{0,30}/?[0-9]{0,21}(us|ms|s|m|h|d|w|week|year)?s?",
            "( *(burst|step|buckets)?=?[0-9_]{0,3}| aligned|;| token_bucket| fixed_window){0,4}",
        ),
    ) {
        match text.parse::<Quota>() {
            Ok(quota) => prop_assert_eq!(quota.to_string().parse::<Quota>(), Ok(quota)),
            Err(refused) => prop_assert!(refused.message().starts_with("quota at column ")),
        }
        if let Ok(policy) = Policy::parse("p", &text) {
            prop_assert!(policy.quotas().len() <= Policy::MAX_QUOTAS);
        }
    }

    #[test]
    fn any_bytes_are_a_key(policy in policy(), key in vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(decided(Request::new(&key), &policy), Ok(()));
    }

    #[test]
    fn any_cost_is_decided_or_refused(policy in policy(), cost in prop_oneof![
        any::<u64>(), 0_u64..10, Request::MAX_COST - 1..Request::MAX_COST + 2, u64::MAX - 1..=u64::MAX
    ]) {
        let expected = if cost <= Request::MAX_COST { Ok(()) } else { Err(ErrorKind::InvalidArgument) };
        prop_assert_eq!(decided(Request::new("k").cost(cost), &policy), expected);
    }

    #[test]
    fn any_policy_name_is_known_or_refused(name in any::<String>()) {
        let policy = Policy::parse("p", "1/s").unwrap();
        let expected = if name == "p" { Ok(()) } else { Err(ErrorKind::InvalidArgument) };
        prop_assert_eq!(decided(Request::new("k").policy(&name), &policy), expected);
    }
}

#[test]
fn a_key_has_at_most_a_mebibyte() {
    let policy = Policy::parse("p", "1/s").unwrap();
    let mut key = vec![0_u8; Request::MAX_KEY_LENGTH];
    assert_eq!(decided(Request::new(&key), &policy), Ok(()));
    key.push(0);
    assert_eq!(decided(Request::new(&key), &policy), Err(ErrorKind::InvalidArgument));
}
