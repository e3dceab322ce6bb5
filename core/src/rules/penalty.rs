//! Penalties: denials in a row block a key, and each block in a row is twice as long.

/// When denials block a key, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Penalty {
    /// How many denials block a key, 1 to 65,535.
    pub(crate) denials: u16,
    /// The time within which they have to come.
    pub(crate) within_us: u64,
    /// The length of the first block.
    pub(crate) block_us: u64,
    /// The length of the longest block.
    pub(crate) max_us: u64,
    /// How long after a block's end the next one is a first block again.
    pub(crate) forget_us: u64,
}
