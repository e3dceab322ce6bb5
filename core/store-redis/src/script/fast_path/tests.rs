//! The parts agree with their Lua, and scripts have no unfilled placeholders.

use super::*;
use crate::script::call::Script;

const KINDS: [Kind; 6] = [
    Kind::Form(Form::ShortBucket),
    Kind::Form(Form::Bucket),
    Kind::Form(Form::SteppedBucket),
    Kind::Form(Form::FixedWindow),
    Kind::Form(Form::SlidingWindow),
    Kind::CalendarWindow,
];

/// The names in Lua that end in `$`.
fn names(lua: &str) -> impl Iterator<Item = &str> {
    lua.split_inclusive('$').filter(|text| text.ends_with('$')).map(|text| {
        let name = text.trim_end_matches('$');
        let start = name.rfind(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        &text[start.map_or(0, |at| at + 1)..]
    })
}

#[test]
fn every_variable_of_a_part_is_declared_and_every_argument_and_local_is_used() {
    for kind in KINDS {
        let part = kind.part();
        let sections = [part.lua.before[1], part.lua.before[2], part.lua.rest].concat();
        let written: Vec<&str> = part.fields.iter().map(|(_, _, written)| *written).collect();
        let lua = [&sections, written.join(" ").as_str(), RENEW, LIVES].concat();
        let arguments = part.arguments.iter().map(|(name, ..)| *name);
        let fields = part.fields.iter().map(|(_, name, _)| *name);
        let window = ["from$", "till$"].into_iter().filter(|_| part.has_window);
        let outside: Vec<&str> = arguments.chain(window).chain(part.locals.iter().copied()).collect();
        let declared: Vec<&str> = outside
            .iter()
            .copied()
            .chain(fields)
            .chain(part.tail)
            .chain(["until_before$", "until_after$"])
            .collect();
        let declarations = sections.lines().filter_map(|line| line.trim().strip_prefix("local "));
        let own: Vec<&str> = declarations.flat_map(|line| names(line.split('=').next().unwrap())).collect();
        for name in names(&lua) {
            assert!(declared.contains(&name) || own.contains(&name), "{kind:?}: {name} is not declared");
        }
        for name in outside {
            assert!(names(&lua).any(|used| used == name), "{kind:?}: {name} is not used");
        }
    }
}

#[test]
fn arguments_are_as_long_as_their_format_says() {
    for quotas in [
        "100/m token_bucket",
        "7/s leaky_bucket; 8/s token_bucket step=2; 9/m fixed_window; 10/m",
        "9/month zone=Europe/Berlin; 10/m; 11/day zone=Asia/Tokyo",
    ] {
        let policy = Policy::parse("p", quotas).unwrap();
        let fast_path = FastPath::of(&policy);
        assert!(!fast_path.is_empty());
        let (arguments, windows) = fast_path.arguments_of(&policy);
        let (format, names) = fast_path.arguments(1);
        let length: u32 = format.chars().filter_map(|letter| letter.to_digit(10)).sum();
        assert_eq!(arguments.len(), length as usize);
        assert_eq!(windows.len(), policy.quotas().iter().filter(|quota| quota.calendar().is_some()).count());
        assert!(windows.iter().all(|(_, at)| arguments[*at..*at + 14] == [0; 14]));
        assert_eq!(format.matches('I').count(), names.matches(", ").count());
    }
}

#[test]
fn script_of_any_sequence_has_no_open_place() {
    let every = KINDS.iter().map(|kind| vec![*kind]).chain([KINDS.to_vec(), vec![]]);
    for (kinds, has_penalty) in every.flat_map(|kinds| [(kinds.clone(), false), (kinds, true)]) {
        let source = Script::assemble(63, &FastPath { kinds: kinds.into(), has_penalty }).source;
        assert!(!source.contains('$') && !source.contains("--") && source.starts_with("#!lua\n"), "{source}");
    }
}

#[test]
fn script_of_any_request_has_no_open_place() {
    for (kind, has_penalty) in KINDS.iter().flat_map(|kind| [(*kind, false), (*kind, true)]) {
        let of = |kinds: &[Kind], has_penalty| FastPath { kinds: kinds.into(), has_penalty };
        let paths = [of(&[kind], has_penalty), of(&KINDS[1..], false)];
        let path = RequestPath::of(paths.iter()).unwrap();
        let source = Script::assemble_requests(63, Some(&path)).source;
        assert!(!source.contains(['$', '@']) && !source.contains("--"), "{source}");
        assert!(source.starts_with("#!lua\n") && source.contains("if flags < 8 then"), "{source}");
        assert_eq!(source.contains("if denied_1 then"), has_penalty, "{source}");
        assert!(RequestPath::of(paths.iter().chain(&[of(&[], false)])).is_none());
        assert!(RequestPath::of(paths.iter().chain(&[of(&[kind], false)])).is_none());
    }
}

#[test]
fn scripts_call_only_what_users_may_without_a_log() {
    // docs/redis.md, "Rights"; refunds and resets are published where a user may.
    let allowed = ["TIME", "GET", "MGET", "SET", "SETRANGE", "DEL", "PUBLISH"];
    let without_log = 63 & !(1 << 4);
    let path = FastPath { kinds: KINDS.into(), has_penalty: true };
    let request = RequestPath::of([FastPath { kinds: KINDS.into(), has_penalty: true }].iter()).unwrap();
    let scripts =
        [Script::assemble(without_log, &path), Script::assemble_requests(without_log, Some(&request))];
    for source in scripts.map(|script| script.source) {
        let calls = ["call('", "try('"].into_iter().flat_map(|call| source.split(call).skip(1));
        let called: Vec<_> = calls.filter_map(|rest| rest.split('\'').next()).collect();
        assert!(called.len() > 10, "{called:?}");
        for command in called {
            assert!(allowed.contains(&command), "{command} is not granted");
        }
    }
}
