//! Stores: what decides while one is unavailable, the interfaces of stores outside this crate, and tests of their contracts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::limiter::configured::manage::PublishOptions;
use crate::limiter::reservation::ReserveOptions;
use crate::limiter::{Limiter, blocking};
pub use crate::store::custom::{
    Change, ConfigurationStore, Decide, Load, Replace, Store, StoreError, StoredConfiguration, Update,
};
use polylimit_rules::decision::Decision;
use polylimit_rules::policy::Policy;
use polylimit_rules::request::Request;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_runtime::clock::ManualClock;
use polylimit_runtime::park;
pub use polylimit_store::outage::Outage;

const THREADS: u64 = 4;
const ROUNDS: u64 = 100;
/// How long a change may take to arrive: much longer than it takes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum length of a name in bytes; see [`Store::update`].
const LONGEST_NAME: usize = (1 << 20) + 66;

/// Tests whether a store fulfils the contract of [`Store`]: call it in a test of that store. `open` opens the same, at first empty,
/// place each time, as several processes would; `update` must be there for futures that this thread polls without a runtime, or `open` has to bring
/// its own.
///
/// It takes some seconds with a store of 1,000 transactions per second, and leaves some states behind.
///
/// # Errors
/// What the store does differently, in one sentence.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex};
///
/// use polylimit::storage::{self, Change, Decide, Store, StoreError, Update};
///
/// /// A map behind a lock.
/// #[derive(Clone, Debug, Default)]
/// struct Map(Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>);
///
/// impl Store for Map {
///     fn place(&self) -> String {
///         "a map".to_owned()
///     }
///
///     fn update<'a>(&'a self, names: &'a [Vec<u8>], decide: Decide<'a>) -> Update<'a> {
///         Box::pin(async move {
///             let mut map = self.0.lock().map_err(|error| StoreError::from(error.to_string()))?;
///             let states: Vec<_> = names.iter().map(|name| map.get(name).cloned()).collect();
///             for (name, change) in names.iter().zip(decide(&states)) {
///                 match change {
///                     Change::Keep => {}
///                     Change::Put { state, .. } => drop(map.insert(name.clone(), state)),
///                     Change::Remove => drop(map.remove(name)),
///                 }
///             }
///             Ok(())
///         })
///     }
///
///     fn after_fork(&self) -> Arc<dyn Store> {
///         Arc::new(Self::default())
///     }
/// }
///
/// let map = Map::default();
/// storage::contract(|| map.clone())?;
/// # Ok::<(), String>(())
/// ```
pub fn contract<S: Store>(open: impl Fn() -> S + Sync) -> Result<(), String> {
    let store = open();
    check_states(&store)?;
    check_transactions(&open)?;
    check_limits(&open)?;
    check_decisions(open)
}

/// Tests whether a store fulfils the contract of [`ConfigurationStore`]: call it in a test of that store. `open` opens the same, at first
/// empty, place each time, as several processes would; `load` and `replace` must be there for futures that this thread polls without a
/// runtime. It takes some seconds, and leaves a configuration behind.
///
/// # Errors
/// What the store does differently, in one sentence.
///
/// ```
/// use std::sync::{Arc, Mutex, PoisonError};
///
/// use polylimit::storage::{self, ConfigurationStore, Load, Replace, StoredConfiguration};
///
/// /// A value behind a lock.
/// #[derive(Clone, Debug, Default)]
/// struct Shared(Arc<Mutex<StoredConfiguration>>);
///
/// impl ConfigurationStore for Shared {
///     fn place(&self) -> String {
///         "a value".to_owned()
///     }
///
///     fn load(&self, known: u64) -> Load<'_> {
///         let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
///         Box::pin(async move { Ok(Some(stored).filter(|stored| stored.version != known)) })
///     }
///
///     fn replace<'a>(&'a self, expected: u64, next: &'a StoredConfiguration) -> Replace<'a> {
///         let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         let is_expected = stored.version == expected;
///         if is_expected {
///             stored.clone_from(next);
///         }
///         Box::pin(async move { Ok(is_expected) })
///     }
///
///     fn after_fork(&self) -> Arc<dyn ConfigurationStore> {
///         Arc::new(Self::default())
///     }
/// }
///
/// let shared = Shared::default();
/// storage::configuration_contract(|| shared.clone())?;
/// # Ok::<(), String>(())
/// ```
pub fn configuration_contract<S: ConfigurationStore>(open: impl Fn() -> S + Sync) -> Result<(), String> {
    let store = open();
    check_versions(&store, &open())?;
    check_replacements(&open)?;
    replace(&store, THREADS * ROUNDS + 3, &StoredConfiguration::default())?;
    check_configuration(open)
}

fn load(store: &dyn ConfigurationStore, known: u64) -> Result<Option<StoredConfiguration>, String> {
    park::block_on(store.load(known)).map_err(|error| format!("a load failed: {error}"))
}

