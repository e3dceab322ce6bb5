//! Tells the process that made something from those that were forked from it.

use memmap2::MmapMut;

use super::mapping::page_wiped_by_fork;

#[derive(Debug)]
pub(super) enum Birth {
    /// Looking at it takes no call of the system, which would take longer than deciding.
    Page(MmapMut),
    /// The number of the process, where there is no such page.
    Process(u32),
}

impl Birth {
    pub(super) fn here() -> Self {
        page_wiped_by_fork().map_or_else(|| Self::Process(std::process::id()), Self::Page)
    }

    /// Whether this is the process that it was made in.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Page(page) => page.first() == Some(&1),
            Self::Process(number) => *number == std::process::id(),
        }
    }
}
