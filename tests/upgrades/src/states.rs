//! States: in Redis, in a local file of the same version, and in a local file of another one.
//!
//! The newer build writes fixed windows in a form of its own, which it may not do within a major version, and adds a record to each key,
//! which it may.

use std::collections::BTreeMap;

use polylimit_test_servers::{Kind, Server};

use crate::trial::{Build, Process, Totals, Trial, patient};
use crate::work::{Command, SLOTS, Setup, WINDOW};

/// The policies whose states both builds read, and the one whose states only the newer one reads. The periods are so long that
/// nothing is refilled during a trial.
const SHARED: [(&str, &str); 4] = [
    ("bucket", "60/52w token_bucket"),
    ("sliding", "60/52w"),
    ("log", "60/52w sliding_log"),
    (SLOTS, "60/52w token_bucket; 500 concurrent"),
];
const CHANGED: (&str, &str) = (WINDOW, "60/52w fixed_window");
/// Its keys live for seconds, but for the record that the newer build adds, which is to be kept for a day.
const BRIEF: (&str, &str) = ("brief", "1000000/s token_bucket");
const LIMIT: u64 = 60;
const KEYS: [&str; 3] = ["a", "b", "c"];
const DAY_MS: i64 = 86_400_000;
/// The form of the record that the newer build adds.
const ADDED: u8 = 11;

/// The order in which the builds start and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    OlderFirst,
    NewerFirst,
    Both,
}

const ORDERS: [Order; 3] = [Order::OlderFirst, Order::NewerFirst, Order::Both];

pub(crate) fn run(trial: &mut Trial) {
    for order in ORDERS {
        let server = Server::start(Kind::Redis, &[]);
        let mut added = Added::default();
        let totals = upgrade(trial, &patient(&server), order, || added.look(&server));
        shared_states(trial, &format!("Redis, {order:?}"), &totals);
        let holds = added.records.len() == 4 * KEYS.len() && added.wrong.is_empty();
        trial.case(&format!("Redis, {order:?}: added records are kept"), holds, || format!("{added:?}"));
    }
    for order in ORDERS {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("file://{}", folder.path().join("store").display());
        let totals = upgrade(trial, &store, order, || {});
        shared_states(trial, &format!("local file, {order:?}"), &totals);
    }
    for order in [Order::OlderFirst, Order::NewerFirst] {
        other_version(trial, order);
    }
}

fn setup(store: &str) -> Setup {
    let policies = SHARED.into_iter().chain([CHANGED, BRIEF]);
    let policies = policies.map(|(name, quotas)| (name.to_owned(), quotas.to_owned())).collect();
    Setup { store: store.to_owned(), policies, ..Setup::default() }
}

/// Less than the limit in each part with one process, and more in all.
fn decide(requests: usize) -> Command {
    Command::Decide {
        policies: SHARED.into_iter().chain([CHANGED, BRIEF]).map(|(name, _)| name.to_owned()).collect(),
        keys: KEYS.map(str::to_owned).to_vec(),
        requests,
    }
}

/// Two processes of one build, then all four, then two of the other build. `look` is called after each part.
fn upgrade(trial: &Trial, store: &str, order: Order, mut look: impl FnMut()) -> Totals {
    let (first, second) = match order {
        Order::NewerFirst => (Build::Newer, Build::Older),
        _ => (Build::Older, Build::Newer),
    };
    let start = |build| [(); 2].map(|()| trial.start(build, &setup(store), 1));
    let mut totals = Totals::default();
    let mut before = start(first);
    if order != Order::Both {
        let [one, two] = &mut before;
        totals.decide(&mut [one, two], &decide(3));
        look();
    }
    let mut after = start(second);
    for _ in 0..2 {
        let ([one, two], [three, four]) = (&mut before, &mut after);
        totals.decide(&mut [one, two, three, four], &decide(4));
        look();
    }
    before.into_iter().for_each(Process::end);
    let [three, four] = &mut after;
    totals.decide(&mut [three, four], &decide(12));
    look();
    after.into_iter().for_each(Process::end);
    totals
}

