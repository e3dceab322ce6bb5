//! Policy documents and entries in Redis, and copies of them: the newer build publishes what the older one cannot read.

use polylimit_test_servers::{Kind, Server};

use crate::trial::{Build, Totals, Trial, patient};
use crate::work::{Command, Setup};

const LIMIT: u64 = 60;
const KEYS: [&str; 2] = ["a", "b"];
/// What both builds read.
const PLAIN: &str = "polylimit = 1\n[policies.api]\nquotas = \"60/52w token_bucket\"\noutage = \"deny\"\n";
const AGAIN: &str = "polylimit = 1\n# again\n[policies.api]\nquotas = \"60/52w token_bucket\"\noutage = \"deny\"\n[policies.other]\nquotas = \"5/day\"\n";
/// What only the newer build reads: another version, and a field that it has added.
const NEWER: [(&str, &str, &str); 2] = [
    (
        "another version",
        "polylimit = 2\n[policies.api]\nquotas = \"60/52w token_bucket\"\noutage = \"deny\"\n",
        "polylimit is 2",
    ),
    (
        "an added field",
        "polylimit = 1\nlater = true\n[policies.api]\nquotas = \"60/52w token_bucket\"\noutage = \"deny\"\n",
        "later",
    ),
];

fn decide(requests: usize) -> Command {
    Command::Decide { policies: vec!["api".to_owned()], keys: KEYS.map(str::to_owned).to_vec(), requests }
}

fn wait(version: u64) -> Command {
    Command::Wait { version, error: String::new() }
}

fn wait_for_error(error: &str) -> Command {
    Command::Wait { version: 0, error: error.to_owned() }
}

pub(crate) fn run(trial: &mut Trial) {
    for (what, document, error) in NEWER {
        published(trial, what, document, error);
    }
    entry(trial);
}

/// The older build keeps the last document that it can read while both decide, and a process of it that starts waits for one.
fn published(trial: &mut Trial, what: &str, document: &str, error: &str) {
    let (server, folder) = (Server::start(Kind::Redis, &[]), tempfile::tempdir().unwrap());
    let copy = folder.path().join("copy").display().to_string();
    let setup = Setup { store: patient(&server), configuration: "store".to_owned(), ..Setup::default() };
    let with_copy =
        Setup { store: patient(&server), configuration: "store".to_owned(), copy, ..Setup::default() };
    let mut older = trial.start(Build::Older, &setup, 1);
    let mut newer = trial.start(Build::Newer, &with_copy, 1);
    let published = older.ask(&Command::Publish { document: PLAIN.to_owned(), expected: 0 });
    let both = [older.ask(&wait(1)), newer.ask(&wait(1))];
    let holds = published.error.is_empty() && both.iter().all(|answer| answer.document_version == 1);
    trial.case(&format!("{what}: both builds have the first document"), holds, || {
        format!("{published:?}, {both:?}")
    });
    let mut totals = Totals::default();
    totals.decide(&mut [&mut older, &mut newer], &decide(3));

    let published = newer.ask(&Command::Publish { document: document.to_owned(), expected: 1 });
    let has_it = newer.ask(&wait(2));
    trial.case(
        &format!("{what}: the newer build publishes it"),
        published.error.is_empty() && has_it.document_version == 2,
        || format!("{published:?}, {has_it:?}"),
    );
    totals.decide(&mut [&mut older, &mut newer], &decide(4));
    let kept = older.ask(&wait_for_error(error));
    trial.case(
        &format!("{what}: the older build keeps the last document, and says why"),
        kept.error.contains(error) && kept.document_version == 1,
        || format!("{kept:?}"),
    );
    totals.decide(&mut [&mut older, &mut newer], &decide(12));

    // A process that starts now, without and with a copy that the newer build has written.
    for (from, setup) in [("Redis", &setup), ("a copy", &with_copy)] {
        let mut started = trial.start(Build::Older, setup, 1);
        let refused = started.ask(&wait_for_error(error));
        let mut none = Totals::default();
        none.decide(&mut [&mut started], &decide(1));
        let holds =
            refused.error.contains(error) && refused.document_version == 0 && none.admitted().is_empty();
        let name = format!("{what}: an older process that starts from {from} admits nothing, and says why");
        trial.case(&name, holds, || format!("{refused:?}, {none:?}"));
        started.end();
    }
    let admitted = totals.admitted();
    let units = KEYS.map(|key| admitted.get(&format!("api {key}")).copied().unwrap_or_default());
    let holds = units == [LIMIT; 2] && totals.all_errors().is_empty();
    trial.case(&format!("{what}: units"), holds, || format!("{totals:?}"));

    let published = newer.ask(&Command::Publish { document: AGAIN.to_owned(), expected: 2 });
    let both = [older.ask(&wait(3)), newer.ask(&wait(3))];
    let holds = published.error.is_empty() && both.iter().all(|answer| answer.document_version == 3);
    trial.case(&format!("{what}: both builds have the next document"), holds, || {
        format!("{published:?}, {both:?}")
    });
    older.end();
    newer.end();
}

/// An entry with a field that the newer build has added denies in the older one as well.
fn entry(trial: &mut Trial) {
    let server = Server::start(Kind::Redis, &[]);
    let setup = Setup { store: patient(&server), configuration: "store".to_owned(), ..Setup::default() };
    let mut older = trial.start(Build::Older, &setup, 1);
    let mut newer = trial.start(Build::Newer, &setup, 1);
    older.ask(&Command::Publish { document: PLAIN.to_owned(), expected: 0 });
    newer.ask(&wait(1));
    let set = newer.ask(&Command::SetEntry {
        entry: "deny key api a".to_owned(),
        value: r#"{"later": true}"#.to_owned(),
    });
    newer.ask(&wait(2));
    let seen = older.ask(&wait_for_error("later"));
    let mut totals = Totals::default();
    totals.decide(&mut [&mut older, &mut newer], &decide(2));
    let admitted: Vec<String> = totals.admitted().into_keys().collect();
    let holds = set.error.is_empty() && seen.error.contains("later") && admitted == ["api b"];
    trial.case(
        "an entry with an added field: both builds deny what it denies, and the older one says why",
        holds,
        || format!("{set:?}, {seen:?}, {totals:?}"),
    );
    older.end();
    newer.end();
}