fn replace(
    store: &dyn ConfigurationStore,
    expected: u64,
    next: &StoredConfiguration,
) -> Result<bool, String> {
    park::block_on(store.replace(expected, next)).map_err(|error| format!("a replacement failed: {error}"))
}

/// What was stored over the expected version is loaded, through every handle.
fn check_versions(store: &dyn ConfigurationStore, other: &dyn ConfigurationStore) -> Result<(), String> {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let stored = |version, content: &[u8]| StoredConfiguration { version, content: content.to_vec() };
    let large = vec![b'c'; 4 << 20];
    let expect = |what: &str, known: u64, expected: Option<&StoredConfiguration>| {
        for store in [store, other] {
            let found = load(store, known)?;
            if found.as_ref() != expected {
                let shown =
                    |one: Option<&StoredConfiguration>| one.map(|one| (one.version, one.content.len()));
                return Err(format!(
                    "{what}, known {known}: expected are version and length {:?}, loaded were {:?}",
                    shown(expected),
                    shown(found.as_ref())
                ));
            }
        }
        Ok(())
    };
    let none = StoredConfiguration::default();
    expect("no configuration", 0, None)?;
    expect("no configuration", 7, Some(&none))?;
    for (expected, next, is_replaced) in [
        (0, stored(1, &every_byte), true),
        (0, stored(2, b"late"), false),
        (2, stored(3, b"early"), false),
        (1, stored(2, &large), true),
        (2, stored(3, b""), true),
    ] {
        if replace(store, expected, &next)? != is_replaced {
            return Err(format!(
                "version {expected} was expected by a replacement: it must return {is_replaced} there"
            ));
        }
        if is_replaced {
            expect("a configuration that was stored", expected, Some(&next))?;
            expect("a configuration that was stored", u64::MAX, Some(&next))?;
            expect("a configuration that is known", next.version, None)?;
        }
    }
    Ok(())
}

/// Of several callers with the same expectation, one succeeds.
fn check_replacements<S: ConfigurationStore>(open: &(impl Fn() -> S + Sync)) -> Result<(), String> {
    on_threads(open, |_, store| {
        for _ in 0..ROUNDS {
            loop {
                let version = load(&store, u64::MAX)?.map_or(0, |stored| stored.version);
                let next = StoredConfiguration { version: version + 1, content: b"next".to_vec() };
                if replace(&store, version, &next)? {
                    break;
                }
            }
        }
        Ok(())
    })?;
    let version = load(&open(), u64::MAX)?.map_or(0, |stored| stored.version);
    if version == THREADS * ROUNDS + 3 {
        return Ok(());
    }
    Err(format!("after {} replacements there is version {version}", THREADS * ROUNDS + 3))
}

/// What one limiter publishes, another one decides by.
fn check_configuration<S: ConfigurationStore>(open: impl Fn() -> S) -> Result<(), String> {
    let checked = || -> Result<Option<String>, crate::Error> {
        let limiter =
            || Limiter::builder().configuration_store(open()).build().map(|limiter| limiter.blocking());
        let (author, follower) = (limiter()?, limiter()?);
        let options = PublishOptions::default().by("contract").why("a change");
        let of_limit =
            |limit: u64| format!("polylimit = 1\n[policies.contract]\nquotas = \"{limit}/hour\"\n");
        for (limit, version) in [(7, 1), (8, 2)] {
            let status = author.admin().publish(&of_limit(limit), options)?;
            if (status.version, status.document_version) != (version, version) {
                return Ok(Some(format!("a document was published as {status:?}, not as version {version}")));
            }
            follower.admin().wait_for_version(version, CHANGE_TIMEOUT)?;
            let remaining = follower.peek("contract")?.remaining();
            if remaining != limit {
                return Ok(Some(format!("under a published limit of {limit}, {remaining} are left")));
            }
        }
        let version =
            author.admin().set_entry("override contract contract", r#"{"numbers": "9/hour"}"#)?.version;
        follower.admin().wait_for_version(version, CHANGE_TIMEOUT)?;
        let version = author.admin().rollback(1, options)?.version;
        follower.admin().wait_for_version(version, CHANGE_TIMEOUT)?;
        let remaining = [follower.peek("contract")?.remaining(), follower.peek("other")?.remaining()];
        if remaining != [9, 7] {
            return Ok(Some(format!("9 and 7 are expected after a rollback, {remaining:?} are left")));
        }
        let history = author.admin().configuration_history(10)?;
        let listed: Vec<_> = history.iter().map(|change| change.version).collect();
        Ok((listed != [4, 3, 2, 1]).then(|| format!("the history lists the versions {listed:?}")))
    };
    match checked() {
        Ok(None) => Ok(()),
        Ok(Some(difference)) => Err(difference),
        Err(error) => Err(format!("a limiter cannot use the store: {error}")),
    }
}

/// Makes a transaction; returns the states that it has found.
fn update(store: &dyn Store, names: &[Vec<u8>], changes: &[Change]) -> Result<Vec<Option<Vec<u8>>>, String> {
    let mut found = None;
    let decide: Decide<'_> = &mut |states| {
        found = Some(states.to_vec());
        changes.to_vec()
    };
    park::block_on(store.update(names, decide)).map_err(|error| format!("a transaction failed: {error}"))?;
    found.ok_or_else(|| "a transaction has not called decide".to_owned())
}

