//! The hash of a key, and the digest that replaces a long key.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};

use polylimit_store::charge::PolicyId;
use polylimit_store::scan::StoredKey;

/// Keys of up to this many bytes are stored as they are.
const MAX_PLAIN_KEY: usize = 128;
const DIGEST_BYTES: usize = 32;
/// A digest is stored with zeros behind it, longer than any key that is stored as it is, so that the two can be distinguished.
const STORED_DIGEST_BYTES: usize = MAX_PLAIN_KEY + 1;

/// Hashes keys with a random seed, so that attackers cannot choose keys that collide.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyHash(RandomState);

impl KeyHash {
    /// The hash of a key under a policy.
    #[inline]
    pub(crate) fn of(&self, id: PolicyId, key: &[u8]) -> u64 {
        // Fibonacci hashing of the policy's number (Knuth, TAOCP 6.4) gives one key a different hash under each policy.
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.finish() ^ id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Replaces long keys by a digest, so that `max_keys` bounds the memory regardless of key length. The digest is keyed with a
/// secret of this store, so that attackers cannot choose a key that is mistaken for another key or for the digest of one.
#[derive(Debug)]
pub(crate) struct LongKeys {
    secret: [u8; 32],
}

impl Default for LongKeys {
    fn default() -> Self {
        let mut secret = [0; 32];
        for bytes in secret.chunks_exact_mut(8) {
            // The standard library seeds each of these from the system's random numbers.
            bytes.copy_from_slice(&std::hash::RandomState::new().hash_one(0).to_le_bytes());
        }
        Self { secret }
    }
}

impl LongKeys {
    /// Whether a digest is stored instead of the key.
    #[inline]
    pub(crate) fn is_long(key: &[u8]) -> bool {
        key.len() > MAX_PLAIN_KEY
    }

    /// The digest to store in place of a long key.
    #[inline]
    pub(crate) fn digest(&self, key: &[u8]) -> Option<StoredDigest> {
        Self::is_long(key).then(|| self.digest_of_long(key))
    }

    #[cold]
    fn digest_of_long(&self, key: &[u8]) -> StoredDigest {
        stored_digest(&Sha256::new().chain_update(self.secret).chain_update(key).finalize())
    }
}

pub(crate) type StoredDigest = [u8; STORED_DIGEST_BYTES];

/// A digest as it is stored.
pub(crate) fn stored_digest(digest: &[u8]) -> StoredDigest {
    let mut stored = [0; STORED_DIGEST_BYTES];
    for (byte, of_digest) in stored.iter_mut().zip(digest.iter().take(DIGEST_BYTES)) {
        *byte = *of_digest;
    }
    stored
}

/// The key, or the digest, that is stored as these bytes.
pub(crate) fn read_stored(stored: &[u8]) -> StoredKey<'_> {
    if stored.len() == STORED_DIGEST_BYTES {
        return StoredKey::Digest(&stored[..DIGEST_BYTES]);
    }
    StoredKey::Plain(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_kept_short() {
        let keys = LongKeys::default();
        let (longest, too_long) = ([b'k'; MAX_PLAIN_KEY], [b'k'; MAX_PLAIN_KEY + 1]);
        assert_eq!(keys.digest(&longest), None);
        assert_eq!(keys.digest(&too_long), keys.digest(&too_long));
        assert_ne!(keys.digest(&too_long), LongKeys::default().digest(&too_long));
        let stored = keys.digest(&too_long).unwrap();
        assert!(matches!(read_stored(&stored), StoredKey::Digest(digest) if stored_digest(digest) == stored));
        for key in [&longest[..], &[0; DIGEST_BYTES]] {
            assert!(matches!(read_stored(key), StoredKey::Plain(read) if read == key));
        }
    }
}