/// What has to hold where both builds use one store: each key is admitted exactly its limit, and nothing is refused but what the older
/// build cannot read.
fn shared_states(trial: &mut Trial, name: &str, totals: &Totals) {
    let admitted = totals.admitted();
    for (policy, _) in SHARED.into_iter().chain([CHANGED]) {
        let units = KEYS.map(|key| admitted.get(&format!("{policy} {key}")).copied().unwrap_or_default());
        let holds = units == [LIMIT; 3];
        trial.case(&format!("{name}: units of {policy}"), holds, || format!("{units:?}, {totals:?}"));
    }
    let holds =
        totals.newer.degraded.is_empty() && totals.newer.errors.is_empty() && totals.older.errors.is_empty();
    let newer = format!("{name}: the newer build reads everything");
    trial.case(&newer, holds, || format!("{totals:?}"));
    let refused: Vec<&String> = totals.older.degraded.keys().collect();
    let older = format!("{name}: the older build refuses what it cannot read, and says why");
    trial.case(&older, refused == ["window newer_format"], || format!("{:?}", totals.older.degraded));
}

/// The records that the newer build has added, as they were first seen.
#[derive(Debug, Default)]
struct Added {
    records: BTreeMap<String, Vec<u8>>,
    wrong: Vec<String>,
}

impl Added {
    /// Looks at the records: each stays as it was, and its key lives as long as it names.
    fn look(&mut self, server: &Server) {
        for (policy, key) in
            ["bucket", "sliding", "window", BRIEF.0].iter().flat_map(|p| KEYS.map(|k| (p, k)))
        {
            let name = format!("polylimit:1:{policy}:{{{key}}}");
            let state: Vec<u8> = server.query::<Option<Vec<u8>>>(&["GET", &name]).unwrap_or_default();
            // Its form, the tag of a record of no quota, and its length.
            let head = [ADDED, 0, 0, 0, 0, 0, 0, 14];
            let record = state.windows(head.len() + 14).find(|bytes| bytes.starts_with(&head));
            let expected = self.records.get(&name).map(Vec::as_slice);
            if expected.is_some() && record != expected {
                self.wrong.push(format!("{name} had {expected:?}, and has {record:?}"));
            }
            if let Some(record) = record {
                self.records.insert(name.clone(), record.to_vec());
                let lives_ms: i64 = server.query(&["PTTL", &name]);
                if lives_ms < DAY_MS - 3_600_000 {
                    self.wrong.push(format!("{name} lives for {lives_ms} ms"));
                }
            }
        }
    }
}

/// Local files of two versions: the processes of the build that comes second are refused, and the file stays as it is.
fn other_version(trial: &mut Trial, order: Order) {
    let builds = [Build::Older, Build::Newer];
    let [first, second] = if order == Order::OlderFirst { builds } else { [builds[1], builds[0]] };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = format!("file://{}", path.display());
    let mut before = trial.start(first, &setup(&store), 2);
    let (mut totals, mut refused) = (Totals::default(), Totals::default());
    totals.decide(&mut [&mut before], &decide(3));
    let mut after = trial.start(second, &setup(&store), 2);
    for _ in 0..2 {
        let command = decide(12);
        before.send(&command);
        refused.decide(&mut [&mut after], &command);
        totals.take(&mut before);
    }
    before.end();
    refused.decide(&mut [&mut after], &decide(1));
    let name = format!("local files of two versions, {order:?}");
    let admitted = totals.admitted();
    for (policy, _) in SHARED.into_iter().chain([CHANGED]) {
        let units = KEYS.map(|key| admitted.get(&format!("{policy} {key}")).copied().unwrap_or_default());
        trial.case(&format!("{name}: units of {policy}"), units == [LIMIT; 3], || format!("{totals:?}"));
    }
    let (found, own) = if first == Build::Newer { (2, 1) } else { (1, 2) };
    let expected = format!("it has version {found} and this is a polylimit of version {own}");
    let errors = refused.all_errors();
    let holds = refused.admitted().is_empty() && !errors.is_empty();
    let holds = holds && errors.iter().all(|error| error.contains(&expected));
    trial.case(&format!("{name}: refused, with the versions"), holds, || format!("{refused:?}"));
    // What the error advises.
    std::fs::remove_file(&path).unwrap();
    let mut totals = Totals::default();
    totals.decide(&mut [&mut after], &decide(3));
    let holds = totals.all_errors().is_empty() && !totals.admitted().is_empty();
    trial.case(&format!("{name}: a new file after the old one is removed"), holds, || format!("{totals:?}"));
    after.end();
}
