//! The names of keys in Redis: one main key for each policy and user key.
//!
//! ```text
//! main key = prefix ":1:" policy ":{" tag "}"          1 is the version of this layout
//! tag      = each byte of the user key, readable ones as they are, others as "%XX"   (up to 96 bytes)
//!          | "%"                                                                     the empty user key
//!          | "#" 40 hexadecimal digits                  160 bits of SHA-256, or of HMAC-SHA256 if there is a secret
//! ```
//!
//! Refunds, resets and blocks of a key are published to a [channel](channel) that its main key decides.
//!
//! A main key can be parsed from its end: the tag has no braces, a policy's name has no colon, and the three forms of a
//! tag differ, because a lone `%` and `#` encode no byte. So different user keys, policies and prefixes never share a
//! main key, except for a collision of the hash. The braces make the tag Redis Cluster's hash tag: all keys of a
//! decision share a slot.

pub(crate) mod channel;

use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::percent_decode;
use sha2::{Digest, Sha256};

use crate::config::kinds::is_readable;
use crate::config::target::Secret;
use crate::keys::channel::Channel;
use polylimit_store::scan::{KeyName, ScanFilter, StoredKey};

/// The longest tag that is not a hash, in bytes.
const MAX_READABLE: usize = 96;
/// The length of a hash after truncation.
const HASH_BYTES: usize = 20;

/// The user key in a main key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UserKey {
    Readable(Vec<u8>),
    /// Only a hash of the key is in the main key.
    Hashed,
}

/// Follows the main key in the name of a log.
const LOG: &[u8] = b"}:log:";

/// Precedes the digits in the names of channels.
const CHANNELS: &str = "invalidations:";

/// Writes and parses main keys. It holds the prefix and the secret that long keys are hashed with.
#[derive(Clone)]
pub(crate) struct KeyEncoder {
    prefix: Box<str>,
    // Cloned for each hash; the secret is already absorbed.
    keyed: Option<Hmac<Sha256>>,
}

impl KeyEncoder {
    /// The prefix is 1 to 64 [readable](is_readable) bytes, as checked by `RedisOptions`.
    pub(crate) fn new(prefix: &str, secret: Option<&Secret>) -> Self {
        // HMAC takes keys of any length, so this cannot fail.
        let keyed = secret.and_then(|secret| Hmac::new_from_slice(secret.reveal().as_bytes()).ok());
        Self { prefix: prefix.into(), keyed }
    }

    /// The beginning of a policy's main keys, including the brace that opens the tag.
    pub(crate) fn policy_prefix(&self, policy: &str) -> Box<[u8]> {
        format!("{}:1:{policy}:{{", self.prefix).into_bytes().into()
    }

    /// The channel on which the scripts publish what concerns a user key.
    pub(crate) fn channel(&self, policy_prefix: &[u8], user_key: &[u8]) -> Channel {
        let mut main_key = Vec::new();
        self.write(policy_prefix, user_key, &mut main_key);
        Channel::of(&main_key)
    }

    /// The name of a channel.
    pub(crate) fn channel_name(&self, channel: Channel) -> String {
        format!("{}:1:{CHANNELS}{}", self.prefix, channel.digits())
    }

