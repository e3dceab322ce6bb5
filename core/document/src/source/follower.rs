//! A follower keeps the limiters of a process that take their configuration from the same place up to date.
//!
//! It has one thread, on which its tasks look at the file and read the store's log. Documents are parsed and compiled there, so
//! that decisions continue meanwhile. The first limiter of a place starts it, and the last one stops it. A forked child has its
//! own followers.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::source::copy;
use crate::source::file::{Look, WatchedFile};
use crate::source::looking::Looks;
use crate::source::origin::{Changes, Identity, Origin};
use crate::source::place::ConfigurationPlace;
use crate::source::problems::Problems;
use crate::source::snapshot::{Changed, DocumentText, EntriesChange, Known, Snapshot, StoreChange};
use crate::source::subscription::Subscription;
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_runtime::clock::Clock;
use polylimit_runtime::driver::Driver;
use polylimit_runtime::fork::{self, ProcessGeneration};

/// The limiters with the same key share a follower.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) place: ConfigurationPlace,
    pub(crate) copy: Option<PathBuf>,
    /// The origin of a configuration that comes from a store.
    pub(crate) origin: Option<Arc<dyn Identity>>,
}

impl Key {
    fn is_same(&self, other: &Self) -> bool {
        let same_origin = match (&self.origin, &other.origin) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => ours.is_same(&**theirs),
            _ => false,
        };
        same_origin && (&self.place, &self.copy) == (&other.place, &other.copy)
    }
}

/// Starts the tasks of a follower, which end with it.
pub(crate) type Tasks = fn(&Arc<Follower>, &Driver);

pub(crate) struct Follower {
    key: Key,
    /// Held while a change is applied, so that all limiters see changes in one order.
    state: Mutex<State>,
    subscriptions: Mutex<Vec<Weak<Subscription>>>,
    problems: ArcSwap<Problems>,
    /// The looks in progress at the file and at the store.
    file_looks: Arc<Looks>,
    store_looks: Arc<Looks>,
    driver: OnceLock<Driver>,
}

/// The newest configuration that a limiter has accepted.
#[derive(Default)]
struct State {
    snapshot: Snapshot,
    /// Whether document and entries are known.
    is_complete: bool,
    /// The version of the store that was read last, whether its document was valid or not.
    version: u64,
    /// The document of the store that was read last, whether it was valid or not.
    document_version: u64,
    /// Whether file and copy were read at the start.
    has_begun: bool,
    file: Option<WatchedFile>,
}

impl Follower {
    fn new(key: Key) -> Arc<Self> {
        Arc::new(Self {
            key,
            state: Mutex::default(),
            subscriptions: Mutex::default(),
            problems: ArcSwap::default(),
            file_looks: Arc::default(),
            store_looks: Arc::default(),
            driver: OnceLock::new(),
        })
    }

    pub(crate) fn place(&self) -> &ConfigurationPlace {
        &self.key.place
    }

    pub(crate) fn problems(&self) -> Arc<Problems> {
        self.problems.load_full()
    }

    /// Since when a source has been unreachable, or a look at it has not ended, in microseconds since the Unix epoch.
    pub(crate) fn unreachable_since_us(&self) -> Option<u64> {
        let now_us = Clock::system().now_us();
        let unended = [&self.file_looks, &self.store_looks].map(|looks| looks.unended_since_us(now_us));
        unended.into_iter().flatten().chain(self.problems.load().unreachable_since_us()).min()
    }

    /// The origins of the limiters.
    pub(crate) fn origins(&self) -> Vec<Arc<dyn Origin>> {
        self.subscriptions().iter().filter_map(|one| one.origin.clone()).collect()
    }

