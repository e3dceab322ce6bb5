//! The one conversion of errors, and where panics stop.

use std::panic::{AssertUnwindSafe, catch_unwind};

use polylimit::ErrorKind;

/// The `code` of a JavaScript error.
#[derive(Clone, Copy, Debug)]
pub struct Code(ErrorKind);

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        self.0.code()
    }
}

pub(crate) type Result<T> = std::result::Result<T, napi::Error<Code>>;

/// An error of the core as one of JavaScript.
pub(crate) fn failure(error: polylimit::Error) -> napi::Error<Code> {
    napi::Error::new(Code(error.kind()), error.message().to_owned())
}

pub(crate) fn invalid_argument(message: impl Into<String>) -> napi::Error<Code> {
    napi::Error::new(Code(ErrorKind::InvalidArgument), message.into())
}

pub(crate) fn internal(message: impl Into<String>) -> napi::Error<Code> {
    napi::Error::new(Code(ErrorKind::Internal), message.into())
}

/// What every operation of a limiter that was closed fails with.
pub(crate) fn closed() -> napi::Error<Code> {
    napi::Error::new(Code(ErrorKind::Closed), "the limiter is closed".to_owned())
}

/// An error of Node-API itself: these calls are right, so that it is a defect or the end of the environment.
pub(crate) fn refused(error: napi::Error) -> napi::Error<Code> {
    internal(format!("Node-API refused: {}", error.reason))
}

/// Runs what JavaScript called; a panic becomes an error of kind `internal`.
pub(crate) fn guarded<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(internal("polylimit panicked: this is a defect in it")))
}
