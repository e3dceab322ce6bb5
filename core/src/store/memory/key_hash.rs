//! Hashes keys with a random seed, so that attackers cannot choose keys that collide.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use crate::store::request::PolicyId;

#[derive(Clone, Debug, Default)]
pub(crate) struct KeyHash(RandomState);

impl KeyHash {
    /// The hash of a key under a policy.
    #[inline]
    pub(crate) fn of(&self, id: PolicyId, key: &[u8]) -> u64 {
        // Fibonacci hashing of the policy's number (Knuth, TAOCP 6.4) gives one key a different hash under each policy.
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.finish() ^ u64::from(id.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}
