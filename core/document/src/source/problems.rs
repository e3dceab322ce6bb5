//! What keeps a configuration from being the newest, as far as it is the same for all limiters of a source.

use polylimit_rules::error::Error;

/// The obstacles to the newest configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    pub(crate) file: Option<Error>,
    pub(crate) store: Option<Error>,
    pub(crate) copy: Option<Error>,
    /// Since when the file has been unreadable, in microseconds since the Unix epoch.
    pub(crate) file_unreachable_since_us: Option<u64>,
    /// Since when the store has not answered, in microseconds since the Unix epoch.
    pub(crate) store_unreachable_since_us: Option<u64>,
}

impl Problems {
    /// Since when a source has been unreachable.
    pub(crate) fn unreachable_since_us(&self) -> Option<u64> {
        [self.file_unreachable_since_us, self.store_unreachable_since_us].into_iter().flatten().min()
    }

    /// Why the newest document is unknown, unless the store is unreachable.
    pub(crate) fn document(&self) -> Option<&Error> {
        let store = self.store.as_ref().filter(|_| self.store_unreachable_since_us.is_none());
        self.file.as_ref().or(store)
    }
}
