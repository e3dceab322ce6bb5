//! The layout of the file, in words of 8 bytes in the machine's byte order.
//!
//! | what | words |
//! |---|---|
//! | header | 512: the first identifies the format, and is written last |
//! | owners | 4 for each process that may have it open |
//! | shards | the rest, in equal parts; the last and smaller one is the overflow |
//!
//! A shard is a head, buckets (a power of two, one word each), and blocks of a cache line. All zero is an empty shard.

use std::ops::Range;

/// "plylimit" as bytes; a machine with another byte order reads another value.
pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"plylimit");
/// The version of everything that processes have to agree on: this layout, the hash, the bytes of keys and states.
pub(crate) const VERSION: u64 = 1;

/// Words of the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    /// The size of the file in bytes.
    pub(crate) const SIZE: usize = 2;
    /// Two words: the boot of the system that the content belongs to.
    pub(crate) const BOOT: usize = 4;
    /// Six words: two to hash keys with, four to digest long keys with.
    pub(crate) const SECRET: usize = 6;
    /// The number of words in use.
    pub(crate) const USED: usize = 12;
    /// The note that the file was left in order, after those words: 0 in a file from before this word existed.
    pub(crate) const TIDY: usize = 12;
}

const HEADER_WORDS: usize = 512;
pub(crate) const OWNERS: u16 = 1024;
pub(crate) const OWNER_WORDS: usize = 4;
const SHARDS_AT: usize = HEADER_WORDS + OWNERS as usize * OWNER_WORDS;

pub(crate) const BLOCK_WORDS: usize = 8;
pub(crate) const SHARD_HEAD_WORDS: usize = 16;

pub(crate) const MIN_SIZE: u64 = 1 << 20;
/// Containers often have 64 MiB of shared memory, which others also use.
pub(crate) const DEFAULT_SIZE: u64 = 16 << 20;
pub(crate) const MAX_SIZE: u64 = 64 << 30;
/// Smaller shards would have no room for long logs.
const BYTES_PER_SHARD: u64 = 1 << 20;
const MAX_SHARDS: u64 = 256;

/// The position of the owner with this number.
pub(crate) const fn owner_at(number: u16) -> usize {
    HEADER_WORDS + number as usize * OWNER_WORDS
}

/// The layout of a file of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) words: usize,
    pub(crate) shards: usize,
    pub(crate) shard_words: usize,
    pub(crate) overflow_words: usize,
}

impl Layout {
    /// The layout for a size in the allowed range.
    pub(crate) fn of_size(bytes: u64) -> Self {
        let shards = usize::try_from((bytes / BYTES_PER_SHARD).clamp(1, MAX_SHARDS)).unwrap_or(1);
        let words = usize::try_from(bytes / 8).unwrap_or(usize::MAX);
        let left = words.saturating_sub(SHARDS_AT);
        let overflow_words = (left / 64).clamp(1 << 12, 1 << 19) / BLOCK_WORDS * BLOCK_WORDS;
        let shard_words = left.saturating_sub(overflow_words) / shards / BLOCK_WORDS * BLOCK_WORDS;
        Self { words, shards, shard_words, overflow_words }
    }

    /// The words of a shard; the one after the last is the overflow.
    pub(crate) fn shard(&self, number: usize) -> Range<usize> {
        let start = SHARDS_AT + number * self.shard_words;
        let length = if number < self.shards { self.shard_words } else { self.overflow_words };
        start..start + length
    }
}

/// The layout of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardLayout {
    pub(crate) buckets: usize,
    pub(crate) blocks_at: usize,
    pub(crate) blocks: usize,
}

impl ShardLayout {
    pub(crate) fn of_words(words: usize) -> Self {
        // About one bucket for each block.
        let most = (words - SHARD_HEAD_WORDS) / (BLOCK_WORDS + 1);
        let buckets = (most / 2 + 1).next_power_of_two().max(BLOCK_WORDS);
        let blocks_at = SHARD_HEAD_WORDS + buckets;
        Self { buckets, blocks_at, blocks: (words - blocks_at) / BLOCK_WORDS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_its_parts() {
        for size in [MIN_SIZE, MIN_SIZE + 4096, 3 << 20, DEFAULT_SIZE, 1 << 30, MAX_SIZE] {
            let layout = Layout::of_size(size);
            let end = layout.shard(layout.shards).end;
            assert!(end <= layout.words && layout.words - end < layout.shards * BLOCK_WORDS + BLOCK_WORDS);
            for words in [layout.shard_words, layout.overflow_words] {
                let shard = ShardLayout::of_words(words);
                assert!(shard.blocks * 2 >= shard.buckets && shard.blocks <= shard.buckets * 3, "{shard:?}");
                assert!(shard.blocks_at + shard.blocks * BLOCK_WORDS <= words);
                assert!(shard.blocks_at.is_multiple_of(BLOCK_WORDS) && shard.blocks < u32::MAX as usize);
            }
        }
    }
}
