//! Memory that other processes see, or do not: a file as words that several processes read and write at once, and a page
//! that a fork wipes.
//!
//! This file has the only unsafe code: everything else works on the words, checks every number that it reads from them, and
//! so stays within them whatever they hold.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapMut, MmapOptions, MmapRaw};

#[derive(Debug)]
pub(crate) struct Mapping(MmapRaw);

impl Mapping {
    /// Maps so many bytes of a file, which has to have them: reading beyond its end kills the process.
    pub(crate) fn new(file: &File, bytes: usize) -> io::Result<Self> {
        Ok(Self(MmapOptions::new().len(bytes).map_raw(file)?))
    }

    /// A page of this process that is all zeros in a process that is forked from it; `None` where the system cannot do
    /// that.
    pub(crate) fn wiped_by_fork() -> Option<Self> {
        let mut page = MmapMut::map_anon(rustix::param::page_size()).ok()?;
        let (start, bytes) = (page.as_mut_ptr().cast(), page.len());
        // SAFETY: The page is ours alone, whole, and mapped; in this process the advice changes nothing of it, and in a
        // child any bytes are bytes.
        #[expect(unsafe_code, reason = "advice can change what is in memory, so giving it is unsafe")]
        let advised = unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxWipeOnFork) };
        advised.ok().map(|()| Self(page.into()))
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let words: *const AtomicU64 = self.0.as_mut_ptr().cast_const().cast();
        // SAFETY: The mapping starts at a page, so it is aligned; it is readable and writable for `len` bytes until it is
        // dropped, which the borrow of `self` rules out. Any bits are an `AtomicU64`, and nobody accesses them in another
        // way: this process only through this slice, other processes through theirs. That the file keeps its length is
        // up to its owner, who alone may change it: `file.rs` checks that when it is opened.
        #[expect(unsafe_code, reason = "a mapping is a pointer, and only this makes words of it")]
        unsafe {
            std::slice::from_raw_parts(words, self.0.len() / size_of::<AtomicU64>())
        }
    }
}
