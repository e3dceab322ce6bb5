//! The local store: a file in the host's shared memory that all processes of the host map.
//!
//! - The file is a fixed number of shards, each a hash table with its own lock: see `shard`. The core's transition
//!   runs under the lock, on states that are stored as [bytes](polylimit_rules::codec).
//! - Any process may be killed at any time. Its current operation is then either applied or not, and the next process
//!   that needs a lock which the killed process held takes the lock over: see `lock`, `owner` and `recovery`.
//! - The file's size bounds the store. As in the memory store, expired entries make room and other entries are never
//!   dropped. When a shard is full of entries that are not expired, new keys share one state per policy; these shared
//!   states are in a separate shard, the overflow.
//! - A process opens the file at its first operation, once for all of its limiters: so it takes one place among
//!   the owners of the file, one mapping and one descriptor. A forked child opens the file again. Closing the last
//!   limiter closes the file.
//!
//! # Why not an embedded database
//!
//! A database that copies pages and has a single writer (LMDB) takes 0.8 to 1.5 us for a decision on its only key, and
//! 4 to 6.5 us with a million keys, if its pages are written through the mapping; 5 and 21 us if they are not. This
//! store takes a tenth of that, decides several keys at once, never needs an additional page to free one, and survives
//! any file content, whereas such a database trusts its file.

mod failure;
mod file;
mod layout;
mod location;
mod lock;
mod mapped_store;
mod owner;
mod patience;
mod policies;
mod recovery;
mod shard;
mod sweep;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use smallvec::smallvec;

use self::failure::Failure;
use self::file::being_opened;
pub use self::location::SharedFileOptions;
use self::mapped_store::MappedStore;
use self::patience::{LOCK_TIMEOUT, Patience, SPIN_FOR};
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::history::Change;
use polylimit_rules::policy::Policy;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::close_signal::closed;
use polylimit_runtime::fork::ProcessGeneration;
use polylimit_runtime::monotonic;
use polylimit_runtime::pause::pause;
use polylimit_store::charge::{
    Charge, PolicyId, PolicyOptions, PreparedQuotas, StoreAnswer, StoreAnswers, Wait, only,
};
use polylimit_store::finding::{Finding, Severity};
use polylimit_store::scan::{Look, LookRequest, ScanFilter, ScanStep};
use polylimit_store::stats::{Counters, Stats};
use polylimit_store::stored_policy::{
    StoredPolicies, StoredPolicy, StoredQuotas, fallback_quotas, policy_of,
};
use polylimit_store_memory::fallback::Fallback;

/// The store of this host: a file in shared memory.
#[derive(Debug)]
pub struct SharedFileStore {
    options: SharedFileOptions,
    clock: Clock,
    policies: StoredPolicies,
    /// Opened by this process or by the process that it was forked from.
    mapped: ArcSwapOption<MappedStore>,
    closed: AtomicBool,
    counters: Counters,
    outage: Fallback,
    /// Why the file could not be used when an operation last needed it.
    cause: ArcSwapOption<Error>,
    reporter: Reporter,
}

/// Is called with findings for the operator.
#[derive(Default)]
struct Reporter(OnceLock<Box<dyn Fn(Finding) + Send + Sync>>);

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reporter")
    }
}

impl SharedFileStore {
    /// Creates the store without opening the file. `max_keys` bounds the keys of the outage policy `fallback`.
    pub fn new(options: SharedFileOptions, clock: Clock, max_keys: usize) -> Self {
        let outage = Fallback::new(options.fallback_share, clock.clone(), max_keys, fallback_quotas);
        Self {
            policies: StoredPolicies::new(options.outage),
            options,
            clock,
            mapped: ArcSwapOption::default(),
            closed: AtomicBool::new(false),
            counters: Counters::default(),
            outage,
            cause: ArcSwapOption::default(),
            reporter: Reporter::default(),
        }
    }

