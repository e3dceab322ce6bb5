use crate::Limiter;
use crate::clock::ManualClock;
use crate::http::headers::*;
use polylimit_rules::decision::{Cause, QuotaUsage, Several, Source};

const SECOND: u64 = 1_000_000;
const BOTH: HeaderSettings =
    HeaderSettings { style: HeaderStyle::Both, reset_form: ResetForm::Seconds, names: None, jitter: None };

fn policy(name: &str, quotas: &str) -> Policy {
    Policy::parse(name, quotas).unwrap()
}

/// A decision whose quotas have these remaining units and times to their reset.
fn decision(allowed: bool, wait_us: u64, quotas: &[(u64, u64)]) -> Decision {
    let usage_of =
        |&(remaining, reset_after_us): &_| QuotaUsage { limit: 1, remaining, reset_after_us, over: 0 };
    let (total, several) = Several::of(quotas.iter().map(usage_of));
    let cause = (!allowed).then_some(Cause::Quota);
    let (crossed, elastic, shadowed) = (false, false, false);
    let (source, degraded) = (Source::Store, None);
    Decision {
        total,
        several,
        wait_us,
        allowed,
        source,
        degraded,
        cause,
        elastic,
        shadowed,
        repeated: false,
        crossed,
    }
}

fn allowed(quotas: &[(u64, u64)]) -> Decision {
    decision(true, 0, quotas)
}

fn denied(retry_after_us: u64, quotas: &[(u64, u64)]) -> Decision {
    decision(false, retry_after_us, quotas)
}

fn never(quotas: &[(u64, u64)]) -> Decision {
    decision(false, Decision::NEVER, quotas)
}

