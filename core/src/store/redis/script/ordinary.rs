//! Checks that are admitted or denied by states that are found as they are expected.
//!
//! They are written out for the sequence of a policy's quotas, without loops: all numbers are read at once, all states
//! are, and all are written at once. A part for each algorithm says how, in sections that start with a comment; in it
//! `$` stands for which quota of the policy it is.

use crate::rules::codec::{Form, is_lone, is_short};
use crate::rules::policy::Policy;
use crate::rules::quota::Quota;

const LONE: &str = include_str!("lone.lua");
const LONE_ENTRY: &str = include_str!("lone_entry.lua");
pub(crate) const LONE_CHECK: &str = include_str!("lone_check.lua");
const CHECK: &str = include_str!("ordinary.lua");

/// What is read of the numbers for a lone bucket: 2^47 and the tag, token, what an empty one owes, unit of the time to
/// live, all in microseconds.
const LONE_NUMBERS: &str = "I6 base I5 one I5 empty I6 unit";

/// Longer sequences would need more variables than Lua has.
const MOST_QUOTAS: usize = 8;

/// Which ordinary checks a policy has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ordinary {
    /// None: one of its quotas is a log, counts denied requests or admits nothing.
    None,
    /// A lone bucket, whose state takes 12 bytes.
    Lone,
    /// Records of these forms, one after the other.
    Sequence(Box<[Form]>),
}

impl Ordinary {
    pub(crate) fn of(policy: &Policy) -> Self {
        let forms = || policy.quotas().iter().map(form).collect::<Option<_>>();
        match policy.quotas() {
            [quota] if is_lone(policy.quotas()) && !quota.count_denied() => Self::Lone,
            quotas if quotas.len() <= MOST_QUOTAS => forms().map_or(Self::None, Self::Sequence),
            _ => Self::None,
        }
    }

    /// How many bytes its numbers have.
    pub(crate) fn size(&self) -> u32 {
        let (format, _) = self.numbers();
        // `B` is one byte and `I5` five.
        let bytes = |letter: char| if letter == 'B' { Some(1) } else { letter.to_digit(10) };
        format.chars().filter_map(bytes).sum()
    }

    /// The format and the names of its numbers.
    fn numbers(&self) -> (String, String) {
        match self {
            Self::None => (String::new(), String::new()),
            Self::Lone => fields(LONE_NUMBERS),
            Self::Sequence(forms) => fields(&each(forms, |part| word(part, "numbers"), " ")),
        }
    }

    /// What every script starts with, where it reads these numbers.
    pub(crate) fn prologue(&self, source: &str) -> String {
        let (format, names) = self.numbers();
        let (again, names) = if names.is_empty() {
            (String::new(), names)
        } else {
            (format!("{names} = read('>{format}', input, numbers)"), format!(", {names}"))
        };
        source.replace("@again", &again).replace("@names", &names).replace("@format", &format)
    }

    /// What comes before the entries.
    pub(crate) fn before(&self) -> &'static str {
        if *self == Self::Lone { LONE } else { "" }
    }

    /// What is tried for each entry.
    pub(crate) fn check(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Lone => LONE_ENTRY.to_owned(),
            Self::Sequence(forms) => sequence(forms),
        }
    }
}

fn form(quota: &Quota) -> Option<Form> {
    let form = match quota.algorithm() {
        crate::rules::quota::Algorithm::TokenBucket if quota.step().is_some() => Form::SteppedBucket,
        crate::rules::quota::Algorithm::TokenBucket | crate::rules::quota::Algorithm::LeakyBucket
            if is_short(quota) =>
        {
            Form::ShortBucket
        }
        crate::rules::quota::Algorithm::TokenBucket | crate::rules::quota::Algorithm::LeakyBucket => {
            Form::Bucket
        }
        crate::rules::quota::Algorithm::FixedWindow => Form::FixedWindow,
        crate::rules::quota::Algorithm::SlidingWindow => Form::SlidingWindow,
        crate::rules::quota::Algorithm::SlidingLog => return None,
    };
    (quota.limit() > 0 && !quota.count_denied()).then_some(form)
}

fn part(form: Form) -> &'static str {
    match form {
        Form::ShortBucket => include_str!("ordinary/bucket.lua"),
        Form::Bucket => include_str!("ordinary/long_bucket.lua"),
        Form::SteppedBucket => include_str!("ordinary/stepped_bucket.lua"),
        Form::FixedWindow => include_str!("ordinary/fixed_window.lua"),
        Form::SlidingWindow => include_str!("ordinary/sliding_window.lua"),
    }
}

/// What follows `-- name: ` in a part.
fn word<'a>(part: &'a str, name: &str) -> &'a str {
    let found =
        part.lines().find_map(|line| line.strip_prefix("-- ")?.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or("")
}

/// The lines between `-- name` and the next comment that starts a section.
fn section<'a>(part: &'a str, name: &str) -> &'a str {
    let heading = format!("\n-- {name}\n");
    let found = part.split_once(&heading).map_or("", |(_, rest)| rest);
    found.split_once("\n-- ").map_or(found, |(section, _)| section)
}

/// Something of the part of each quota, with `$` replaced.
fn each<'a>(forms: &[Form], what: impl Fn(&'static str) -> &'a str, between: &str) -> String {
    let each =
        forms.iter().enumerate().map(|(at, form)| what(part(*form)).replace('$', &(at + 1).to_string()));
    each.collect::<Vec<_>>().join(between)
}

/// The format and the names, separated by commas, of words that are formats and names by turns.
fn fields(words: &str) -> (String, String) {
    let words: Vec<&str> = words.split_whitespace().collect();
    let names: Vec<&str> = words.iter().skip(1).step_by(2).copied().collect();
    (words.iter().step_by(2).copied().collect(), names.join(", "))
}

fn sequence(forms: &[Form]) -> String {
    let mut locals: Vec<String> = Vec::new();
    let (mut found, mut reads, mut length, mut work) = (String::new(), String::new(), 0, String::new());
    let mut packed = (String::new(), String::new());
    for (at, form) in forms.iter().enumerate() {
        let text = part(*form).replace('$', &(at + 1).to_string());
        let (size, record) = word(&text, "record").split_once(' ').unwrap_or_default();
        let (_, names) = fields(record);
        locals.extend(
            names.split(", ").chain(word(&text, "more locals").split_whitespace()).map(str::to_owned),
        );
        length += size.parse::<usize>().unwrap_or(0);
        reads = format!("{reads} {record}");
        work.push_str(section(&text, "found"));
        work.push('\n');
        // What follows a sliding window is where that says.
        if *form == Form::SlidingWindow || at + 1 == forms.len() {
            let (format, names) = fields(&reads);
            let read = format!("{names}, p = read('>{format}', raw, p)");
            found = format!("{found}if size < p + {} then\nbreak\nend\n{read}\n{work}", length - 1);
            (reads, length, work) = (String::new(), 0, String::new());
        }
        let (format, arguments) = word(&text, "packed").split_once(' ').unwrap_or_default();
        packed.0.push_str(format);
        packed.1 = format!("{}, {arguments}", packed.1);
    }
    CHECK
        .replace("@locals", &format!("local {}", locals.join(", ")))
        .replace("@found", &found)
        .replace("@fresh", &each(forms, |part| section(part, "fresh"), "\n"))
        .replace("@spend", &each(forms, |part| section(part, "spend"), "\n"))
        .replace("@known", &each(forms, |part| section(part, "known"), "\n"))
        .replace("@lives", &each(forms, |part| section(part, "lives"), "\n"))
        .replace("@packed", &format!("'>{}'{}", packed.0, packed.1))
}
