//! A report about keys, decisions and metrics as a whole, as JSON.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::{Arc, OnceLock};

use polylimit::Error;
use polylimit::raw::{Answer, report_json};

use crate::completions::Receiver;
use crate::error::guard_or;

/// A report as JSON: an object, or an array for metrics. Freed by polylimit_report_free.
///
/// Its fields have the names and units that the command line's --json prints; times are in microseconds and end in `_us`, and a number
/// that there is none of is null. A key is the field `key` where it is text in UTF-8, `key_base64` for other bytes, and `key_digest`, in
/// hexadecimal digits, where the store has only a digest, since the key is long. Later versions may add fields.
pub struct polylimit_report {
    told: Arc<Told>,
}

/// What a handle shares with the operation that makes the report.
#[derive(Default)]
pub(crate) struct Told {
    json: OnceLock<CString>,
}

impl Told {
    fn set(&self, json: String) {
        // JSON escapes a NUL.
        let _ = self.json.set(CString::new(json).unwrap_or_default());
    }
}

impl Receiver for Told {
    fn receive(&self, answer: Result<Answer, Error>) -> Result<Answer, Error> {
        match answer? {
            Answer::Keys(page) => self.set(report_json(&page)),
            Answer::KeysReset(page) => self.set(report_json(&page)),
            Answer::Explanation(explanation) => self.set(report_json(&*explanation)),
            Answer::RequestExplanation(explanation) => self.set(report_json(&*explanation)),
            other => return Ok(other),
        }
        Ok(Answer::Ready)
    }
}

impl polylimit_report {
    /// A handle that the caller frees.
    pub(crate) fn given(told: Arc<Told>) -> *mut Self {
        Box::into_raw(Box::new(Self { told }))
    }

    /// A handle with a report that is there.
    pub(crate) fn with(json: String) -> *mut Self {
        let told = Arc::<Told>::default();
        told.set(json);
        Self::given(told)
    }
}

/// The report as JSON: a text in one line, which is valid until the report is freed. NULL when `report` is NULL, and before the result
/// of an operation that was submitted is drained.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_report_json(report: *const polylimit_report) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: the caller guarantees a report, or NULL.
        let json = unsafe { report.as_ref() }.and_then(|report| report.told.json.get());
        json.map_or(ptr::null(), |json| json.as_ptr())
    })
}

/// Frees a report. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_report_free(report: *mut polylimit_report) {
    guard_or((), || {
        if !report.is_null() {
            // SAFETY: the caller guarantees a report that no thread uses any more.
            drop(unsafe { Box::from_raw(report) });
        }
    });
}