fn lines(outcomes: &[Outcome<'_>], settings: &HeaderSettings, now_us: u64) -> Vec<String> {
    let fields = fields(outcomes, settings, now_us);
    for field in &fields {
        assert!(field.value.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{field:?}");
        assert!(field.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{field:?}");
    }
    fields.into_iter().map(|HeaderField { name, value }| format!("{name}: {value}")).collect()
}

fn value(outcomes: &[Outcome<'_>], settings: &HeaderSettings, name: &str) -> Option<String> {
    let field = fields(outcomes, settings, 0).into_iter().find(|field| field.name == name);
    field.map(|field| field.value)
}

#[test]
fn a_style_selects_the_fields() {
    let api = policy("api", "100/minute");
    let decision = denied(2 * SECOND, &[(0, 30 * SECOND)]);
    let ietf = [r#"ratelimit-policy: "api";q=100;w=60"#, r#"ratelimit: "api";r=0;t=2"#];
    let legacy = ["x-ratelimit-limit: 100", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 30"];
    let retry = ["retry-after: 2"];
    for (style, expected) in [
        ("ietf", [&ietf[..], &retry].concat()),
        ("legacy", [&legacy[..], &retry].concat()),
        ("both", [&ietf[..], &legacy, &retry].concat()),
        ("none", retry.to_vec()),
    ] {
        let settings = HeaderSettings::default().style(style.parse().unwrap());
        assert_eq!(lines(&[(&api, &decision)], &settings, 0), expected, "{style}");
        assert_eq!(fields(&[], &settings, 0), [], "{style}");
    }
    assert_eq!(HeaderSettings::default().style, HeaderStyle::Ietf);
}

#[test]
fn the_policy_field_tells_capacity_and_the_time_it_takes_to_come_back() {
    for (quota, expected) in [
        ("100/minute", "q=100;w=60"),
        ("5/1ms", "q=5;w=1"),
        ("5/1000ms", "q=5;w=1"),
        ("5/1001ms", "q=5;w=2"),
        ("1/366d sliding_log", "q=1;w=31622400"),
        ("10/s token_bucket burst=20", "q=20;w=2"),
        ("10/s token_bucket burst=21", "q=21;w=3"),
        ("10/m leaky_bucket burst=5", "q=5;w=30"),
        ("3/10s leaky_bucket burst=1", "q=1;w=4"),
        ("100/m token_bucket step=10", "q=100;w=60"),
        ("1000000000000/s token_bucket burst=1", "q=1;w=1"),
        ("0/minute", "q=0;w=60"),
        ("0/1ms token_bucket burst=9", "q=0;w=1"),
    ] {
        let policy = policy("a", quota);
        let unused = allowed(&[(policy.quotas()[0].capacity(), 0)]);
        let outcomes = [(&policy, &unused)];
        assert_eq!(
            value(&outcomes, &BOTH, "ratelimit-policy").unwrap(),
            format!("\"a\";{expected}"),
            "{quota}"
        );
        // For a quota without use, or with a limit of 0, only the policy limits the client.
        let expected = expected.replace("q=", "r=").replace("w=", "t=");
        assert_eq!(value(&outcomes, &BOTH, "ratelimit").unwrap(), format!("\"a\";{expected}"), "{quota}");
    }
}

#[test]
fn times_are_rounded_up_to_seconds() {
    let api = policy("a", "100/minute");
    for (us, seconds) in [
        (1, 1),
        (SECOND - 1, 1),
        (SECOND, 1),
        (SECOND + 1, 2),
        (59 * SECOND + 1, 60),
        ((1 << 63) - 1, 9_223_372_036_855_u64),
    ] {
        // One unit is left, so `t` is not bounded by the wait.
        let decision = denied(us, &[(1, us)]);
        let expected = [
            r#"ratelimit-policy: "a";q=100;w=60"#.to_owned(),
            format!(r#"ratelimit: "a";r=1;t={seconds}"#),
            "x-ratelimit-limit: 100".to_owned(),
            "x-ratelimit-remaining: 1".to_owned(),
            format!("x-ratelimit-reset: {seconds}"),
            format!("retry-after: {seconds}"),
        ];
        assert_eq!(lines(&[(&api, &decision)], &BOTH, 5), expected, "{us}");
    }
}

#[test]
fn an_integer_has_at_most_15_digits() {
    // No valid quota has such numbers, but this code must not trust the numbers in a decision.
    let policy = policy("a", "1/10000000s token_bucket burst=100000");
    let outcomes = [(&policy, &allowed(&[(u64::MAX, 0)]))];
    let shown = ["ratelimit-policy", "ratelimit"].map(|name| value(&outcomes, &BOTH, name).unwrap());
    assert_eq!(shown, [r#""a";q=100000;w=1000000000000"#, r#""a";r=999999999999999;t=1000000000000"#]);
}

#[test]
fn every_quota_of_every_policy_is_listed_under_its_own_name() {
    let api = policy("api", "10/s; 1000/h; 1000/h sliding_log");
    let login = policy("login", "5/15m sliding_log");
    let outcomes = [
        (&api, &allowed(&[(9, SECOND), (400, 3_000_000_001), (1000, 0)])),
        (&login, &denied(90 * SECOND, &[(0, 900 * SECOND)])),
    ];
    assert_eq!(
        lines(&outcomes, &BOTH, 0),
        [
            r#"ratelimit-policy: "api:1";q=10;w=1, "api:2";q=1000;w=3600, "api:3";q=1000;w=3600, "login";q=5;w=900"#,
            r#"ratelimit: "api:1";r=9;t=1, "api:2";r=400;t=3001, "api:3";r=1000;t=3600, "login";r=0;t=90"#,
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 900",
            "retry-after: 90",
        ]
    );
    let every_character = policy("aZ09!#$%&'*+-.^_`|~", "1/s");
    let shown = value(&[(&every_character, &allowed(&[(0, 1)]))], &BOTH, "ratelimit").unwrap();
    assert_eq!(shown, r#""aZ09!#$%&'*+-.^_`|~";r=0;t=1"#);
}

#[test]
fn an_excess_is_no_part_of_the_limit_that_clients_see() {
    let limiter =
        Limiter::builder().policy(policy("api", "10/minute fixed_window excess=2")).build().unwrap();
    let limiter = limiter.blocking();
    let api = policy("api", "10/minute fixed_window excess=2");
    for (cost, remaining, over) in [(9, "1", None), (2, "0", Some("1")), (1, "0", Some("2"))] {
        let decision = limiter.check(crate::Request::new("key").cost(cost)).unwrap();
        assert!(decision.allowed());
        let outcomes = [(&api, &decision)];
        assert_eq!(value(&outcomes, &BOTH, "x-ratelimit-limit").as_deref(), Some("10"));
        assert_eq!(value(&outcomes, &BOTH, "x-ratelimit-remaining").as_deref(), Some(remaining));
        assert_eq!(value(&outcomes, &BOTH, "x-ratelimit-over").as_deref(), over);
    }
    let none = HeaderSettings::default().style(HeaderStyle::None);
    let decision = limiter.peek("key").unwrap();
    assert!(value(&[(&api, &decision)], &none, "x-ratelimit-over").is_none());
}

#[test]
fn the_effective_window_of_a_denial_does_not_outlast_retry_after() {
    let two = policy("a", "10/s; 1000/h");
    for (decision, t) in [
        // Allowed: until nothing counts as used, even when no unit is left.
        (allowed(&[(0, 5 * SECOND), (3, 7 * SECOND)]), [5, 7]),
        (denied(2 * SECOND, &[(0, 5 * SECOND), (3, 7 * SECOND)]), [2, 7]),
        (denied(2 * SECOND, &[(0, 5 * SECOND), (0, SECOND)]), [2, 1]),
        // Behind queued callers the wait may be longer than the reset.
        (denied(9 * SECOND, &[(0, 5 * SECOND), (0, 7 * SECOND)]), [5, 7]),
        (never(&[(0, 5 * SECOND), (0, 7 * SECOND)]), [5, 7]),
    ] {
        let r = [0, 1].map(|at: usize| decision.quotas()[at].remaining);
        let shown = value(&[(&two, &decision)], &BOTH, "ratelimit").unwrap();
        assert_eq!(
            shown,
            format!(r#""a:1";r={};t={}, "a:2";r={};t={}"#, r[0], t[0], r[1], t[1]),
            "{decision:?}"
        );
    }
}

#[test]
fn legacy_fields_are_about_the_most_constraining_quota() {
    let two = policy("a", "10/s; 1000/h");
    let one = policy("b", "7/m");
    for (first, second, expected) in [
        (allowed(&[(3, 1), (900, 50 * SECOND)]), allowed(&[(4, SECOND)]), (10, 3, 1)),
        (allowed(&[(3, 1), (2, 50 * SECOND)]), allowed(&[(4, SECOND)]), (1000, 2, 50)),
        (allowed(&[(3, 1), (4, 50 * SECOND)]), allowed(&[(2, 0)]), (7, 2, 60)),
        // What remains is equal: the longest reset.
        (allowed(&[(0, 1), (0, 50 * SECOND)]), allowed(&[(0, 49 * SECOND)]), (1000, 0, 50)),
        (allowed(&[(0, 1), (1, 50 * SECOND)]), allowed(&[(0, 49 * SECOND)]), (7, 0, 49)),
    ] {
        let outcomes = [(&two, &first), (&one, &second)];
        let shown = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
            .map(|name| value(&outcomes, &BOTH, name).unwrap().parse::<u64>().unwrap());
        assert_eq!(shown, [expected.0, expected.1, expected.2], "{outcomes:?}");
    }
}

#[test]
fn a_legacy_reset_may_be_a_time_since_the_epoch() {
    let api = policy("a", "100/minute");
    let settings = HeaderSettings::default().style(HeaderStyle::Legacy).reset_form(ResetForm::Epoch);
    for (now_us, reset_after_us, expected) in [
        (1_700_000_000_000_000, 30 * SECOND, 1_700_000_030),
        // Rounded once, after the current time was added.
        (1_700_000_000_400_000, 600_000, 1_700_000_001),
        (1_700_000_000_400_001, 600_000, 1_700_000_002),
        (1_700_000_000_000_000, 0, 1_700_000_060),
        (u64::MAX, u64::MAX, 36_893_488_147_420_u64),
    ] {
        let shown = lines(&[(&api, &allowed(&[(1, reset_after_us)]))], &settings, now_us);
        assert_eq!(shown[2], format!("x-ratelimit-reset: {expected}"));
    }
}

#[test]
fn retry_after_is_the_longest_over_the_denials() {
    let api = policy("a", "100/minute");
    let yes = allowed(&[(1, 90 * SECOND)]);
    let [at_once, short, long] = [0, 1, 1_500_000].map(|us| denied(us, &[(0, 9 * SECOND)]));
    let never = never(&[(0, SECOND)]);
    for (decisions, expected) in [
        (vec![], None),
        (vec![&yes], None),
        (vec![&at_once], Some("1")),
        (vec![&short], Some("1")),
        (vec![&yes, &short, &long, &short], Some("2")),
        (vec![&never], None),
        (vec![&long, &never, &yes], None),
    ] {
        let outcomes: Vec<_> = decisions.into_iter().map(|decision| (&api, decision)).collect();
        assert_eq!(value(&outcomes, &HeaderSettings::default(), "retry-after").as_deref(), expected);
    }
}

#[test]
fn a_problem_names_the_violated_quotas() {
    let two = policy("a", "10/s; 1000/h");
    let one = policy("b", "7/m");
    let yes = allowed(&[(0, SECOND)]);
    for (first, cost, expected) in [
        (denied(SECOND, &[(0, 1), (3, 1)]), 1, &["a:1"][..]),
        (denied(SECOND, &[(0, 1), (0, 1)]), 1, &["a:1", "a:2"]),
        (denied(SECOND, &[(4, 1), (5, 1)]), 5, &["a:1"]),
        (denied(SECOND, &[(4, 1), (3, 1)]), 5, &["a:1", "a:2"]),
        (never(&[(9, 1), (900, 1)]), 11, &["a:1"]),
        // Denied because of queued callers.
        (denied(SECOND, &[(9, 1), (900, 1)]), 1, &["a:1"]),
    ] {
        let problem = problem(&[(&two, &first), (&one, &yes)], cost).unwrap();
        assert_eq!(problem.violated(), expected, "{first:?} at {cost}");
    }
    assert_eq!(problem(&[(&one, &yes)], 1), None);
    assert_eq!(problem(&[], 1), None);
}

#[test]
fn a_problem_is_json_or_text() {
    let (a, b) = (policy("a", "10/s; 1000/h"), policy("b", "0/m"));
    let wait = denied(2_000_001, &[(0, 2_000_001), (0, 5_000_000)]);
    let no = never(&[(0, 0)]);
    let problem_of = |outcomes: &[Outcome<'_>]| problem(outcomes, 1).unwrap();
    assert_eq!(
        problem_of(&[(&a, &wait)]).json(),
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"#,
            r#""detail":"Not enough of the quota is left: retry in 3 s.","violated-policies":["a:1","a:2"]}"#
        )
    );
    assert_eq!(problem_of(&[(&a, &wait)]).text(), "Not enough of the quota is left: retry in 3 s.\n");
    let never = problem_of(&[(&a, &wait), (&b, &no)]);
    assert_eq!(never.detail(), "The request costs more than the quota can ever admit.");
    assert_eq!(never.violated(), ["a:1", "a:2", "b"]);
    // The texts that go into JSON unescaped.
    for problem in [problem_of(&[(&a, &wait)]), never] {
        for text in [problem.detail(), problem.title(), problem.type_uri()] {
            assert!(
                text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte)),
                "{text}"
            );
        }
    }
}

#[test]
fn a_denial_by_an_outage_is_no_fault_of_the_client() {
    let (a, b) = (policy("a", "10/s"), policy("b", "5/s"));
    let outage = |source| Decision { source, ..denied(1_000_000, &[(0, 0)]) };
    let problem_of = |outcomes: &[Outcome<'_>]| problem(outcomes, 1).unwrap();
    let unavailable = problem_of(&[(&a, &outage(Source::Deny)), (&b, &allowed(&[(1, 1)]))]);
    assert_eq!((unavailable.status(), unavailable.violated()), (503, &[][..]));
    assert_eq!(unavailable.detail(), "The request cannot be counted at the moment: retry in 1 s.");
    assert!(unavailable.type_uri().ends_with("#temporary-reduced-capacity"));
    // A client over a limit that this process knows, or that another policy's store knows, gets 429.
    assert_eq!(problem_of(&[(&a, &outage(Source::Fallback))]).status(), 429);
    assert_eq!(problem_of(&[(&a, &outage(Source::Deny)), (&b, &denied(1, &[(0, 1)]))]).status(), 429);
}

#[test]
fn names_are_read_and_printed() {
    for style in HeaderStyle::ALL {
        assert_eq!(style.to_string().parse(), Ok(style));
    }
    for form in ResetForm::ALL {
        assert_eq!(form.to_string().parse(), Ok(form));
    }
    let refused = |error: crate::Error| (error.kind(), error.message().to_owned());
    assert_eq!(
        refused("IETF".parse::<HeaderStyle>().unwrap_err()),
        (
            crate::ErrorKind::InvalidArgument,
            r#"header style "IETF" is not known: use one of ietf, legacy, both, none"#.to_owned()
        )
    );
    assert_eq!(
        refused("".parse::<ResetForm>().unwrap_err()).1,
        r#"reset form "" is not known: use one of seconds, epoch"#
    );
}

#[test]
fn settings_are_read_from_text() {
    let default = HeaderSettings::default();
    let names = [("x-ratelimit-limit", "x-limit"), ("x-ratelimit-reset", "")];
    for (text, expected) in [
        ("", default.clone()),
        ("ietf seconds", default.clone()),
        ("legacy", HeaderStyle::Legacy.into()),
        (" epoch\tboth ", BOTH.reset_form(ResetForm::Epoch)),
        ("x-ratelimit-limit=X-Limit none x-ratelimit-reset=", {
            HeaderSettings::from(HeaderStyle::None).names(names).unwrap()
        }),
    ] {
        assert_eq!(text.parse(), Ok(expected), "{text}");
    }
    for (text, message) in [
        ("IETF", "header setting \"IETF\" is not known: allowed are ietf, legacy, both, none for the style"),
        ("legacy, epoch", "header setting \"legacy,\" is not known"),
        ("both legacy", "have two values of one setting: \"legacy\" is the second one"),
        ("epoch epoch", "have two values of one setting: \"epoch\" is the second one"),
        ("ratelimit=a RateLimit=b", "have two values of one setting: \"RateLimit=b\" is the second one"),
        ("ratelimit=a=b", "header name \"a=b\" for ratelimit: allowed are letters"),
        ("x=y", "header name for field \"x\": use one of ratelimit, "),
        ("=", "header name for field \"\": use one of ratelimit, "),
    ] {
        let refused = text.parse::<HeaderSettings>().unwrap_err();
        assert_eq!(refused.kind(), crate::ErrorKind::InvalidArgument);
        assert!(refused.message().contains(message), "{text}: {}", refused.message());
    }
}

#[test]
fn fields_have_the_configured_names() {
    let api = policy("api", "100/minute");
    let decision = denied(2 * SECOND, &[(0, 30 * SECOND)]);
    let names = [("ratelimit", "RateLimit-Now"), ("X-RateLimit-Limit", "x-limit"), ("x-ratelimit-reset", "")];
    let settings = BOTH.names(names).unwrap();
    assert_eq!(
        lines(&[(&api, &decision)], &settings, 0),
        [
            r#"ratelimit-policy: "api";q=100;w=60"#,
            r#"ratelimit-now: "api";r=0;t=2"#,
            "x-limit: 100",
            "x-ratelimit-remaining: 0",
            "retry-after: 2",
        ]
    );
    // Later names replace earlier ones, and the default names are the default settings.
    let back =
        settings.names([("ratelimit", "ratelimit"), ("x-ratelimit-limit", "x-ratelimit-limit")]).unwrap();
    assert_eq!(back.names([("x-ratelimit-reset", "x-ratelimit-reset")]).unwrap(), BOTH);
    // Two fields may exchange their names.
    let exchanged = [("ratelimit", "ratelimit-policy"), ("ratelimit-policy", "ratelimit")];
    let shown = lines(&[(&api, &decision)], &HeaderSettings::default().names(exchanged).unwrap(), 0);
    assert_eq!(shown[0], r#"ratelimit: "api";q=100;w=60"#);
    let none = [("ratelimit", ""), ("ratelimit-policy", "")];
    assert_eq!(
        lines(&[(&api, &decision)], &HeaderSettings::default().names(none).unwrap(), 0),
        ["retry-after: 2"]
    );
    assert_eq!(outage_field("allow", &BOTH).unwrap().name, "x-ratelimit-outage");
    let outage = |name| outage_field("allow", &BOTH.names([("x-ratelimit-outage", name)]).unwrap());
    assert_eq!(outage("x-degraded").unwrap().name, "x-degraded");
    assert_eq!(outage(""), None);
    assert_eq!(outage_field("allow", &HeaderSettings::default().style(HeaderStyle::None)), None);
}

#[test]
fn default_names_are_not_allocated() {
    let api = policy("api", "100/minute");
    let fields = fields(&[(&api, &denied(SECOND, &[(0, SECOND)]))], &BOTH, 0);
    assert!(
        fields.len() == 6 && fields.iter().all(|field| matches!(field.name, Cow::Borrowed(_))),
        "{fields:?}"
    );
}

#[test]
fn invalid_header_name_is_refused() {
    let longest = "x".repeat(HeaderSettings::MAX_NAME_LENGTH);
    assert!(BOTH.names([("ratelimit", &longest)]).is_ok());
    let too_long = longest + "x";
    for (field, name, expected) in [
        ("retry-after", "x", r#"header name for field "retry-after": use one of ratelimit, "#),
        ("ratelimit", "Retry-After", r#"header name "Retry-After" for ratelimit: allowed are letters"#),
        ("ratelimit", "a b", r#"header name "a b" for ratelimit: allowed are"#),
        ("ratelimit", "a:b", "header name"),
        ("ratelimit", "a\r\nset-cookie", "header name"),
        ("ratelimit", "ä", "header name"),
        ("ratelimit", &too_long, "header name"),
        (
            "x-ratelimit-limit",
            "X-RateLimit-Reset",
            r#"x-ratelimit-limit and x-ratelimit-reset would both have the header name "x-ratelimit-reset""#,
        ),
    ] {
        let error = BOTH.names([(field, name)]).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
        assert!(error.message().starts_with(expected), "{error}");
    }
}

/// A client that reads only `ratelimit` waits as long as one that reads `retry-after`, and is then admitted.
#[test]
fn client_that_waits_as_the_fields_say_is_admitted() {
    for quotas in [
        "10/s",
        "7/3s token_bucket burst=20",
        "100/m token_bucket step=10",
        "3/10s leaky_bucket burst=2",
        "2/1500ms fixed_window",
        "5/s; 8/m sliding_log",
    ] {
        let policy = policy("a", quotas);
        let clock = ManualClock::new(1_700_000_000_123_456).unwrap();
        let builder = Limiter::builder().policy(policy.clone()).clock(clock.clone());
        let limiter = builder.build().unwrap().blocking();
        for _ in 0..3 {
            while limiter.check("key").unwrap().allowed() {}
            let denied = limiter.check("key").unwrap();
            let outcomes = [(&policy, &denied)];
            let seconds: u64 = value(&outcomes, &BOTH, "retry-after").unwrap().parse().unwrap();
            let limit = value(&outcomes, &BOTH, "ratelimit").unwrap();
            let wait = crate::http::server_wait([("ratelimit", &limit)], 0).unwrap();
            assert_eq!(wait.as_secs(), seconds, "{quotas}");
            clock.advance(wait).unwrap();
            assert!(limiter.check("key").unwrap().allowed(), "{quotas}");
        }
    }
}

#[test]
fn text_is_the_answer_to_clients_that_prefer_it() {
    for accept in [
        "text/plain",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
        "application/json;q=0.5, text/plain",
        "TEXT/Plain ; Q=0.2",
        "text/*, application/problem+json;q=0.999",
        "text/plain;q=0.9, application/*;q=0.8, */*",
        "application/problem+json;q=0.1, application/json;q=0.1, application/*, text/plain;q=0.2",
    ] {
        assert!(prefers_text(accept), "{accept}");
    }
    for accept in [
        "",
        "*/*",
        "application/json",
        "application/json, text/plain, */*",
        "text/plain;q=0, */*",
        "text/plain;q=0.5, application/*;q=0.6",
        "text/plain;q=7",
        "text/plain;q=0.5, text/html;q=0.5, text/*, application/json;q=0.8",
        "text/html;q=0, text/plain;q=0, text/*, application/json;q=0.1",
        "image/png",
    ] {
        assert!(!prefers_text(accept), "{accept}");
    }
}

#[test]
fn numbers_are_written_as_they_are() {
    for number in [0, 7, 10, 1_000_000, 999_999_999_999_999, u64::MAX] {
        let mut text = String::from("=");
        push_digits(&mut text, number);
        assert_eq!(text, format!("={number}"));
    }
}
