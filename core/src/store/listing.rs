//! Lists the keys of each kind of store, and reads their states.

use crate::store::Store;
use crate::store::local::SharedFileStore;
use crate::store::redis::listing::RedisScan;
use polylimit_rules::error::Error;
use polylimit_store::charge::Charge;
use polylimit_store::scan::{
    FoundKey, FoundPolicy, KnownHere, Look, LookRequest, ScanFilter, ScanStep, StoredKey,
};
use polylimit_store_memory::MemoryStore;

/// The maximum number of keys, or of positions for keys, in one step.
const MAX_STEP: usize = 1_000;
/// The maximum number of buckets of a local store in one step, since other processes wait for the lock.
const MAX_BUCKETS: usize = 256;

/// A scan of a store over its nodes, each with its own positions.
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
            Self::Local(store) => {
                store.ready().await?;
                Scan::Local(store)
            }
            Self::Redis(store) => Scan::Redis(Box::new(store.scan().await?)),
            Self::Custom(_) => {
                return Err(Error::invalid_argument(
                    "a custom store does not list its keys: look into the store itself, or use explain for a key that you know",
                ));
            }
        })
    }

    /// Reads the states of keys without changing them; `None` for a key whose value in Redis has another type.
    pub(crate) async fn look_many(&self, requests: &[LookRequest<'_>]) -> Result<Vec<Option<Look>>, Error> {
        match self {
            Self::Memory(store) => requests.iter().map(|request| store.look(*request).map(Some)).collect(),
            Self::Local(store) => {
                let mut looks = Vec::with_capacity(requests.len());
                for request in requests {
                    looks.push(Some(store.look(*request).await?));
                }
                Ok(looks)
            }
            Self::Redis(store) => store.look_many(requests).await,
            Self::Custom(store) => {
                let mut looks = Vec::with_capacity(requests.len());
                for request in requests {
                    looks.push(Some(store.look(*request).await?));
                }
                Ok(looks)
            }
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
            Self::Local(store) => store.forget_digest(request.id, request.effective, digest).await,
            Self::Redis(store) => store.forget_digest(request).await,
            // A custom store keeps no digests.
            Self::Custom(_) => Ok(()),
        }
    }

    /// The leased units and the cached denial of a key in this process.
    pub(crate) fn known_here(&self, request: Charge<'_>) -> KnownHere {
        match self {
            Self::Memory(_) | Self::Local(_) | Self::Custom(_) => KnownHere::default(),
            Self::Redis(store) => store.known_here(request),
        }
    }
}

impl Scan<'_> {
    /// The identities of the nodes. A position in a node is valid only while the node keeps its identity.
    pub(crate) fn nodes(&self) -> Result<Vec<u64>, Error> {
        Ok(match self {
            Self::Memory(store) => vec![store.identity()],
            Self::Local(store) => vec![store.identity()?],
            Self::Redis(scan) => scan.nodes(),
        })
    }

    /// Finds the current nodes.
    pub(crate) async fn refresh(&mut self) -> Result<(), Error> {
        match self {
            Self::Memory(_) | Self::Local(_) => Ok(()),
            Self::Redis(scan) => scan.refresh().await,
        }
    }

    /// Returns the keys at the next positions of a node: about `count` of them, and at most about a thousand.
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
            Self::Local(store) => store.scan(filter, at, count.min(MAX_BUCKETS)).await,
            Self::Redis(scan) => scan.step(node, filter, at, count).await,
        }
    }

    /// Adds how long the store keeps keys of unknown policies, where a step does not report it.
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

    /// Whether steps are paced, because the store also serves other processes, one at a time.
    pub(crate) fn is_paced(&self) -> bool {
        matches!(self, Self::Redis(_))
    }
}
