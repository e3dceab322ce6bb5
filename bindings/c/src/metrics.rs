//! The metrics of a limiter, as values and as the text that monitoring systems read.

use std::ffi::c_char;

use polylimit::metrics::TextFormat;
use polylimit::raw::report_json;

use crate::arguments::{TextBuffer, handle, out_param, text};
use crate::error::{MessageBuffer, guard_unit, polylimit_status};
use crate::limiter::polylimit_limiter;
use crate::report::polylimit_report;

/// Writes the metrics of a limiter as text for an endpoint that a monitoring system reads. `format` is "prometheus" (version 0.0.4, media
/// type "text/plain; version=0.0.4; charset=utf-8") or "openmetrics" (version 1.0.0, media type
/// "application/openmetrics-text; version=1.0.0; charset=utf-8"). No key is in it. docs/metrics.md describes each family.
///
/// The length without the NUL is written to `length_out`, which may be NULL, even if the buffer is too small. The text may be longer in
/// the next call: leave some room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_metrics_text(
    limiter: *const polylimit_limiter,
    format: *const c_char,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and a text.
        let (limiter, format) = unsafe { (handle(limiter, "limiter")?, text(format, "format")?) };
        let format: TextFormat = format.parse()?;
        let metrics = limiter.limiter.asynchronous().metrics_text(format);
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&metrics) }
    })
}

/// Returns the metrics of a limiter as values: an array of families, each with `name`, `help`, `kind` ("counter", "gauge" or "histogram")
/// and `samples`, which have `labels` and a `value`: a number, or for a histogram `buckets`, `sum` and `count`. The families are always the
/// same; those that do not apply to the limiter have no samples. The report is freed by polylimit_report_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_limiter_metrics(
    limiter: *const polylimit_limiter,
    report_out: *mut *mut polylimit_report,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and an out-parameter.
        let (limiter, report_out) =
            unsafe { (handle(limiter, "limiter")?, out_param(report_out, "report_out")?) };
        *report_out = polylimit_report::with(report_json(&limiter.limiter.asynchronous().metrics()));
        Ok(())
    })
}
