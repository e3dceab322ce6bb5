//! The contract of stores finds those that break it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polylimit::admin::PublishOptions;
use polylimit::clock::ManualClock;
use polylimit::decision::Degradation;
use polylimit::storage::{
    Change, ConfigurationStore, Decide, Load, Outage, Replace, Store, StoredConfiguration, Update,
    configuration_contract, contract,
};
use polylimit::{Decision, Error, Limiter, Policy, Request, blocking};

/// Much longer than a change takes to arrive.
const SOON: Duration = Duration::from_secs(60);

type States = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// A name ends at its first zero.
    CutsNames,
    /// A state has at most 1,000 bytes.
    CutsStates,
    /// What is removed stays.
    KeepsRemoved,
    /// Other transactions run between the read and the write.
    LosesUpdates,
    /// A transaction writes one state after the other.
    ShowsParts,
    /// Each opening has states of its own.
    SharesNothing,
    /// It decides, and writes nothing.
    WritesNothing,
    /// It does not ask what becomes of the states.
    DoesNotDecide,
    /// Every third transaction fails.
    Fails,
}

#[derive(Clone, Debug)]
struct Map {
    states: Arc<Mutex<States>>,
    transactions: Arc<Mutex<u64>>,
    defect: Defect,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Map {
    fn open(defect: Defect, shared: &Arc<Mutex<States>>) -> Self {
        let states = if defect == Defect::SharesNothing { Arc::default() } else { Arc::clone(shared) };
        Self { states, transactions: Arc::default(), defect }
    }

    fn name(&self, name: &[u8]) -> Vec<u8> {
        let cut = if self.defect == Defect::CutsNames { name.split(|byte| *byte == 0).next() } else { None };
        cut.unwrap_or(name).to_vec()
    }

    fn write(&self, states: &mut States, name: &[u8], change: Change) {
        match change {
            Change::Put { mut state, .. } => {
                if self.defect == Defect::CutsStates {
                    state.truncate(1_000);
                }
                drop(states.insert(self.name(name), state));
            }
            Change::Remove if self.defect != Defect::KeepsRemoved => drop(states.remove(&self.name(name))),
            Change::Keep | Change::Remove => {}
        }
    }

    fn transact(&self, names: &[Vec<u8>], decide: Decide<'_>) -> Result<(), &'static str> {
        let number = {
            let mut transactions = lock(&self.transactions);
            *transactions += 1;
            *transactions
        };
        if self.defect == Defect::Fails && number.is_multiple_of(3) {
            return Err("it fails");
        }
        let read = |states: &States| -> Vec<_> {
            names.iter().map(|name| states.get(&self.name(name)).cloned()).collect()
        };
        let mut states = lock(&self.states);
        let found = read(&states);
        match self.defect {
            Defect::DoesNotDecide => {}
            Defect::WritesNothing => drop(decide(&found)),
            Defect::LosesUpdates => {
                drop(states);
                std::thread::yield_now();
                let changes = decide(&found);
                let mut states = lock(&self.states);
                for (name, change) in names.iter().zip(changes) {
                    self.write(&mut states, name, change);
                }
            }
            Defect::ShowsParts => {
                // Each state is read and written by itself.
                drop(states);
                let mut found = found;
                for at in 0..names.len() {
                    let mut states = lock(&self.states);
                    found[at] = states.get(&names[at]).cloned();
                    let change = decide(&found).swap_remove(at);
                    self.write(&mut states, &names[at], change);
                    drop(states);
                    std::thread::yield_now();
                }
            }
            _ => {
                for (name, change) in names.iter().zip(decide(&found)) {
                    self.write(&mut states, name, change);
                }
            }
        }
        Ok(())
    }
}

impl Store for Map {
    fn place(&self) -> String {
        "a map".to_owned()
    }

    fn update<'a>(&'a self, names: &'a [Vec<u8>], decide: Decide<'a>) -> Update<'a> {
        Box::pin(async move { self.transact(names, decide).map_err(Into::into) })
    }

    fn after_fork(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }
}

