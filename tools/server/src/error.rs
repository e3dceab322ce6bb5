//! Why a server does not start.

use std::fmt;
use std::path::Path;

/// Why a server does not start, or does not take a changed file: what was read, what is allowed and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeError {
    message: Box<str>,
}

impl ServeError {
    pub(crate) fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into() }
    }

    /// The file cannot be read.
    pub(crate) fn of_file(path: &Path, error: &dyn fmt::Display) -> Self {
        Self::new(format!("the file {} cannot be used: {error}", path.display()))
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServeError {}

impl From<polylimit::Error> for ServeError {
    fn from(error: polylimit::Error) -> Self {
        Self::new(error.message())
    }
}
