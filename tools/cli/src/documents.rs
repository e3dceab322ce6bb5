//! The document of limits: the published one, its history, and files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use polylimit::Error;
use polylimit::admin::{ConfigurationChange, ConfigurationStatus, PublishOptions, PublishedDocument};
use polylimit::blocking::Limiter;
use polylimit::raw::{canonical_document, time_text};
use serde::Serialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::arguments::{GlobalOptions, ImportSource, PoliciesCommand, RequiredAuthor, Spend};
use crate::exit::{Exit, Failure};
use crate::import::EnvoyImport;
use crate::output::table;
use crate::terminal::Terminal;

/// How many unchanged lines stand around a difference.
const CONTEXT: usize = 3;

#[derive(Serialize)]
struct DocumentReport<'a> {
    document_version: u64,
    digest: &'a str,
    document: &'a Value,
    /// As its author has written it.
    text: &'a str,
}

#[derive(Serialize)]
struct ValidityReport<'a> {
    file: &'a Path,
    valid: bool,
    error: Option<&'a str>,
    /// What can be used, and does not do what it seems to.
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct DifferenceReport {
    equal: bool,
    difference: String,
}

pub(crate) fn run(
    options: &GlobalOptions,
    command: &PoliciesCommand,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    match command {
        PoliciesCommand::Get { version } => get(options, *version, terminal),
        PoliciesCommand::Put { file, expect, author } => put(options, file, *expect, author, terminal),
        PoliciesCommand::Diff { file, other, version } => {
            let file = file
                .as_deref()
                .or(options.policies.as_deref())
                .ok_or_else(|| Failure::usage("no document is named: give its file, or set --policies"))?;
            diff(options, file, other.as_deref(), *version, terminal)
        }
        PoliciesCommand::Validate { files } => validate(options, files, terminal),
        PoliciesCommand::History { most } => history(options, *most, terminal),
        PoliciesCommand::Rollback { version, author } => rollback(options, *version, author, terminal),
        PoliciesCommand::Import { from: ImportSource::EnvoyRatelimit, spend, files } => {
            let document = imported(files, *spend, terminal)?;
            let canonical = canonical_document(&document)?;
            if options.json {
                terminal.json(&parse(&canonical)?)?;
            } else {
                terminal.write(document.as_bytes())?;
            }
            Ok(Exit::Fine)
        }
    }
}

fn get(options: &GlobalOptions, version: Option<u64>, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let published = published(&options.publishing_limiter()?, version)?;
    if options.json {
        let PublishedDocument { document_version, digest, text, .. } = &published;
        terminal.json(&DocumentReport {
            document_version: *document_version,
            digest,
            document: &parse(&published.document)?,
            text,
        })?;
    } else {
        // As it is: an escape would make it another document.
        terminal.write(published.text.as_bytes())?;
        if !published.text.ends_with('\n') {
            terminal.write(b"\n")?;
        }
    }
    Ok(Exit::Fine)
}

fn put(
    options: &GlobalOptions,
    file: &Path,
    expected: u64,
    author: &RequiredAuthor,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let text = read(file)?;
    check_file(file, &text)?;
    let limiter = options.publishing_limiter()?;
    let publication = PublishOptions::default().expected_version(expected).by(&author.by).why(&author.why);
    match limiter.admin().publish(&text, publication) {
        Ok(status) => report(options, &status, terminal),
        Err(error) => {
            // Another version than the expected one is a difference and no wrong usage.
            let there =
                limiter.admin().published_document(None)?.map_or(0, |published| published.document_version);
            let failure = Failure::from(error);
            let is_conflict = failure.exit == Exit::Usage && there != expected;
            Err(if is_conflict { Failure::new(Exit::Problem, failure.message) } else { failure })
        }
    }
}

fn rollback(
    options: &GlobalOptions,
    version: u64,
    author: &RequiredAuthor,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let limiter = options.publishing_limiter()?;
    let publication = PublishOptions::default().by(&author.by).why(&author.why);
    report(options, &limiter.admin().rollback(version, publication)?, terminal)
}

