//! The policies of a store, and the encoding of their keys and states in the file.
//!
//! A key consists of the length of the policy's name, the name, and the caller's key. A long key is replaced by a digest with
//! a secret of the file, so that attackers cannot choose a key that is mistaken for another one; then the length has its
//! highest bit set.

use std::hash::Hasher;
use std::sync::Arc;

use arc_swap::Guard;
use sha2::{Digest, Sha256};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

use crate::rules::algorithm::{Rules, State};
use crate::rules::codec::{
    PolicyCodec, Reader, States, Tag, has_blocks, read_log, read_reservations, write_log, write_reservations,
};
use crate::rules::explanation::Expiry;
use crate::rules::history::{Change, History};
use crate::rules::policy::Policy;
use crate::rules::transition::PolicyRules;
use crate::store::outage::Outage;
use crate::store::policy_table::{OfPolicy, PolicyTable};
use crate::store::request::{Numbers, PolicyId, PolicyOptions};
use crate::store::scan::StoredKey;
use crate::store::shared_file::shard::{Bytes, Lengths};

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

/// The policy's name and the key in an encoded key; `None` for bytes that are none.
pub(crate) fn read_key(key: &[u8]) -> Option<(&str, StoredKey<'_>)> {
    let name = policy_of(key)?;
    let rest = key.get(1 + name.len()..)?;
    let is_digest = key.first()? & IS_DIGEST != 0;
    let key = if is_digest { StoredKey::Digest(rest) } else { StoredKey::Plain(rest) };
    Some((std::str::from_utf8(name).ok()?, key))
}

#[derive(Debug)]
pub(crate) struct Policies {
    policies: PolicyTable<SharedFilePolicy>,
    /// The outage policy of the policies that have none of their own.
    pub(crate) outage: Outage,
}

#[derive(Debug)]
pub(crate) struct SharedFilePolicy {
    id: PolicyId,
    pub(crate) policy: Policy,
    pub(crate) rules: PolicyRules,
    codec: PolicyCodec,
    /// The tags of the quotas.
    tags: Box<[Tag]>,
    history: History,
    /// Whether these numbers decide about some keys only.
    is_of_keys: bool,
    pub(crate) outage: Outage,
}

/// Numbers that decide about some keys of a policy.
#[derive(Debug)]
pub(crate) struct SharedFileNumbers {
    pub(crate) policy: SharedFilePolicy,
    /// The same numbers for the fallback's store.
    pub(crate) fallback: Numbers,
}

/// The fallback's numbers among those of this store.
pub(crate) fn fallback_numbers(numbers: &Numbers) -> Option<&Numbers> {
    numbers.of::<SharedFileNumbers>().map(|numbers| &numbers.fallback)
}

impl Policies {
    /// `outage` applies to policies that have no outage policy of their own.
    pub(crate) fn new(outage: Outage) -> Self {
        Self { policies: PolicyTable::default(), outage }
    }

    /// The same policies, for a forked child.
    pub(crate) fn after_fork(&self) -> Self {
        Self { policies: self.policies.after_fork(), outage: self.outage }
    }

    /// Adds a policy or changes its numbers; the limiter's registry serializes the calls.
    pub(crate) fn set(&self, id: PolicyId, policy: &Policy, options: PolicyOptions, now_us: u64) {
        let known = self.policies.load(id);
        let history =
            known.as_ref().map_or_else(History::default, |known| known.history.then(&known.policy, now_us));
        let outage = options.outage.or(known.as_ref().map(|known| known.outage)).unwrap_or(self.outage);
        let changed = SharedFilePolicy::new(id, policy, Change::Past(&history), outage);
        let is_of_keys = options.has_numbers_of_keys;
        self.policies.set(Arc::new(SharedFilePolicy { history, is_of_keys, ..changed }));
    }

    pub(crate) fn forget(&self, id: PolicyId) {
        self.policies.forget(id);
    }

    #[inline]
    pub(crate) fn load(&self, id: PolicyId) -> Guard<Option<Arc<SharedFilePolicy>>> {
        self.policies.load(id)
    }
}

