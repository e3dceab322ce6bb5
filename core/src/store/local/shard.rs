//! One shard: a hash table of entries in blocks of a cache line.
//!
//! | word of an entry's first block | |
//! |---|---|
//! | 0 | number of the next entry of the bucket (32 bits), of the entry's next block (32) |
//! | 1 | bytes of the logs (32), tag: the high half of the hash (32) |
//! | 2 | check of the rest (32), bytes of the records (16), of the key (8) |
//! | 3 | when nothing of it counts any more (us) |
//! | 4 to 7 | the key, the records, the logs; what does not fit goes on in further blocks after their word 0 |
//!
//! A bucket has the tag and the number of its first entry. Numbers count from 1; 0 is none. A free block has the number of
//! the next one. Blocks from `UNTOUCHED` on were never used.
//!
//! # Whoever is killed
//!
//! An entry is never changed: a new one is written to free blocks, and one store of one word puts it in the place of the
//! old one, whose blocks are freed after that. A process that is killed in between leaves the old entry or the new one, and
//! perhaps blocks that are neither used nor free: these are found by whoever [takes the lock over](super::recovery).
//!
//! # Whatever the words are
//!
//! Every number is checked against the shard's bounds, every walk has an end, and an entry is believed when its check is
//! right. Otherwise the shard is [`Broken`], and is put in order in the same way.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::layout::{BLOCK_WORDS, SHARD_HEAD_WORDS, ShardLayout};

/// Words of a shard's head.
pub(super) mod head {
    pub(crate) const LOCK: usize = 0;
    /// How often the lock was taken.
    pub(crate) const COUNT: usize = 1;
    /// The latest time that somebody saw here.
    pub(crate) const LAST_US: usize = 2;
    pub(crate) const FREE: usize = 3;
    /// How many blocks are in the list of the free.
    pub(crate) const FREE_COUNT: usize = 4;
    pub(crate) const UNTOUCHED: usize = 5;
    pub(crate) const KEYS: usize = 6;
    /// Of the sweep.
    pub(crate) const HAND: usize = 7;
    pub(crate) const EARLIEST: usize = 8;
    /// The complement of it, so that 0 is never.
    pub(crate) const ROUND_EARLIEST: usize = 9;
}

/// What is there makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// A shard whose lock this thread holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shard<'a> {
    words: &'a [AtomicU64],
    pub(super) layout: ShardLayout,
}

/// The bytes of an entry: of the key, the records and the logs.
pub(super) type Bytes = crate::store::state_bytes::Bytes;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) key: u8,
    pub(super) records: u16,
    pub(super) logs: u32,
}

impl Lengths {
    pub(super) fn total(self) -> usize {
        usize::from(self.key) + usize::from(self.records) + self.logs as usize
    }

    pub(super) fn blocks(self) -> usize {
        1 + self.total().saturating_sub(FIRST_BYTES).div_ceil(FURTHER_BYTES)
    }
}

const FIRST_BYTES: usize = 4 * 8;
const FURTHER_BYTES: usize = 7 * 8;

/// A number that refers to an entry: a bucket's, or word 0 of another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Bucket(usize),
    Entry(u32),
}

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) from: From,
    pub(super) block: u32,
    pub(super) lengths: Lengths,
}

/// What is known of an entry from its first block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) next: u32,
    further: u32,
    pub(super) tag: u32,
    pub(super) lengths: Lengths,
    pub(super) spent_at_us: u64,
    check: u32,
}

