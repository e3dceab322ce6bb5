//! Lists of the keys in a store, and operations on all keys of a list.

mod cursor;
pub(crate) mod known_policies;
pub(crate) mod page;

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use crate::limiter::deadline::in_tokio;
use crate::limiter::listing::cursor::Cursor;
use crate::limiter::listing::known_policies::{KeyQuotas, KnownPolicies};
use crate::limiter::listing::page::{KeyFilter, KeyPage, ListBudget, ListedKey, ResetPage};
use crate::limiter::{Admin, Limiter, Shared, blocking};
use crate::store::listing::Scan;
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_runtime::monotonic::{self, Instant};
use polylimit_runtime::sleep::sleep;
use polylimit_store::charge::{Action, Charge, Wait};
use polylimit_store::scan::{FoundKey, KeyName, LookRequest, ScanFilter, StoredKey};

/// How many keys are examined in one call to a paced store.
const LOOKS: usize = 32;
/// How many keys are reset in one call.
const RESETS: usize = 64;
/// The fewest keys of a step: a step costs a round trip, however few keys it has.
const MIN_STEP: usize = 16;
const MAX_STEP: usize = 1_000;

/// The result of a walk over keys.
struct Walked {
    examined: u64,
    cursor: Option<String>,
}

/// Receives each key that passes the filter; returns whether this adds one to the result.
type Take<'t> = dyn FnMut(&FoundKey, ListedKey) -> bool + Send + 't;