    /// Parses the name of a channel; `None` for anything but a channel of this prefix.
    pub(crate) fn read_channel(&self, name: &[u8]) -> Option<Channel> {
        let rest = name.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b":1:")?;
        Channel::of_digits(rest.strip_prefix(CHANNELS.as_bytes())?)
    }

    /// Parses a main key into the policy's name and the user key. `None` for anything but a main key of this prefix.
    pub(crate) fn read<'a>(&self, main_key: &'a [u8]) -> Option<(&'a str, UserKey)> {
        let (policy, tag) = self.split(main_key)?;
        Some((policy, read_tag(tag)))
    }

    /// Parses a main key, or the name of its log, into the policy's name and the key as a store has it.
    pub(crate) fn read_stored<'a>(&self, name: &'a [u8]) -> Option<(&'a str, KeyName)> {
        // Neither a policy's name nor a tag has a brace.
        let log = name.windows(LOG.len()).position(|part| part == LOG);
        let (policy, tag) = self.split(&name[..log.map_or(name.len(), |at| at + 1)])?;
        let key = match (read_tag(tag), tag) {
            (UserKey::Readable(key), _) => KeyName::Bytes(key),
            (UserKey::Hashed, [_, digits @ ..]) => KeyName::Digest(read_digits(digits)?),
            (UserKey::Hashed, []) => return None,
        };
        Some((policy, key))
    }

    fn split<'a>(&self, main_key: &'a [u8]) -> Option<(&'a str, &'a [u8])> {
        let rest = main_key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b":1:")?.strip_suffix(b"}")?;
        let brace = rest.windows(2).position(|two| two == b":{")?;
        Some((std::str::from_utf8(&rest[..brace]).ok()?, &rest[brace + 2..]))
    }

    /// The SCAN pattern that matches all main keys and logs whose policy and key a filter accepts; it may match others, too.
    pub(crate) fn pattern(&self, filter: ScanFilter<'_>) -> Vec<u8> {
        let mut pattern = Vec::new();
        escape_glob(self.prefix.as_bytes(), &mut pattern);
        pattern.extend_from_slice(b":1:");
        match filter.policy {
            Some(policy) => escape_glob(policy.as_bytes(), &mut pattern),
            None => pattern.push(b'*'),
        }
        pattern.extend_from_slice(b":{");
        let mut tag = Vec::new();
        for &byte in filter.key_prefix {
            write_byte(byte, &mut tag);
        }
        escape_glob(&tag, &mut pattern);
        pattern.extend_from_slice(b"*}*");
        pattern
    }

    /// Appends the main key of a key as a store has it.
    pub(crate) fn write_stored(&self, policy_prefix: &[u8], key: StoredKey<'_>, out: &mut Vec<u8>) {
        match key {
            StoredKey::Plain(key) => self.write(policy_prefix, key, out),
            StoredKey::Digest(digest) => {
                out.extend_from_slice(policy_prefix);
                write_hash(digest, out);
                out.push(b'}');
            }
        }
    }

    /// Appends the main key of a user key. `policy_prefix` is the result of [`policy_prefix`](Self::policy_prefix).
    pub(crate) fn write(&self, policy_prefix: &[u8], user_key: &[u8], out: &mut Vec<u8>) {
        // Enough for every tag and for the suffix of a log's key.
        out.reserve(policy_prefix.len() + MAX_READABLE + 32);
        out.extend_from_slice(policy_prefix);
        self.write_tag(user_key, out);
        out.push(b'}');
    }

    fn write_tag(&self, user_key: &[u8], out: &mut Vec<u8>) {
        match readable_length(user_key) {
            _ if user_key.is_empty() => out.push(b'%'),
            None => self.write_hash(user_key, out),
            Some(length) if length == user_key.len() => out.extend_from_slice(user_key),
            Some(_) => {
                for &byte in user_key {
                    write_byte(byte, out);
                }
            }
        }
    }

    #[cold]
    fn write_hash(&self, user_key: &[u8], out: &mut Vec<u8>) {
        let hash: [u8; 32] = match &self.keyed {
            None => Sha256::digest(user_key).into(),
            Some(keyed) => keyed.clone().chain_update(user_key).finalize().into_bytes().into(),
        };
        write_hash(&hash[..HASH_BYTES], out);
    }
}

/// Shows the prefix, and whether there is a secret.
impl std::fmt::Debug for KeyEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyEncoder")
            .field("prefix", &self.prefix)
            .field("keyed", &self.keyed.is_some())
            .finish()
    }
}

/// Whether the main key of a user key holds a hash of it.
pub(crate) fn is_hashed(user_key: &[u8]) -> bool {
    readable_length(user_key).is_none()
}

/// The length of a user key in readable form; `None` when it is too long for that.
fn readable_length(user_key: &[u8]) -> Option<usize> {
    if user_key.len() > MAX_READABLE {
        return None;
    }
    let others = user_key.iter().filter(|&&byte| !is_readable(byte)).count();
    Some(user_key.len() + 2 * others).filter(|&length| length <= MAX_READABLE)
}

fn read_tag(tag: &[u8]) -> UserKey {
    match tag {
        b"%" => UserKey::Readable(Vec::new()),
        [b'#', ..] => UserKey::Hashed,
        _ => UserKey::Readable(percent_decode(tag).collect()),
    }
}

fn write_hash(hash: &[u8], out: &mut Vec<u8>) {
    out.push(b'#');
    for byte in hash {
        write_digits(*byte, b"0123456789abcdef", out);
    }
}

/// The bytes of a hash; `None` for digits in a form that this store does not write.
fn read_digits(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = digits.chunks(2).map(|two| match two {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    bytes.collect::<Option<Vec<u8>>>().filter(|bytes| bytes.len() == HASH_BYTES)
}

/// Appends bytes, escaped so that none has a meaning in a pattern.
fn escape_glob(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        if b"*?[]^\\".contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

fn write_byte(byte: u8, out: &mut Vec<u8>) {
    if is_readable(byte) {
        out.push(byte);
    } else {
        out.push(b'%');
        write_digits(byte, b"0123456789ABCDEF", out);
    }
}

fn write_digits(byte: u8, digits: &[u8; 16], out: &mut Vec<u8>) {
    out.push(digits[usize::from(byte >> 4)]);
    out.push(digits[usize::from(byte & 15)]);
}

#[cfg(test)]
mod tests;