    /// The same store for a forked child, with these policies.
    #[must_use]
    pub fn after_fork(&self, policies: &[(PolicyId, Policy)]) -> Self {
        Self {
            options: self.options.clone(),
            clock: self.clock.clone(),
            policies: self.policies.after_fork(),
            mapped: ArcSwapOption::default(),
            closed: AtomicBool::new(self.closed.load(Ordering::SeqCst)),
            counters: Counters::default(),
            outage: self.outage.after_fork(policies.iter().map(|(id, policy)| (*id, policy))),
            cause: ArcSwapOption::default(),
            reporter: Reporter::default(),
        }
    }

    /// Sets the function that is called with findings for the operator.
    pub fn report_to(&self, report: impl Fn(Finding) + Send + Sync + 'static) {
        let _ = self.reporter.0.set(Box::new(report));
    }

    /// The clock of this process, by which the store decides.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Prepares the effective quotas of some keys of a policy. `others` are further quotas that these keys may have.
    pub fn prepare_quotas(
        &self,
        id: PolicyId,
        policy: &Policy,
        others: &[Policy],
        options: PolicyOptions,
    ) -> PreparedQuotas {
        let outage = options.outage.unwrap_or(self.policies.outage);
        PreparedQuotas::new(StoredQuotas {
            policy: StoredPolicy::new(id, policy, Change::Now(others), outage),
            fallback: self.outage.prepare_quotas(id, policy),
        })
    }

    /// Registers a policy, or changes its quotas.
    pub fn set_policy(&self, id: PolicyId, policy: &Policy, options: PolicyOptions) {
        self.policies.set(id, policy, options, self.clock.now_us());
        self.outage.set_policy(id, policy);
    }

    /// The path of the file.
    pub fn place(&self) -> Option<Arc<str>> {
        self.options.path().ok().map(|path| path.to_string_lossy().into())
    }

    /// Why the file could not be used when an operation last needed it.
    pub fn cause(&self) -> Option<Arc<str>> {
        self.cause.load().as_ref().map(|error| error.message().into())
    }

    /// Forgets a policy; its keys keep their states.
    pub fn forget_policy(&self, id: PolicyId) {
        self.policies.forget(id);
        self.outage.forget_policy(id);
    }

    /// Opens the file if it is not open.
    #[doc(hidden)]
    pub async fn ready(&self) -> Result<(), Error> {
        self.when_opened(|_, _| Ok(())).await
    }

    /// The number of keys that have a state in the file.
    pub fn keys(&self) -> Option<usize> {
        self.with_opened(MappedStore::keys).ok()
    }

    /// The number of keys with short states that fit.
    pub fn keys_capacity(&self) -> Option<usize> {
        self.with_opened(MappedStore::keys_capacity).ok()
    }

