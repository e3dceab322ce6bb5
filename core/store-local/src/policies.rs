//! The keys of the file, and when their entries expire.
//!
//! A key consists of the length of the policy's name, the name, and the caller's key. A long key is replaced by a digest with
//! a secret of the file, so that attackers cannot choose a key that is mistaken for another one; then the length has its
//! highest bit set.

use std::hash::Hasher;

use sha2::{Digest, Sha256};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

use crate::shard::Lengths;
use polylimit_rules::codec::{has_blocks, unknown_until_us};
use polylimit_rules::explanation::Expiry;
use polylimit_store::scan::StoredKey;
use polylimit_store::stored_policy::StoredPolicies;

/// Keys of up to this many bytes are stored as they are.
const MAX_PLAIN_KEY: usize = 128;
const IS_DIGEST: u8 = 0x80;

pub(crate) type KeyBytes = SmallVec<[u8; 64]>;

/// The seeds of this file's hashes and digests.
#[derive(Clone, Copy)]
pub(crate) struct Secret(pub(crate) [u64; 6]);

/// Does not show the secret: it allows choosing keys that collide.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0[0], self.0[1]);
        hasher.write(key);
        hasher.finish()
    }

    #[inline]
    pub(crate) fn key(&self, policy: &str, key: &[u8]) -> KeyBytes {
        let mut bytes = KeyBytes::new();
        // A name has at most 64 bytes.
        let length = u8::try_from(policy.len()).unwrap_or(0);
        if key.len() > MAX_PLAIN_KEY {
            bytes.push(length | IS_DIGEST);
            bytes.extend_from_slice(policy.as_bytes());
            bytes.extend_from_slice(&self.digest(key));
        } else {
            bytes.push(length);
            bytes.extend_from_slice(policy.as_bytes());
            bytes.extend_from_slice(key);
        }
        bytes
    }

    /// A key of which only the digest is known.
    pub(crate) fn digest_key(policy: &str, digest: &[u8]) -> KeyBytes {
        let mut bytes = KeyBytes::new();
        bytes.push(u8::try_from(policy.len()).unwrap_or(0) | IS_DIGEST);
        bytes.extend_from_slice(policy.as_bytes());
        bytes.extend_from_slice(digest);
        bytes
    }

    #[cold]
    fn digest(&self, key: &[u8]) -> [u8; 32] {
        let digest =
            self.0[2..].iter().fold(Sha256::new(), |digest, word| digest.chain_update(word.to_ne_bytes()));
        digest.chain_update(key).finalize().into()
    }
}

/// The name of the policy in an encoded key.
fn policy_of(key: &[u8]) -> Option<&[u8]> {
    let (length, rest) = key.split_first()?;
    rest.get(..usize::from(length & !IS_DIGEST))
}

/// The policy's name and the key in an encoded key; `None` for any other bytes.
pub(crate) fn read_key(key: &[u8]) -> Option<(&str, StoredKey<'_>)> {
    let name = policy_of(key)?;
    let rest = key.get(1 + name.len()..)?;
    let is_digest = key.first()? & IS_DIGEST != 0;
    let key = if is_digest { StoredKey::Digest(rest) } else { StoredKey::Plain(rest) };
    Some((std::str::from_utf8(name).ok()?, key))
}

/// How long until an entry expires by the quotas of these policies. The entry of an unknown policy expires at once, but its record of
/// blocks is kept as long as there is room, and a record of a later version until the time that it names.
pub(crate) fn expiry(policies: &StoredPolicies, bytes: &[u8], lengths: Lengths, at_us: u64) -> Expiry {
    let (key, value) = bytes.split_at(usize::from(lengths.key).min(bytes.len()));
    let records = value.get(..usize::from(lengths.records)).unwrap_or_default();
    let Expiry { after_us, when_full_us } = known_expiry(policies, key, value, lengths, at_us);
    let unknown_us = unknown_until_us(records).saturating_sub(at_us);
    Expiry { after_us: after_us.max(unknown_us), when_full_us: when_full_us.max(unknown_us) }
}

/// The same by what this version knows.
fn known_expiry(policies: &StoredPolicies, key: &[u8], value: &[u8], lengths: Lengths, at_us: u64) -> Expiry {
    let name = policy_of(key).and_then(|name| std::str::from_utf8(name).ok());
    if let Some(policy) = name.and_then(|name| policies.named(name)) {
        let read = lengths.read(&policy, value, at_us, &mut Vec::new());
        let states = read.unwrap_or_else(|_| policy.used_up(at_us));
        if policy.is_of_keys {
            // The time computed under the quotas of the write applies, except to the record of blocks.
            return policy.rules.expiry_beside(&states, at_us, 0);
        }
        return policy.rules.expiry(&states, at_us);
    }
    let records = value.get(..usize::from(lengths.records)).unwrap_or_default();
    Expiry { after_us: if has_blocks(records) { u64::MAX } else { 0 }, when_full_us: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_meet() {
        let secret = Secret([1, 2, 3, 4, 5, 6]);
        let long = [b'k'; MAX_PLAIN_KEY + 1];
        let all = [
            secret.key("a", b"bc"),
            secret.key("ab", b"c"),
            secret.key("abc", b""),
            secret.key("a", &long),
            secret.key("a", &long[1..]),
            secret.key("a", &secret.digest(&long)),
            Secret([1, 2, 3, 4, 5, 7]).key("a", &long),
        ];
        for (at, key) in all.iter().enumerate() {
            assert!(!all[..at].contains(key) && u8::try_from(key.len()).is_ok());
            assert!(policy_of(key).is_some_and(|name| b"abc".starts_with(name)));
        }
    }
}
