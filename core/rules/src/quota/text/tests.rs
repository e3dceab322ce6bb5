use super::*;

fn canonical(text: &str) -> String {
    text.parse::<Quota>().unwrap().to_string()
}

fn message(text: &str) -> String {
    text.parse::<Quota>().unwrap_err().to_string()
}

#[test]
fn reads_what_the_grammar_allows() {
    for (text, expected) in [
        ("100/minute", "100/minute"),
        ("100/60s", "100/minute"),
        ("  100/m \t", "100/minute"),
        ("007/1sec", "7/second"),
        ("10/s token_bucket burst=20", "10/second token_bucket burst=20"),
        ("5/15m sliding_log", "5/15m sliding_log"),
        ("1_000_000/day token_bucket burst=50_000", "1000000/day token_bucket burst=50000"),
        ("50/days step=50 burst=200 token_bucket", "50/day token_bucket burst=200 step=50"),
        ("10/s sliding_window buckets=10", "10/second"),
        ("10/s buckets=1", "10/second buckets=1"),
        ("10/1001us buckets=1", "10/1001us"),
        ("10/14days fixed_window count_denied aligned", "10/2w fixed_window aligned count_denied"),
        ("0/week leaky_bucket burst=3", "0/week leaky_bucket burst=3"),
        ("10/2hours leaky_bucket", "10/2h leaky_bucket"),
        ("100 per minute", "100/minute"),
        ("100 PER 5 Minutes fixed_window", "100/5m fixed_window"),
        ("100 / minute", "100/minute"),
        ("100 /15 mins burst=7 token_bucket", "100/15m token_bucket burst=7"),
        ("100/ 15 m", "100/15m"),
        ("10/hr", "10/hour"),
        ("10/2Hrs", "10/2h"),
        ("10/MINUTE", "10/minute"),
        ("10/S", "10/second"),
        ("10/500 milliseconds", "10/500ms"),
        ("20 concurrent", "20 concurrent"),
        (" 1_000  CONCURRENT ", "1000 concurrent"),
        ("10_000/month", "10000/month"),
        ("10 per 1 Month fixed_window", "10/month"),
        ("10/quarter", "10/3months"),
        ("10/2 quarters from=31", "10/6months from=31"),
        ("10/month from=01 zone=UTC", "10/month"),
        ("10/month excess=10% zone=Europe/Berlin from=15", "10/month from=15 zone=Europe/Berlin excess=1"),
        ("10/year from=4-1 zone=+05:30", "10/year from=04-01 zone=+05:30"),
        ("10/year from=01-01 zone=-00:00", "10/year"),
        ("10/day zone=UTC", "10/day zone=UTC"),
        ("10/1day zone=Asia/Tokyo count_denied", "10/day zone=Asia/Tokyo count_denied"),
        ("10/week zone=Europe/London", "10/week from=monday zone=Europe/London"),
        ("10/w from=sunday", "10/week from=sunday"),
        ("100/week aligned fixed_window", "100/week fixed_window aligned"),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
        assert_eq!(canonical(expected), expected);
    }
}

#[test]
fn durations_are_read_like_periods() {
    for (text, us) in [
        ("15m", 900_000_000),
        (" 15 m ", 900_000_000),
        ("minute", 60_000_000),
        ("1ms", 1_000),
        ("366 days", 366 * 86_400_000_000),
    ] {
        assert_eq!(parse_duration(text).unwrap(), Duration::from_micros(us), "{text}");
        assert_eq!(parse_duration_us(text).unwrap(), us, "{text}");
    }
    for (text, about) in [
        ("", "the text ends"),
        ("month", "a time of one length, such as 30d"),
        ("15m 3", "a number and a unit such as 15m"),
        ("999us", "999µs is out of bounds: allowed is 1 ms to 366 days"),
        ("367d", "is out of bounds: allowed is 1 ms to 366 days"),
    ] {
        let refused = parse_duration(text).unwrap_err().to_string();
        assert!(refused.contains(about), "{text}: {refused}");
    }
}

