//! Statuses and error messages of calls, and the boundary at which panics become errors.

use std::any::Any;
use std::ffi::c_char;
#[cfg(target_os = "linux")]
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use polylimit::{Error, ErrorKind};

/// The result of a call: 0 for success, -1 when the answer is still to come, otherwise the kind of the error. A denial is not an
/// error: it is a decision.
pub type polylimit_status = i32;

/// Success.
pub const POLYLIMIT_OK: i32 = 0;
/// Only of functions that do not wait: polylimit_completions_drain will return the answer.
pub const POLYLIMIT_PENDING: i32 = -1;
/// An argument is not allowed; the same call fails again.
pub const POLYLIMIT_INVALID_ARGUMENT: i32 = 1;
/// The store could not be reached in time; trying again later may succeed.
pub const POLYLIMIT_STORE_UNAVAILABLE: i32 = 2;
/// The store was reached and could not decide.
pub const POLYLIMIT_STORE_FAILED: i32 = 3;
/// The limiter was closed.
pub const POLYLIMIT_CLOSED: i32 = 4;
/// A defect in polylimit itself.
pub const POLYLIMIT_INTERNAL: i32 = 5;

/// The status of a kind of error.
pub(crate) fn status_of(kind: ErrorKind) -> polylimit_status {
    kind.number()
}

/// The error of a call.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) message: Box<str>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Box<str>>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    pub(crate) fn status(&self) -> polylimit_status {
        status_of(self.kind)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error.message())
    }
}

/// The caller's buffer for a message; it may be NULL or empty.
#[derive(Clone, Copy)]
pub(crate) struct MessageBuffer {
    start: *mut c_char,
    capacity: usize,
}

impl MessageBuffer {
    /// # Safety
    /// `start` is NULL or there are `capacity` bytes that may be written.
    pub(crate) const unsafe fn new(start: *mut c_char, capacity: usize) -> Self {
        Self { start, capacity }
    }

    /// Writes as many whole characters of the message as fit, and a NUL.
    pub(crate) fn write(self, message: &str) {
        if self.start.is_null() || self.capacity == 0 {
            return;
        }
        let end = message.floor_char_boundary(self.capacity - 1);
        // SAFETY: the caller of `new` guarantees `capacity` bytes, and `end` is less than that.
        unsafe {
            message.as_ptr().copy_to_nonoverlapping(self.start.cast(), end);
            self.start.add(end).write(0);
        }
    }
}

/// Defers pthread_cancel while it exists. A cancelled thread is unwound by an exception of C, which ends the process when it arrives at
/// a function of Rust.
struct WithoutCancellation {
    #[cfg(target_os = "linux")]
    before: c_int,
}

#[cfg(target_os = "linux")]
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl WithoutCancellation {
    #[inline]
    fn begin() -> Self {
        #[cfg(target_os = "linux")]
        {
            /// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
            const DISABLE: c_int = 1;
            let mut before = 0;
            // SAFETY: `before` may be written, and the state may be set at any time.
            unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
            Self { before }
        }
        #[cfg(not(target_os = "linux"))]
        Self {}
    }
}

impl Drop for WithoutCancellation {
    #[inline]
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        {
            let mut disabled = 0;
            // SAFETY: it is a state that this thread has had.
            unsafe { pthread_setcancelstate(self.before, &raw mut disabled) };
        }
    }
}

/// Runs the work of an export, and turns a failure or a panic into a status and a message.
#[inline]
pub(crate) fn guard(
    message: MessageBuffer,
    work: impl FnOnce() -> Result<polylimit_status, Failure>,
) -> polylimit_status {
    let _deferred = WithoutCancellation::begin();
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => report(message, &failure),
        Err(payload) => report(message, &panic_failure(payload)),
    }
}

/// [`guard`] for work without a status of its own.
#[inline]
pub(crate) fn guard_unit(
    message: MessageBuffer,
    work: impl FnOnce() -> Result<(), Failure>,
) -> polylimit_status {
    guard(message, || work().map(|()| POLYLIMIT_OK))
}

/// Runs the work of an export that cannot report an error; after a panic it returns `fallback`.
pub(crate) fn guard_or<T>(fallback: T, work: impl FnOnce() -> T) -> T {
    let _deferred = WithoutCancellation::begin();
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        fallback
    })
}

#[cold]
fn report(message: MessageBuffer, failure: &Failure) -> polylimit_status {
    message.write(&failure.message);
    failure.status()
}

/// The failure that reports a panic.
fn panic_failure(payload: Box<dyn Any + Send>) -> Failure {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let failure = Failure::new(ErrorKind::Internal, format!("polylimit has a defect and panicked: {text}"));
    // The payload is leaked, because its destructor could panic, and nothing would catch that here.
    std::mem::forget(payload);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(capacity: usize, work: impl FnOnce() -> Result<(), Failure>) -> (i32, String) {
        let mut buffer = [b'#'; 64];
        // SAFETY: the buffer has at least that many bytes.
        let message = unsafe { MessageBuffer::new(buffer.as_mut_ptr().cast(), capacity) };
        let status = guard_unit(message, work);
        let end = buffer.iter().position(|byte| *byte == 0 || *byte == b'#').unwrap();
        assert!(buffer[capacity..].iter().all(|byte| *byte == b'#'), "nothing is written beyond the buffer");
        (status, String::from_utf8(buffer[..end].to_vec()).unwrap())
    }

    #[test]
    fn panic_becomes_status_internal() {
        assert_eq!(
            reported(60, || panic!("ouch {}", 1)),
            (POLYLIMIT_INTERNAL, "polylimit has a defect and panicked: ouch 1".to_owned())
        );
        assert_eq!(reported(60, || std::panic::panic_any(7)).0, POLYLIMIT_INTERNAL);
        assert_eq!(guard_or(3, || panic!("ouch")), 3);
    }

    #[test]
    fn long_message_is_cut_between_characters() {
        let failing = || Err(Failure::invalid("1é2"));
        for (capacity, shown) in [(0, ""), (1, ""), (2, "1"), (3, "1"), (4, "1é"), (5, "1é2"), (60, "1é2")]
        {
            assert_eq!(reported(capacity, failing), (POLYLIMIT_INVALID_ARGUMENT, shown.to_owned()));
        }
        // SAFETY: NULL is allowed.
        let nowhere = unsafe { MessageBuffer::new(std::ptr::null_mut(), 10) };
        assert_eq!(guard_unit(nowhere, failing), POLYLIMIT_INVALID_ARGUMENT);
    }

    #[test]
    fn every_error_kind_has_the_status_of_its_number() {
        let statuses = [
            ("invalid_argument", POLYLIMIT_INVALID_ARGUMENT),
            ("store_unavailable", POLYLIMIT_STORE_UNAVAILABLE),
            ("store_failed", POLYLIMIT_STORE_FAILED),
            ("closed", POLYLIMIT_CLOSED),
            ("internal", POLYLIMIT_INTERNAL),
        ];
        assert_eq!(ErrorKind::ALL.map(|kind| (kind.code(), status_of(kind))), statuses);
    }
}
