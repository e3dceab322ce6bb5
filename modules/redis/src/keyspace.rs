//! What the commands need of a server: values of keys, read and replaced one after the other.

use std::ops::Range;

use polylimit_rules::codec::Bytes;

/// What a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The key is not there.
    Nothing,
    /// A string.
    String(&'a [u8]),
    /// Another type.
    Foreign,
}

/// How long a key lives after it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// As long as before.
    Kept,
    /// For ever: decisions by a manual clock.
    Never,
    /// Until this time in milliseconds.
    At(u64),
}

/// What happens to the value of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    #[default]
    Nothing,
    /// The key is deleted.
    Delete,
    /// Another value of the same length, in its place.
    Overwrite(Bytes),
    /// Another value.
    Set(Bytes, Expiry),
    /// Bytes at a place of a long value, its end at most, of which what is before it stays. The value ends with them.
    Write(usize, Bytes, Expiry),
}

/// What other processes have to know: their denial caches and leases follow a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The key may be admitted again.
    Released,
    /// The key is blocked.
    Blocked,
}

/// The effects of an operation on a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// What happens to its value.
    pub change: Change,
    /// What is published.
    pub notice: Option<Notice>,
}

/// The keys of a command.
pub trait Keyspace {
    /// Reads a key of the command, by its place, and applies what follows from its value, at once.
    fn update(&mut self, key: usize, decide: &mut dyn FnMut(Found<'_>) -> Effect);

    /// Reads several keys of the command, and then applies what follows from their values to each, in their order.
    fn update_together(&mut self, keys: Range<usize>, decide: &mut dyn FnMut(&[Found<'_>]) -> Vec<Effect>);
}