impl Admin<'_> {
    /// Lists the keys in the store, with the usage of their quotas; keys of which nothing counts any longer are left
    /// out. A page ends by its [`budget`](ListBudget), and its [`cursor`](KeyPage::cursor) leads to the next one.
    ///
    /// A key that exists from the first page to the last is listed. A key that appears or disappears meanwhile may be,
    /// and a key may be listed twice when a table grows, or a cluster changes, in between. In Redis the keys are found
    /// by `SCAN`, for which the user needs the right, over connections of its own; each call is followed by a pause, so
    /// that it takes no more than a share of the server's time ([`ListBudget::pace_percent`]).
    ///
    /// Every key is examined by its effective quotas: those of a policy of the configuration or of the program, with
    /// overrides, or quotas that a request has named. For a policy that this limiter does not know, the page has the
    /// names of keys and how long they stay. A long key has only its [digest](crate::admin::KeyName::Digest), so no
    /// prefix matches it.
    ///
    /// ```
    /// use polylimit::admin::{KeyFilter, ListBudget};
    /// use polylimit::{Limiter, Policy};
    ///
    /// let limiter = Limiter::builder().policy(Policy::parse("api", "2/minute")?).build()?.blocking();
    /// for key in ["user:1", "user:2", "user:2"] {
    ///     let _ = limiter.check(key)?;
    /// }
    /// let page = limiter.admin().list(&KeyFilter::default().key_prefix(b"user:").at_least_used(100), &ListBudget::default(), None)?;
    /// assert_eq!(page.keys.len(), 1);
    /// assert_eq!(page.keys[0].key.bytes(), Some(&b"user:2"[..]));
    /// assert_eq!((page.keys[0].quotas[0].used, page.cursor), (2, None));
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a budget out of bounds, a cursor of another list, and outside of a
    /// tokio runtime, unless the store is in this process or on this host.
    /// [`StoreUnavailable`](crate::ErrorKind::StoreUnavailable) when the store does not answer;
    /// [`StoreFailed`](crate::ErrorKind::StoreFailed) when the user may not list keys.
    pub async fn list(
        self,
        filter: &KeyFilter<'_>,
        budget: &ListBudget,
        cursor: Option<&str>,
    ) -> Result<KeyPage, Error> {
        let (mut keys, mut listed) = (Vec::new(), HashSet::new());
        let mut take = |found: &FoundKey, key: ListedKey| {
            let is_new = listed.insert(found.clone());
            if is_new {
                keys.push(key);
            }
            is_new
        };
        let Walked { examined, cursor } = self.limiter.walk(filter, budget, cursor, &mut take).await?;
        Ok(KeyPage { keys, examined, cursor })
    }

    /// The most used keys, most used first: exact for all keys that are examined. A cursor in the answer means that the
    /// budget ended before all keys were examined.
    ///
    /// Denials leave no trace in a store, so this cannot show which keys are denied most often: see [`top_keys`](Self::top_keys).
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    pub async fn scan_top(
        self,
        filter: &KeyFilter<'_>,
        most: usize,
        budget: &ListBudget,
    ) -> Result<KeyPage, Error> {
        let mut keys: Vec<ListedKey> = Vec::new();
        let mut take = |_: &FoundKey, key: ListedKey| {
            let place = keys.partition_point(|other| other.used_percent >= key.used_percent);
            let is_known = keys.iter().any(|other| other.key == key.key && other.policy == key.policy);
            if place < most && !is_known {
                keys.insert(place, key);
                keys.truncate(most);
            }
            true
        };
        let budget = ListBudget { entries: usize::MAX, ..*budget };
        let Walked { examined, cursor } = self.limiter.walk(filter, &budget, None, &mut take).await?;
        Ok(KeyPage { keys, examined, cursor })
    }

    /// Lists a page of keys as [`list`](Self::list) does, and resets them: the store forgets them, and what they have
    /// used. Keys of policies that this limiter does not know are kept. To count the keys first, list them.
    ///
    /// ```
    /// use polylimit::admin::{KeyFilter, ListBudget};
    /// use polylimit::{Limiter, Policy};
    ///
    /// let limiter = Limiter::builder().policy(Policy::parse("api", "2/minute")?).build()?.blocking();
    /// for key in ["user:1", "user:2", "guest:1"] {
    ///     let _ = limiter.check(key)?;
    /// }
    /// let (filter, mut cursor) = (KeyFilter::default().policy("api").key_prefix(b"user:"), None);
    /// let mut reset = 0;
    /// loop {
    ///     let page = limiter.admin().reset_listed(&filter, &ListBudget::default(), cursor.as_deref())?;
    ///     reset += page.reset;
    ///     cursor = page.cursor;
    ///     if cursor.is_none() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!((reset, limiter.peek("guest:1")?.remaining()), (2, 1));
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`list`](Self::list). Keys may have been reset before an error.
    pub async fn reset_listed(
        self,
        filter: &KeyFilter<'_>,
        budget: &ListBudget,
        cursor: Option<&str>,
    ) -> Result<ResetPage, Error> {
        let mut keys = HashSet::new();
        let mut take = |found: &FoundKey, _: ListedKey| keys.insert(found.clone());
        let Walked { examined, cursor } = self.limiter.walk(filter, budget, cursor, &mut take).await?;
        let keys: Vec<FoundKey> = keys.into_iter().collect();
        let reset = self.limiter.reset_found(&keys, budget).await?;
        Ok(ResetPage { reset, unknown: keys.len() as u64 - reset, examined, cursor })
    }
}

impl Limiter {
    /// Walks over the keys of the store until the budget ends.
    async fn walk(
        &self,
        filter: &KeyFilter<'_>,
        budget: &ListBudget,
        cursor: Option<&str>,
        take: &mut Take<'_>,
    ) -> Result<Walked, Error> {
        let shared = self.shared();
        shared.registry.check_open()?;
        budget.check()?;
        if !shared.store.is_here() {
            in_tokio("list")?;
        }
        // A policy may be given by its quotas.
        let one_off = match filter.policy {
            Some(text) if Policy::is_quotas(text) => Some(Policy::one_off(text, None)?),
            _ => None,
        };
        let policy = one_off.as_ref().map(Policy::name).or(filter.policy);
        let scan_filter = ScanFilter { policy, key_prefix: filter.key_prefix };
        let cursor = Cursor::read(cursor, number_of(scan_filter, filter.at_least_used))?;
        let walk = Walk { shared, filter: scan_filter, at_least_used: filter.at_least_used, budget, take };
        shared.closing.unless_closed(walk.run(cursor)).await
    }

