//! How each kind of store lists its keys and looks at their states.

use crate::error::Error;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::store::redis::listing::RedisScan;
use crate::store::request::StoreRequest;
use crate::store::scan::{
    FoundKey, FoundPolicy, KnownHere, Look, LookRequest, ScanFilter, ScanStep, StoredKey,
};
use crate::store::shared_file::SharedFileStore;

/// The most keys, or places for keys, of one step.
const MAX_STEP: usize = 1_000;
/// The most buckets of a shared file of one step, whose lock other processes wait for.
const MAX_BUCKETS: usize = 256;

/// A scan of a store, over nodes that each have places of their own.
pub(crate) enum Scan<'a> {
    Memory(&'a MemoryStore),
    Local(&'a SharedFileStore),
    Redis(Box<RedisScan>),
}

impl Store {
    /// Prepares a scan.
    pub(crate) async fn scan(&self) -> Result<Scan<'_>, Error> {
        Ok(match self {
            Self::Memory(store) => Scan::Memory(store),
            Self::Local(store) => Scan::Local(store),
            Self::Redis(store) => Scan::Redis(Box::new(store.scan().await?)),
        })
    }

    /// The states of keys, which stay as they are; `None` for a key whose value in Redis has another type.
    pub(crate) async fn look_many(&self, requests: &[LookRequest<'_>]) -> Result<Vec<Option<Look>>, Error> {
        match self {
            Self::Memory(store) => requests.iter().map(|request| store.look(*request).map(Some)).collect(),
            Self::Local(store) => requests.iter().map(|request| store.look(*request).map(Some)).collect(),
            Self::Redis(store) => store.look_many(requests).await,
        }
    }

    /// Forgets a key of which only the digest is known.
    pub(crate) async fn forget_digest(&self, request: LookRequest<'_>) -> Result<(), Error> {
        let StoredKey::Digest(digest) = request.key else { return Ok(()) };
        match self {
            Self::Memory(store) => {
                store.forget_digest(request.id, digest);
                Ok(())
            }
            Self::Local(store) => store.forget_digest(request.id, request.numbers, digest),
            Self::Redis(store) => store.forget_digest(request).await,
        }
    }

    /// What this process knows of a key in front of the store.
    pub(crate) fn known_here(&self, request: StoreRequest<'_>) -> KnownHere {
        match self {
            Self::Memory(_) | Self::Local(_) => KnownHere::default(),
            Self::Redis(store) => store.known_here(request),
        }
    }
}

impl Scan<'_> {
    /// What tells the nodes apart. A place of a node means nothing once its identity is another one.
    pub(crate) fn nodes(&self) -> Result<Vec<u64>, Error> {
        Ok(match self {
            Self::Memory(store) => vec![store.identity()],
            Self::Local(store) => vec![store.identity()?],
            Self::Redis(scan) => scan.nodes(),
        })
    }

    /// Finds out which nodes there are by now.
    pub(crate) async fn refresh(&mut self) -> Result<(), Error> {
        match self {
            Self::Memory(_) | Self::Local(_) => Ok(()),
            Self::Redis(scan) => scan.refresh().await,
        }
    }

    /// The keys at the next places of a node: about as many as `count`, and at most about a thousand.
    pub(crate) async fn step(
        &mut self,
        node: usize,
        filter: ScanFilter<'_>,
        at: u64,
        count: usize,
    ) -> Result<ScanStep, Error> {
        let count = count.clamp(1, MAX_STEP);
        match self {
            Self::Memory(store) => Ok(store.scan(filter, at, count)),
            Self::Local(store) => store.scan(filter, at, count.min(MAX_BUCKETS)),
            Self::Redis(scan) => scan.step(node, filter, at, count).await,
        }
    }

    /// Finds out how long the store keeps keys of unknown policies, where a step does not say it.
    pub(crate) async fn add_expiries(&mut self, node: usize, keys: &mut [FoundKey]) -> Result<(), Error> {
        let Self::Redis(scan) = self else { return Ok(()) };
        let asked: Vec<_> = keys
            .iter()
            .filter_map(|found| match &found.policy {
                FoundPolicy::Named(policy) => Some((&**policy, &found.key)),
                FoundPolicy::Known(_) => None,
            })
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        let expiries = scan.expiries(node, &asked).await?;
        let named = keys.iter_mut().filter(|found| matches!(found.policy, FoundPolicy::Named(_)));
        for (found, expires_after_us) in named.zip(expiries) {
            found.expires_after_us = expires_after_us;
        }
        Ok(())
    }

    /// Whether each step is paced: the store serves other processes meanwhile, one at a time.
    pub(crate) fn is_paced(&self) -> bool {
        matches!(self, Self::Redis(_))
    }
}
