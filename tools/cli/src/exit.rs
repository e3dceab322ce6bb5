//! How a command ends.

use std::fmt;

use polylimit::{Error, ErrorKind};

/// The exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Allowed, fine, equal.
    Fine = 0,
    /// Denied, a problem, a difference.
    Problem = 1,
    /// Nothing was decided, or an outage policy answered in place of the store.
    Undecided = 2,
    /// The user of the store lacks a right.
    NoRight = 3,
    /// The arguments or a file cannot be used.
    Usage = 64,
}

/// Why a command has no result.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The file cannot be read or written.
    pub(crate) fn of_file(path: &(impl fmt::Debug + ?Sized), error: &std::io::Error) -> Self {
        Self::usage(format!("the file {path:?} cannot be used: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            _ if error.lacks_right() => Exit::NoRight,
            ErrorKind::InvalidArgument => Exit::Usage,
            _ => Exit::Undecided,
        };
        Self::new(exit, error.message())
    }
}
