//! The memory of this process: the bytes that it has allocated, and its resident pages.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static COUNTING: Counting = Counting { held: AtomicUsize::new(0) };

struct Counting {
    held: AtomicUsize,
}

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one only counts what the system's does"
)]
// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.held.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        self.held.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `dealloc`.
        unsafe { System.dealloc(bytes, layout) }
    }
}

/// Bytes that are allocated and not freed.
pub(crate) fn held() -> usize {
    COUNTING.held.load(Ordering::Relaxed)
}

/// The resident set, from Linux's `/proc/self/statm`: pages of 4 KiB.
pub(crate) fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
