use serde_json::Value;

use crate::http::Backoff;
use crate::http::server_wait::*;

/// The cases that the tests of every language run.
#[test]
fn all_cases_agree() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/server_wait.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = |name: &str| file[name].as_array().unwrap();
    for case in cases("server_wait") {
        let lines = case["rate_limit"].as_array().into_iter().flatten();
        let mut fields: Vec<_> = lines.map(|line| ("RateLimit", line.as_str().unwrap())).collect();
        fields.extend(case["retry_after"].as_str().map(|value| ("Retry-After", value)));
        let wait = server_wait(fields, case["now_us"].as_u64().unwrap());
        assert_eq!(wait.map(polylimit_rules::units::micros), case["wait_us"].as_u64(), "{}", case["name"]);
    }
    let backoff = |settings: &Value| {
        let us = |name: &str| settings[name].as_u64().map(Duration::from_micros);
        let mut builder = Backoff::builder();
        builder = us("base_us").into_iter().fold(builder, crate::http::BackoffBuilder::base);
        builder = us("cap_us").into_iter().fold(builder, crate::http::BackoffBuilder::cap);
        builder = us("max_wait_us").into_iter().fold(builder, crate::http::BackoffBuilder::max_wait);
        let retries = settings["max_retries"].as_u64().map(|retries| u32::try_from(retries).unwrap());
        retries.into_iter().fold(builder, crate::http::BackoffBuilder::max_retries).build()
    };
    for case in cases("backoff") {
        let retry = u32::try_from(case["retry"].as_u64().unwrap()).unwrap();
        let requested = case["server_wait_us"].as_u64().map(Duration::from_micros);
        let wait =
            backoff(&case["settings"]).unwrap().wait(retry, requested).map(polylimit_rules::units::micros);
        match case["wait_us"].as_array() {
            None => assert_eq!(wait, None, "{}", case["name"]),
            Some(range) => {
                let (least, most) = (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
                assert!((least..=most).contains(&wait.unwrap()), "{}: {wait:?}", case["name"]);
            }
        }
    }
    for case in cases("refused") {
        assert_eq!(backoff(&case["settings"]).unwrap_err().message(), case["message"].as_str().unwrap());
    }
}

/// Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110.
const EXAMPLE_US: u64 = 784_111_777_000_000;

fn retry_after(value: &str, now_us: u64) -> Option<Duration> {
    server_wait([("retry-after", value)], now_us)
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    for (value, seconds) in [("0", 0), ("120", 120), (" 7\t", 7), ("007", 7), ("9007199254", 9_007_199_254)] {
        assert_eq!(retry_after(value, EXAMPLE_US), Some(Duration::from_secs(seconds)), "{value}");
    }
    for value in ["9007199255", "18446744073709551616", "99999999999999999999999999999999999999999999"] {
        assert_eq!(retry_after(value, EXAMPLE_US), Some(MAX_WAIT), "{value}");
    }
    for value in
        ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
    {
        let wait_us = |now_us| retry_after(value, now_us).map(|wait| wait.as_micros());
        assert_eq!(wait_us(EXAMPLE_US - 1_500_000), Some(1_500_000), "{value}");
        assert_eq!(wait_us(EXAMPLE_US + 1), Some(0), "{value}");
        assert_eq!(wait_us(u64::MAX), Some(0), "{value}");
    }
    for value in [
        "",
        "-1",
        "+1",
        "1.5.0",
        "1.x",
        "1 2",
        "1s",
        "soon",
        "Sun, 06 Nov 1994",
        "Sun, 99 Nov 1994 08:49:37 GMT",
    ] {
        assert_eq!(retry_after(value, EXAMPLE_US), None, "{value}");
    }
    assert_eq!(server_wait([("retry-after", b"\xff")], 0), None);
}

#[test]
fn a_date_with_any_byte_changed_is_read_without_panic() {
    for value in
        ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
    {
        for at in 0..value.len() {
            for byte in 0..=u8::MAX {
                let mut changed = value.as_bytes().to_vec();
                changed[at] = byte;
                let _ = server_wait([("Retry-After", &changed)], EXAMPLE_US);
                let _ = server_wait([("Retry-After", &changed[..at])], EXAMPLE_US);
            }
        }
    }
}

#[test]
fn retry_after_wins_where_it_says_something() {
    let wait_ms = |fields: &[(&str, &str)]| {
        let rate_limit = ("RATELIMIT", r#""a";r=0;t=30"#);
        server_wait(fields.iter().copied().chain([rate_limit]), 0).unwrap().as_millis()
    };
    assert_eq!(wait_ms(&[("RETRY-AFTER", "5"), ("retry-after", "6")]), 5_000);
    assert_eq!(wait_ms(&[("retry-after", "nonsense")]), 30_000);
    assert_eq!(wait_ms(&[]), 30_000);
    assert_eq!(wait_ms(&[("retry-after", "1"), ("retry-after-ms", "120")]), 120);
    assert_eq!(wait_ms(&[("Retry-After-Ms", "119.01")]), 120);
    assert_eq!(wait_ms(&[("retry-after-ms", "-1"), ("retry-after", "1")]), 1_000);
    assert_eq!(wait_ms(&[("retry-after-ms", "0")]), 0);
    assert_eq!(server_wait([("retry-after-ms", "9".repeat(40))], 0), Some(MAX_WAIT));
    assert_eq!(server_wait([("x-retry-after", "1")], 0), None);
    assert_eq!(server_wait::<&str, &str>([], 0), None);
}

#[test]
fn date_is_compared_with_that_of_the_response() {
    let at = |after_s: i64| {
        let since_epoch = (EXAMPLE_US / 1_000_000).saturating_add_signed(after_s);
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch))
    };
    for skew in [-3_600, 0, 3_600] {
        let fields = [("Date", at(skew)), ("Retry-After", at(skew + 2))];
        assert_eq!(server_wait(fields, EXAMPLE_US), Some(Duration::from_secs(2)), "{skew}");
        let passed = [("Date", at(skew)), ("Retry-After", at(skew - 2))];
        assert_eq!(server_wait(passed, EXAMPLE_US), Some(Duration::ZERO), "{skew}");
    }
    let fields = [("Date", "today".to_owned()), ("Retry-After", at(5))];
    assert_eq!(server_wait(fields, EXAMPLE_US), Some(Duration::from_secs(5)));
}