#[test]
fn defects_are_found() {
    for (defect, expected) in [
        (Defect::None, ""),
        (Defect::CutsNames, "states that were put: expected"),
        (Defect::CutsStates, "states that were put: expected"),
        (Defect::KeepsRemoved, "states of which one was replaced and one removed: expected"),
        (Defect::LosesUpdates, "transactions at a time some were lost"),
        // Which of the two is seen first depends on the threads.
        (Defect::ShowsParts, "transaction"),
        (Defect::SharesNothing, "transactions at a time some were lost"),
        (Defect::WritesNothing, "states that were put: expected"),
        (Defect::DoesNotDecide, "a transaction has not called decide"),
        (Defect::Fails, "a transaction failed: it fails"),
    ] {
        let shared = Arc::default();
        let found = contract(|| Map::open(defect, &shared)).err().unwrap_or_default();
        assert!(
            if expected.is_empty() { found.is_empty() } else { found.contains(expected) },
            "{defect:?}: {found}"
        );
    }
}

/// What a store of a configuration does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// It replaces whatever is there.
    IgnoresTheExpectation,
    /// Others replace it between the check and the change.
    LosesReplacements,
    /// A content ends at its first zero.
    CutsContent,
    /// It returns what is known.
    ReturnsKnown,
    /// Each opening has a configuration of its own.
    SharesNothing,
    /// Every load fails.
    Fails,
}

#[derive(Clone, Debug)]
struct Value {
    stored: Arc<Mutex<StoredConfiguration>>,
    flaw: Flaw,
}

impl ConfigurationStore for Value {
    fn place(&self) -> String {
        "a value".to_owned()
    }

    fn load(&self, known: u64) -> Load<'_> {
        Box::pin(async move {
            if self.flaw == Flaw::Fails {
                return Err("it fails".into());
            }
            let stored = lock(&self.stored).clone();
            Ok(Some(stored).filter(|stored| stored.version != known || self.flaw == Flaw::ReturnsKnown))
        })
    }

    fn replace<'a>(&'a self, expected: u64, next: &'a StoredConfiguration) -> Replace<'a> {
        Box::pin(async move {
            let mut stored = lock(&self.stored);
            if stored.version != expected && self.flaw != Flaw::IgnoresTheExpectation {
                return Ok(false);
            }
            if self.flaw == Flaw::LosesReplacements {
                drop(stored);
                std::thread::yield_now();
                stored = lock(&self.stored);
            }
            stored.clone_from(next);
            if self.flaw == Flaw::CutsContent {
                let end = stored.content.iter().position(|byte| *byte == 0);
                stored.content.truncate(end.unwrap_or(usize::MAX));
            }
            Ok(true)
        })
    }

    fn after_fork(&self) -> Arc<dyn ConfigurationStore> {
        Arc::new(self.clone())
    }
}

#[test]
fn flaws_of_configuration_stores_are_found() {
    for (flaw, expected) in [
        (Flaw::None, ""),
        (Flaw::IgnoresTheExpectation, "version 0 was expected by a replacement: it must return false there"),
        (Flaw::LosesReplacements, "replacements there is version"),
        (Flaw::CutsContent, "a configuration that was stored, known 0: expected"),
        (Flaw::ReturnsKnown, "no configuration, known 0: expected"),
        (Flaw::SharesNothing, "a configuration that was stored, known 0: expected"),
        (Flaw::Fails, "a load failed: it fails"),
    ] {
        let shared: Arc<Mutex<StoredConfiguration>> = Arc::default();
        let open = || {
            let stored = if flaw == Flaw::SharesNothing { Arc::default() } else { Arc::clone(&shared) };
            Value { stored, flaw }
        };
        let found = configuration_contract(open).err().unwrap_or_default();
        assert!(
            if expected.is_empty() { found.is_empty() } else { found.contains(expected) },
            "{flaw:?}: {found}"
        );
    }
}

const DOCUMENT: &str = "polylimit = 1\n[policies.api]\nquotas = \"5/day fixed_window\"\n";

fn with_store(value: &Value, place: &str) -> Result<blocking::Limiter, Error> {
    let builder = Limiter::builder().configuration_store(value.clone());
    Ok(builder.configuration(place).build()?.blocking())
}

