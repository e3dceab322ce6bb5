//! Descriptors that programs pass, such as the end of a pipe that an event loop of Ruby watches.

use std::fs::File;

use crate::error::{PolylimitError, Result};

/// A descriptor of its own for what the caller's leads to. The caller has it open during this call.
#[cfg(unix)]
pub(crate) fn duplicate(descriptor: i32) -> Result<File> {
    if descriptor < 0 {
        return Err(PolylimitError::InvalidArgument(format!("descriptor {descriptor} is negative")));
    }
    // SAFETY: the caller has it open.
    let duplicate = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned();
    duplicate.map(File::from).map_err(|error| {
        PolylimitError::InvalidArgument(format!("descriptor {descriptor} cannot be used: {error}"))
    })
}

/// The numbers of descriptors mean nothing outside of the C library that a program was built with.
#[cfg(not(unix))]
pub(crate) fn duplicate(_descriptor: i32) -> Result<File> {
    Err(PolylimitError::InvalidArgument(
        "descriptors cannot be used on this system: wait on a thread".to_owned(),
    ))
}
