//! What keeps a configuration from being the newest, as far as it is the same for all limiters of its source.

use crate::error::Error;

/// What keeps the configuration from being the newest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    pub(crate) file: Option<Error>,
    pub(crate) store: Option<Error>,
    pub(crate) copy: Option<Error>,
    /// Since when the file cannot be read, in microseconds since the Unix epoch.
    pub(crate) file_unreachable_since_us: Option<u64>,
    /// Since when the store does not answer, in microseconds since the Unix epoch.
    pub(crate) store_unreachable_since_us: Option<u64>,
}

impl Problems {
    /// Since when a source cannot be reached.
    pub(crate) fn unreachable_since_us(&self) -> Option<u64> {
        [self.file_unreachable_since_us, self.store_unreachable_since_us].into_iter().flatten().min()
    }

    /// Why the newest document is not known, unless the store cannot be reached.
    pub(crate) fn document(&self) -> Option<&Error> {
        let store = self.store.as_ref().filter(|_| self.store_unreachable_since_us.is_none());
        self.file.as_ref().or(store)
    }
}