    /// The operations that it could not apply.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// Answers charges, each for a different key or policy: all are applied, or none. The file answers, or the outage policy while it
    /// cannot be used. While a part of the file is locked, a thread waits, and the thread of a task runs other tasks. If the task stops
    /// waiting, nothing was done.
    #[doc(hidden)]
    pub async fn start(&self, charges: &[Charge<'_>], wait: Wait) -> Result<StoreAnswers, Error> {
        let attempt = |patience| match charges {
            [charge] => self.answer_with(*charge, patience).map(|answer| Ok(smallvec![answer?])),
            _ => self.answer_together(charges, patience),
        };
        match wait {
            Wait::Await => when_free(attempt).await,
            Wait::Block => attempt(Patience::Wait).unwrap_or_else(|| Err(Error::no_answer())),
        }
    }

    /// The answer to a caller that must not wait; `None`, with nothing done, while another thread or process keeps a part of the file
    /// locked.
    pub fn try_answer(&self, charge: Charge<'_>) -> Option<Result<StoreAnswer, Error>> {
        self.answer_with(charge, Patience::Spin)
    }

    #[inline]
    fn answer_with(&self, charge: Charge<'_>, patience: Patience) -> Option<Result<StoreAnswer, Error>> {
        if let Some(answer) = self.outage.answer_made(charge) {
            return Some(Ok(answer));
        }
        let registered = self.policies.load(charge.id);
        let policy = match policy_of(registered.as_deref(), charge.effective) {
            Ok(policy) => policy,
            Err(error) => return Some(Err(error)),
        };
        let answer = self.use_opened(patience, |mapped| {
            mapped.answer(&self.clock, &self.policies, policy, charge, patience)
        });
        match answer {
            Ok(answer) => Some(Ok(answer)),
            Err(failure) if failure.is_busy => None,
            Err(failure) => Some(self.answer_without(policy, charge, failure)),
        }
    }

    fn answer_together(
        &self,
        charges: &[Charge<'_>],
        patience: Patience,
    ) -> Option<Result<StoreAnswers, Error>> {
        let registered: Vec<_> = charges.iter().map(|charge| self.policies.load(charge.id)).collect();
        let mut of_policies = Vec::with_capacity(charges.len());
        for (charge, registered) in charges.iter().zip(&registered) {
            match policy_of(registered.as_deref(), charge.effective) {
                Ok(policy) => of_policies.push((policy, *charge)),
                Err(error) => return Some(Err(error)),
            }
        }
        let reason = if let Some(reason) = self.outage.made_for(charges) {
            Ok(reason)
        } else {
            let answer = |mapped: &MappedStore| {
                mapped.answer_together(&self.clock, &self.policies, &of_policies, patience)
            };
            match self.use_opened(patience, answer) {
                Ok(answers) => return Some(Ok(answers)),
                Err(failure) if failure.is_busy => return None,
                Err(failure) => self.outage_of(of_policies.iter().map(|(policy, _)| *policy), failure),
            }
        };
        let charges: Vec<_> = of_policies
            .iter()
            .map(|(policy, charge)| (policy.outage, policy.policy.quotas(), *charge))
            .collect();
        Some(reason.and_then(|reason| self.outage.start(&charges, reason)))
    }

    #[cold]
    fn answer_without(
        &self,
        policy: &StoredPolicy,
        charge: Charge<'_>,
        failure: Failure,
    ) -> Result<StoreAnswer, Error> {
        let reason = self.outage_of([policy].into_iter(), failure)?;
        let charges = [(policy.outage, policy.policy.quotas(), charge)];
        only(self.outage.start(&charges, reason)?)
    }

    /// Returns why the outage policies of these policies answer, and counts their answers; the error if none answers.
    #[cold]
    fn outage_of<'a>(
        &self,
        policies: impl Iterator<Item = &'a StoredPolicy>,
        failure: Failure,
    ) -> Result<Degradation, Error> {
        let Some(reason) = failure.reason else {
            if failure.error.kind() == ErrorKind::StoreFailed {
                self.counters.permanent.add(1);
            }
            return Err(failure.error);
        };
        self.cause.store(Some(Arc::new(failure.error)));
        for policy in policies {
            self.counters.not_applied.add(1);
            self.counters.answered_by(policy.outage);
        }
        Ok(reason)
    }

    /// Identifies the file: positions in any other file are meaningless here.
    #[doc(hidden)]
    pub fn identity(&self) -> Result<u64, Error> {
        self.with_opened(MappedStore::identity)
    }

    /// Copies names from this many buckets of one shard.
    #[doc(hidden)]
    pub async fn scan(&self, filter: ScanFilter<'_>, at: u64, buckets: usize) -> Result<ScanStep, Error> {
        self.when_opened(|mapped, patience| mapped.scan(&self.clock, filter, (at, buckets), patience)).await
    }

    /// The states of a key, or those that it would get.
    #[doc(hidden)]
    pub async fn look(&self, request: LookRequest<'_>) -> Result<Look, Error> {
        self.when_opened(|mapped, patience| mapped.look(&self.clock, &self.policies, request, patience)).await
    }

    /// Forgets a key of which only the digest is known.
    #[doc(hidden)]
    pub async fn forget_digest(
        &self,
        id: PolicyId,
        effective: Option<&PreparedQuotas>,
        digest: &[u8],
    ) -> Result<(), Error> {
        let of = (id, effective);
        let forget = |mapped: &MappedStore, patience| {
            mapped.forget_digest(&self.clock, &self.policies, of, digest, patience)
        };
        self.when_opened(forget).await
    }

    /// Works on the file once no part that it needs is locked.
    async fn when_opened<T>(
        &self,
        work: impl Fn(&MappedStore, Patience) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let attempt = |patience| match self.use_opened(patience, |mapped| work(mapped, patience)) {
            Err(failure) if failure.is_busy => None,
            done => Some(done.map_err(Error::from)),
        };
        when_free(attempt).await
    }

    /// Reads something from the file that needs no lock, without waiting.
    fn with_opened<T>(&self, read: impl FnOnce(&MappedStore) -> T) -> Result<T, Error> {
        self.use_opened(Patience::Last, |mapped| Ok(read(mapped))).map_err(Error::from)
    }

    #[inline]
    fn use_opened<T>(
        &self,
        patience: Patience,
        ask: impl FnOnce(&MappedStore) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mapped = self.mapped.load();
        match &*mapped {
            Some(mapped) if mapped.is_usable() => ask(mapped),
            _ => {
                drop(mapped);
                ask(&*self.open(patience)?)
            }
        }
    }

    #[cold]
    fn open(&self, patience: Patience) -> Result<Arc<MappedStore>, Failure> {
        self.check_open()?;
        let mapped = open_shared(&self.options, patience)?;
        let before = self.replace(Some(Arc::clone(&mapped)));
        // A concurrent `close` found no file to release, or the previous one.
        self.check_open().inspect_err(|_| drop(self.replace(None)))?;
        if before.is_some_and(|before| before.is_removed()) {
            // Its states are gone: the operator needs to know why every limit begins again.
            let message = format!(
                "the file {} was removed or replaced while it was in use: what was used is forgotten, and every limit begins \
                 again; systemd-logind removes the files of users that log out (RemoveIPC)",
                mapped.path().display()
            );
            self.report(Severity::Problem, message);
        }
        if let Some(message) = self.options.note(mapped.path()) {
            self.report(Severity::Advice, message);
        }
        Ok(mapped)
    }

    fn report(&self, severity: Severity, message: String) {
        if let Some(report) = self.reporter.0.get() {
            report(Finding::new(severity, "local", message));
        }
    }

    /// Releases the file for good. The last limiter of this process to do so closes the file: its place among the
    /// owners, its mapping and its descriptor are released then, or when the running operations of other threads have
    /// ended.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.replace(None);
        self.outage.clear();
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::SeqCst) { Err(closed()) } else { Ok(()) }
    }

    /// Uses another file, or none; returns the previous one.
    fn replace(&self, mapped: Option<Arc<MappedStore>>) -> Option<Arc<MappedStore>> {
        let old = self.mapped.swap(mapped)?;
        if old.is_of_this_process() {
            return Some(old);
        }
        // An operation that another thread of the parent was running at the fork never ends in the child.
        std::mem::forget(old);
        None
    }
}

