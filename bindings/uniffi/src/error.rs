//! Errors, and the conversion of panics into errors.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;
use polylimit::ErrorKind;

/// Why no decision could be made. Its message says what was read, what is allowed and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Error)]
#[uniffi(flat_error)]
pub enum PolylimitError {
    /// The caller passed something that is not allowed; trying again with the same input fails again.
    InvalidArgument(String),
    /// The store could not be reached in time; trying again later may succeed.
    StoreUnavailable(String),
    /// The store was reached and could not decide.
    StoreFailed(String),
    /// The limiter was closed.
    Closed(String),
    /// A defect in polylimit itself.
    Internal(String),
}

pub(crate) type Result<T> = std::result::Result<T, PolylimitError>;

impl PolylimitError {
    fn new(kind: ErrorKind, message: String) -> Self {
        match kind {
            ErrorKind::InvalidArgument => Self::InvalidArgument(message),
            ErrorKind::StoreUnavailable => Self::StoreUnavailable(message),
            ErrorKind::StoreFailed => Self::StoreFailed(message),
            ErrorKind::Closed => Self::Closed(message),
            _ => Self::Internal(message),
        }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidArgument(_) => ErrorKind::InvalidArgument,
            Self::StoreUnavailable(_) => ErrorKind::StoreUnavailable,
            Self::StoreFailed(_) => ErrorKind::StoreFailed,
            Self::Closed(_) => ErrorKind::Closed,
            Self::Internal(_) => ErrorKind::Internal,
        }
    }
}

impl From<polylimit::Error> for PolylimitError {
    fn from(error: polylimit::Error) -> Self {
        Self::new(error.kind(), error.message().to_owned())
    }
}

impl fmt::Display for PolylimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::InvalidArgument(message)
        | Self::StoreUnavailable(message)
        | Self::StoreFailed(message)
        | Self::Closed(message)
        | Self::Internal(message)) = self;
        f.write_str(message)
    }
}

impl std::error::Error for PolylimitError {}

/// A kind of error.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct ErrorRow {
    /// Its number in C, from 1 up.
    pub number: i32,
    /// The code string, the same in every language.
    pub code: String,
}

/// Every kind of error, in the order of their numbers.
#[uniffi::export]
pub fn error_table() -> Vec<ErrorRow> {
    ErrorKind::ALL
        .iter()
        .map(|kind| ErrorRow { number: kind.number(), code: kind.code().to_owned() })
        .collect()
}

/// Converts a panic into an error.
pub(crate) fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(panicked()))
}

/// Converts a panic of a future into an error.
pub(crate) async fn guarded_async<T>(run: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|_| Err(panicked()))
}

pub(crate) fn panicked() -> PolylimitError {
    PolylimitError::Internal("polylimit panicked: this is a defect".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_variant() {
        for kind in ErrorKind::ALL {
            let variant = format!("{:?}", PolylimitError::new(kind, "why".to_owned()));
            assert_eq!(variant, format!("{kind:?}(\"why\")"));
        }
    }

    #[test]
    fn panic_becomes_an_internal_error() {
        assert_eq!(guarded::<()>(|| panic!("defect")), Err(panicked()));
        let future = guarded_async::<()>(async { panic!("defect") });
        assert_eq!(future.now_or_never(), Some(Err(panicked())));
    }
}
