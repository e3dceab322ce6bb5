//! Repairs a shard: after its lock was taken over, when a file is opened by its first user, and when a shard turns out
//! to be broken.
//!
//! All entries that can be reached and read stay; others are dropped, since their keys are unknown. Blocks that no
//! entry uses become free. If the repairing process is killed, the next one starts again.
//!
//! A file that was left in order need not be inspected. The last owner to leave records how often each lock had been
//! acquired by then. Every acquisition counts, so the record is valid only while no operation has changed the file
//! since, whatever happened to the processes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{Layout, header};
use crate::shard::{Broken, Bytes, From, Shard, head, tag_of};

/// The set of visited blocks.
struct BlockSet(Vec<u64>);

impl BlockSet {
    fn of(blocks: usize) -> Self {
        Self(vec![0; blocks / 64 + 1])
    }

    fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_none_or(|bits| bits >> (number % 64) & 1 == 1)
    }

    fn add(&mut self, number: u32) {
        if let Some(bits) = self.0.get_mut(number as usize / 64) {
            *bits |= 1 << (number % 64);
        }
    }
}

/// Repairs a shard whose lock is held. `hash_of` returns the hash of a key.
pub(crate) fn recover(shard: &Shard<'_>, hash_of: impl Fn(&[u8]) -> u64) {
    let mut seen = BlockSet::of(shard.layout.blocks);
    // Each unreadable entry is read once, however many numbers refer to it.
    let mut unreadable = BlockSet::of(shard.layout.blocks);
    let mut keys = 0;
    for bucket in 0..shard.layout.buckets {
        // A chain ends at a number that cannot be followed.
        let mut from = From::Bucket(bucket);
        while let Ok(number @ 1..) = shard.follow(from) {
            match reach(shard, &mut seen, &mut unreadable, bucket, number, &hash_of) {
                Reachability::Good => {
                    keys += 1;
                    from = From::Entry(number);
                }
                Reachability::Bad if shard.unlink(from, number).is_ok() => {}
                Reachability::Bad => break,
                Reachability::Nowhere => {
                    let _ = shard.refer(from, 0, 0);
                    break;
                }
            }
        }
    }
    let highest = (1..=shard.layout.blocks)
        .rev()
        .find(|number| u32::try_from(*number).is_ok_and(|number| seen.has(number)));
    let highest = highest.unwrap_or(0);
    for (word, value) in [
        (head::KEYS, keys),
        (head::FREE, 0),
        (head::FREE_COUNT, 0),
        (head::UNTOUCHED, highest as u64),
        (head::HAND, 0),
        (head::EARLIEST, 0),
        (head::ROUND_EARLIEST, 0),
    ] {
        shard.set(word, value);
    }
    for number in (1..=highest).rev().filter_map(|number| u32::try_from(number).ok()) {
        if !seen.has(number) {
            // The number is within the shard.
            let _ = shard.free_block(number);
        }
    }
}

enum Reachability {
    Good,
    /// The entry is dropped; the entries after it may be valid.
    Bad,
    /// The chain ends: no entry can be there, or the rest belongs to another bucket.
    Nowhere,
}

fn reach(
    shard: &Shard<'_>,
    seen: &mut BlockSet,
    unreadable: &mut BlockSet,
    bucket: usize,
    number: u32,
    hash_of: impl Fn(&[u8]) -> u64,
) -> Reachability {
    let Ok(entry) = shard.entry(number) else { return Reachability::Nowhere };
    if seen.has(number) || unreadable.has(number) {
        return Reachability::Nowhere;
    }
    let mut bytes = Bytes::new();
    let read = shard.read(number, &entry, &mut bytes).and_then(|()| {
        let hash = hash_of(bytes.get(..usize::from(entry.lengths.key)).ok_or(Broken)?);
        let further = shard.further_blocks(&entry)?;
        let unseen = further.iter().all(|block| *block != number && !seen.has(*block));
        if tag_of(hash) == entry.tag && unseen { Ok((hash, further)) } else { Err(Broken) }
    });
    let Ok((hash, further)) = read else {
        unreadable.add(number);
        return Reachability::Bad;
    };
    if shard.bucket_of(hash) != bucket {
        return Reachability::Nowhere;
    }
    seen.add(number);
    for block in further {
        seen.add(block);
    }
    Reachability::Good
}

/// Records that the file is in order. No other process has it open.
pub(crate) fn record_order(words: &[AtomicU64], layout: Layout) {
    if let Some(count) = acquisitions(words, layout) {
        words[header::TIDY].store(count, Ordering::Release);
    }
}

/// Whether the record is still valid.
pub(crate) fn is_in_order(words: &[AtomicU64], layout: Layout) -> bool {
    acquisitions(words, layout) == Some(words[header::TIDY].load(Ordering::Acquire))
}

/// A digest of how often the locks were acquired, never 0; `None` when one of them is held.
fn acquisitions(words: &[AtomicU64], layout: Layout) -> Option<u64> {
    let mut digest = 0_u64;
    for number in 0..=layout.shards {
        let shard = Shard::new(&words[layout.shard(number)]);
        if shard.get(head::LOCK) != 0 {
            return None;
        }
        digest = (digest.rotate_left(7) ^ shard.get(head::COUNT)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    Some(digest | 1)
}
