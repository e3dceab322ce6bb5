//! The conversion of the core's errors to JavaScript's, and the boundary at which panics become errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use polylimit::ErrorKind;

/// The `code` property of a JavaScript error.
#[derive(Clone, Copy, Debug)]
pub struct Code(ErrorKind);

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        self.0.code()
    }
}

pub(crate) type Result<T> = std::result::Result<T, napi::Error<Code>>;

/// Converts an error of the core.
pub(crate) fn to_js_error(error: polylimit::Error) -> napi::Error<Code> {
    napi::Error::new(Code(error.kind()), error.message().to_owned())
}

pub(crate) fn invalid_argument(message: impl Into<String>) -> napi::Error<Code> {
    napi::Error::new(Code(ErrorKind::InvalidArgument), message.into())
}

pub(crate) fn internal(message: impl Into<String>) -> napi::Error<Code> {
    napi::Error::new(Code(ErrorKind::Internal), message.into())
}

/// The error of every operation after the limiter was closed.
pub(crate) fn closed() -> napi::Error<Code> {
    napi::Error::new(Code(ErrorKind::Closed), "the limiter is closed".to_owned())
}

/// An error of Node-API itself, which means a defect in this addon or that the environment is shutting down.
pub(crate) fn node_api_error(error: napi::Error) -> napi::Error<Code> {
    internal(format!("Node-API refused: {}", error.reason))
}

/// Runs the body of a function that JavaScript calls. A panic becomes an error of kind `internal`.
pub(crate) fn catch_panic<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(internal("polylimit panicked: this is a defect in it")))
}