/// Retries an operation on the file until no part that it needs is locked: `None` says that one was. The task pauses in between.
async fn when_free<T>(attempt: impl Fn(Patience) -> Option<T>) -> T {
    let mut done = attempt(Patience::Spin);
    let until = done.is_none().then(|| monotonic::ticks() + LOCK_TIMEOUT);
    loop {
        if let Some(done) = done {
            return done;
        }
        pause().await;
        let is_last = until.is_some_and(|until| monotonic::ticks() > until);
        done = attempt(if is_last { Patience::Last } else { Patience::Spin });
    }
}

/// The open files of one process. A forked child starts with none: locks may be held by threads that do not exist in the child.
struct Files {
    generation: ProcessGeneration,
    by_path: Mutex<Vec<(PathBuf, Arc<Place>)>>,
}

/// One file, shared by the limiters of a process; locked while one of them opens the file.
type Place = Mutex<Opened>;

#[derive(Debug, Default)]
struct Opened {
    file: Weak<MappedStore>,
    /// The last attempt that failed and took long, and until when it is not repeated, by [`monotonic::ticks`].
    failed: Option<(Failure, Duration)>,
    /// When callers that retry first found another process opening the file, and when the last one did.
    busy: Option<(Duration, Duration)>,
}

impl Opened {
    /// When an attempt began that has just failed. While another process opens the file, that is when the first caller found it doing so.
    fn began(&mut self, failure: &Failure, started: Duration) -> Duration {
        let before = self.busy.take().filter(|(_, last)| started.saturating_sub(*last) < GONE);
        if failure.reason != Some(Degradation::Busy) {
            return started;
        }
        let since = before.map_or(started, |(since, _)| since);
        self.busy = Some((since, started));
        since
    }
}

