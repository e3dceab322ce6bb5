//! Reading, verifying and writing the entry in its blocks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::shard::{Broken, Bytes, FIRST_BYTES, FURTHER_BYTES, Lengths, Shard, both, high, low};

/// The fields of an entry in its first block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) next: u32,
    further: u32,
    pub(crate) tag: u32,
    pub(crate) lengths: Lengths,
    pub(crate) expires_at_us: u64,
    check: u32,
}

/// Adds a word to a checksum. It detects accidents, not attacks: a process that can write here can forge it.
#[inline]
fn mixed(check: u64, word: u64) -> u64 {
    (check ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

impl Entry {
    /// The checksum of the first block's fields, with which that of the bytes begins.
    fn start_check(&self) -> u64 {
        let Lengths { key, records, logs } = self.lengths;
        let check = mixed(1, both(logs, self.tag));
        let check = mixed(check, both(u32::from(records), u32::from(key)));
        mixed(check, self.expires_at_us)
    }
}

impl Shard<'_> {
    #[inline]
    pub(crate) fn entry(&self, number: u32) -> Result<Entry, Broken> {
        let block = self.block(number)?;
        let [links, one, two, expires_at_us] =
            [0, 1, 2, 3].map(|at: usize| block[at].load(Ordering::Relaxed));
        let lengths =
            Lengths { key: (two >> 48 & 0xFF) as u8, records: (two >> 32 & 0xFFFF) as u16, logs: low(one) };
        Ok(Entry {
            next: low(links),
            further: high(links),
            tag: high(one),
            lengths,
            expires_at_us,
            check: low(two),
        })
    }

    /// Reads the bytes of an entry and verifies its checksum.
    pub(crate) fn read(&self, number: u32, entry: &Entry, bytes: &mut Bytes) -> Result<(), Broken> {
        bytes.clear();
        let total = entry.lengths.total();
        if entry.lengths.blocks() > self.layout.blocks {
            return Err(Broken);
        }
        let mut check = entry.start_check();
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

    /// Writes an entry to free blocks; there have to be enough of them.
    pub(crate) fn write(
        &self,
        next: u32,
        tag: u32,
        lengths: Lengths,
        bytes: &[u8],
        expires_at_us: u64,
    ) -> Result<u32, Broken> {
        let number = self.allocate()?;
        let first = self.block(number)?;
        let mut entry = Entry { next, further: 0, tag, lengths, expires_at_us, check: 0 };
        let mut check = entry.start_check();
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
        first[3].store(expires_at_us, Ordering::Relaxed);
        Ok(number)
    }

    pub(crate) fn free_entry(&self, number: u32) -> Result<(), Broken> {
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

    /// The numbers of the blocks of an entry after the first.
    pub(crate) fn further_blocks(&self, entry: &Entry) -> Result<Vec<u32>, Broken> {
        let mut next = entry.further;
        let blocks = (1..entry.lengths.blocks()).map(|_| -> Result<u32, Broken> {
            let number = next;
            next = low(self.block(number)?[0].load(Ordering::Relaxed));
            Ok(number)
        });
        blocks.collect()
    }
}

/// Fills words with bytes, padded with zeros.
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
