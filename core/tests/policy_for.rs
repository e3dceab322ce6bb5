//! Which policy decides a request that names one, quotas, or none.

use polylimit::{ErrorKind, Limiter, Policy, Request};

#[test]
fn it_is_the_one_that_decides() {
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
fn a_scope_has_a_budget_of_its_own() {
    let limiter = Limiter::builder().policy(Policy::parse("api", "100/minute").unwrap()).build().unwrap();
    let login = limiter.policy_for(Some("2 per minute"), Some("/login")).unwrap();
    let search = limiter.policy_for(Some("2/60s"), Some("/search")).unwrap();
    assert_eq!(login, limiter.policy_for(Some("2/minute"), Some("/login")).unwrap());
    assert_ne!(login.name(), search.name());
    let remaining =
        |policy: &str| limiter.blocking().check(Request::new("k").policy(policy)).unwrap().remaining();
    assert_eq!([login.name(), search.name(), "2/minute", login.name()].map(remaining), [1, 1, 1, 0]);
    // Unnamed quotas leave the policy that requests use when they name none.
    assert_eq!(limiter.policy_for(None, Some("/login")).unwrap().name(), "api");
}

#[test]
fn mistakes_are_found_before_the_first_request() {
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
