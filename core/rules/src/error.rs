//! The error kinds, shared by every language.
//!
//! A denial is not an error: it is a [`Decision`](crate::Decision). An error means that no decision could be
//! made. Messages are lower case, end without a full stop, and say what was read and what is allowed; they never
//! hold a password or a raw key.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The kinds of error, each with a code string and a number that no other kind will ever reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed something that is not allowed; trying again with the same input fails again.
    InvalidArgument = 1,
    /// The store could not be reached in time; trying again later may succeed.
    StoreUnavailable = 2,
    /// The store was reached and could not decide.
    StoreFailed = 3,
    /// The limiter was closed.
    Closed = 4,
    /// A defect in polylimit itself.
    Internal = 5,
}

impl ErrorKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::InvalidArgument, Self::StoreUnavailable, Self::StoreFailed, Self::Closed, Self::Internal];

    /// The code string, the same in every language.
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::StoreUnavailable => "store_unavailable",
            Self::StoreFailed => "store_failed",
            Self::Closed => "closed",
            Self::Internal => "internal",
        }
    }

    /// The number that stands for this kind in C, from 1 up; 0 is success there.
    pub const fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Why no decision could be made. [`source`](std::error::Error::source) is the error of the system or the store that caused it, if
/// there is one. Equal errors have the same kind and message.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    lacks_right: bool,
    message: Box<str>,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    #[doc(hidden)]
    pub fn new(kind: ErrorKind, message: impl Into<Box<str>>) -> Self {
        Self { kind, lacks_right: false, message: message.into(), cause: None }
    }

    /// The same error, because the user of the store lacks a right.
    #[doc(hidden)]
    #[must_use]
    pub fn of_missing_right(self) -> Self {
        Self { lacks_right: true, ..self }
    }

    /// The same error with its cause.
    #[doc(hidden)]
    #[must_use]
    pub fn caused_by(self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.caused_by_shared(Arc::new(cause))
    }

    #[doc(hidden)]
    #[must_use]
    pub fn caused_by_shared(self, cause: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        Self { cause: Some(cause), ..self }
    }

    /// As [`caused_by`](Self::caused_by), for an error of the system that its owner needs as well.
    #[doc(hidden)]
    #[must_use]
    pub fn caused_by_io(self, cause: &io::Error) -> Self {
        let from_text = || io::Error::new(cause.kind(), cause.to_string());
        self.caused_by(cause.raw_os_error().map_or_else(from_text, io::Error::from_raw_os_error))
    }

    #[doc(hidden)]
    pub fn invalid_argument(message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// A store that answered fewer requests than it was asked, which is a defect.
    #[doc(hidden)]
    pub fn no_answer() -> Self {
        Self::new(ErrorKind::Internal, "an operation got no answer")
    }

    /// An operation under a policy that its store does not have, which is a defect: a policy is forgotten only when nothing uses it.
    #[doc(hidden)]
    pub fn unknown_to_store() -> Self {
        Self::new(ErrorKind::Internal, "a policy is not known to its store")
    }

    /// An operation on the configuration of a limiter that has none.
    #[doc(hidden)]
    pub fn no_configuration() -> Self {
        Self::invalid_argument(
            "this limiter has no configuration: build it with one, such as file:limits.toml",
        )
    }

    /// Which kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the store refused its user, the user's password or a right, for a program that distinguishes this from other failures.
    pub fn lacks_right(&self) -> bool {
        self.lacks_right
    }

    /// What was read, what is allowed and what to do about it.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        let fields = |error: &Self| (error.kind, error.lacks_right);
        fields(self) == fields(other) && self.message == other.message
    }
}

impl Eq for Error {}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.cause.as_deref()?)
    }
}

/// At most 40 characters of what the caller wrote, quoted and escaped, for an error message.
pub fn excerpt(read: &str) -> String {
    const MAX_LENGTH: usize = 40;
    match read.char_indices().nth(MAX_LENGTH) {
        None => format!("{read:?}"),
        Some((end, _)) => format!("{:?}...", &read[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete_and_numbers_are_stable() {
        let table: Vec<_> = ErrorKind::ALL.iter().map(|kind| (kind.number(), kind.code())).collect();
        assert_eq!(
            table,
            [
                (1, "invalid_argument"),
                (2, "store_unavailable"),
                (3, "store_failed"),
                (4, "closed"),
                (5, "internal")
            ]
        );
    }

    #[test]
    fn source_is_the_cause() {
        use std::error::Error as _;
        let error = Error::new(ErrorKind::StoreFailed, "the store is gone");
        assert!(error.source().is_none());
        for cause in [io::Error::from_raw_os_error(2), io::Error::other("a reason")] {
            let caused = error.clone().caused_by_io(&cause);
            let source = caused.source().and_then(|source| source.downcast_ref::<io::Error>()).unwrap();
            assert_eq!((source.kind(), source.to_string()), (cause.kind(), cause.to_string()));
            assert_eq!(caused, error);
        }
    }

    #[test]
    fn an_excerpt_is_short_and_printable() {
        assert_eq!(excerpt("a\n"), r#""a\n""#);
        assert_eq!(excerpt(&"é".repeat(100)).chars().count(), 2 + 40 + 3);
    }
}