    fn subscriptions(&self) -> Vec<Arc<Subscription>> {
        self.subscriptions.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Feeds one more limiter. The file is read, and must be valid; the first limiter also reads the copy.
    pub(crate) fn begin(self: &Arc<Self>, new: &Arc<Subscription>, tasks: Tasks) -> Result<(), Error> {
        let mut state = self.state.lock();
        self.add(new);
        let is_first = !std::mem::replace(&mut state.has_begun, true);
        if is_first {
            self.read_copy(&mut state);
        }
        if let Some(path) = self.key.place.file() {
            let file = state.file.get_or_insert_with(|| WatchedFile::new(path));
            match file.read_now() {
                Look::Changed(text) => self.take_file(&mut state, text),
                Look::Unreadable(error) if state.snapshot.document.is_some() => {
                    self.note_file(Some(&error));
                    repeat(&state, new);
                }
                Look::Unreadable(error) => return Err(error),
                Look::Unchanged | Look::BeingWritten => {}
            }
            if let Some(error) = new.refused() {
                return Err(Error::clone(&error));
            }
        } else {
            repeat(&state, new);
        }
        drop(state);
        self.report();
        self.start(tasks)
    }

    /// Feeds one more limiter of a forked child, which starts with its parent's configuration.
    pub(crate) fn go_on(self: &Arc<Self>, new: &Arc<Subscription>, tasks: Tasks) {
        let state = self.state.lock();
        self.add(new);
        repeat(&state, new);
        drop(state);
        if let Err(error) = self.start(tasks) {
            self.note(|problems| problems.store = Some(error.clone()));
        }
    }

    fn add(&self, new: &Arc<Subscription>) {
        let mut subscriptions = self.subscriptions.lock();
        subscriptions.retain(|one| one.strong_count() > 0);
        subscriptions.push(Arc::downgrade(new));
    }

    fn start(self: &Arc<Self>, tasks: Tasks) -> Result<(), Error> {
        let driver = if let Some(driver) = self.driver.get() {
            driver
        } else {
            let made = Driver::new()?;
            let mut is_mine = false;
            let driver = self.driver.get_or_init(|| {
                is_mine = true;
                made
            });
            if is_mine {
                tasks(self, driver);
            }
            driver
        };
        driver.run_for_good()
    }

    fn remove(&self, subscription: &Arc<Subscription>) {
        let is_other =
            |one: &Weak<Subscription>| one.strong_count() > 0 && one.as_ptr() != Arc::as_ptr(subscription);
        self.subscriptions.lock().retain(is_other);
    }

    pub(crate) fn note(&self, change: impl Fn(&mut Problems)) {
        self.problems.rcu(|problems| {
            let mut problems = Problems::clone(problems);
            change(&mut problems);
            problems
        });
    }

    /// Notes that the file cannot be read, or can be again.
    fn note_file(&self, error: Option<&Error>) {
        if error.is_none() && self.problems.load().file.is_none() {
            return;
        }
        let now_us = Clock::system().now_us();
        self.note(|problems| {
            problems.file = error.cloned();
            problems.file_unreachable_since_us =
                error.map(|_| problems.file_unreachable_since_us.unwrap_or(now_us));
        });
    }

    /// Reports to each limiter what keeps it from the newest configuration. The caller must not hold the state: hooks of the
    /// program run in it.
    fn report(&self) {
        let problems = self.problems();
        for subscription in self.subscriptions() {
            subscription.report(&problems);
        }
    }

    /// The store has answered; `error` remains to be reported.
    fn note_answer(&self, error: Option<&Error>) {
        let problems = self.problems.load_full();
        if problems.store_unreachable_since_us.is_some() || problems.store.as_ref() != error {
            self.note(|problems| {
                (problems.store_unreachable_since_us, problems.store) = (None, error.cloned());
            });
        }
    }

    /// Looks at the file, and applies it when it has changed.
    pub(crate) fn look_at_file(&self) {
        let Some(path) = self.key.place.file() else { return };
        let _looking = self.file_looks.begin();
        let mut state = self.state.lock();
        match state.file.get_or_insert_with(|| WatchedFile::new(path)).look() {
            Look::BeingWritten => {}
            Look::Unchanged => self.note_file(None),
            Look::Changed(text) => self.take_file(&mut state, text),
            Look::Unreadable(error) => self.note_file(Some(&error)),
        }
        drop(state);
        self.report();
    }

    fn take_file(&self, state: &mut State, text: Arc<str>) {
        self.note_file(None);
        if state.snapshot.document.as_ref().is_some_and(|document| document.text == text) {
            // Limiters that have since refused another document continue with this one.
            let waiting = |one: &Arc<Subscription>| one.refused().is_some() || one.applied().is_none();
            for subscription in self.subscriptions().into_iter().filter(waiting) {
                repeat(state, &subscription);
            }
            return;
        }
        let before = state.snapshot.version;
        if !self.key.place.uses_store() {
            state.snapshot.version += 1;
            state.is_complete = true;
        }
        if self.offer(state, DocumentText { version: 0, text }) {
            self.write_copy(state);
        } else {
            state.snapshot.version = before;
        }
    }

    /// Offers a document to all limiters; `false` when all refuse it, so that the previous one stays.
    fn offer(&self, state: &mut State, document: DocumentText) -> bool {
        let before = state.snapshot.document.replace(document);
        let subscriptions = self.subscriptions();
        let mut is_taken = false;
        for subscription in &subscriptions {
            if subscription.apply(&state.snapshot, Changed::All, state.is_complete) {
                subscription.has_newest_document();
                is_taken = true;
            }
        }
        if !is_taken {
            state.snapshot.document = before;
        }
        is_taken
    }

    fn read_copy(&self, state: &mut State) {
        let Some(path) = &self.key.copy else { return };
        match copy::read(path, &self.of()) {
            // Without a document it is of no use: what is there may be older than the store's first one.
            Ok(Some(snapshot)) if snapshot.document.is_some() => {
                state.document_version = snapshot.document.as_ref().map_or(0, |document| document.version);
                state.version = snapshot.version;
                (state.snapshot, state.is_complete) = (snapshot, true);
            }
            Ok(_) => {}
            Err(error) => self.note(|problems| problems.copy = Some(error.clone())),
        }
    }

    fn write_copy(&self, state: &State) {
        let Some(path) = &self.key.copy else { return };
        if state.is_complete && state.snapshot.document.is_some() {
            let error = copy::write(path, &self.of(), &state.snapshot).err();
            if error.is_some() || self.problems.load().copy.is_some() {
                self.note(|problems| problems.copy.clone_from(&error));
            }
        }
    }

    /// Identifies the source of a copy. Two servers with the same prefix are not distinguished.
    fn of(&self) -> String {
        match &self.key.origin {
            Some(origin) => format!("{} of {}", self.key.place, origin.name()),
            None => self.key.place.to_string(),
        }
    }
}

impl Changes for Follower {
    fn known(&self) -> Option<Known> {
        let State { snapshot, is_complete, version, document_version, .. } = &*self.state.lock();
        let known =
            || Known { version: *version, last: snapshot.last.clone(), document_version: *document_version };
        is_complete.then(known)
    }