#[test]
fn says_what_was_read_where_and_what_is_allowed() {
    for (text, expected) in [
        ("", "column 1: the text ends, allowed is a quota such as 100/minute"),
        ("hundred", "column 1: read \"hundred\", allowed is a quota such as 100/minute"),
        ("/s", "column 1: read \"/s\", allowed is digits"),
        ("1__0/s", "column 1: read \"1__0/s\", allowed is digits"),
        ("-1/s", "column 1: read \"-1/s\""),
        ("1.5/s", "column 1: read \"1.5/s\""),
        ("10/", "column 4: the text ends, allowed is us, ms, s, m, h, d or w"),
        ("10/M", "column 4: read \"M\", allowed is m for minutes, or month"),
        ("10/mo", "column 4: read \"mo\", allowed is month"),
        ("10/2yr", "column 5: read \"yr\", allowed is year"),
        ("10 per", "column 7: the text ends, allowed is us"),
        (
            "10 minutes",
            "column 4: read \"minutes\", allowed is per or / and a period, as in 100/minute, or concurrent",
        ),
        ("20 concurent", "column 4: read \"concurent\", allowed is per or / and a period"),
        ("ten minutes", "column 1: read \"ten\", allowed is a quota such as 100/minute"),
        ("100/day, 50/hour", "column 8: read \",\", allowed is ; between quotas"),
        ("10/hour|5/minute", "column 8: read \"|5/minute\", allowed is ; between quotas"),
        ("10/s gcra", "column 6: read \"gcra\", allowed is token_bucket, which is that algorithm here"),
        ("10/s moving-window", "column 6: read \"moving-window\", allowed is sliding_log"),
        ("10 per 5", "column 9: the text ends, allowed is us"),
        ("10/5 fixed_window", "column 5: read \"fixed_window\", allowed is us"),
        ("10perminute", "column 1: read \"10perminute\", allowed is a quota"),
        ("10/fortnight", "column 4: read \"fortnight\", allowed is us"),
        ("10/5months", "column 4: read \"5 months\", allowed are 1, 2, 3, 4 and 6 months, and 1 year"),
        ("10/ 12 months", "column 5: read \"12 months\", allowed are 1, 2"),
        ("10/3quarters", "column 4: read \"3 quarters\", allowed are 1, 2"),
        ("10/2years", "column 4: read \"2 years\", allowed are 1, 2"),
        ("10/0months", "column 4: read \"0 months\", allowed are 1, 2"),
        ("10/99999999999999999999months", "allowed are 1, 2, 3, 4 and 6 months"),
        ("10/month from=32", "column 15: read \"32\", allowed is a day of the month, 1 to 31"),
        ("10/month from=0", "column 15: read \"0\", allowed is a day of the month"),
        ("10/month from=monday", "column 15: read \"monday\", allowed is a day of the month"),
        ("10/month from=", "column 15: the text ends, allowed is a day of the month"),
        ("10/week from=Monday", "column 14: read \"Monday\", allowed is monday to sunday"),
        ("10/week from=1", "column 14: read \"1\", allowed is monday to sunday"),
        ("10/year from=13-01", "column 14: read \"13-01\", allowed is a month and a day, such as 04-01"),
        ("10/year from=02-30", "column 14: read \"02-30\", allowed is a month and a day"),
        ("10/year from=april", "column 14: read \"april\", allowed is a month and a day"),
        ("10/day from=2", "column 13: read \"2\", allowed is nothing, since a day starts at midnight"),
        ("10/second zone=UTC", "column 16: zone belongs to windows by the calendar"),
        ("10/2days zone=UTC", "column 15: zone belongs to windows by the calendar"),
        ("10/24h from=2", "column 13: from belongs to windows by the calendar"),
        (
            "10/month zone=Berlin",
            "column 15: zone is \"Berlin\", which is not known: did you mean Europe/Berlin?",
        ),
        ("10/month zone=+15:00", "column 15: zone is \"+15:00\"; allowed are offsets from -14:00 to +14:00"),
        ("10/month zone=UTC zone=UTC", "column 19: read \"zone=UTC\", allowed is zone once"),
        ("10/month sliding_window", "column 10: a sliding_window has no windows by the calendar"),
        ("10/month burst=3", "column 10: burst belongs to the two buckets only"),
        ("10/month buckets=3", "column 10: buckets belongs to sliding_window only"),
        ("10/month aligned", "column 10: aligned belongs to periods of one length"),
        ("10/0s", "column 4: period is 0ns: allowed is whole microseconds from 1 ms to 366 days"),
        ("10/99999999999999999999w", "column 4: period is"),
        ("2000000000000/s", "column 1: limit is 2000000000000: allowed is 0 to 1000000000000"),
        ("99999999999999999999/s", "column 1: read \"99999999999999999999/s\", allowed is a number up to"),
        ("10/s burst=20", "column 6: burst belongs to the two buckets only"),
        ("10/s token_bucket burst=", "column 25: the text ends, allowed is digits"),
        ("10/s é burst=20", "column 6: read \"é\", allowed is token_bucket"),
        ("10/s é", "column 6: read"),
        ("10/s\u{a0}buckets=61", "column 6: buckets is 61: allowed is 1 to 60"),
        ("10/s buckets=9999999999", "column 6: buckets is 4294967295"),
        ("10/s sliding_log sliding_log", "column 18: read \"sliding_log\", allowed is one algorithm"),
        ("10/s aligned aligned", "column 14: read \"aligned\", allowed is aligned once"),
        ("20 concurrent burst=3", "column 15: read \"burst=3\", allowed is nothing after concurrent"),
        ("x concurrent", "column 1: read \"x\", allowed is digits with _ between them, then concurrent"),
        ("2000000000000 concurrent", "column 1: limit is 2000000000000"),
        ("20/s concurrency", "column 6: read \"concurrency\", allowed is token_bucket"),
        ("10/s; 20/m", "column 5: read \";\", allowed is one quota"),
    ] {
        assert!(message(text).contains(expected), "{text}: {}", message(text));
    }
}

#[test]
fn calendar_is_read_by_itself() {
    for text in ["month", "3months from=31 zone=Asia/Tokyo", "day zone=UTC", "week from=sunday"] {
        assert_eq!(text.parse::<Calendar>().unwrap().to_string(), text);
    }
    assert_eq!("week zone=+01:00".parse::<Calendar>().unwrap().to_string(), "week from=monday zone=+01:00");
    for (text, expected) in [
        ("", "calendar at column 1: the text ends"),
        ("day", "calendar at column 1: read \"day\", allowed is windows by the calendar"),
        ("month from=32", "calendar at column 12: read \"32\""),
        (
            "month count_denied",
            "calendar at column 7: read \"count_denied\", allowed is zone=name or from=start",
        ),
    ] {
        let error = text.parse::<Calendar>().unwrap_err();
        assert!(error.message().contains(expected), "{text}: {error}");
    }
}

#[test]
fn reads_several_and_counts_columns_through_all_of_them() {
    let texts: Vec<_> = parse_quotas("10/s; 1000/h").unwrap().iter().map(Quota::to_string).collect();
    assert_eq!(texts, ["10/second", "1000/hour"]);
    assert!(parse_quotas("10/s; x").unwrap_err().to_string().contains("column 7: read \"x\""));
    assert!(parse_quotas("10/s;").unwrap_err().to_string().contains("column 6: the text ends"));
    assert!(parse_quotas("10/s;;1/m").unwrap_err().to_string().contains("column 6"));
}