#[test]
fn configuration_stays_while_its_store_fails_and_after_it_was_emptied() {
    let mut value = Value { stored: Arc::default(), flaw: Flaw::None };
    let author = with_store(&value, "store").unwrap();
    author.admin().publish(DOCUMENT, PublishOptions::default()).unwrap();
    let published = lock(&value.stored).clone();
    *lock(&value.stored) = StoredConfiguration::default();
    let error = |limiter: &blocking::Limiter, expected: &str| {
        let started = Instant::now();
        loop {
            let status = limiter.admin().configuration().unwrap();
            if status.error.as_deref().is_some_and(|error| error.contains(expected)) {
                return;
            }
            assert!(started.elapsed() < SOON, "{status:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    error(&author, "the configuration in a value is gone, and the last one stays: publish it again");
    assert_eq!(author.check("user:42").unwrap().remaining(), 4);
    *lock(&value.stored) = StoredConfiguration { content: b"{".to_vec(), version: published.version + 1 };
    error(&author, "has another form than this version of polylimit writes");
    assert_eq!(author.check("user:42").unwrap().remaining(), 3);
    *lock(&value.stored) = StoredConfiguration { version: published.version + 2, ..published };
    author.admin().wait_for_version(3, SOON).unwrap();
    value.flaw = Flaw::Fails;
    let other = with_store(&value, "store").unwrap();
    error(&other, "the configuration in a value cannot be reached: it fails");
    let failed = other.admin().publish(DOCUMENT, PublishOptions::default()).unwrap_err();
    assert!(failed.message().ends_with("it fails"), "{failed}");
}

#[test]
fn document_of_an_emptied_store_is_applied_although_its_version_is_known() {
    const OTHER: &str = "polylimit = 1\n[policies.api]\nquotas = \"9/day fixed_window\"\n";
    let value = Value { stored: Arc::default(), flaw: Flaw::None };
    let follower = with_store(&value, "store").unwrap();
    follower.admin().publish(DOCUMENT, PublishOptions::default()).unwrap();
    follower.admin().set_entry("deny user mallory", "{}").unwrap();
    assert_eq!(follower.check("user:42").unwrap().remaining(), 4);
    // Emptied, and published by another process, between two looks: the first document of a store again.
    let other = Value { stored: Arc::default(), flaw: Flaw::None };
    let author = with_store(&other, "store").unwrap();
    let published = author.admin().publish(OTHER, PublishOptions::default()).unwrap();
    assert_eq!(published.document_version, 1);
    lock(&value.stored).clone_from(&lock(&other.stored));
    let started = Instant::now();
    while follower.peek("user:42").unwrap().remaining() != 8 {
        assert!(started.elapsed() < SOON, "{:?}", follower.admin().configuration());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(follower.admin().configuration().unwrap().digest, published.digest);
}

#[test]
fn entries_of_a_store_apply_to_a_document_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, DOCUMENT).unwrap();
    let value = Value { stored: Arc::default(), flaw: Flaw::None };
    let place = format!("store+file:{}", path.display());
    let (author, other) = (with_store(&value, &place).unwrap(), with_store(&value, &place).unwrap());
    let set =
        author.admin().set_entry("override api user:42", r#"{"numbers": "9/day fixed_window"}"#).unwrap();
    other.admin().wait_for_version(set.version, SOON).unwrap();
    let remaining = ["user:42", "user:7"].map(|key| other.check(key).unwrap().remaining());
    assert_eq!(remaining, [8, 4]);
    let refused = author.admin().publish(DOCUMENT, PublishOptions::default()).unwrap_err();
    assert!(refused.message().contains("change it there"), "{refused}");
    let unused = Limiter::builder().configuration_store(value).configuration("file:limits.toml").build();
    let message = unused.unwrap_err().message().to_owned();
    assert!(
        message.contains("configuration is file:limits.toml, and a configuration_store is given"),
        "{message}"
    );
}

#[test]
fn fields_of_a_later_version_are_kept() {
    let value = Value { stored: Arc::default(), flaw: Flaw::None };
    let author = with_store(&value, "store").unwrap();
    author.admin().publish(DOCUMENT, PublishOptions::default()).unwrap();
    let mut content: serde_json::Value = serde_json::from_slice(&lock(&value.stored).content).unwrap();
    content["later"] = serde_json::json!({"a": [1]});
    lock(&value.stored).content = content.to_string().into_bytes();
    author.admin().set_entry("override api user:42", r#"{"numbers": "9/day"}"#).unwrap();
    let content: serde_json::Value = serde_json::from_slice(&lock(&value.stored).content).unwrap();
    assert_eq!(content["later"], serde_json::json!({"a": [1]}));
}

/// A record of a form of a later version that belongs to no quota, with its tag and a time far ahead.
fn later(tag: [u8; 4]) -> Vec<u8> {
    [&[200][..], &tag, &[0, 0, 9], &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], b"ab"].concat()
}

#[test]
fn records_of_a_later_version_are_kept_and_its_quotas_are_not_decided() {
    let shared: Arc<Mutex<States>> = Arc::default();
    let policy = Policy::parse("api", "5/day fixed_window").unwrap();
    let builder = Limiter::builder().custom_store(Map::open(Defect::None, &shared)).policy(policy);
    let limiter = builder.outage("api", Outage::Deny).build().unwrap().blocking();
    assert_eq!(limiter.check("user:42").unwrap().remaining(), 4);
    let state = || lock(&shared).values().next().unwrap().clone();
    let put = |state: Vec<u8>| lock(&shared).values_mut().for_each(|there| there.clone_from(&state));
    // The length of the records, and the records.
    let with = |record: &[u8], behind: &[u8]| {
        let records = [behind, record].concat();
        [&u16::try_from(records.len()).unwrap().to_be_bytes()[..], &records].concat()
    };
    let own = state()[2..].to_vec();
    put(with(&later([0; 4]), &own));
    assert_eq!(limiter.check("user:42").unwrap().remaining(), 3);
    assert!(state().ends_with(&later([0; 4])), "{:?}", state());

    let of_quota = with(&later(own[1..5].try_into().unwrap()), b"");
    put(of_quota.clone());
    let denied = limiter.check("user:42").unwrap();
    assert_eq!((denied.allowed(), denied.degraded()), (false, Some(Degradation::NewerFormat)));
    assert_eq!(state(), of_quota);
}

#[test]
fn request_that_the_document_decides_asks_no_store() {
    let document = r#"{"polylimit": 1,
        "policies": {"a": {"quotas": "1/hour"}, "b": {"quotas": "1/hour", "mode": "off"}},
        "lists": {"deny": ["key a bad"], "allow": ["key a good"]}}"#;
    let map = Map::open(Defect::None, &Arc::default());
    let limiter = Limiter::builder().custom_store(map.clone()).document(document).build().unwrap().blocking();
    for (key, allowed) in [("good", true), ("bad", false)] {
        let requests = ["a", "b"].map(|policy| Request::new(key).policy(policy));
        for decided in [limiter.check_together(&requests), limiter.peek_together(&requests)] {
            let decided: Vec<_> = decided.unwrap().iter().map(Decision::allowed).collect();
            assert_eq!(decided, [allowed, true]);
        }
    }
    assert_eq!(*lock(&map.transactions), 0);
}

#[test]
fn candidate_is_compared_only_where_the_store_decides_both() {
    let document = r#"{"polylimit": 1, "policies": {"a": {"quotas": "9/hour", "outage": "allow",
        "candidate": {"quotas": "8/hour", "compare": 1000}}}}"#;
    let map = Map::open(Defect::Fails, &Arc::default());
    let limiter = Limiter::builder().custom_store(map).document(document).build().unwrap().blocking();
    // The third transaction fails: that of the second check, whose candidate the store decides.
    for degraded in [false, true] {
        assert_eq!(limiter.check("key").unwrap().degraded().is_some(), degraded);
    }
    assert_eq!(limiter.admin().candidate_counts("a").unwrap().both_allow, 1);
}

#[test]
fn peek_that_an_outage_policy_admits_takes_nothing_from_a_pool() {
    let document = r#"{"polylimit": 1, "policies": {"pool": {"quotas": "9/52w fixed_window"},
        "a": {"quotas": "9/hour", "outage": "allow", "elastic": {"policy": "pool", "key": "all"}}}}"#;
    let map = Map::open(Defect::Fails, &Arc::default());
    let limiter = Limiter::builder().custom_store(map).clock(ManualClock::new(0).unwrap());
    let limiter = limiter.document(document).build().unwrap().blocking();
    // The third transaction fails.
    let degraded =
        [(); 3].map(|()| limiter.peek(Request::new("key").policy("a")).unwrap().degraded().is_some());
    assert_eq!(degraded, [false, false, true]);
    assert_eq!(limiter.peek(Request::new("all").policy("pool")).unwrap().remaining(), 9);
}
