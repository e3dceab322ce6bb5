//! Why there is no simulation.

use std::fmt;

/// Why a simulation could not be made. Messages say what was read, what is allowed and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimulationError {
    /// An argument is not allowed, or a file has something that is not allowed.
    Usage(String),
    /// A file cannot be read or written.
    File(String),
    /// The limiter or the program failed, which is a defect.
    Internal(String),
}

impl SimulationError {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// A failure of the operating system to do something to a file.
    pub(crate) fn file(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::File(format!("{} cannot be {what}: {error}", path.display()))
    }
}

impl fmt::Display for SimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::File(message) | Self::Internal(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for SimulationError {}

impl From<polylimit::Error> for SimulationError {
    fn from(error: polylimit::Error) -> Self {
        match error.kind() {
            polylimit::ErrorKind::InvalidArgument => Self::Usage(error.message().to_owned()),
            _ => Self::Internal(error.message().to_owned()),
        }
    }
}

/// At most 60 characters of what was read, quoted and escaped, for a message.
pub(crate) fn excerpt(read: &str) -> String {
    const MAX_LENGTH: usize = 60;
    match read.char_indices().nth(MAX_LENGTH) {
        None => format!("{read:?}"),
        Some((end, _)) => format!("{:?}...", &read[..end]),
    }
}

/// The same of a line of a file.
pub(crate) fn excerpt_of_line(line: &[u8]) -> String {
    excerpt(&String::from_utf8_lossy(line))
}
