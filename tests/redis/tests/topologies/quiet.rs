//! Tests that time something have the process for themselves; all others share it.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TESTS: RwLock<()> = RwLock::new(());

/// For a test that does not mind others beside it.
pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    TESTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that times.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    TESTS.write().unwrap_or_else(PoisonError::into_inner)
}
