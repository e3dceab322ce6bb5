//! Any text is a quota, several quotas, or refused; a parsed quota is printed in a form that parses to an equal quota.

use polylimit::{ErrorKind, Policy, Quota};

/// The bytes are the text.
pub fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match text.parse::<Quota>() {
        Ok(quota) => {
            let printed = quota.to_string();
            assert_eq!(printed.parse::<Quota>().as_ref(), Ok(&quota), "{printed}");
            assert_eq!(printed.parse::<Quota>().map(|read| read.to_string()), Ok(printed));
            let policy = Policy::parse("p", text).expect("a quota is a policy");
            assert_eq!(policy.quotas(), [quota]);
        }
        Err(refused) => {
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            assert!(refused.message().starts_with("quota at column "), "{refused}");
            assert!(refused.message().len() < 1_000 && !refused.message().ends_with('.'), "{refused}");
        }
    }
    if let Ok(policy) = Policy::parse("p", text) {
        let printed = policy.to_string();
        let quotas = printed.strip_prefix("p: ").expect("the name comes first");
        assert_eq!(Policy::parse("p", quotas), Ok(policy));
    }
    let _ = Policy::parse(text, "1/s");
}
