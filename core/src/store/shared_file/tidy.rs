//! The note that a file was left in order: the next process that opens it need not inspect all of it.
//!
//! The last owner to leave records how often each lock had been acquired by then. Every acquisition counts, so the note
//! is valid only while no operation has changed the file since, whatever became of the processes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::shared_file::layout::{Layout, header};
use crate::store::shared_file::shard::{Shard, head};

/// Writes the note. No other process has the file open.
pub(crate) fn note(words: &[AtomicU64], layout: Layout) {
    if let Some(taken) = taken(words, layout) {
        words[header::TIDY].store(taken, Ordering::Release);
    }
}

/// Whether the note is still valid.
pub(crate) fn is_noted(words: &[AtomicU64], layout: Layout) -> bool {
    taken(words, layout) == Some(words[header::TIDY].load(Ordering::Acquire))
}

/// A digest of how often the locks were acquired, never 0; `None` when one of them is held.
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