    /// Resets keys; returns how many had a policy that this limiter knows.
    async fn reset_found(&self, keys: &[FoundKey], budget: &ListBudget) -> Result<u64, Error> {
        let shared = self.shared();
        let mut known = KnownPolicies::new(shared);
        known.learn(keys);
        let mut reset = 0;
        for keys in keys.chunks(RESETS) {
            let started = monotonic::now();
            let now_us = shared.store.clock().now_us();
            let known: Vec<(&FoundKey, KeyQuotas<'_>)> =
                keys.iter().filter_map(|found| Some((found, known.effective(found, now_us)?))).collect();
            let mut charges = Vec::with_capacity(known.len());
            for (found, of) in &known {
                let (id, key) = (of.id, found.key.stored());
                match key {
                    StoredKey::Plain(key) => {
                        let reset = Charge::new(id, key, Action::Reset, 1);
                        charges.push(Charge { effective: of.effective, ..reset });
                    }
                    StoredKey::Digest(_) => {
                        let digest = LookRequest { id, key, cost: 1, headroom: 0, effective: of.effective };
                        shared.closing.unless_closed(shared.store.forget_digest(digest)).await?;
                    }
                }
            }
            let resetting = shared.store.start_each(&charges, Wait::Await);
            let answers = shared.closing.unless_closed(resetting).await?;
            for (charge, answer) in charges.iter().zip(&answers) {
                shared.answered(*charge, answer);
            }
            if answers.iter().any(|(decision, _)| decision.source.is_outage()) {
                return Err(Error::new(
                    crate::ErrorKind::StoreUnavailable,
                    "the store did not reset all keys: list them again",
                ));
            }
            reset += known.len() as u64;
            if !shared.store.is_here() {
                pause(budget, started).await;
            }
        }
        Ok(reset)
    }
}

/// Identifies a filter in cursors, the same in every process.
fn number_of(filter: ScanFilter<'_>, at_least_used: u8) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(filter.policy.unwrap_or_default().as_bytes());
    hasher.write_u8(u8::from(filter.policy.is_some()));
    hasher.write(filter.key_prefix);
    hasher.write_u8(at_least_used);
    hasher.finish()
}

/// Waits out the pause that the budget requires after a call that started at `started`.
async fn pause(budget: &ListBudget, started: Instant) {
    let percent = u32::from(budget.pace_percent);
    let took = monotonic::now().saturating_duration_since(started);
    let pause = took * (100 - percent) / percent;
    if !pause.is_zero() {
        sleep(pause).await;
    }
}

/// One walk over the keys of a store.
struct Walk<'w, 't> {
    shared: &'w Shared,
    filter: ScanFilter<'w>,
    at_least_used: u8,
    budget: &'w ListBudget,
    take: &'w mut Take<'t>,
}

impl Walk<'_, '_> {
    async fn run(mut self, mut cursor: Cursor) -> Result<Walked, Error> {
        let mut scan = self.shared.store.scan().await?;
        let mut known = KnownPolicies::new(self.shared);
        cursor.take_nodes(&scan.nodes()?);
        let (mut taken, mut examined, mut step_keys) = (0, 0, 0);
        loop {
            let Some((node, at)) = cursor.next() else {
                // A cluster may have changed meanwhile.
                scan.refresh().await?;
                cursor.take_nodes(&scan.nodes()?);
                if cursor.next().is_some() {
                    continue;
                }
                break;
            };
            let wanted = self.budget.entries.saturating_sub(taken).clamp(MIN_STEP, MAX_STEP);
            // If few keys pass the filter, larger steps save round trips.
            step_keys = wanted.max(step_keys);
            let left = usize::try_from(self.budget.examined.saturating_sub(examined)).unwrap_or(usize::MAX);
            let started = monotonic::now();
            let step = scan.step(node, self.filter, at, step_keys.min(left).max(1)).await?;
            if scan.is_paced() {
                pause(self.budget, started).await;
            }
            examined += step.examined;
            let before = taken;
            taken += self.take_step(&mut scan, node, &mut known, step.found).await?;
            step_keys = if taken - before < wanted / 2 { (step_keys * 4).min(MAX_STEP) } else { 0 };
            cursor.advance(node, step.next);
            if taken >= self.budget.entries || examined >= self.budget.examined {
                break;
            }
        }
        Ok(Walked { examined, cursor: cursor.text() })
    }