/// How long until an entry expires by the numbers of these policies. That of a policy that is not known here expires at once, but
/// its record of blocks is kept as long as there is room.
pub(crate) fn expiry(policies: &Policies, bytes: &[u8], lengths: Lengths, at_us: u64) -> Expiry {
    let (key, value) = bytes.split_at(usize::from(lengths.key).min(bytes.len()));
    let name = policy_of(key).and_then(|name| std::str::from_utf8(name).ok());
    if let Some(policy) = name.and_then(|name| policies.policies.named(name)) {
        let states = policy.read(value, lengths, at_us).unwrap_or_else(|| policy.used_up(at_us));
        if policy.is_of_keys {
            // The time that was computed under the numbers of the write counts, but for the record of blocks.
            return policy.rules.expiry_beside(&states, at_us, 0);
        }
        return policy.rules.expiry(&states, at_us);
    }
    let records = value.get(..usize::from(lengths.records)).unwrap_or_default();
    Expiry { after_us: if has_blocks(records) { u64::MAX } else { 0 }, when_full_us: 0 }
}

impl OfPolicy for SharedFilePolicy {
    fn id(&self) -> PolicyId {
        self.id
    }

    fn name(&self) -> &str {
        self.policy.name()
    }
}

impl SharedFilePolicy {
    pub(crate) fn new(id: PolicyId, policy: &Policy, change: Change<'_>, outage: Outage) -> Self {
        Self {
            id,
            policy: policy.clone(),
            rules: PolicyRules::new(policy),
            codec: PolicyCodec::new(policy, change),
            tags: policy.quotas().iter().map(Tag::of).collect(),
            history: History::default(),
            is_of_keys: matches!(change, Change::Now(_)),
            outage,
        }
    }

    /// The states of a key that was never seen.
    #[inline]
    pub(crate) fn fresh(&self) -> States {
        self.policy.quotas().iter().map(State::fresh).collect()
    }

    /// The states of a key whose usage is unknown: all units count as used.
    pub(crate) fn used_up(&self, now_us: u64) -> States {
        let mut states = self.fresh();
        for (quota, state) in self.rules.quotas.iter().zip(&mut states) {
            quota.rules.spend(state, now_us, quota.capacity);
        }
        states
    }

    /// Decodes the states that follow a key, as of some time; `None` when the bytes are malformed.
    pub(crate) fn read(&self, value: &[u8], lengths: Lengths, now_us: u64) -> Option<States> {
        let (records, logs) = value.split_at_checked(usize::from(lengths.records))?;
        let mut states = self.codec.read(records, now_us)?;
        let mut logs = Reader(logs);
        while !logs.is_empty() {
            let tag = logs.bytes(4)?;
            let length = logs.length(4)?;
            let bytes = logs.bytes(length)?;
            if tag == Tag::OF_COMMITS.0 {
                let commits = read_reservations(Reader(bytes))?;
                states.push(State::Commits(Box::new(commits)));
                continue;
            }
            if tag == Tag::OF_KEY.0 {
                let reservations = read_reservations(Reader(bytes))?;
                states.push(State::Reservations(Box::new(reservations)));
                continue;
            }
            for (state, of_quota) in states.iter_mut().zip(&self.tags) {
                if let State::SlidingLog(state) = state
                    && of_quota.0 == tag
                {
                    **state = read_log(bytes)?;
                }
            }
        }
        Some(states)
    }

    /// Appends the encoded states to the bytes of a key.
    pub(crate) fn write(&self, states: &[State], bytes: &mut Bytes) -> Lengths {
        let key = bytes.len();
        self.codec.write(states, bytes);
        let records = bytes.len() - key;
        for (state, tag) in states.iter().zip(&self.tags) {
            if let State::SlidingLog(state) = state {
                put_tagged(bytes, *tag, |bytes| write_log(state, bytes));
            }
        }
        for state in states.iter().skip(self.tags.len()) {
            let (tag, list) = match state {
                State::Reservations(reservations) => (Tag::OF_KEY, reservations),
                State::Commits(commits) => (Tag::OF_COMMITS, commits),
                _ => continue,
            };
            put_tagged(bytes, tag, |bytes| write_reservations(list, bytes));
        }
        let logs = bytes.len() - key - records;
        Lengths {
            key: u8::try_from(key).unwrap_or(u8::MAX),
            records: u16::try_from(records).unwrap_or(u16::MAX),
            logs: u32::try_from(logs).unwrap_or(u32::MAX),
        }
    }
}

/// Appends a tag, a length, and what `put` appends; nothing where that is nothing.
fn put_tagged(bytes: &mut Bytes, tag: Tag, put: impl FnOnce(&mut Bytes)) {
    let start = bytes.len();
    bytes.extend_from_slice(&tag.0);
    bytes.extend_from_slice(&[0; 4]);
    put(bytes);
    let length = bytes.len() - start - 8;
    if length == 0 {
        return bytes.truncate(start);
    }
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    bytes[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
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
