//! The content of a store: the names of its keys, found step by step, and the states of keys, read without changing them.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::report::{base64, hex};
use crate::rules::codec::States;
use crate::rules::decision::Degradation;
use crate::store::charge::{PolicyId, PreparedQuotas};

/// The key of a client or resource, as a store has it.
///
/// In a report it is the field `key` when it is text in UTF-8, `key_base64` for other bytes, and `key_digest`, in hexadecimal
/// digits, for a digest.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KeyName {
    /// The key itself.
    Bytes(Vec<u8>),
    /// The store has only a digest of the key, since the key is long: 20 bytes in Redis, and 32 in the other stores.
    Digest(Vec<u8>),
}

impl KeyName {
    /// The key itself; `None` when the store has only its digest.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(key) => Some(key),
            Self::Digest(_) => None,
        }
    }

    /// The bytes, and whether they are those of a digest.
    pub(crate) fn parts(&self) -> (&[u8], bool) {
        match self {
            Self::Bytes(key) => (key, false),
            Self::Digest(digest) => (digest, true),
        }
    }

    pub(crate) fn stored(&self) -> StoredKey<'_> {
        match self {
            Self::Bytes(key) => StoredKey::Plain(key),
            Self::Digest(digest) => StoredKey::Digest(digest),
        }
    }
}

/// Shows no key.
impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(key) => write!(f, "{} bytes", key.len()),
            Self::Digest(_) => f.write_str("a digest"),
        }
    }
}

/// An object with one field, whose name depends on the kind of key: reports flatten it into their own fields.
impl Serialize for KeyName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(key) => match std::str::from_utf8(key) {
                Ok(text) => serializer.collect_map([("key", text)]),
                Err(_) => serializer.collect_map([("key_base64", base64(key))]),
            },
            Self::Digest(digest) => serializer.collect_map([("key_digest", hex(digest))]),
        }
    }
}

/// The key in a request to read its states.
#[derive(Clone, Copy)]
pub(crate) enum StoredKey<'a> {
    Plain(&'a [u8]),
    Digest(&'a [u8]),
}

/// Which keys a scan finds.
#[derive(Clone, Copy)]
pub(crate) struct ScanFilter<'a> {
    pub(crate) policy: Option<&'a str>,
    /// The beginning of the key; a digest begins with nothing but the empty prefix.
    pub(crate) key_prefix: &'a [u8],
}

impl ScanFilter<'_> {
    pub(crate) fn takes_policy(&self, name: &str) -> bool {
        self.policy.is_none_or(|wanted| wanted == name)
    }

    pub(crate) fn takes_key(&self, key: StoredKey<'_>) -> bool {
        match key {
            StoredKey::Plain(key) => key.starts_with(self.key_prefix),
            StoredKey::Digest(_) => self.key_prefix.is_empty(),
        }
    }
}

/// The policy of a key that a scan has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FoundPolicy {
    Known(PolicyId),
    #[cfg_attr(
        not(any(feature = "redis", all(feature = "local", target_os = "linux"))),
        expect(dead_code, reason = "in memory every policy is known")
    )]
    Named(Box<str>),
}

/// A key that a scan has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FoundKey {
    pub(crate) policy: FoundPolicy,
    pub(crate) key: KeyName,
    /// How long the store keeps it, if it reports that.
    pub(crate) expires_after_us: Option<u64>,
}

/// The result of one step of a scan.
#[derive(Debug)]
pub(crate) struct ScanStep {
    pub(crate) found: Vec<FoundKey>,
    /// About how many keys the store examined.
    pub(crate) examined: u64,
    /// Where the next step begins; `None` after the last one.
    pub(crate) next: Option<u64>,
}

/// A key to look at, with the cost and headroom of the request in question.
#[derive(Clone, Copy)]
pub(crate) struct LookRequest<'a> {
    pub(crate) id: PolicyId,
    pub(crate) key: StoredKey<'a>,
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only a script needs it to find a key's states")
    )]
    pub(crate) cost: u64,
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only a script needs it to find a key's states")
    )]
    pub(crate) headroom: u8,
    /// The effective quotas, if they are not the policy's own. With them, the id may be any.
    pub(crate) effective: Option<&'a PreparedQuotas>,
}

/// The states of a key under its effective quotas, read without changing them.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) states: States,
    pub(crate) now_us: u64,
    /// The states are those that keys share in a full store.
    pub(crate) degraded: Option<Degradation>,
}

/// The leased units and the cached denial of a key in a process, in front of its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownHere {
    /// Units of the key that are held in a lease.
    pub(crate) leased_units: u64,
    /// Whether the denial cache denies the request.
    pub(crate) denial_cached: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_told_as_what_it_is() {
        for (key, json) in [
            (KeyName::Bytes(b"user:42".to_vec()), r#"{"key":"user:42"}"#),
            (KeyName::Bytes(vec![0xFF, 0]), r#"{"key_base64":"/wA="}"#),
            (KeyName::Digest(vec![0xAB; 2]), r#"{"key_digest":"abab"}"#),
        ] {
            assert_eq!(serde_json::to_string(&key).unwrap(), json);
        }
        assert_eq!(format!("{:?}", KeyName::Bytes(b"user:42".to_vec())), "7 bytes");
    }
}
