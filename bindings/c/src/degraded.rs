//! What a limiter tells of itself, by calling a function of the caller's.

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use polylimit::DegradedEvent;

use crate::failure::{MessageBuffer, guard_done};
use crate::limiter::polylimit_limiter;
use crate::pointer::handle;
use crate::status::polylimit_status;

/// What a limiter tells its operators. Nothing in it outlasts the call that it is passed to. Fields may be added at the end.
#[repr(C)]
pub struct polylimit_degraded_event {
    /// "started": decisions are made without the store; "ended": the store has decided everything for 3 seconds again;
    /// "finding": the doctor, which looks once in the background, sees why limits cannot always be held.
    pub kind: *const c_char,
    /// Why the first decision was made without the store, such as "timeout"; NULL for a finding.
    pub reason: *const c_char,
    /// Microseconds from the first decision that was made without the store to the last one; 0 unless it has ended.
    pub lasted_us: u64,
    /// How many decisions were made without the store; 0 unless it has ended.
    pub decisions: u64,
    /// How much it matters: "fine" when it is over, otherwise "advice" or "problem".
    pub severity: *const c_char,
    /// What the doctor looked at, such as "memory"; NULL unless it is a finding.
    pub subject: *const c_char,
    /// A sentence for a log. It holds no key, password or URL.
    pub message: *const c_char,
}

/// A function that is told events, with the context that it was set with.
pub type polylimit_on_degraded =
    Option<unsafe extern "C" fn(event: *const polylimit_degraded_event, context: *mut c_void)>;

/// A pointer of the caller's, which only the caller's function looks at.
struct Context(*mut c_void);

// SAFETY: the caller owes a function that may be called with it on any thread.
unsafe impl Send for Context {}
// SAFETY: as above; it is never called on two threads at once.
unsafe impl Sync for Context {}

impl Context {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Has a function called when the limiter begins to decide without its store, when it decides with it again, and with what its
/// doctor finds. It takes the place of the one before; NULL has none called. Set it right after opening, and nothing is missed.
///
/// It is called on the thread that notices, which is one that uses the limiter or one of the limiter's own, never on two at
/// once, and holds up what that thread does: it must not block, throw or jump out. It may use the limiter. Once this function,
/// polylimit_limiter_close or polylimit_limiter_free has returned, the one before is called no more, so its context may be freed,
/// unless they were called by that very function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_set_on_degraded(
    limiter: *const polylimit_limiter,
    on_degraded: polylimit_on_degraded,
    context: *mut c_void,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller owes the buffer.
    guard_done(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller owes a limiter.
        let limiter = unsafe { handle(limiter, "limiter") }?.limiter.asynchronous();
        let context = Context(context);
        limiter.on_degraded(move |event| {
            if let Some(on_degraded) = on_degraded {
                // SAFETY: the caller owes a function that takes them.
                with_plain(event, |plain| unsafe { on_degraded(plain, context.pointer()) });
            }
        });
        Ok(())
    })
}

/// Hands out an event as C has it.
fn with_plain(event: &DegradedEvent, hand: impl FnOnce(&polylimit_degraded_event)) {
    // None of these has a NUL in it.
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let (kind, severity, message) =
        (text(event.name()), text(event.severity().name()), text(&event.to_string()));
    let reason = event.reason().map(|reason| text(reason.name()));
    let subject = event.finding().map(|finding| text(finding.subject));
    let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    hand(&polylimit_degraded_event {
        kind: kind.as_ptr(),
        reason: pointer(&reason),
        lasted_us: u64::try_from(event.lasted().as_micros()).unwrap_or(u64::MAX),
        decisions: event.decisions(),
        severity: severity.as_ptr(),
        subject: pointer(&subject),
        message: message.as_ptr(),
    });
}