fn put(state: &[u8]) -> Change {
    Change::Put { state: state.to_vec(), until_us: u64::MAX }
}

/// What was put is found, under any name, until it is removed.
fn check_states(store: &dyn Store) -> Result<(), String> {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let names = [vec![0], b"contract\0a".to_vec(), every_byte.clone(), vec![b'n'; LONGEST_NAME]];
    let states = [vec![0], every_byte, vec![1; 1 << 20], b"\0\0".to_vec()];
    let expect = |what: &str, expected: &[Option<Vec<u8>>], changes: &[Change]| {
        let found = update(store, &names, changes)?;
        if found == expected {
            return Ok(());
        }
        let lengths = |states: &[Option<Vec<u8>>]| -> Vec<_> {
            states.iter().map(|state| state.as_ref().map(Vec::len)).collect()
        };
        let (expected, found) = (lengths(expected), lengths(&found));
        Err(format!("{what}: expected are states of {expected:?} bytes, found were {found:?}"))
    };
    let (none, all) = (vec![None; names.len()], states.iter().cloned().map(Some).collect::<Vec<_>>());
    let keep = vec![Change::Keep; names.len()];
    expect("an empty store", &none, &states.iter().map(|state| put(state)).collect::<Vec<_>>())?;
    expect("states that were put", &all, &keep)?;
    expect("states that were kept", &all, &[Change::Keep, put(b"new"), Change::Remove, Change::Keep])?;
    let changed = [all[0].clone(), Some(b"new".to_vec()), None, all[3].clone()];
    expect("states of which one was replaced and one removed", &changed, &keep)?;
    expect("states before they were removed", &changed, &vec![Change::Remove; names.len()])?;
    expect("states that were removed", &none, &keep)
}

/// Runs a function on several threads, each with a store of its own.
fn on_threads<S: Send>(
    open: &(impl Fn() -> S + Sync),
    run: impl Fn(u64, S) -> Result<(), String> + Sync,
) -> Result<(), String> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn({
                    let run = &run;
                    move || run(number, open())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a transaction panicked on a thread".to_owned()))
        })
    })
}

/// No transaction is lost, and none sees a part of another one.
fn check_transactions<S: Store>(open: &(impl Fn() -> S + Sync)) -> Result<(), String> {
    let names = [b"contract\0left".to_vec(), b"contract\0right".to_vec()];
    on_threads(open, |number, store| {
        // In both orders, so that a store that locks states one after the other would wait for ever.
        let names = if number % 2 == 0 { names.clone() } else { [names[1].clone(), names[0].clone()] };
        for _ in 0..ROUNDS {
            let mut seen = [0; 2];
            let decide: Decide<'_> = &mut |states| {
                let count = |state: &Option<Vec<u8>>| {
                    let bytes = state.as_deref().and_then(|state| <[u8; 8]>::try_from(state).ok());
                    bytes.map_or(0, u64::from_be_bytes)
                };
                seen = [states.first().map_or(0, count), states.get(1).map_or(0, count)];
                seen.iter().map(|count| put(&(count + 1).to_be_bytes())).collect()
            };
            park::block_on(store.update(&names, decide))
                .map_err(|error| format!("a transaction failed next to others: {error}"))?;
            if seen[0] != seen[1] {
                return Err(format!("a transaction saw a part of another one: {seen:?}"));
            }
        }
        Ok(())
    })?;
    let found = update(&open(), &names, &[Change::Remove, Change::Remove])?;
    let expected = Some((THREADS * ROUNDS).to_be_bytes().to_vec());
    if found.iter().all(|state| *state == expected) {
        return Ok(());
    }
    Err(format!("of {} transactions at a time some were lost", THREADS * ROUNDS))
}

fn limiter(store: impl Store, clock: &ManualClock) -> Result<blocking::Limiter, String> {
    let build = || {
        let mut builder = Limiter::builder().custom_store(store).clock(clock.clone());
        for (name, quotas) in POLICIES {
            builder = builder.policy(Policy::parse(name, quotas)?);
        }
        builder.build().map(|limiter| limiter.blocking())
    };
    build().map_err(|error: crate::Error| error.to_string())
}

