//! Whether a file was left in order: then the process that opens it first need not look at all of it.
//!
//! The last owner to leave notes how often each lock had been taken by then. Taking a lock counts, so the note is right for as
//! long as nothing was done to the file since, whatever became of the processes that did it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::shared_file::layout::{Layout, header};
use crate::store::shared_file::shard::{Shard, head};

/// Notes that it is in order. Nobody else has it open.
pub(crate) fn note(words: &[AtomicU64], layout: Layout) {
    if let Some(taken) = taken(words, layout) {
        words[header::TIDY].store(taken, Ordering::Release);
    }
}

/// Whether it is as it was noted.
pub(crate) fn is_noted(words: &[AtomicU64], layout: Layout) -> bool {
    taken(words, layout) == Some(words[header::TIDY].load(Ordering::Acquire))
}

/// What tells how often the locks were taken, never 0; `None` when one of them is held.
fn taken(words: &[AtomicU64], layout: Layout) -> Option<u64> {
    let mut taken = 0_u64;
    for number in 0..=layout.shards {
        let shard = Shard::new(&words[layout.shard(number)]);
        if shard.get(head::LOCK) != 0 {
            return None;
        }
        taken = (taken.rotate_left(7) ^ shard.get(head::COUNT)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    Some(taken | 1)
}
