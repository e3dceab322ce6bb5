//! The result of one operation out of many: of a batch, or of the non-blocking face.

use std::ffi::c_char;

use polylimit::{Answer, ErrorKind};

use crate::decision::polylimit_decision;
use crate::failure::{Failure, MessageBuffer};
use crate::pointer::Sized32;
use crate::status::{POLYLIMIT_OK, polylimit_status};
use crate::usage::polylimit_usage;

/// The bytes of a result's message, the NUL at its end included.
pub const POLYLIMIT_MESSAGE_SIZE: usize = 240;

/// What an operation answers.
#[repr(C)]
pub union polylimit_answer {
    /// Of a check, a peek and an acquire.
    pub decision: std::mem::ManuallyDrop<polylimit_decision>,
    /// Of a take, a charge, a refund and a reset.
    pub usage: std::mem::ManuallyDrop<polylimit_usage>,
}

/// The result of one operation.
#[repr(C)]
pub struct polylimit_result {
    /// sizeof(polylimit_result), set by the library.
    pub size: u32,
    /// POLYLIMIT_OK: `answer` holds the answer. Otherwise why there is none, and `message` says more.
    pub status: polylimit_status,
    /// The tag that the operation was submitted with; in a batch the place of its request, from 0 up.
    pub tag: u64,
    /// 0.
    pub reserved: [u64; 4],
    /// What went wrong, with a NUL at its end; empty when nothing did.
    pub message: [c_char; POLYLIMIT_MESSAGE_SIZE],
    /// What the operation answers; nothing of it is written when there is no answer, nor for POLYLIMIT_READY.
    pub answer: polylimit_answer,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_result {
    const NAME: &'static str = "result";
    const FIRST: u32 = 728;
}

impl polylimit_result {
    /// Writes the result of the operation of this tag.
    pub(crate) fn set(&mut self, tag: u64, outcome: Result<Answer, Failure>) {
        self.size = SIZE;
        self.tag = tag;
        self.reserved = [0; 4];
        self.message[0] = 0;
        let written = outcome.and_then(|answer| self.answer.set(&answer));
        self.status = match written {
            Ok(()) => POLYLIMIT_OK,
            Err(failure) => {
                // SAFETY: the message has so many bytes.
                let message = unsafe { MessageBuffer::new(self.message.as_mut_ptr(), self.message.len()) };
                message.write(&failure.message);
                failure.status()
            }
        };
    }
}

impl polylimit_answer {
    fn set(&mut self, answer: &Answer) -> Result<(), Failure> {
        match answer {
            Answer::Decision(decision) => {
                // SAFETY: every field of both is a plain number, so that any bytes are valid.
                let place = unsafe { &mut *self.decision };
                place.size = DECISION_SIZE;
                place.set(decision);
            }
            Answer::Usage(usage) => {
                // SAFETY: as above.
                let place = unsafe { &mut *self.usage };
                place.size = USAGE_SIZE;
                place.set(usage);
            }
            Answer::Ready => {}
            _ => {
                return Err(Failure::new(
                    ErrorKind::Internal,
                    "an operation was answered by what it does not answer",
                ));
            }
        }
        Ok(())
    }
}

const SIZE: u32 = polylimit_result::FIRST;
const DECISION_SIZE: u32 = polylimit_decision::FIRST;
const USAGE_SIZE: u32 = polylimit_usage::FIRST;