fn report(
    options: &GlobalOptions,
    status: &ConfigurationStatus,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    if options.json {
        terminal.json(status)?;
    } else {
        terminal.line(format_args!("version {} of the configuration is active", status.version))?;
    }
    Ok(Exit::Fine)
}

fn diff(
    options: &GlobalOptions,
    file: &Path,
    other: Option<&Path>,
    version: Option<u64>,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let (before, after) = match other {
        Some(other) => (document(file)?, document(other)?),
        None => (parse(&published(&options.publishing_limiter()?, version)?.document)?, document(file)?),
    };
    let [before, after] = [before, after].map(|document| format!("{document:#}\n"));
    let equal = before == after;
    let difference = TextDiff::from_lines(&before, &after);
    if options.json {
        let difference =
            if equal { String::new() } else { difference.unified_diff().context_radius(CONTEXT).to_string() };
        terminal.json(&DifferenceReport { equal, difference })?;
    } else {
        for hunk in difference.unified_diff().context_radius(CONTEXT).iter_hunks() {
            terminal.line(hunk.header())?;
            for change in hunk.iter_changes() {
                let (sign, colour) = match change.tag() {
                    ChangeTag::Equal => (' ', None),
                    ChangeTag::Delete => ('-', Some(31)),
                    ChangeTag::Insert => ('+', Some(32)),
                };
                let line = format!("{sign}{}", change.value().trim_end_matches('\n'));
                terminal.coloured(colour, line)?;
            }
        }
    }
    Ok(if equal { Exit::Fine } else { Exit::Problem })
}

fn validate(
    options: &GlobalOptions,
    files: &[impl AsRef<Path>],
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Fine;
    for file in files {
        let file = file.as_ref();
        let text = read(file)?;
        let error = check(&text).err();
        let warnings =
            if error.is_none() { warnings(&parse(&canonical_document(&text)?)?) } else { Vec::new() };
        if error.is_some() {
            exit = Exit::Problem;
        }
        if options.json {
            let error = error.as_ref().map(Error::message);
            terminal.json(&ValidityReport { file, valid: error.is_none(), error, warnings })?;
        } else {
            let verdict = error.as_ref().map_or("fine", Error::message);
            terminal.line(format_args!("{}: {verdict}", file.display()))?;
            for warning in warnings {
                terminal.line(format_args!("{}: warning: {warning}", file.display()))?;
            }
        }
    }
    Ok(exit)
}

