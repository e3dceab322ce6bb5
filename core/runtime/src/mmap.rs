//! Memory mappings: a file as words that several processes read and write at once, and a page that a fork wipes.
//!
//! This file contains the only unsafe code. Other code works on the words and checks every number that it reads from
//! them, so it stays in bounds whatever they contain.

use std::sync::atomic::AtomicU64;

use memmap2::{MmapMut, MmapRaw};

#[derive(Debug)]
pub struct Mapping(MmapRaw);

impl Mapping {
    /// Maps the first `bytes` bytes of a file. The file must have that length: reading beyond its end kills the process.
    pub fn new(file: &std::fs::File, bytes: usize) -> std::io::Result<Self> {
        Ok(Self(memmap2::MmapOptions::new().len(bytes).map_raw(file)?))
    }

    /// A page that is all zeros in every forked child; `None` where the system does not support that.
    pub(crate) fn wiped_by_fork() -> Option<Self> {
        let mut page = MmapMut::map_anon(rustix::param::page_size()).ok()?;
        let (start, bytes) = (page.as_mut_ptr().cast(), page.len());
        // SAFETY: The page is mapped, whole, and used by this object alone. The advice changes nothing in this process,
        // and in a child any bytes are valid.
        #[expect(unsafe_code, reason = "advice can change what is in memory, so giving it is unsafe")]
        let advised = unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxWipeOnFork) };
        advised.ok().map(|()| Self(page.into()))
    }

    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        let words: *const AtomicU64 = self.0.as_mut_ptr().cast_const().cast();
        // SAFETY: A mapping starts at a page, so it is aligned. It is readable and writable for `len` bytes until it is
        // dropped, which the borrow of `self` excludes. Any bits are a valid `AtomicU64`. All accesses are atomic: this
        // process uses only this slice, and other processes use theirs. The file keeps its length because only its owner
        // may change it; `file.rs` checks that when it opens the file.
        #[expect(unsafe_code, reason = "a mapping is a pointer, and only this makes words of it")]
        unsafe {
            std::slice::from_raw_parts(words, self.0.len() / size_of::<AtomicU64>())
        }
    }
}
