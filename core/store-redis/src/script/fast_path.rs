//! The fast path: checks of states of the expected form, without tables, functions and loops over quotas.
//!
//! It is generated for the sequence of a policy's quotas: all arguments are read at once, and all records are written at once. A [`Part`]
//! describes how one form of record is read, spent from and written; in its Lua, `$` stands for the number of the quota in the policy.
//!
//! It takes about a third of the server's time for a single check, and less in a batch: docs/internals/scripts.md.

use super::arguments::{put, token_and_rate};
use polylimit_rules::codec::{Form, Tag, is_short};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};

const CHECK: Template<8> = Template::cut(
    include_str!("lua/fast_path/check.lua"),
    ["locals", "load", "fresh", "spend", "denied", "value", "renew", "lives"],
);
const HELD: Template<7> = Template::cut(
    include_str!("lua/fast_path/held.lua"),
    ["locals", "load", "known", "fresh", "spend", "value", "lives"],
);
/// Reads all states of a call at once, where possible.
pub(super) const PREFETCH: &str = include_str!("lua/fast_path/prefetch.lua");
const READ_CHARGE: Template<4> =
    Template::cut(include_str!("lua/fast_path/read_charge.lua"), ["locals", "load", "fresh", "spend"]);
const WRITE_CHARGE: Template<3> =
    Template::cut(include_str!("lua/fast_path/write_charge.lua"), ["value", "renew", "lives"]);
/// Reads the states of all requests of a call at once, where possible.
const PREFETCH_REQUESTS: &str = include_str!("lua/fast_path/prefetch_requests.lua");
const REQUEST: Template<9> = Template::cut(
    include_str!("lua/fast_path/request.lua"),
    ["costs", "read", "denied", "penalties", "denial", "write", "found", "admission", "states"],
);
/// Decides a denial, if even a single check of the entry is denied. Under a penalty the general transition decides and counts it.
const DENIED: &str = "if denies_one then\ncode = raw and 2 or 4\nend\n";
/// Whether the key's time to live has to be extended for a quota.
const RENEW: &str =
    "if until_after$ >= until_before$ - until_before$ % unit$ + unit$ then\nrenew = true\nend\n";
/// How long the key lives at least by the state of a quota that was found.
const KNOWN: &str = "known_us = math.max(known_us, until_before$ - until_before$ % unit$ + unit$)\n";
/// How long the key has to live for a quota.
const LIVES: &str = "until_us = math.max(until_us, until_after$ - until_after$ % unit$ + unit$)\n";

/// More quotas would need more variables than Lua has.
const MAX_QUOTAS: usize = 8;
/// The maximum for a request, whose charges have their own variables.
const MAX_REQUEST_QUOTAS: usize = 6;

/// Keys live until a multiple of their quota's period or of this, whichever is longer, so that their time to live is
/// rarely renewed.
const MIN_EXPIRY_UNIT_US: u64 = 10_000_000;

/// A number of a quota that the script receives: its variable, its length in bytes, and its value. Of a quota by the calendar the start
/// and the end of its window follow.
type Argument = (&'static str, usize, fn(&Quota) -> u64);

/// A number in a record: its length in bytes, the variable that it is read into, and the expression that is written
/// back.
type Field = (usize, &'static str, &'static str);

/// How records of one form are handled.
struct Part {
    arguments: &'static [Argument],
    /// Whether the start and the end of a window follow, as `from$` and `till$`.
    has_window: bool,
    /// The fields after form and tag.
    fields: &'static [Field],
    /// The variable for the bytes after the fields, if there are any.
    tail: Option<&'static str>,
    /// Further variables.
    locals: &'static [&'static str],
    /// A comment; then Lua that loads a record, provides its default, and spends units.
    lua: Template<3>,
}

const SECTIONS: [&str; 3] = ["load", "fresh", "spend"];

const SHORT_BUCKET: Part = Part {
    arguments: &[
        ("token$", 7, |quota| token_and_rate(quota).0),
        ("empty$", 7, empty),
        ("unit$", 6, expiry_unit_us),
    ],
    has_window: false,
    fields: &[(7, "at$", "now"), (5, "debt$", "debt$")],
    tail: None,
    locals: &[],
    lua: Template::cut(include_str!("lua/fast_path/short_bucket.lua"), SECTIONS),
};