/// What a document can say, and hardly means: no policies, rules that are never reached, a time zone that nothing goes by, ends that
/// are over, policies that nothing uses.
fn warnings(document: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let is_empty = |value: &Value| fields(value).is_empty();
    if document["policies"].is_null() && document["enabled"] != Value::Bool(false) {
        let warning = "there are no policies: the document is refused in place of one that has some; write an empty table if none are \
                       wanted";
        warnings.push(warning.to_owned());
    }
    let rules = list(&document["rules"]);
    let matches_all = |rule: &Value| {
        is_empty(&rule["match"]) && is_empty(&rule["unless"]) && rule["continue"] != Value::Bool(true)
    };
    if let Some(at) = rules.iter().position(matches_all)
        && at + 1 < rules.len()
    {
        let after = if at + 2 == rules.len() {
            format!("rule {} is", at + 2)
        } else {
            format!("rules {} to {} are", at + 2, rules.len())
        };
        warnings.push(format!("{after} never reached: rule {} matches every request", at + 1));
    }
    let goes_by_clock =
        |rule: &Value| [&rule["match"], &rule["unless"]].iter().any(|when| !when["during"].is_null());
    for name in ["utc_offset", "zone"] {
        if !document[name].is_null() && !rules.iter().any(goes_by_clock) {
            warnings.push(format!("{name} has no effect: no rule has during"));
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = time_text(u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
    // Times of one form are in the order of their texts.
    let is_over = |until: &str| until.ends_with('Z') && *until < *now;
    for name in ["deny", "allow"] {
        for item in list(&document["lists"][name]) {
            let item = item.as_str().unwrap_or_default();
            if item.rsplit_once(" until ").is_some_and(|(_, until)| is_over(until)) {
                warnings.push(format!("the item {item:?} of lists.{name} is over: it has no effect"));
            }
        }
    }
    let policies = fields(&document["policies"]);
    for (name, policy) in &policies {
        for (key, numbers) in fields(&policy["overrides"]) {
            if numbers["until"].as_str().is_some_and(is_over) {
                warnings.push(format!("the override of {key:?} in policy {name} is over: it has no effect"));
            }
        }
    }
    let applied: Vec<Value> =
        rules.iter().flat_map(|rule| list(&rule["apply"])).map(|one| one["policy"].clone()).collect();
    let pools: Vec<&Value> = policies.values().map(|policy| &policy["elastic"]["policy"]).collect();
    for name in policies.keys() {
        let name_value = Value::from(name.as_str());
        if !rules.is_empty() && !applied.contains(&name_value) && !pools.contains(&&name_value) {
            warnings.push(format!("no rule applies the policy {name}: only programs that name it use it"));
        }
    }
    warnings
}

fn history(options: &GlobalOptions, most: usize, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let changes = options.publishing_limiter()?.admin().configuration_history(most)?;
    let mut rows = table(["version", "time", "by", "change", "why"]);
    for change in &changes {
        if options.json {
            terminal.json(change)?;
        }
        let ConfigurationChange { version, at_ms, by, why, document_version, entries, .. } = change;
        let change_of = |(entry, value): &(Box<str>, Option<Box<str>>)| {
            format!("{} {entry}", if value.is_some() { "set" } else { "removed" })
        };
        let document = document_version.iter().map(|version| format!("document {version}"));
        let what = document.chain(entries.iter().map(change_of)).collect::<Vec<_>>().join("; ");
        rows.add_row([&version.to_string(), &time_text(at_ms * 1_000), &**by, &what, &**why]);
    }
    if !options.json {
        terminal.table(&rows)?;
    }
    Ok(Exit::Fine)
}

fn published(limiter: &Limiter, version: Option<u64>) -> Result<PublishedDocument, Failure> {
    limiter.admin().published_document(version)?.ok_or_else(|| {
        Failure::new(
            Exit::Problem,
            match version {
                Some(version) => format!("document {version} does not exist: allowed is one of the last 32, which the history lists"),
                None => "no document is published in this store: publish one with `polylimit policies put`".to_owned(),
            },
        )
    })
}

fn imported(files: &[PathBuf], spend: Spend, terminal: &mut Terminal) -> Result<String, Failure> {
    let mut import = EnvoyImport::new(spend);
    let mut mistakes = Vec::new();
    for file in files {
        let named = |message: &str| {
            message.lines().map(|line| format!("{}: {line}", file.display())).collect::<Vec<_>>()
        };
        mistakes.extend(import.add(&read(file)?).err().map(|message| named(&message)).unwrap_or_default());
    }
    if !mistakes.is_empty() {
        return Err(Failure::usage(mistakes.join("\n")));
    }
    for left_out in &import.left_out {
        terminal.complain(left_out);
    }
    Ok(import.document())
}

/// The document of a file.
fn document(file: &Path) -> Result<Value, Failure> {
    let canonical = canonical_document(&read(file)?);
    parse(&canonical.map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?)
}

fn parse(canonical: &str) -> Result<Value, Failure> {
    serde_json::from_str(canonical).map_err(|error| {
        Failure::new(Exit::Undecided, format!("the document in the store is no JSON: {error}"))
    })
}

/// The text of a file; `-` is the standard input.
fn read(file: &Path) -> Result<String, Failure> {
    if file.as_os_str() == "-" {
        return io::read_to_string(io::stdin()).map_err(|error| Failure::of_file(file, &error));
    }
    fs::read_to_string(file).map_err(|error| Failure::of_file(file, &error))
}

/// Refuses a file without a document that a limiter would take.
#[cfg(feature = "serve")]
pub(crate) fn validate_file(file: &Path) -> Result<(), Failure> {
    check_file(file, &read(file)?)
}

fn check_file(file: &Path, text: &str) -> Result<(), Failure> {
    check(text).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

/// Checks all that a limiter would refuse.
fn check(text: &str) -> Result<(), Error> {
    polylimit::Limiter::builder().document(text).build().map(drop)
}