/// After a slow attempt to open the file has failed, no other is made for this many times as long.
const PAUSE_TIMES: u32 = 10;
/// Attempts that take less time may be repeated with every operation.
const QUICK: Duration = Duration::from_micros(500);
/// Callers that have not retried for this time wait no longer.
const GONE: Duration = Duration::from_secs(1);

static FILES: ArcSwapOption<Files> = ArcSwapOption::const_empty();

/// The file that the options name: the one that this process has open, or newly opened.
fn open_shared(options: &SharedFileOptions, patience: Patience) -> Result<Arc<MappedStore>, Failure> {
    let paths = options.paths()?;
    let (last, others) = paths.split_last().ok_or_else(Error::no_answer)?;
    for path in others {
        match open_at(options, path, patience) {
            Err(failure) if failure.lacks_space => {}
            opened => return opened,
        }
    }
    open_at(options, last, patience)
}

fn open_at(
    options: &SharedFileOptions,
    path: &Path,
    patience: Patience,
) -> Result<Arc<MappedStore>, Failure> {
    let place = files().place(path);
    let mut known = match patience {
        Patience::Wait => place.lock(),
        Patience::Spin | Patience::Last => {
            place.try_lock_for(SPIN_FOR).ok_or_else(|| being_opened(path, patience))?
        }
    };
    if let Some(opened) = known.file.upgrade().filter(|opened| opened.is_usable())
        && opened.is_good_for(options)?
    {
        return Ok(opened);
    }
    let started = monotonic::ticks();
    if let Some((failure, until)) = &known.failed
        && started < *until
    {
        return Err(failure.clone());
    }
    let opened = MappedStore::open(options, path, patience).map_err(|failure| {
        let now = monotonic::ticks();
        let took = now.saturating_sub(known.began(&failure, started));
        let is_waited_for = failure.reason == Some(Degradation::Busy) && patience != Patience::Wait;
        let is_over = !is_waited_for || took > LOCK_TIMEOUT;
        let failure = Failure { is_busy: failure.is_busy && !is_over, ..failure };
        let is_repeated_later = is_over && took > QUICK && failure.reason.is_some();
        known.failed = is_repeated_later.then(|| (failure.clone(), now + took * PAUSE_TIMES));
        failure
    })?;
    let opened = Arc::new(opened);
    *known = Opened { file: Arc::downgrade(&opened), ..Opened::default() };
    Ok(opened)
}

fn files() -> Arc<Files> {
    loop {
        let found = FILES.load();
        if let Some(files) = found.as_ref().filter(|files| files.generation.is_here()) {
            return Arc::clone(files);
        }
        let made = Arc::new(Files { generation: ProcessGeneration::here(), by_path: Mutex::default() });
        FILES.compare_and_swap(&found, Some(made));
    }
}

impl Files {
    fn place(&self, path: &Path) -> Arc<Place> {
        let mut by_path = self.by_path.lock();
        if let Some((_, place)) = by_path.iter().find(|(known, _)| known == path) {
            return Arc::clone(place);
        }
        by_path.retain(|(_, place)| Arc::strong_count(place) > 1 || is_open(place));
        let place = Arc::default();
        by_path.push((path.to_owned(), Arc::clone(&place)));
        place
    }
}

fn is_open(place: &Place) -> bool {
    place.lock().file.strong_count() > 0
}
