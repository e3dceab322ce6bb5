//! The content of a store: the names of its keys, found step by step, and the states of keys, read without changing them.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::charge::{PolicyId, PreparedQuotas};
use polylimit_rules::codec::States;
use polylimit_rules::decision::Degradation;
use polylimit_rules::report::{base64, hex};

/// The key of a client or resource, as a store has it.
///
/// In a report it is the field `key` when it is text in UTF-8, `key_base64` for other bytes, and `key_digest`, in hexadecimal
/// digits, for a digest.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    #[doc(hidden)]
    pub fn parts(&self) -> (&[u8], bool) {
        match self {
            Self::Bytes(key) => (key, false),
            Self::Digest(digest) => (digest, true),
        }
    }

    #[doc(hidden)]
    pub fn stored(&self) -> StoredKey<'_> {
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
pub enum StoredKey<'a> {
    /// The key itself.
    Plain(&'a [u8]),
    /// The digest of a long key.
    Digest(&'a [u8]),
}

/// Which keys a scan finds.
#[derive(Clone, Copy)]
pub struct ScanFilter<'a> {
    /// The name of the policy; all policies if `None`.
    pub policy: Option<&'a str>,
    /// The beginning of the key; a digest begins with nothing but the empty prefix.
    pub key_prefix: &'a [u8],
}

impl ScanFilter<'_> {
    /// Whether the scan finds keys of the policy with this name.
    pub fn takes_policy(&self, name: &str) -> bool {
        self.policy.is_none_or(|wanted| wanted == name)
    }

    /// Whether the scan finds this key.
    pub fn takes_key(&self, key: StoredKey<'_>) -> bool {
        match key {
            StoredKey::Plain(key) => key.starts_with(self.key_prefix),
            StoredKey::Digest(_) => self.key_prefix.is_empty(),
        }
    }
}

/// The policy of a key that a scan has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FoundPolicy {
    /// A policy of the limiter.
    Known(PolicyId),
    /// A policy that another process has: the name that the store keeps.
    Named(Box<str>),
}

/// A key that a scan has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FoundKey {
    /// Its policy.
    pub policy: FoundPolicy,
    /// The key, or its digest.
    pub key: KeyName,
    /// How long the store keeps it, if it reports that.
    pub expires_after_us: Option<u64>,
}

/// The result of one step of a scan.
#[derive(Debug)]
pub struct ScanStep {
    /// The keys, each once.
    pub found: Vec<FoundKey>,
    /// About how many keys the store examined.
    pub examined: u64,
    /// Where the next step begins; `None` after the last one.
    pub next: Option<u64>,
}

/// A key to look at, with the cost and headroom of the request in question.
#[derive(Clone, Copy)]
pub struct LookRequest<'a> {
    /// The policy.
    pub id: PolicyId,
    /// The key.
    pub key: StoredKey<'a>,
    /// The units that the request would spend.
    pub cost: u64,
    /// The share of each quota that the request leaves, in percent.
    pub headroom: u8,
    /// The effective quotas, if they are not the policy's own. With them, the id may be any.
    pub effective: Option<&'a PreparedQuotas>,
}

/// The states of a key under its effective quotas, read without changing them.
#[derive(Clone, Debug)]
pub struct Look {
    /// The state of each quota, and what else the key has.
    pub states: States,
    /// The time of the store, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// The states are those that keys share in a full store.
    pub degraded: Option<Degradation>,
}

/// The leased units and the cached denial of a key in a process, in front of its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownHere {
    /// Units of the key that are held in a lease.
    pub leased_units: u64,
    /// Whether the denial cache denies the request.
    pub denial_cached: bool,
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