    /// Examines the keys of a step; returns how many were taken.
    async fn take_step(
        &mut self,
        scan: &mut Scan<'_>,
        node: usize,
        known: &mut KnownPolicies<'_>,
        mut found: Vec<FoundKey>,
    ) -> Result<usize, Error> {
        known.learn(&found);
        let now_us = self.shared.store.clock().now_us();
        let unknown: Vec<FoundKey> =
            found.extract_if(.., |found| known.effective(found, now_us).is_none()).collect();
        let mut taken = self.take_unknown(scan, node, known, unknown).await?;
        for found in found.chunks(LOOKS) {
            let started = monotonic::now();
            let effective: Vec<(&FoundKey, KeyQuotas<'_>)> =
                found.iter().filter_map(|found| Some((found, known.effective(found, now_us)?))).collect();
            let requests: Vec<LookRequest<'_>> = effective
                .iter()
                .map(|(found, of)| {
                    let key = found.key.stored();
                    LookRequest { id: of.id, key, cost: 0, headroom: 0, effective: of.effective }
                })
                .collect();
            let looks = self.shared.store.look_many(&requests).await?;
            if scan.is_paced() {
                pause(self.budget, started).await;
            }
            for ((found, of), look) in effective.iter().zip(looks) {
                let listed = look.and_then(|look| ListedKey::of(&found.key, &of.policy, &look));
                if let Some(listed) = listed.filter(|listed| listed.used_percent >= self.at_least_used.into())
                {
                    taken += usize::from((self.take)(found, listed));
                }
            }
        }
        Ok(taken)
    }

    /// Lists keys of unknown policies, whose usage is unknown, too.
    async fn take_unknown(
        &mut self,
        scan: &mut Scan<'_>,
        node: usize,
        known: &KnownPolicies<'_>,
        mut unknown: Vec<FoundKey>,
    ) -> Result<usize, Error> {
        if unknown.is_empty() || self.at_least_used > 0 {
            return Ok(0);
        }
        let started = monotonic::now();
        scan.add_expiries(node, &mut unknown).await?;
        if scan.is_paced() {
            pause(self.budget, started).await;
        }
        let mut taken = 0;
        for found in unknown {
            let key: KeyName = found.key.clone();
            let listed = ListedKey::of_unknown(known.name(&found.policy), key, found.expires_after_us);
            taken += usize::from((self.take)(&found, listed));
        }
        Ok(taken)
    }
}

impl blocking::Admin<'_> {
    /// See [`Admin::list`].
    ///
    /// # Errors
    /// See [`Admin::list`].
    pub fn list(
        self,
        filter: &KeyFilter<'_>,
        budget: &ListBudget,
        cursor: Option<&str>,
    ) -> Result<KeyPage, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().list(filter, budget, cursor))?
    }

    /// See [`Admin::scan_top`].
    ///
    /// # Errors
    /// See [`Admin::scan_top`].
    pub fn scan_top(
        self,
        filter: &KeyFilter<'_>,
        most: usize,
        budget: &ListBudget,
    ) -> Result<KeyPage, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().scan_top(filter, most, budget))?
    }

    /// See [`Admin::reset_listed`].
    ///
    /// # Errors
    /// See [`Admin::reset_listed`].
    pub fn reset_listed(
        self,
        filter: &KeyFilter<'_>,
        budget: &ListBudget,
        cursor: Option<&str>,
    ) -> Result<ResetPage, Error> {
        self.limiter.block_on(self.limiter.asynchronous().admin().reset_listed(filter, budget, cursor))?
    }
}