/// One policy of each algorithm.
const POLICIES: [(&str, &str); 6] = [
    ("tokens", "50/minute token_bucket burst=20"),
    ("queue", "20/second leaky_bucket"),
    ("fixed", "30/minute fixed_window count_denied; 100/hour"),
    ("sliding", "40/minute sliding_window"),
    ("log", "25/minute sliding_log"),
    ("slots", "3 concurrent; 60/minute"),
];
const START_US: u64 = 1_700_000_000_000_000;

/// Callers at a time are admitted as often as the limit says, under one policy and under two together.
fn check_limits<S: Store>(open: &(impl Fn() -> S + Sync)) -> Result<(), String> {
    let clock = ManualClock::new(START_US).map_err(|error| error.to_string())?;
    let admitted = [AtomicU64::new(0), AtomicU64::new(0)];
    on_threads(open, |_, store| {
        let limiter = limiter(store, &clock)?;
        let both = ["sliding", "log"].map(|policy| Request::new("contract both").policy(policy));
        for _ in 0..ROUNDS {
            let alone = limiter.check(Request::new("contract").policy("sliding"));
            let together = limiter.check_together(&both);
            let (alone, together) =
                (alone.map_err(|error| error.to_string())?, together.map_err(|error| error.to_string())?);
            if let Some(degraded) = together.iter().chain([&alone]).find_map(Decision::degraded) {
                return Err(format!(
                    "a transaction failed next to others: the decision is degraded by {}",
                    degraded.name()
                ));
            }
            let all = [alone.allowed(), together.iter().all(Decision::allowed)];
            for (admitted, allowed) in admitted.iter().zip(all) {
                admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    let admitted = admitted.map(AtomicU64::into_inner);
    if admitted == [40, 25] {
        return Ok(());
    }
    Err(format!("limits of 40 and 25 have admitted {admitted:?}"))
}

/// Numbers that look random (Marsaglia, "Xorshift RNGs", 2003), the same in each examination.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Operations are answered as in memory.
fn check_decisions<S: Store>(open: impl Fn() -> S) -> Result<(), String> {
    let clock = ManualClock::new(START_US).map_err(|error| error.to_string())?;
    let stores = [limiter(open(), &clock)?, limiter(open(), &clock)?];
    let memory = {
        let build = || {
            let mut builder = Limiter::builder().clock(clock.clone());
            for (name, quotas) in POLICIES {
                builder = builder.policy(Policy::parse(name, quotas)?);
            }
            builder.build().map(|limiter| limiter.blocking())
        };
        build().map_err(|error: crate::Error| error.to_string())?
    };
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for number in 0..10 * ROUNDS {
        clock.advance(Duration::from_micros(random.below(5_000_000))).map_err(|error| error.to_string())?;
        let picked =
            [random.below(6), random.below(6), random.below(3), random.below(12), random.below(12), number];
        let store = &stores[usize::from(number % 2 == 1)];
        let (expected, answered) = (apply(&memory, picked), apply(store, picked));
        if expected != answered {
            return Err(format!(
                "operation {number}, {picked:?}, differs from memory: {answered} in place of {expected}"
            ));
        }
    }
    Ok(())
}

/// Applies one operation, and shows its answer.
fn apply(limiter: &blocking::Limiter, [policy, other, key, operation, cost, number]: [u64; 6]) -> String {
    let name = |at: u64| POLICIES[usize::try_from(at).unwrap_or(0)].0;
    let key = format!("contract {key}");
    let request = |at| Request::new(&key).policy(name(at)).cost(cost);
    let id = |number: u64| ReservationId::new(format!("contract {number}"));
    let applied = || -> Result<String, crate::Error> {
        let terms = ReserveOptions::default().id(id(number)?).ttl(Duration::from_secs(20)).terms()?;
        Ok(match operation {
            0 => format!("{:?}", limiter.take(request(policy))?),
            1 => format!("{:?}", limiter.charge(request(policy))?),
            2 => format!("{:?}", limiter.refund(request(policy))?),
            3 => format!("{:?}", limiter.peek(request(policy))?),
            4 => format!(
                "{:?}",
                limiter
                    .reserve_together(&[request(policy), request((policy + 1 + other % 5) % 6)], &terms)?
            ),
            5 => format!(
                "{:?}",
                limiter.commit(request(policy), id(number.saturating_sub(1 + other))?, Some(cost))?
            ),
            6 if other == 0 => format!("{:?}", limiter.reset(request(policy))?),
            7 if other == 0 => {
                format!("{:?}", limiter.admin().block(request(policy), Duration::from_secs(3))?)
            }
            _ => format!(
                "{:?}",
                limiter.check_together(&[request(policy), request((policy + 1 + other % 5) % 6)])?
            ),
        })
    };
    applied().unwrap_or_else(|error| error.to_string())
}