    fn wants_document(&self) -> bool {
        self.key.place == ConfigurationPlace::Store
    }

    fn looks(&self) -> &Arc<Looks> {
        &self.store_looks
    }

    fn take_change(&self, change: StoreChange<'_>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let StoreChange { version, last, document, entries } = change;
        let before = std::mem::replace(&mut state.snapshot.version, version);
        (state.version, state.snapshot.last, state.is_complete) = (version, last, true);
        let changed = match entries {
            EntriesChange::All(entries) => {
                state.snapshot.entries = entries;
                Changed::All
            }
            EntriesChange::Some(changes) => {
                state.snapshot.change_entries(changes);
                Changed::Entries(changes)
            }
        };
        if let Some(document) = &document {
            state.document_version = document.version;
            // A caller that waits for this version must not read an earlier error.
            self.note_answer(None);
        }
        let is_offered = document.is_some();
        let is_taken = document.is_some_and(|document| self.offer(state, document));
        let is_refused = is_offered && !is_taken;
        if is_refused && changed == Changed::Entries(&[]) {
            state.snapshot.version = before;
            return;
        }
        // Entries change under the active document.
        if !is_taken && state.snapshot.document.is_some() {
            for subscription in self.subscriptions() {
                subscription.apply(&state.snapshot, changed, true);
            }
        }
        self.write_copy(state);
    }

    fn reached(&self) {
        let has_document = self.state.lock().snapshot.document.is_some();
        let error = (!has_document).then(|| {
            Error::new(ErrorKind::StoreUnavailable, "no document is published in the store: publish one")
        });
        self.note_answer(error.as_ref());
        self.report();
    }

    fn missed(&self, error: &Error, is_unreachable: bool) {
        let now_us = Clock::system().now_us();
        self.note(|problems| {
            problems.store = Some(error.clone());
            problems.store_unreachable_since_us =
                is_unreachable.then(|| problems.store_unreachable_since_us.unwrap_or(now_us));
        });
        self.report();
    }
}

/// Applies to one limiter what the others already have.
fn repeat(state: &State, new: &Arc<Subscription>) {
    if state.snapshot.document.is_some() && new.apply(&state.snapshot, Changed::All, state.is_complete) {
        new.has_newest_document();
    }
}

/// The followers of this process.
pub(crate) struct Followers {
    generation: ProcessGeneration,
    /// Each with its number of limiters. A process has few of them.
    shared: Mutex<Vec<(Arc<Follower>, usize)>>,
    /// Those of a forked child: the parent's lock may be held by a thread that does not exist in the child.
    after_fork: OnceLock<Box<Self>>,
}

impl Followers {
    fn new() -> Self {
        Self { generation: ProcessGeneration::here(), shared: Mutex::default(), after_fork: OnceLock::new() }
    }

    fn here() -> &'static Self {
        static FOLLOWERS: OnceLock<Followers> = OnceLock::new();
        let mut followers = fork::once(&FOLLOWERS, Self::new);
        while !followers.generation.is_here() {
            let made = || Box::new(Self::new());
            followers = fork::once(&followers.after_fork, made).as_ref();
        }
        followers
    }

    /// Joins the follower of a key for one more limiter, which [leaves](Self::leave) it later.
    pub(crate) fn join(key: &Key) -> Arc<Follower> {
        let mut shared = Self::here().shared.lock();
        if let Some((follower, users)) = shared.iter_mut().find(|(known, _)| known.key.is_same(key)) {
            *users += 1;
            return Arc::clone(follower);
        }
        let follower = Follower::new(key.clone());
        shared.push((Arc::clone(&follower), 1));
        follower
    }

    /// Leaves a follower for one limiter. The last one stops its thread.
    pub(crate) fn leave(follower: &Arc<Follower>, subscription: &Arc<Subscription>) {
        follower.remove(subscription);
        let mut shared = Self::here().shared.lock();
        let Some(at) = shared.iter().position(|(known, _)| Arc::ptr_eq(known, follower)) else { return };
        shared[at].1 -= 1;
        if shared[at].1 > 0 {
            return;
        }
        let ended = shared.swap_remove(at);
        drop(shared);
        if let Some(driver) = follower.driver.get() {
            driver.close();
        }
        drop(ended);
    }
}
