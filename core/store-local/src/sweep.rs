//! Incremental cleaning, as in the memory store: a hand goes around the buckets and drops expired entries.
//!
//! Each new key moves the hand by a few buckets and drops entries that expired a while ago. In a shard with few keys
//! all expired ones stay, so that a clock that goes back to before their end finds these keys as much used as they were.
//! A new key that finds the shard full moves the hand further, until an expired entry is dropped, however recently it
//! expired. When the hand has gone around and found nothing, the earliest time at which an entry can expire is known,
//! and no search starts before that time.
//!
//! An entry stores the time from which nothing counts as used and its key is not blocked, by the quotas of the process that wrote it. The
//! caller's quotas may give a later time, and so may the entry's record of blocks, which a full shard forgets.

use crate::shard::{Broken, Bytes, From, Lengths, Shard, head};
use polylimit_rules::explanation::Expiry;

/// The number of buckets that a new key inspects.
const BUCKETS_PER_KEY: usize = 4;
/// How long an entry is kept after it expired, while there is room: one second.
const KEPT_US: u64 = 1_000_000;
/// A shard with fewer keys is cleaned only when it is full.
const FEW: u64 = 16;
/// The number of buckets that a new key inspects when the shard is full.
const BUCKETS_WHEN_FULL: usize = 4096;

/// Cleans a few buckets, and returns whether there is room for an entry of that many blocks. The callback receives an entry's bytes and
/// returns how long until the entry expires by the quotas of this process. A full shard drops entries as early as it may.
pub(crate) fn make_room(
    shard: &Shard<'_>,
    blocks: usize,
    now_us: u64,
    expiry: impl Fn(&[u8], Lengths, u64) -> Expiry,
) -> Result<bool, Broken> {
    let has_room = || shard.free() >= shard.spare() + blocks;
    if has_room() {
        if shard.get(head::KEYS) < FEW {
            return Ok(true);
        }
        let then_us = now_us.saturating_sub(KEPT_US);
        drop_expired(shard, BUCKETS_PER_KEY, then_us, false, &expiry)?;
        return Ok(true);
    }
    if now_us < shard.get(head::EARLIEST) {
        return Ok(false);
    }
    for _ in 0..BUCKETS_WHEN_FULL.min(shard.layout.buckets) {
        drop_expired(shard, 1, now_us, true, &expiry)?;
        if has_room() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Keeps the recorded times valid when an entry is written that can expire at that time.
#[inline]
pub(crate) fn lower(shard: &Shard<'_>, expires_at_us: u64) {
    if expires_at_us < shard.get(head::EARLIEST) {
        shard.set(head::EARLIEST, expires_at_us);
    }
    if expires_at_us < !shard.get(head::ROUND_EARLIEST) {
        shard.set(head::ROUND_EARLIEST, !expires_at_us);
    }
}

/// Inspects that many buckets and drops entries that are expired at that time.
fn drop_expired(
    shard: &Shard<'_>,
    buckets: usize,
    at_us: u64,
    is_full: bool,
    expiry: &impl Fn(&[u8], Lengths, u64) -> Expiry,
) -> Result<(), Broken> {
    let mut hand = usize::try_from(shard.get(head::HAND)).unwrap_or(0);
    for _ in 0..buckets.min(shard.layout.buckets) {
        if hand >= shard.layout.buckets {
            hand = 0;
            shard.set(head::EARLIEST, !shard.get(head::ROUND_EARLIEST));
            shard.set(head::ROUND_EARLIEST, 0);
        }
        let mut from = From::Bucket(hand);
        for _ in 0..=shard.layout.blocks {
            let number = shard.follow(from)?;
            if number == 0 {
                break;
            }
            let entry = shard.entry(number)?;
            let mut droppable_at_us = entry.expires_at_us;
            let mut is_kept = droppable_at_us > at_us;
            if !is_kept {
                let mut bytes = Bytes::new();
                shard.read(number, &entry, &mut bytes)?;
                let Expiry { after_us, when_full_us } = expiry(&bytes, entry.lengths, at_us);
                droppable_at_us = droppable_at_us.max(at_us.saturating_add(when_full_us));
                is_kept = if is_full { when_full_us } else { after_us } > 0;
            }
            if is_kept {
                if droppable_at_us < !shard.get(head::ROUND_EARLIEST) {
                    shard.set(head::ROUND_EARLIEST, !droppable_at_us);
                }
                from = From::Entry(number);
            } else {
                shard.remove(from, number)?;
            }
        }
        hand += 1;
    }
    shard.set(head::HAND, hand as u64);
    Ok(())
}
