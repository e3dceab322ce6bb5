//! The channels on which the scripts publish refunds, resets and blocks: one of 256 by a hash of the main key, so that a process receives
//! messages about few keys other than those that it has denied or leased.
//!
//! ```text
//! channel = prefix ":1:invalidations:" the first two hexadecimal digits of the main key's SHA-1
//! ```
//!
//! SHA-1 because servers have it as `redis.sha1hex`: one call of a function in C, while a loop over the bytes in Lua takes three times as
//! long. It only spreads the keys; nothing depends on its strength.

use std::sync::atomic::{AtomicU64, Ordering};

use sha1::{Digest, Sha1};

/// The number of one of the 256 channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channel(u8);

impl Channel {
    /// The channel that the doctor tests.
    pub(crate) const FIRST: Self = Self(0);

    /// The channel of a main key.
    pub(crate) fn of(main_key: &[u8]) -> Self {
        Self(Sha1::digest(main_key)[0])
    }

    /// The two digits at the end of the channel's name.
    pub(super) fn digits(self) -> String {
        format!("{:02x}", self.0)
    }

    /// The channel with these digits.
    pub(super) fn of_digits(digits: &[u8]) -> Option<Self> {
        let &[high, low] = digits else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        u8::try_from(digit(high)? << 4 | digit(low)?).ok().map(Self)
    }

    fn word(self) -> usize {
        usize::from(self.0 >> 6)
    }

    fn bit(self) -> u64 {
        1 << (self.0 & 63)
    }
}

/// Some of the channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChannelSet([u64; 4]);

impl ChannelSet {
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn contains(self, channel: Channel) -> bool {
        self.0[channel.word()] & channel.bit() != 0
    }

    pub(crate) fn insert(&mut self, channel: Channel) {
        self.0[channel.word()] |= channel.bit();
    }

    pub(crate) fn remove(&mut self, channel: Channel) {
        self.0[channel.word()] &= !channel.bit();
    }

    pub(crate) fn with(self, others: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | others.0[word]))
    }

    pub(crate) fn without(self, others: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !others.0[word]))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Channel> {
        (0..=u8::MAX).map(Channel).filter(move |channel| self.contains(*channel))
    }
}

/// A set of channels to which several threads add and from which one takes.
#[derive(Debug, Default)]
pub(crate) struct SharedChannelSet([AtomicU64; 4]);

impl SharedChannelSet {
    /// Adds a channel; returns whether it is new.
    pub(crate) fn insert(&self, channel: Channel) -> bool {
        let (word, bit) = (&self.0[channel.word()], channel.bit());
        word.load(Ordering::Acquire) & bit == 0 && word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    pub(crate) fn get(&self) -> ChannelSet {
        ChannelSet(std::array::from_fn(|word| self.0[word].load(Ordering::Acquire)))
    }

    /// Removes and returns all channels.
    pub(crate) fn take(&self) -> ChannelSet {
        ChannelSet(std::array::from_fn(|word| self.0[word].swap(0, Ordering::AcqRel)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_holds_every_channel_on_its_own() {
        for number in 0..=u8::MAX {
            let mut set = ChannelSet::default();
            set.insert(Channel(number));
            assert_eq!(set.iter().collect::<Vec<_>>(), [Channel(number)]);
            let shared = SharedChannelSet::default();
            assert!(shared.insert(Channel(number)) && !shared.insert(Channel(number)));
            assert_eq!(shared.get(), set);
            assert_eq!((shared.take(), shared.take()), (set, ChannelSet::default()));
            assert_eq!(set.with(set).without(set), ChannelSet::default());
            set.remove(Channel(number));
            assert!(set.is_empty());
            assert_eq!(Channel::of_digits(Channel(number).digits().as_bytes()), Some(Channel(number)));
        }
        for wrong in [&b""[..], b"0", b"000", b"+1", b"g0", b"\xff0"] {
            assert_eq!(Channel::of_digits(wrong), None);
        }
    }

    #[test]
    fn channel_is_the_first_byte_of_the_published_sha1() {
        assert_eq!(Channel::of(b"abc"), Channel(0xa9));
        assert_eq!(Channel::of(b""), Channel(0xda));
    }
}
