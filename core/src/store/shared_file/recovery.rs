//! Puts a shard in order: after its lock was taken over, when a file is opened first, and when something there makes no
//! sense.
//!
//! Every entry that can be reached and read stays; the others go, since nobody can tell whose they were. What no entry
//! uses is free. Whoever is killed meanwhile leaves it to the next.

use crate::store::shared_file::shard::{Broken, From, Shard, head};

/// Blocks that were seen.
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

/// Puts a shard in order, whose lock is held; says how many entries it dropped. It is told the hash of a key.
pub(crate) fn recover(shard: &Shard<'_>, hash_of: impl Fn(&[u8]) -> u64) -> u64 {
    let mut seen = Seen::of(shard.layout.blocks);
    // So that each is read once, however many numbers refer to it.
    let mut unreadable = Seen::of(shard.layout.blocks);
    let (mut keys, mut dropped) = (0, 0);
    for bucket in 0..shard.layout.buckets {
        // What cannot even be followed ends there.
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
            // It is within the shard.
            let _ = shard.free_block(number);
        }
    }
    dropped
}

enum Reached {
    Good,
    /// It goes, and what comes after it may be good.
    Bad,
    /// Nothing can be there, or what comes after it is another bucket's.
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
