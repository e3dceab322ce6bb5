//! Calls that were submitted and not answered yet, and their answers: taken many at a time by the thread or the event loop that
//! waits for them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use polylimit::raw::{Answer, Call, Completions};
use polylimit::reservation::ReservationId;
use polylimit::{Error, Limiter};

use crate::descriptor::duplicate;
use crate::direct::held::{Reserve, Reserved};
use crate::direct::layout::Writer;
use crate::direct::report::{Form, Report};
use crate::error::{PolylimitError, Result};

/// Takes the answer to a call when it is there; the language hears only that it is.
pub(crate) trait Receiver: Send + Sync {
    fn receive(&self, answer: std::result::Result<Answer, Error>);
}

/// What becomes of the answer to a submitted call.
pub(crate) enum Then {
    Nothing,
    /// It goes to this receiver.
    Receive(Arc<dyn Receiver>),
    /// With it are the requests among several that were refused before the others were submitted.
    Merge(Vec<(usize, PolylimitError)>),
    /// The handle of the reservation is made.
    Reserve(Box<Reserve>),
    /// It is about requests that are reserved under this id.
    ReserveTogether(ReservationId),
    /// It is returned as a report in this form.
    Report(Form),
}

/// A submitted call.
struct Tag {
    number: u64,
    then: Then,
}

impl PartialEq for Tag {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// An answer that the language has not taken.
enum Finished {
    Answer(std::result::Result<Answer, Error>),
    Merged(std::result::Result<Answer, Error>, Vec<(usize, PolylimitError)>),
    Reserved(Reserved),
    ReservedTogether(ReservationId, std::result::Result<Answer, Error>),
    Report(Report),
    Failed(PolylimitError),
}

impl Finished {
    fn of(answer: std::result::Result<Answer, Error>, then: Then) -> Self {
        match then {
            Then::Nothing => Self::Answer(answer),
            Then::Receive(receiver) => {
                receiver.receive(answer);
                Self::Answer(Ok(Answer::Ready))
            }
            Then::Merge(refused) => Self::Merged(answer, refused),
            Then::ReserveTogether(id) => Self::ReservedTogether(id, answer),
            Then::Report(form) => Self::Report(Report::new(answer, form)),
            Then::Reserve(reserve) => match reserve.adopt(answer) {
                Ok(reserved) => Self::Reserved(reserved),
                Err(error) => Self::Failed(error),
            },
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Merged(Ok(Answer::Decisions(decisions)), refused) => {
                writer.decisions(decisions, refused.clone());
            }
            Self::Answer(answer) | Self::Merged(answer, _) => writer.answer(answer),
            Self::Reserved(reserved) => reserved.write(writer),
            Self::ReservedTogether(id, answer) => writer.reserved_together(id, answer),
            Self::Report(report) => report.write(writer),
            Self::Failed(error) => writer.error(error),
        }
    }
}

/// Submitted calls of any number of limiters. Any thread may use it at any time.
pub(crate) struct Queue {
    completions: Completions<Tag>,
    wake_up: Arc<WakeUp>,
    /// Answers for which the caller's buffer had no room.
    finished: Mutex<VecDeque<(u64, Finished)>>,
}

#[derive(Default)]
struct WakeUp {
    is_woken: Mutex<bool>,
    /// Whether a thread that waits has to return, with or without answers.
    has_to_return: AtomicBool,
    woken: Condvar,
    /// A byte is written to it when there are answers to take.
    descriptor: Option<File>,
}

impl WakeUp {
    fn wake(&self) {
        *self.is_woken.lock() = true;
        self.woken.notify_one();
        if let Some(mut descriptor) = self.descriptor.as_ref() {
            // A pipe that is full wakes its reader in any case, and one that is closed has none.
            let _ = descriptor.write(&[1]);
        }
    }
}

impl Queue {
    /// A queue that writes a byte to the descriptor when there are answers to take, unless the descriptor is negative. The
    /// descriptor is duplicated.
    pub(crate) fn open(descriptor: i32) -> Result<Self> {
        let descriptor = if descriptor < 0 { None } else { Some(duplicate(descriptor)?) };
        let wake_up = Arc::new(WakeUp { descriptor, ..WakeUp::default() });
        let woken = Arc::clone(&wake_up);
        let completions = Completions::new(move || woken.wake());
        Ok(Self { completions, wake_up, finished: Mutex::default() })
    }

    /// Starts a call that has to wait. Returns the answer if it does not have to after all.
    pub(crate) fn submit(
        &self,
        limiter: &Limiter,
        call: &Call<'_>,
        number: u64,
        then: Then,
    ) -> Option<std::result::Result<Answer, Error>> {
        self.completions.submit(limiter, call, Tag { number, then })
    }

    /// Cancels a call that has not finished, and returns whether there was one. An acquire leaves the queue, and what was
    /// spent for it is refunded.
    pub(crate) fn cancel(&self, number: u64) -> bool {
        self.completions.cancel(&Tag { number, then: Then::Nothing })
    }

    /// Makes the thread that waits for answers return; one that does not wait yet returns at once.
    pub(crate) fn stop_waiting(&self) {
        self.wake_up.has_to_return.store(true, Ordering::Release);
        self.wake_up.wake();
    }

    /// Waits for answers, at most for `timeout`, and writes a list of them: each its tag (`u64`) and the answer. At least the
    /// first is written, and of the others those that fit into `room` bytes.
    pub(crate) fn take(&self, timeout: Duration, writer: &mut Writer<'_>, room: usize) {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            // A call that finishes from here on wakes this thread again.
            *self.wake_up.is_woken.lock() = false;
            // Two threads never drain at once, so that answers keep their order.
            let mut finished = self.finished.lock();
            self.completions.drain(|tag, answer| {
                finished.push_back((tag.number, Finished::of(answer, tag.then)));
            });
            if !finished.is_empty() {
                return write(&mut finished, writer, room);
            }
            drop(finished);
            if self.wake_up.has_to_return.swap(false, Ordering::AcqRel) {
                return writer.count(0);
            }
            let mut is_woken = self.wake_up.is_woken.lock();
            let has_ended = match deadline {
                _ if *is_woken => false,
                Some(deadline) => self.wake_up.woken.wait_until(&mut is_woken, deadline).timed_out(),
                None => {
                    self.wake_up.woken.wait(&mut is_woken);
                    false
                }
            };
            if has_ended && !*is_woken {
                return writer.count(0);
            }
        }
    }
}

fn write(finished: &mut VecDeque<(u64, Finished)>, writer: &mut Writer<'_>, room: usize) {
    let mut written = Vec::new();
    let mut count = 0_usize;
    let mut one = [0; 512];
    while let Some((number, answer)) = finished.pop_front() {
        let mut own = Writer::new(&mut one);
        own.u64(number);
        answer.write(&mut own);
        let bytes = match own.end() {
            Ok(length) => &one[..length],
            Err(ref beside) => &beside.clone(),
        };
        if count > 0 && written.len() + bytes.len() > room {
            finished.push_front((number, answer));
            break;
        }
        written.extend_from_slice(bytes);
        count += 1;
        if let Finished::Reserved(reserved) = answer {
            reserved.hand_over();
        }
    }
    writer.count(count);
    writer.raw(&written);
}