#[inline]
pub(super) fn tag_of(hash: u64) -> u32 {
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

/// Adds a word to a check. It tells accidents apart, not attacks: whoever can write here can do as he likes.
#[inline]
fn mixed(check: u64, word: u64) -> u64 {
    (check ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

impl<'a> Shard<'a> {
    pub(super) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words, layout: ShardLayout::of_words(words.len()) }
    }

    #[inline]
    pub(super) fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn lock(&self) -> (&'a AtomicU64, &'a AtomicU64) {
        (&self.words[head::LOCK], &self.words[head::COUNT])
    }

    #[inline]
    pub(super) fn bucket_of(&self, hash: u64) -> usize {
        // There are 2^k buckets.
        low(hash) as usize & (self.layout.buckets - 1)
    }

    #[inline]
    fn block(&self, number: u32) -> Result<&'a [AtomicU64; BLOCK_WORDS], Broken> {
        let at = (number as usize).checked_sub(1).filter(|at| *at < self.layout.blocks).ok_or(Broken)?;
        self.words[self.layout.blocks_at + at * BLOCK_WORDS..].first_chunk().ok_or(Broken)
    }

    /// The entry that a number refers to; 0 is none.
    #[inline]
    pub(super) fn follow(&self, from: From) -> Result<u32, Broken> {
        match from {
            From::Bucket(bucket) => Ok(low(self.get(SHARD_HEAD_WORDS + bucket))),
            From::Entry(number) => Ok(low(self.block(number)?[0].load(Ordering::Relaxed))),
        }
    }

    /// Makes a number refer to another entry, or none. Everything that was written before is there before it, and what
    /// is written after comes after it, also when the process is killed.
    fn refer(&self, from: From, number: u32, tag: u32) -> Result<(), Broken> {
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

    #[inline]
    pub(super) fn entry(&self, number: u32) -> Result<Entry, Broken> {
        let block = self.block(number)?;
        let [links, one, two, spent_at_us] = [0, 1, 2, 3].map(|at: usize| block[at].load(Ordering::Relaxed));
        let lengths =
            Lengths { key: (two >> 48 & 0xFF) as u8, records: (two >> 32 & 0xFFFF) as u16, logs: low(one) };
        Ok(Entry {
            next: low(links),
            further: high(links),
            tag: high(one),
            lengths,
            spent_at_us,
            check: low(two),
        })
    }

    /// The bytes of an entry whose check is right.
    pub(super) fn read(&self, number: u32, entry: &Entry, bytes: &mut Bytes) -> Result<(), Broken> {
        bytes.clear();
        let total = entry.lengths.total();
        if entry.lengths.blocks() > self.layout.blocks {
            return Err(Broken);
        }
        let mut check = self.start_check(entry);
        let mut block = self.block(number)?;
        let (mut further, mut first) = (entry.further, 4);
        loop {
            for word in &block[first..] {
                let word = word.load(Ordering::Relaxed);
                check = mixed(check, word);
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            if bytes.len() >= total {
                break;
            }
            block = self.block(further)?;
            (further, first) = (low(block[0].load(Ordering::Relaxed)), 1);
        }
        bytes.truncate(total);
        if high(check) == entry.check { Ok(()) } else { Err(Broken) }
    }

    #[expect(clippy::unused_self, reason = "it is a part of reading and writing")]
    fn start_check(&self, entry: &Entry) -> u64 {
        let Lengths { key, records, logs } = entry.lengths;
        let check = mixed(1, both(logs, entry.tag));
        let check = mixed(check, both(u32::from(records), u32::from(key)));
        mixed(check, entry.spent_at_us)
    }

    /// Finds the entry of a key and reads its bytes.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8], bytes: &mut Bytes) -> Result<Option<Found>, Broken> {
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

    /// How many blocks are free.
    pub(super) fn free(&self) -> usize {
        let untouched = usize::try_from(self.get(head::UNTOUCHED)).unwrap_or(usize::MAX);
        let listed = usize::try_from(self.get(head::FREE_COUNT)).unwrap_or(usize::MAX);
        self.layout.blocks.saturating_sub(untouched).saturating_add(listed).min(self.layout.blocks)
    }

    /// So many blocks are kept free, so that the entries that are there can be written anew.
    pub(super) fn spare(&self) -> usize {
        2 + self.layout.blocks / 32
    }

    /// Writes the entry of a key in place of the one that was found, if any; says whether there was room.
    pub(super) fn put(
        &self,
        found: Option<Found>,
        hash: u64,
        lengths: Lengths,
        bytes: &[u8],
        spent_at_us: u64,
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
        let number = self.write(next, tag_of(hash), lengths, bytes, spent_at_us)?;
        self.refer(from, number, tag_of(hash))?;
        match found {
            Some(found) => self.free_entry(found.block)?,
            None => self.set(head::KEYS, self.get(head::KEYS).wrapping_add(1)),
        }
        Ok(true)
    }

    /// Removes an entry that is referred to from there.
    pub(super) fn remove(&self, from: From, number: u32) -> Result<(), Broken> {
        self.unlink(from, number)?;
        self.free_entry(number)?;
        self.set(head::KEYS, self.get(head::KEYS).saturating_sub(1));
        Ok(())
    }

    /// Takes an entry out of its bucket, and leaves its blocks as they are.
    pub(super) fn unlink(&self, from: From, number: u32) -> Result<(), Broken> {
        let next = self.entry(number)?.next;
        let tag = self.entry(next).map_or(0, |entry| entry.tag);
        self.refer(from, next, tag)
    }

    /// Lets a number refer to nothing.
    pub(super) fn cut(&self, from: From) -> Result<(), Broken> {
        self.refer(from, 0, 0)
    }

    /// Writes an entry to free blocks, of which there are enough.
    fn write(
        &self,
        next: u32,
        tag: u32,
        lengths: Lengths,
        bytes: &[u8],
        spent_at_us: u64,
    ) -> Result<u32, Broken> {
        let number = self.allocate()?;
        let first = self.block(number)?;
        let mut entry = Entry { next, further: 0, tag, lengths, spent_at_us, check: 0 };
        let mut check = self.start_check(&entry);
        let (in_first, rest) = bytes.split_at(bytes.len().min(FIRST_BYTES));
        check = fill(&first[4..], in_first, check);
        let mut last: Option<&AtomicU64> = None;
        for part in rest.chunks(FURTHER_BYTES) {
            let further = self.allocate()?;
            let block = self.block(further)?;
            block[0].store(0, Ordering::Relaxed);
            check = fill(&block[1..], part, check);
            match last {
                Some(last) => last.store(u64::from(further), Ordering::Relaxed),
                None => entry.further = further,
            }
            last = Some(&block[0]);
        }
        first[0].store(both(next, entry.further), Ordering::Relaxed);
        first[1].store(both(lengths.logs, tag), Ordering::Relaxed);
        let two = u64::from(high(check)) | u64::from(lengths.records) << 32 | u64::from(lengths.key) << 48;
        first[2].store(two, Ordering::Relaxed);
        first[3].store(spent_at_us, Ordering::Relaxed);
        Ok(number)
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
        let number = u32::try_from(untouched + 1).map_err(|_| Broken)?;
        self.block(number)?;
        self.set(head::UNTOUCHED, untouched + 1);
        Ok(number)
    }

    fn free_entry(&self, number: u32) -> Result<(), Broken> {
        let Entry { further, lengths, .. } = self.entry(number)?;
        self.free_block(number)?;
        let mut further = further;
        for _ in 1..lengths.blocks() {
            let next = low(self.block(further)?[0].load(Ordering::Relaxed));
            self.free_block(further)?;
            further = next;
        }
        Ok(())
    }

    pub(super) fn free_block(&self, number: u32) -> Result<(), Broken> {
        self.block(number)?[0].store(self.get(head::FREE), Ordering::Relaxed);
        self.set(head::FREE, u64::from(number));
        self.set(head::FREE_COUNT, self.get(head::FREE_COUNT).wrapping_add(1));
        Ok(())
    }

    /// The numbers of the blocks of an entry after the first.
    pub(super) fn further_blocks(&self, entry: &Entry) -> impl Iterator<Item = Result<u32, Broken>> {
        let (mut number, mut failed) = (entry.further, false);
        let shard = *self;
        (1..entry.lengths.blocks()).map_while(move |_| {
            if failed {
                return None;
            }
            let this = number;
            match shard.block(this) {
                Ok(block) => number = low(block[0].load(Ordering::Relaxed)),
                Err(Broken) => failed = true,
            }
            Some(if failed { Err(Broken) } else { Ok(this) })
        })
    }
}

/// Fills words with bytes, the last ones with zeros.
fn fill(words: &[AtomicU64], bytes: &[u8], mut check: u64) -> u64 {
    let mut parts = bytes.chunks(8);
    for word in words {
        let part = parts.next().unwrap_or_default();
        let whole = part.first_chunk::<8>().copied().unwrap_or_else(|| {
            let mut whole = [0; 8];
            whole[..part.len()].copy_from_slice(part);
            whole
        });
        let value = u64::from_le_bytes(whole);
        check = mixed(check, value);
        word.store(value, Ordering::Relaxed);
    }
    check
}
