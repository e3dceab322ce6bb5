//! One shard: a hash table of entries in blocks of a cache line.
//!
//! | word of an entry's first block | |
//! |---|---|
//! | 0 | number of the next entry of the bucket (32 bits), of the entry's next block (32) |
//! | 1 | bytes of the logs (32), tag: the high half of the hash (32) |
//! | 2 | checksum of the rest (32), bytes of the records (16), of the key (8) |
//! | 3 | when the entry expires (us) |
//! | 4 to 7 | the key, the records, the logs; what does not fit continues in further blocks after their word 0 |
//!
//! A bucket has the tag and the number of its first entry. Numbers count from 1; 0 is none. A free block has the number
//! of the next free block. Blocks from `UNTOUCHED` on were never used.
//!
//! # When a process is killed
//!
//! An entry is never changed in place: a new entry is written to free blocks, and a single store of one word replaces
//! the old entry, whose blocks are freed afterwards. A process that is killed in between leaves either the old entry or
//! the new one, and possibly blocks that are neither used nor free; the [recovery](crate::recovery)
//! after a takeover of the lock finds these.
//!
//! # When the content is corrupt
//!
//! Every number is checked against the shard's bounds, every walk is bounded, and an entry is used only if its checksum
//! is right. Otherwise the shard is [`Broken`], and the same recovery repairs it.

mod entry;

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::layout::{BLOCK_WORDS, SHARD_HEAD_WORDS, ShardLayout};
use polylimit_rules::algorithm::State;
use polylimit_rules::codec::{States, Unreadable};
use polylimit_store::stored_policy::StoredPolicy;

/// Words of a shard's head.
pub(crate) mod head {
    pub(crate) const LOCK: usize = 0;
    /// How often the lock was acquired.
    pub(crate) const COUNT: usize = 1;
    /// The latest time that an operation saw in this shard.
    pub(crate) const LAST_US: usize = 2;
    pub(crate) const FREE: usize = 3;
    /// The number of blocks in the free list.
    pub(crate) const FREE_COUNT: usize = 4;
    pub(crate) const UNTOUCHED: usize = 5;
    pub(crate) const KEYS: usize = 6;
    /// The sweep's position.
    pub(crate) const HAND: usize = 7;
    pub(crate) const EARLIEST: usize = 8;
    /// Stored as its complement, so that 0 means never.
    pub(crate) const ROUND_EARLIEST: usize = 9;
}

/// The encoded entry: the key, the records and the logs.
pub(crate) type Bytes = polylimit_rules::codec::Bytes;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) key: u8,
    pub(crate) records: u16,
    pub(crate) logs: u32,
}

impl Lengths {
    /// Appends the encoded states, and the records that are not known here, to the bytes of a key.
    pub(crate) fn write(policy: &StoredPolicy, states: &[State], unknown: &[u8], bytes: &mut Bytes) -> Self {
        let key = bytes.len();
        let (records, logs) = policy.write(states, unknown, bytes);
        Self {
            key: u8::try_from(key).unwrap_or(u8::MAX),
            records: u16::try_from(records).unwrap_or(u16::MAX),
            logs: u32::try_from(logs).unwrap_or(u32::MAX),
        }
    }

    /// Decodes the states that follow a key, as of some time, and appends the records that are not known here to `unknown`.
    ///
    /// # Errors
    /// When the bytes are malformed, or a later version has written the state of a quota.
    pub(crate) fn read(
        self,
        policy: &StoredPolicy,
        value: &[u8],
        now_us: u64,
        unknown: &mut Vec<u8>,
    ) -> Result<States, Unreadable> {
        let parts = value.split_at_checked(usize::from(self.records));
        let (records, logs) = parts.ok_or(Unreadable::Malformed)?;
        policy.read(records, logs, now_us, unknown)
    }

    pub(crate) fn total(self) -> usize {
        usize::from(self.key) + usize::from(self.records) + self.logs as usize
    }

    pub(crate) fn blocks(self) -> usize {
        1 + self.total().saturating_sub(FIRST_BYTES).div_ceil(FURTHER_BYTES)
    }
}

const FIRST_BYTES: usize = 4 * 8;
const FURTHER_BYTES: usize = 7 * 8;

/// The content is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// A shard whose lock this thread holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard<'a> {
    words: &'a [AtomicU64],
    pub(crate) layout: ShardLayout,
}

/// The position of a number that refers to an entry: a bucket, or word 0 of another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Bucket(usize),
    Entry(u32),
}

/// The position of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) from: From,
    pub(crate) block: u32,
    pub(crate) lengths: Lengths,
}

