//! The allocation of a shard's blocks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::shared_file::layout::BLOCK_WORDS;
use crate::store::shared_file::shard::{Broken, Shard, head, low};

impl<'a> Shard<'a> {
    #[inline]
    pub(crate) fn block(&self, number: u32) -> Result<&'a [AtomicU64; BLOCK_WORDS], Broken> {
        let at = (number as usize).checked_sub(1).filter(|at| *at < self.layout.blocks).ok_or(Broken)?;
        self.words[self.layout.blocks_at + at * BLOCK_WORDS..].first_chunk().ok_or(Broken)
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

    pub(crate) fn allocate(&self) -> Result<u32, Broken> {
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