const LONG_BUCKET: Part = Part {
    arguments: &[
        ("token$", 7, |quota| token_and_rate(quota).0),
        ("empty$", 7, empty),
        ("rate$", 5, |quota| token_and_rate(quota).1),
        ("limit$", 5, Quota::limit),
        ("exponent$", 1, |quota| quota.tick_us().ilog10().into()),
        ("tick$", 7, Quota::tick_us),
        ("unit$", 6, expiry_unit_us),
    ],
    has_window: false,
    fields: &[
        (7, "at$", "ticks$"),
        (7, "debt$", "debt$"),
        (5, "limit_then$", "limit$"),
        (1, "exponent_then$", "exponent$"),
    ],
    tail: None,
    locals: &["ticks$"],
    lua: Template::cut(include_str!("lua/fast_path/long_bucket.lua"), SECTIONS),
};

const STEPPED_BUCKET: Part = Part {
    arguments: &[
        ("step$", 5, |quota| quota.step().unwrap_or(1)),
        ("interval$", 7, Quota::step_interval_us),
        ("capacity$", 6, Quota::capacity),
        ("limit$", 5, Quota::limit),
        ("unit$", 6, expiry_unit_us),
    ],
    has_window: false,
    fields: &[(6, "used$", "used$"), (7, "at$", "at$"), (5, "limit_then$", "limit$")],
    tail: None,
    locals: &[],
    lua: Template::cut(include_str!("lua/fast_path/stepped_bucket.lua"), SECTIONS),
};

const FIXED_WINDOW: Part = Part {
    arguments: &[
        ("capacity$", 6, Quota::capacity),
        ("period$", 6, Quota::period_us),
        ("aligned$", 1, |quota| quota.aligned().into()),
        // Its key lives until the window ends.
        ("unit$", 1, |_| 1),
    ],
    has_window: false,
    fields: &[(6, "used$", "used$"), (7, "start$", "start$")],
    tail: None,
    locals: &[],
    lua: Template::cut(include_str!("lua/fast_path/fixed_window.lua"), SECTIONS),
};

const CALENDAR_WINDOW: Part = Part {
    // Its key lives until the window ends.
    arguments: &[("capacity$", 6, Quota::capacity), ("unit$", 1, |_| 1)],
    has_window: true,
    fields: &[(6, "used$", "used$"), (7, "start$", "start$")],
    tail: None,
    locals: &[],
    lua: Template::cut(include_str!("lua/fast_path/calendar_window.lua"), SECTIONS),
};

const SLIDING_WINDOW: Part = Part {
    arguments: &[
        ("capacity$", 6, Quota::capacity),
        ("width$", 6, |quota| quota.period_us() / buckets(quota) / quota.tick_us()),
        ("buckets$", 1, buckets),
        ("tick$", 7, Quota::tick_us),
        ("unit$", 6, expiry_unit_us),
    ],
    has_window: false,
    fields: &[
        (1, "bytes$", "bytes$"),
        (1, "length$", "buckets$"),
        (7, "newest$", "current$"),
        (6, "sum$", "sum$"),
    ],
    tail: Some("older$"),
    locals: &["current$", "inside$"],
    lua: Template::cut(include_str!("lua/fast_path/sliding_window.lua"), SECTIONS),
};

/// The debt of an empty bucket.
fn empty(quota: &Quota) -> u64 {
    quota.capacity() * token_and_rate(quota).0
}

fn buckets(quota: &Quota) -> u64 {
    quota.buckets().unwrap_or(1).into()
}

fn expiry_unit_us(quota: &Quota) -> u64 {
    quota.period_us().max(MIN_EXPIRY_UNIT_US)
}

/// What handles the records of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Form(Form),
    /// Records of the form of a fixed window.
    CalendarWindow,
}

impl Kind {
    fn form(self) -> Form {
        match self {
            Self::Form(form) => form,
            Self::CalendarWindow => Form::FixedWindow,
        }
    }

    fn part(self) -> &'static Part {
        match self {
            Self::Form(Form::ShortBucket) => &SHORT_BUCKET,
            Self::Form(Form::Bucket) => &LONG_BUCKET,
            Self::Form(Form::SteppedBucket) => &STEPPED_BUCKET,
            Self::Form(Form::FixedWindow) => &FIXED_WINDOW,
            Self::Form(Form::SlidingWindow) => &SLIDING_WINDOW,
            Self::CalendarWindow => &CALENDAR_WINDOW,
        }
    }
}

