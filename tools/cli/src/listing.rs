//! The keys that a store has.

use std::ffi::OsStr;
use std::time::Instant;

use polylimit::admin::{KeyFilter, KeyName, ListBudget, ListedKey, ListedQuota};
use polylimit::blocking::Limiter;

use crate::arguments::{GlobalOptions, ListArguments, ScanOptions, TopArguments};
use crate::exit::{Exit, Failure};
use crate::output::{Rows, duration, table};
use crate::progress::Progress;
use crate::terminal::Terminal;

/// How many keys a store is asked for at a time.
const PAGE: usize = 1_000;
/// How many keys a store goes over between two looks at how far the list is.
const EXAMINED_AT_ONCE: u64 = 10_000;

pub(crate) fn list(
    options: &GlobalOptions,
    arguments: &ListArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let limiter = options.limiter_for_keys(arguments.policy.as_deref())?;
    let filter =
        filter(arguments.policy.as_deref(), arguments.prefix.as_deref()).at_least_used(arguments.used);
    let mut rows = rows();
    let mut left = arguments.most;
    // A number and no share: a store does not know beforehand how many keys it will examine. Lines on the same terminal are progress
    // enough.
    let is_shown = !(options.json && terminal.shows_output());
    let progress = is_shown.then(|| Progress::new(terminal, "examined {pos} keys", None));
    let told = |examined| progress.iter().for_each(|progress| progress.set(examined));
    let mut has_more = false;
    let is_whole = walk(&limiter, &filter, &arguments.scan, told, &mut |key| {
        if arguments.blocked && key.blocked_for_us == 0 {
            return Ok(true);
        }
        // One more than is shown: then there are more.
        has_more = left == 0;
        if has_more {
            return Ok(false);
        }
        left -= 1;
        show(options, key, &mut rows, terminal)?;
        Ok(!terminal.is_closed())
    })?;
    drop(progress);
    let exit = finish(options, &rows, is_whole, &arguments.scan, terminal)?;
    if has_more {
        terminal.complain(&format!("{} keys are shown, and there are more: raise --most", arguments.most));
    }
    Ok(exit)
}

pub(crate) fn top(
    options: &GlobalOptions,
    arguments: &TopArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let limiter = options.limiter_for_keys(arguments.policy.as_deref())?;
    let filter = filter(arguments.policy.as_deref(), arguments.prefix.as_deref());
    let started = Instant::now();
    let progress = Progress::new(terminal, "examining keys for {pos} s", None)
        .following(move || started.elapsed().as_secs());
    let page = limiter.admin().scan_top(&filter, arguments.most, &arguments.scan.budget())?;
    drop(progress);
    let mut rows = rows();
    for key in &page.keys {
        show(options, key, &mut rows, terminal)?;
    }
    finish(options, &rows, page.cursor.is_none(), &arguments.scan, terminal)
}

fn filter<'a>(policy: Option<&'a str>, prefix: Option<&'a OsStr>) -> KeyFilter<'a> {
    let filter = KeyFilter::default();
    let filter = match policy {
        Some(policy) => filter.policy(policy),
        None => filter,
    };
    match prefix {
        Some(prefix) => filter.key_prefix(prefix.as_encoded_bytes()),
        None => filter,
    }
}

/// Hands on each key of a list until `take` has enough; returns whether the list was not ended by its budget.
fn walk(
    limiter: &Limiter,
    filter: &KeyFilter<'_>,
    scan: &ScanOptions,
    told: impl Fn(u64),
    take: &mut dyn FnMut(&ListedKey) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let (mut examined, mut cursor) = (0, None);
    while examined < scan.examine {
        let budget = scan.budget().entries(PAGE).examined(EXAMINED_AT_ONCE.min(scan.examine - examined));
        let page = limiter.admin().list(filter, &budget, cursor.as_deref())?;
        for key in &page.keys {
            if !take(key)? {
                return Ok(true);
            }
        }
        examined += page.examined;
        told(examined);
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn rows() -> Rows {
    table(["policy", "key", "used", "of", "blocked for", "expires in"])
}

fn show(
    options: &GlobalOptions,
    key: &ListedKey,
    rows: &mut Rows,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    if options.json {
        return terminal.json(key);
    }
    let of_quota = |quota: &ListedQuota| format!("{} of {}", quota.used, quota.quota);
    let of = key.quotas.iter().map(of_quota).collect::<Vec<_>>().join("; ");
    // Of a blocked key everything counts as used, whatever its quotas have left.
    let is_counted = !key.quotas.is_empty() && key.blocked_for_us == 0;
    let used = if is_counted { format!("{}%", key.used_percent) } else { String::new() };
    let blocked = if key.blocked_for_us > 0 { duration(key.blocked_for_us) } else { String::new() };
    let expires = key.expires_after_us.map(duration).unwrap_or_default();
    rows.add_row([&*key.policy, &key_text(&key.key), &used, &of, &blocked, &expires]);
    Ok(())
}

fn finish(
    options: &GlobalOptions,
    rows: &Rows,
    is_whole: bool,
    scan: &ScanOptions,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    if !options.json {
        terminal.table(rows)?;
    }
    if !is_whole {
        terminal.complain(&format!(
            "stopped after {} examined keys, and there are more: raise --examine",
            scan.examine
        ));
        return Ok(Exit::Undecided);
    }
    Ok(Exit::Fine)
}

/// A key as the terminal shows it: `#` and hexadecimal digits of a digest. Its writer escapes it.
pub(crate) fn key_text(key: &KeyName) -> String {
    match key {
        KeyName::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        KeyName::Digest(digest) => {
            digest.iter().fold("#".to_owned(), |text, byte| format!("{text}{byte:02x}"))
        }
    }
}

impl ScanOptions {
    /// A page within these bounds.
    pub(crate) fn budget(&self) -> ListBudget {
        ListBudget::default().examined(self.examine).pace_percent(self.pace)
    }
}
