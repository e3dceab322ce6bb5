//! Which policy decides a request that names one, quotas, or none.

use polylimit::{ErrorKind, Limiter, Policy, Request};

#[test]
fn it_is_the_one_that_decides() {
    let api = Policy::parse("api", "100/minute").unwrap();
    let limiter = Limiter::builder().policy(api.clone()).build().unwrap();
    assert_eq!(limiter.policy_for(None), Ok(api.clone()));
    assert_eq!(limiter.policy_for(Some("api")), Ok(api));

    let quotas = "5/s; 7/m";
    assert_eq!(limiter.policy_for(Some(quotas)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let asked = limiter.blocking().check(Request::new("k").policy(quotas)).unwrap();
    assert_eq!(limiter.policy_for(Some(quotas)).unwrap().quotas().len(), asked.quotas().len());
    assert_eq!(limiter.policy_for(None).unwrap().name(), "api");

    limiter.set_policy(Policy::parse("login", "1/s").unwrap()).unwrap();
    assert_eq!(limiter.policy_for(None).unwrap_err().kind(), ErrorKind::InvalidArgument);
    limiter.close();
    assert_eq!(limiter.policy_for(Some("api")).unwrap_err().kind(), ErrorKind::Closed);
}