/// The fast path of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FastPath {
    /// Those of the quotas, in order; empty if the policy has no fast path.
    kinds: Box<[Kind]>,
    has_penalty: bool,
}

impl FastPath {
    /// Empty if a quota is a log, counts denied requests, is shared by groups or admits nothing, or if there are too many quotas.
    pub(crate) fn of(policy: &Policy) -> Self {
        if policy.quotas().len() > MAX_QUOTAS {
            return Self::default();
        }
        rates(policy)
            .map(kind)
            .collect::<Option<_>>()
            .map_or_else(Self::default, |kinds| Self { kinds, has_penalty: policy.penalty().is_some() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Each part, with the number of its quota; quotas of other policies of a request have the numbers before `first`.
    fn parts(&self, first: usize) -> impl Iterator<Item = (String, &'static Part)> {
        (first..).zip(&self.kinds).map(|(number, kind)| (number.to_string(), kind.part()))
    }

    /// The arguments of the quotas of a policy with this fast path: the first arguments of a call.
    /// Also returns where the window of each quota by the calendar is to be written, with the quota's place.
    pub(super) fn arguments_of(&self, policy: &Policy) -> (Box<[u8]>, Vec<(usize, usize)>) {
        let (mut out, mut windows) = (Vec::new(), Vec::new());
        for (place, (kind, quota)) in self.kinds.iter().zip(rates(policy)).enumerate() {
            out.push(kind.form() as u8);
            out.extend_from_slice(&Tag::of(quota).0);
            for (_, bytes, value) in kind.part().arguments {
                put(&mut out, value(quota), *bytes);
            }
            if kind.part().has_window {
                windows.push((place, out.len()));
                out.extend_from_slice(&[0; 14]);
            }
        }
        (out.into(), windows)
    }

    /// The format and the variables of the arguments.
    pub(super) fn arguments(&self, first: usize) -> (String, String) {
        let (mut format, mut names) = (String::new(), String::new());
        for (number, part) in self.parts(first) {
            let arguments = part.arguments.iter().map(|(name, bytes, _)| (*name, *bytes));
            let window = [("from$", 7), ("till$", 7)].into_iter().filter(|_| part.has_window);
            for (name, bytes) in [("id$", 5)].into_iter().chain(arguments).chain(window) {
                format.extend(["I", &bytes.to_string()]);
                names.extend([&name.replace('$', &number), ", "]);
            }
        }
        (format, names)
    }

    /// The Lua that tries to decide an entry.
    pub(super) fn check(&self) -> String {
        let denied = if self.has_penalty { "" } else { DENIED };
        let (fresh, spend) = (self.each(1, |part| part.lua.before[2]), self.each(1, |part| part.lua.rest));
        let (renew, lives) = (self.each(1, |_| RENEW), self.each(1, |_| LIVES));
        CHECK.fill([&self.locals(1), &self.load(1), &fresh, &spend, denied, &self.value(1), &renew, &lives])
    }

    /// The Lua that tries to decide an entry of a key with reservations.
    pub(super) fn held(&self) -> String {
        let (fresh, spend) = (self.each(1, |part| part.lua.before[2]), self.each(1, |part| part.lua.rest));
        let (known, lives) = (self.each(1, |_| KNOWN), self.each(1, |_| LIVES));
        let value = self.value(1).replacen("local value", "value", 1);
        HELD.fill([&self.locals(1), &self.records(1, true), &known, &fresh, &spend, &value, &lives])
    }

    /// Some Lua of each part.
    fn each(&self, first: usize, lua: fn(&'static Part) -> &'static str) -> String {
        self.parts(first).map(|(number, part)| lua(part).replace('$', &number)).collect()
    }

    fn locals(&self, first: usize) -> String {
        let each = self.parts(first).map(|(number, part)| {
            let fields = part.fields.iter().map(|(_, name, _)| name);
            let names = ["found$", "until_before$", "until_after$"].iter().chain(fields);
            let names: Vec<&str> = names.chain(part.locals).chain(&part.tail).copied().collect();
            format!("local {}\n", names.join(", ").replace('$', &number))
        });
        each.collect()
    }

    /// Lua that reads the records of a key that has no others.
    fn load(&self, first: usize) -> String {
        self.records(first, false)
    }

    /// Lua that reads the records with as few calls as their lengths allow: after a tail, a new call starts at its end. Whether there
    /// may be others behind them, at `p`.
    fn records(&self, first: usize, has_others: bool) -> String {
        let (mut lua, mut loads, mut length) = (String::new(), String::new(), 0);
        let (mut names, mut format) = (Vec::new(), String::new());
        let has_tail = self.parts(first).any(|(_, part)| part.tail.is_some());
        for (at, (number, part)) in self.parts(first).enumerate() {
            let fields = part.fields.iter().map(|(bytes, name, _)| (*bytes, *name));
            for (bytes, name) in [(5, "found$")].into_iter().chain(fields) {
                names.push(name.replace('$', &number));
                format.extend(["I", &bytes.to_string()]);
                length += bytes;
            }
            loads.extend(["if found", &number, " ~= id", &number, " then\nbreak\nend\n"]);
            loads += &part.lua.before[1].replace('$', &number);
            let is_last = at + 1 == self.kinds.len();
            if is_last && !has_tail && !has_others {
                return format!(
                    "if size ~= {length} then\nbreak\nend\n{} = read('>{format}', raw)\n{loads}",
                    names.join(", ")
                );
            }
            if is_last || part.tail.is_some() {
                let (names, bytes) = (std::mem::take(&mut names).join(", "), (length - 1).to_string());
                lua.extend(["if size < p + ", &bytes, " then\nbreak\nend\n"]);
                lua.extend([&names, ", p = read('>", &format, "', raw, p)\n", &loads]);
                (loads, format, length) = (String::new(), String::new(), 0);
            }
        }
        if has_others { lua } else { lua + "if p <= size then\nbreak\nend\n" }
    }

    /// Lua that builds the new value of the key.
    fn value(&self, first: usize) -> String {
        let (mut format, mut names) = (String::new(), String::new());
        for (number, part) in self.parts(first) {
            let fields = part.fields.iter().map(|(bytes, _, written)| (*bytes, *written));
            for (bytes, written) in [(5, "id$")].into_iter().chain(fields) {
                format.extend(["I", &bytes.to_string()]);
                names.extend([", ", &written.replace('$', &number)]);
            }
            if let Some(tail) = part.tail {
                format += "c0";
                names.extend([", ", &tail.replace('$', &number)]);
            }
        }
        format!("local value = pack('>{format}'{names})\n")
    }
}

/// The fast path of the charges of a request, each of a policy with a fast path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestPath(Box<[FastPath]>);

impl RequestPath {
    /// `None` if a policy has no fast path, or if there are too many quotas.
    pub(super) fn of<'a>(paths: impl Iterator<Item = &'a FastPath>) -> Option<Self> {
        let paths: Box<[_]> = paths.cloned().collect();
        let quotas: usize = paths.iter().map(|path| path.kinds.len()).sum();
        (quotas <= MAX_REQUEST_QUOTAS && paths.iter().all(|path| !path.is_empty())).then_some(Self(paths))
    }

    /// Each path with its number and that of its first quota.
    fn numbered(&self) -> impl Iterator<Item = (String, usize, &FastPath)> {
        let mut first = 1;
        (1..).zip(&self.0).map(move |(number, path): (usize, _)| {
            let numbered = (number.to_string(), first, path);
            first += path.kinds.len();
            numbered
        })
    }

    /// The format and the variables of the arguments.
    pub(super) fn arguments(&self) -> (String, String) {
        self.numbered().map(|(_, first, path)| path.arguments(first)).unzip()
    }

    /// The Lua before the first request: the costs of its charges, and the states of all requests.
    pub(super) fn prefetch(&self) -> String {
        format!("local {}\n{PREFETCH_REQUESTS}", self.of_each("cost_@", ", "))
    }

    /// Some Lua of each charge.
    fn of_each(&self, lua: &str, between: &str) -> String {
        let of_each: Vec<_> = self.numbered().map(|(number, ..)| lua.replace('@', &number)).collect();
        of_each.join(between)
    }

    /// The Lua that tries to decide a request.
    pub(super) fn check(&self) -> String {
        let (mut read, mut write, mut penalties) = (String::new(), String::new(), String::new());
        for (number, first, path) in self.numbered() {
            let (fresh, spend) =
                (path.each(first, |part| part.lua.before[2]), path.each(first, |part| part.lua.rest));
            let (renew, lives) = (path.each(first, |_| RENEW), path.each(first, |_| LIVES));
            let charge = READ_CHARGE.fill([&path.locals(first), &path.load(first), &fresh, &spend]);
            read += &charge.replace('@', &number);
            write += &WRITE_CHARGE.fill([&path.value(first), &renew, &lives]).replace('@', &number);
            if path.has_penalty {
                penalties += &"if denied_@ then\nbreak\nend\n".replace('@', &number);
            }
        }
        // Of what follows a cost, the fast path needs nothing.
        let (costs, format) = (self.of_each("cost_@, _", ", "), self.of_each("I5I4", ""));
        let asked = "asked_at + (is_same and 0 or 9 * first)";
        let costs = format!("local _\n{costs} = read('>{format}', input, {asked})\n");
        let line = |lua: &str, between: &str| self.of_each(lua, between) + "\n";
        let denied = line("denied_@", " or ");
        let denial = line(r"(denied_@ and (raw_@ and '\2' or '\4') or (raw_@ and '\7' or '\8'))", " .. ");
        let admission = line(r"(raw_@ and '\1' or '\3')", " .. ");
        let (found, states) = (line("raw_@", " and "), line("(raw_@ or '')", " .. "));
        REQUEST.fill([&costs, &read, &denied, &penalties, &denial, &write, &found, &admission, &states])
    }
}

/// The quotas that have states; one of concurrency has none, and no check meets it.
fn rates(policy: &Policy) -> impl Iterator<Item = &Quota> {
    policy.quotas().iter().filter(|quota| quota.algorithm().is_rate())
}

/// What handles the records of a quota, if the fast path supports it.
fn kind(quota: &Quota) -> Option<Kind> {
    let form = match quota.algorithm() {
        _ if quota.limit() == 0 || quota.count_denied() || quota.is_grouped() => return None,
        Algorithm::TokenBucket if quota.step().is_some() => Form::SteppedBucket,
        Algorithm::TokenBucket | Algorithm::LeakyBucket if is_short(quota) => Form::ShortBucket,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => Form::Bucket,
        Algorithm::FixedWindow if quota.calendar().is_some() => return Some(Kind::CalendarWindow),
        Algorithm::FixedWindow => Form::FixedWindow,
        Algorithm::SlidingWindow => Form::SlidingWindow,
        _ => return None,
    };
    Some(Kind::Form(form))
}

/// Lua, cut at lines of the form `--[marker]`.
pub(super) struct Template<const MARKERS: usize> {
    /// The text before each marker.
    pub(super) before: [&'static str; MARKERS],
    /// The text after the last marker.
    pub(super) rest: &'static str,
}

impl<const MARKERS: usize> Template<MARKERS> {
    /// Fails to compile unless the source has exactly these markers, in this order.
    pub(super) const fn cut(source: &'static str, markers: [&str; MARKERS]) -> Self {
        let (mut before, mut rest, mut at) = ([""; MARKERS], source, 0);
        while at < MARKERS {
            let marker = next_marker(rest);
            assert!(marker < rest.len(), "the Lua lacks a marker");
            let (piece, found) = rest.split_at(marker);
            let name = found.split_at(3).1;
            assert!(starts_with(name, markers[at]), "the Lua has another marker here");
            let (_, after) = name.split_at(markers[at].len());
            assert!(starts_with(after, "]\n"), "the Lua has another marker here");
            (before[at], rest) = (piece, after.split_at(2).1);
            at += 1;
        }
        assert!(next_marker(rest) == rest.len(), "the Lua has one marker more");
        Self { before, rest }
    }

    /// The Lua with these texts in place of the markers.
    pub(super) fn fill(&self, texts: [&str; MARKERS]) -> String {
        let pieces = self.before.into_iter().zip(texts).flat_map(|(before, text)| [before, text]);
        pieces.chain([self.rest]).collect()
    }
}

/// Where the next marker begins; the end if there is none.
const fn next_marker(source: &str) -> usize {
    let bytes = source.as_bytes();
    let mut at = 0;
    while at + 3 <= bytes.len() {
        if bytes[at] == b'-' && bytes[at + 1] == b'-' && bytes[at + 2] == b'[' {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

const fn starts_with(text: &str, start: &str) -> bool {
    let (text, start) = (text.as_bytes(), start.as_bytes());
    let mut at = 0;
    while at < start.len() {
        if at >= text.len() || text[at] != start[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests;
