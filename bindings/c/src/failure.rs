//! Why a call failed, on its way to the caller: a status and a message in the caller's buffer. Panics end here.

use std::any::Any;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use polylimit::{Error, ErrorKind};

use crate::status::{POLYLIMIT_OK, polylimit_status, status_of};

/// Why a call failed.
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

/// The caller's buffer for a message; none when it is NULL or has no room.
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

    /// Writes as much of the message as there is room for, whole characters, and a NUL.
    pub(crate) fn write(self, message: &str) {
        if self.start.is_null() || self.capacity == 0 {
            return;
        }
        let end = message.floor_char_boundary(self.capacity - 1);
        // SAFETY: there is room for `end` bytes and the NUL, as `new` was promised.
        unsafe {
            message.as_ptr().copy_to_nonoverlapping(self.start.cast(), end);
            self.start.add(end).write(0);
        }
    }
}

/// Runs what an export does, and turns a failure or a panic into a status and a message.
#[inline]
pub(crate) fn guard(
    message: MessageBuffer,
    work: impl FnOnce() -> Result<polylimit_status, Failure>,
) -> polylimit_status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => refuse(message, &failure),
        Err(payload) => refuse(message, &panicked(payload)),
    }
}

/// [`guard`] for work that either succeeds or fails.
#[inline]
pub(crate) fn guard_done(
    message: MessageBuffer,
    work: impl FnOnce() -> Result<(), Failure>,
) -> polylimit_status {
    guard(message, || work().map(|()| POLYLIMIT_OK))
}

/// Runs work that has no way to report a failure: after a panic the answer is `otherwise`.
pub(crate) fn guard_quietly<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        otherwise
    })
}

#[cold]
fn refuse(message: MessageBuffer, failure: &Failure) -> polylimit_status {
    message.write(&failure.message);
    failure.status()
}

/// What a panic said, where it said something.
pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> Failure {
    let said = payload.downcast_ref::<&str>().copied();
    let said = said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let failure = Failure::new(ErrorKind::Internal, format!("polylimit has a defect and panicked: {said}"));
    // The payload's own destructor could panic, here where nothing catches it.
    std::mem::forget(payload);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{POLYLIMIT_INTERNAL, POLYLIMIT_INVALID_ARGUMENT};

    fn told(capacity: usize, work: impl FnOnce() -> Result<(), Failure>) -> (i32, String) {
        let mut buffer = [b'#'; 64];
        // SAFETY: the buffer has at least so many bytes.
        let message = unsafe { MessageBuffer::new(buffer.as_mut_ptr().cast(), capacity) };
        let status = guard_done(message, work);
        let end = buffer.iter().position(|byte| *byte == 0 || *byte == b'#').unwrap();
        assert!(buffer[capacity..].iter().all(|byte| *byte == b'#'), "nothing is written beyond the buffer");
        (status, String::from_utf8(buffer[..end].to_vec()).unwrap())
    }

    #[test]
    fn a_panic_becomes_internal() {
        assert_eq!(
            told(60, || panic!("ouch {}", 1)),
            (POLYLIMIT_INTERNAL, "polylimit has a defect and panicked: ouch 1".to_owned())
        );
        assert_eq!(told(60, || std::panic::panic_any(7)).0, POLYLIMIT_INTERNAL);
        assert_eq!(guard_quietly(3, || panic!("ouch")), 3);
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let failing = || Err(Failure::invalid("1é2"));
        for (capacity, shown) in [(0, ""), (1, ""), (2, "1"), (3, "1"), (4, "1é"), (5, "1é2"), (60, "1é2")]
        {
            assert_eq!(told(capacity, failing), (POLYLIMIT_INVALID_ARGUMENT, shown.to_owned()));
        }
        // SAFETY: NULL is allowed.
        let nowhere = unsafe { MessageBuffer::new(std::ptr::null_mut(), 10) };
        assert_eq!(guard_done(nowhere, failing), POLYLIMIT_INVALID_ARGUMENT);
    }
}
