//! Repairs a shard: after its lock was taken over, when a file is opened by its first user, and when a shard turns out
//! to be broken.
//!
//! All entries that can be reached and read stay; others are dropped, since their keys are unknown. Blocks that no
//! entry uses become free. If the repairing process is killed, the next one starts again.

use crate::store::shared_file::shard::{Broken, From, Shard, head};

/// The set of visited blocks.
struct Seen(Vec<u64>);

impl Seen {
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

/// Repairs a shard whose lock is held; returns the number of dropped entries. `hash_of` returns the hash of a key.
pub(crate) fn recover(shard: &Shard<'_>, hash_of: impl Fn(&[u8]) -> u64) -> u64 {
    let mut seen = Seen::of(shard.layout.blocks);
    // Each unreadable entry is read once, however many numbers refer to it.
    let mut unreadable = Seen::of(shard.layout.blocks);
    let (mut keys, mut dropped) = (0, 0);
    for bucket in 0..shard.layout.buckets {
        // A chain ends at a number that cannot be followed.
        let mut from = From::Bucket(bucket);
        while let Ok(number) = shard.follow(from) {
            if number == 0 {
                break;
            }
            match reach(shard, &mut seen, &mut unreadable, bucket, number, &hash_of) {
                Reached::Good => {
                    keys += 1;
                    from = From::Entry(number);
                }
                Reached::Bad => {
                    dropped += 1;
                    if shard.unlink(from, number).is_err() {
                        break;
                    }
                }
                Reached::Nowhere => {
                    dropped += 1;
                    let _ = shard.cut(from);
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
    dropped
}

enum Reached {
    Good,
    /// The entry is dropped; the entries after it may be valid.
    Bad,
    /// The chain ends: no entry can be there, or the rest belongs to another bucket.
    Nowhere,
}

fn reach(
    shard: &Shard<'_>,
    seen: &mut Seen,
    unreadable: &mut Seen,
    bucket: usize,
    number: u32,
    hash_of: impl Fn(&[u8]) -> u64,
) -> Reached {
    let Ok(entry) = shard.entry(number) else { return Reached::Nowhere };
    if seen.has(number) || unreadable.has(number) {
        return Reached::Nowhere;
    }
    let mut bytes = crate::store::shared_file::shard::Bytes::new();
    let read = shard.read(number, &entry, &mut bytes).and_then(|()| {
        let hash = hash_of(bytes.get(..usize::from(entry.lengths.key)).ok_or(Broken)?);
        let further: Result<Vec<u32>, Broken> = shard.further_blocks(&entry).collect();
        let further = further?;
        let unseen = further.iter().all(|block| *block != number && !seen.has(*block));
        if crate::store::shared_file::shard::tag_of(hash) == entry.tag && unseen {
            Ok((hash, further))
        } else {
            Err(Broken)
        }
    });
    let Ok((hash, further)) = read else {
        unreadable.add(number);
        return Reached::Bad;
    };
    if shard.bucket_of(hash) != bucket {
        return Reached::Nowhere;
    }
    seen.add(number);
    for block in further {
        seen.add(block);
    }
    Reached::Good
}