#[inline]
pub(crate) fn tag_of(hash: u64) -> u32 {
    high(hash)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is meant")]
fn low(word: u64) -> u32 {
    word as u32
}

#[inline]
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[inline]
fn both(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl<'a> Shard<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words, layout: ShardLayout::of_words(words.len()) }
    }

    #[inline]
    pub(crate) fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn lock(&self) -> (&'a AtomicU64, &'a AtomicU64) {
        (&self.words[head::LOCK], &self.words[head::COUNT])
    }

    #[inline]
    pub(crate) fn bucket_of(&self, hash: u64) -> usize {
        // The number of buckets is a power of two.
        low(hash) as usize & (self.layout.buckets - 1)
    }

    /// The entry with this number; 0 is none.
    #[inline]
    pub(crate) fn follow(&self, from: From) -> Result<u32, Broken> {
        match from {
            From::Bucket(bucket) => Ok(low(self.get(SHARD_HEAD_WORDS + bucket))),
            From::Entry(number) => Ok(low(self.block(number)?[0].load(Ordering::Relaxed))),
        }
    }

    /// Makes a position refer to another entry, or to none. Earlier writes are visible before it and later writes after
    /// it, even if the process is killed.
    pub(crate) fn refer(&self, from: From, number: u32, tag: u32) -> Result<(), Broken> {
        fence(Ordering::Release);
        match from {
            From::Bucket(bucket) => {
                let tag = if number == 0 { 0 } else { tag };
                self.set(SHARD_HEAD_WORDS + bucket, both(number, tag));
            }
            From::Entry(entry) => {
                let word = &self.block(entry)?[0];
                word.store(both(number, high(word.load(Ordering::Relaxed))), Ordering::Relaxed);
            }
        }
        fence(Ordering::Release);
        Ok(())
    }

    /// Finds the entry of a key and reads its bytes.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8], bytes: &mut Bytes) -> Result<Option<Found>, Broken> {
        let bucket = self.bucket_of(hash);
        let mut from = From::Bucket(bucket);
        let mut number = self.follow(from)?;
        for _ in 0..=self.layout.blocks {
            if number == 0 {
                return Ok(None);
            }
            let entry = self.entry(number)?;
            if entry.tag == tag_of(hash) && usize::from(entry.lengths.key) == key.len() {
                self.read(number, &entry, bytes)?;
                if bytes.get(..key.len()) == Some(key) {
                    return Ok(Some(Found { from, block: number, lengths: entry.lengths }));
                }
            }
            from = From::Entry(number);
            number = entry.next;
        }
        Err(Broken)
    }

    /// Writes the entry of a key in place of the one that was found, if any; returns whether there was room.
    pub(crate) fn put(
        &self,
        found: Option<Found>,
        hash: u64,
        lengths: Lengths,
        bytes: &[u8],
        expires_at_us: u64,
    ) -> Result<bool, Broken> {
        let needed = lengths.blocks();
        let grows = found.is_none_or(|found| found.lengths.blocks() < needed);
        if self.free() < needed + if grows { self.spare() } else { 0 } {
            return Ok(false);
        }
        let from = found.map_or(From::Bucket(self.bucket_of(hash)), |found| found.from);
        let next = match found {
            Some(found) => self.entry(found.block)?.next,
            None => self.follow(from)?,
        };
        let number = self.write(next, tag_of(hash), lengths, bytes, expires_at_us)?;
        self.refer(from, number, tag_of(hash))?;
        match found {
            Some(found) => self.free_entry(found.block)?,
            None => self.set(head::KEYS, self.get(head::KEYS).wrapping_add(1)),
        }
        Ok(true)
    }

    /// Removes the entry that this position refers to.
    pub(crate) fn remove(&self, from: From, number: u32) -> Result<(), Broken> {
        self.unlink(from, number)?;
        self.free_entry(number)?;
        self.set(head::KEYS, self.get(head::KEYS).saturating_sub(1));
        Ok(())
    }

    /// Takes an entry out of its bucket without freeing its blocks.
    pub(crate) fn unlink(&self, from: From, number: u32) -> Result<(), Broken> {
        let next = self.entry(number)?.next;
        let tag = self.entry(next).map_or(0, |entry| entry.tag);
        self.refer(from, next, tag)
    }

    // The allocation of blocks.

    #[inline]
    pub(crate) fn block(&self, number: u32) -> Result<&'a [AtomicU64; BLOCK_WORDS], Broken> {
        let at = (number as usize).checked_sub(1).filter(|at| *at < self.layout.blocks).ok_or(Broken)?;
        self.words[self.layout.blocks_at + at * BLOCK_WORDS..].first_chunk().ok_or(Broken)
    }

    /// The number of all blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.layout.blocks
    }

    /// The number of free blocks.
    pub(crate) fn free(&self) -> usize {
        let untouched = usize::try_from(self.get(head::UNTOUCHED)).unwrap_or(usize::MAX);
        let listed = usize::try_from(self.get(head::FREE_COUNT)).unwrap_or(usize::MAX);
        self.layout.blocks.saturating_sub(untouched).saturating_add(listed).min(self.layout.blocks)
    }

    /// The number of blocks that stay free, so that existing entries can be rewritten.
    pub(crate) fn spare(&self) -> usize {
        2 + self.layout.blocks / 32
    }

    fn allocate(&self) -> Result<u32, Broken> {
        let number = low(self.get(head::FREE));
        if number != 0 {
            let next = low(self.block(number)?[0].load(Ordering::Relaxed));
            self.set(head::FREE, u64::from(next));
            self.set(head::FREE_COUNT, self.get(head::FREE_COUNT).saturating_sub(1));
            return Ok(number);
        }
        let untouched = self.get(head::UNTOUCHED);
        // The stored value may be corrupt.
        let touched = untouched.checked_add(1).ok_or(Broken)?;
        let number = u32::try_from(touched).map_err(|_| Broken)?;
        self.block(number)?;
        self.set(head::UNTOUCHED, touched);
        Ok(number)
    }

    pub(crate) fn free_block(&self, number: u32) -> Result<(), Broken> {
        self.block(number)?[0].store(self.get(head::FREE), Ordering::Relaxed);
        self.set(head::FREE, u64::from(number));
        self.set(head::FREE_COUNT, self.get(head::FREE_COUNT).wrapping_add(1));
        Ok(())
    }
}
