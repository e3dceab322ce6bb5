//! The encoding of a policy and a key in the file.
//!
//! It consists of the length of the policy's name, the name, and the key. A long key is replaced by a digest with a
//! secret of the file, so that attackers cannot choose a key that is mistaken for another one; then the length has its
//! highest bit set.

use std::hash::Hasher;

use sha2::{Digest, Sha256};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

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

    #[cold]
    fn digest(&self, key: &[u8]) -> [u8; 32] {
        let digest =
            self.0[2..].iter().fold(Sha256::new(), |digest, word| digest.chain_update(word.to_ne_bytes()));
        digest.chain_update(key).finalize().into()
    }
}

/// The name of the policy in an encoded key.
pub(crate) fn policy_of(key: &[u8]) -> Option<&[u8]> {
    let (length, rest) = key.split_first()?;
    rest.get(..usize::from(length & !IS_DIGEST))
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