fn seconds(lines: &[&str]) -> Option<u64> {
    WaitFields::of(lines.iter().map(|line| ("ratelimit", line))).rate_limit().map(|wait| wait.as_secs())
}

#[test]
fn the_longest_window_of_the_exhausted_policies_counts() {
    for (line, expected) in [
        (r#""default";r=0;t=30"#, Some(30)),
        (r#""default";r=50;t=30"#, None),
        (r#""a";r=0;t=30, "b";r=5;t=10"#, Some(30)),
        (r#""a";r=0;t=30,"b";r=0;t=60 ,	"c";r=1;t=90"#, Some(60)),
        (r#""a";r=0;t=0"#, Some(0)),
        ("default;r=0;t=30", Some(30)),
        (r#""a";  t=30; r=0"#, Some(30)),
        (r#""a, \"b\\;r=9";r=0;t=30"#, Some(30)),
        (r#""a";r=0;t=30;pk=:QXBwLTk5OQ==:;acme-x=1.5;y;z=?0;d=@-1;s=%"f%c3%bc";*k=tok/en:x"#, Some(30)),
        (r#""a";r=5;r=0;t=9;t=30"#, Some(30)),
        (r#""a";r=0;t=999999999999999"#, Some(MAX_WAIT.as_secs())),
        ("", None),
        ("  ", None),
    ] {
        assert_eq!(seconds(&[line]), expected, "{line}");
    }
    assert_eq!(seconds(&[r#""a";r=0;t=3"#, r#" "b";r=0;t=7"#]), Some(7));
    assert_eq!(seconds(&[]), None);
}

#[test]
fn a_member_that_is_no_policy_is_ignored_alone() {
    for member in [
        r#""b";r=0"#,
        r#""b";t=60"#,
        r#""b""#,
        r#""b";r=0;t=-60"#,
        r#""b";r=0;t=60.0"#,
        r#""b";r=0.0;t=60"#,
        r#""b";r="0";t=60"#,
        r#""b";r;t=60"#,
        r#""b";r=0;t=?1"#,
        r#""b";r=-1;t=60"#,
        r#"("b";r=0;t=60 c  );r=0;t=60"#,
        "()",
        r#""b";r=0;t=60;t=later"#,
    ] {
        let line = format!(r#"{member}, "a";r=0;t=30"#);
        assert_eq!(seconds(&[&line]), Some(30), "{line}");
    }
}

#[test]
fn a_malformed_field_is_ignored() {
    let good = r#""a";r=0;t=30"#;
    for broken in [
        ",",
        "\"",
        r#""b"#,
        r#""b\"#,
        r#""b\n""#,
        "\"\u{e9}\"",
        "\"\t\"",
        ";r=0",
        r#""b";"#,
        r#""b";R=0"#,
        r#""b";r="#,
        r#""b";r=-"#,
        r#""b";r=1."#,
        r#""b";r=1.2345"#,
        r#""b";r=1234567890123.0"#,
        r#""b";t=1234567890123456"#,
        r#""b" r=0"#,
        r#""b";r=0 ;t=9"#,
        "limit=10, remaining=0",
        ":a",
        ":*:",
        "?2",
        "@",
        "@x",
        "%x",
        "%\"x",
        "(",
        "(a",
        "(a(b))",
        "(a,b)",
        "(a\tb)",
        r#"("a""b")"#,
        "\u{7f}",
    ] {
        for line in [format!("{good}, {broken}"), format!("{broken}, {good}")] {
            assert_eq!(seconds(&[&line]), None, "{line}");
        }
    }
    assert_eq!(seconds(&[&format!("{good},")]), None);
    assert_eq!(seconds(&[good, ""]), None);
}

#[test]
fn a_long_field_is_ignored() {
    let line = |bytes: usize| format!("{:a<width$};r=0;t=30", "", width = bytes - 9);
    assert_eq!(seconds(&[&line(4096)]), Some(30));
    assert_eq!(seconds(&[&line(4097)]), None);
    assert_eq!(seconds(&[&line(4090), "a;r=0"]), None);
    assert_eq!(seconds(&vec!["a;r=0;t=1"; 100_000]), None);
}

#[test]
fn any_bytes_are_read_without_panic() {
    let alphabet = b"\"ab;r=0t19.-:?@%()*, \\\t\x00\xff";
    let mut state = 1_u64;
    for _ in 0..20_000 {
        let line: Vec<u8> = (0..state % 20)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                alphabet[usize::try_from(state >> 33).unwrap() % alphabet.len()]
            })
            .collect();
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let _ = longest_exhausted(&line);
    }
}
