//! What operators observe of a limiter: the doctor's findings, counters, and events of degradation.

use std::ffi::{CString, c_char, c_void};
use std::fmt::Write as _;
use std::ptr;

use polylimit::metrics::{DegradedEvent, Stats};

use crate::arguments::{TextBuffer, handle, out_param};
use crate::error::{MessageBuffer, guard_unit, polylimit_status};
use crate::limiter::polylimit_limiter;
use crate::names::Names;

/// One counter of a limiter.
#[repr(C)]
pub struct polylimit_stat {
    /// The name of the counter. Not to be freed.
    pub name: *const c_char,
    /// Its value since the limiter was opened.
    pub value: u64,
}

/// Examines the store for problems of its operation, and writes each finding as a line "severity: subject: message\n"; the
/// severity is fine, advice or problem. It makes a decision on a key of its own, which it then deletes. Stores without a server
/// have no findings. The length without the NUL is written to `length_out`, which may be NULL, even if the buffer is too
/// small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_doctor(
    limiter: *const polylimit_limiter,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter.
        let findings = unsafe { handle(limiter, "limiter") }?.limiter.admin().doctor()?;
        let mut text = String::new();
        for finding in findings {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{finding}");
        }
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&text) }
    })
}

/// Writes up to `capacity` counters to `stats_out`, and the total number of counters to `count_out`. Their order and names stay
/// the same while a program runs. `stats_out` may be NULL when `capacity` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_stats(
    limiter: *const polylimit_limiter,
    stats_out: *mut polylimit_stat,
    capacity: usize,
    count_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and an out-parameter.
        let (limiter, count_out) =
            unsafe { (handle(limiter, "limiter")?, out_param(count_out, "count_out")?) };
        let stats = limiter.limiter.asynchronous().stats();
        let names = || Stats::default().iter().map(|(name, _)| name).collect::<Vec<_>>().into_iter();
        let mut count = 0;
        for (at, (_, value)) in stats.iter().enumerate() {
            if at < capacity {
                // SAFETY: the caller guarantees an array of `capacity` elements.
                *unsafe { out_param(stats_out.wrapping_add(at), "stats_out") }? =
                    polylimit_stat { name: NAMES.at(Some(at), names()), value };
            }
            count += 1;
        }
        *count_out = count;
        Ok(())
    })
}

/// The names of the counters, in their order.
static NAMES: Names = Names::new();

/// An event of a limiter for its operators. Its texts are valid only during the call. Later versions may add fields at the end.
#[repr(C)]
pub struct polylimit_degraded_event {
    /// "started": the limiter begins to decide without its store; "ended": the store has made all decisions for 3 seconds again;
    /// "finding": the doctor, which runs once in the background, has found a problem.
    pub kind: *const c_char,
    /// Why the first decision was made without the store, such as "timeout"; NULL for a finding.
    pub reason: *const c_char,
    /// Microseconds from the first decision without the store to the last one; 0 unless `kind` is "ended".
    pub lasted_us: u64,
    /// The number of decisions that were made without the store; 0 unless `kind` is "ended".
    pub decisions: u64,
    /// How serious it is: "fine" when an outage has ended, otherwise "advice" or "problem".
    pub severity: *const c_char,
    /// What the finding is about, such as "memory"; NULL for the other kinds.
    pub subject: *const c_char,
    /// A sentence for a log. It contains no key, password or URL.
    pub message: *const c_char,
}

/// A function that receives events, and the context that was set with it.
pub type polylimit_on_degraded =
    Option<unsafe extern "C" fn(event: *const polylimit_degraded_event, context: *mut c_void)>;

/// A pointer that only the caller's function uses.
struct Context(*mut c_void);

// SAFETY: the caller guarantees a function that may be called with it on any thread.
unsafe impl Send for Context {}
// SAFETY: the function is never called on two threads at once.
unsafe impl Sync for Context {}

impl Context {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Sets the function that is called when the limiter begins to decide without its store, when it decides with it again, and for
/// each finding of its doctor. It replaces the previous function; NULL removes it. Set it right after opening to receive all
/// events.
///
/// The function is called on a thread that uses the limiter or on one of the limiter's own, never on two at once. That thread
/// waits for it, so that it must not block, throw or jump out. It may use the limiter. Once polylimit_limiter_set_on_degraded,
/// polylimit_limiter_close or polylimit_limiter_free has returned, the previous function is not called again and its context may
/// be freed, unless one of them was called inside that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_set_on_degraded(
    limiter: *const polylimit_limiter,
    on_degraded: polylimit_on_degraded,
    context: *mut c_void,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter.
        let limiter = unsafe { handle(limiter, "limiter") }?.limiter.asynchronous();
        let context = Context(context);
        limiter.on_degraded(move |event| {
            if let Some(on_degraded) = on_degraded {
                // SAFETY: the caller guarantees a function with these parameters.
                with_c_event(event, |plain| unsafe { on_degraded(plain, context.pointer()) });
            }
        });
        Ok(())
    })
}

/// Calls `body` with an event as a C struct.
fn with_c_event(event: &DegradedEvent, body: impl FnOnce(&polylimit_degraded_event)) {
    // None of these texts contains a NUL.
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let (kind, severity, message) =
        (text(event.name()), text(event.severity().name()), text(&event.to_string()));
    let reason = event.reason().map(|reason| text(reason.name()));
    let subject = event.finding().map(|finding| text(finding.subject));
    let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    body(&polylimit_degraded_event {
        kind: kind.as_ptr(),
        reason: pointer(&reason),
        lasted_us: u64::try_from(event.lasted().as_micros()).unwrap_or(u64::MAX),
        decisions: event.decisions(),
        severity: severity.as_ptr(),
        subject: pointer(&subject),
        message: message.as_ptr(),
    });
}
