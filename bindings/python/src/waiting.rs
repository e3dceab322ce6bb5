//! Waiting for a decision on the caller's thread, without the GIL, until it is made or a signal such as Ctrl-C arrives.

use std::cell::Cell;
use std::process;
use std::time::Duration;

use polylimit::{Answer, Call, Error, blocking};
use pyo3::prelude::*;

use crate::error::call_core;

/// The time between two checks for signals.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether this thread is Python's main thread, with the process for which that holds: a fork may change it.
    static IS_MAIN: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

/// Whether Python handles signals on this thread. A daemon thread that checks for signals while the interpreter shuts down would
/// fail.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let current = process::id();
    if let Some((_, is_main)) = IS_MAIN.get().filter(|(process, _)| *process == current) {
        return Ok(is_main);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = threading.call_method0("get_ident")?.eq(main)?;
    IS_MAIN.set(Some((current, is_main)));
    Ok(is_main)
}

/// Waits until a call is decided or, on the main thread, a signal handler raises. Other threads run meanwhile.
pub(crate) fn wait(
    py: Python<'_>,
    limiter: &blocking::Limiter,
    call: &Call<'_>,
) -> PyResult<Option<Result<Answer, Error>>> {
    if !is_main_thread(py)? {
        return call_core(py, || py.detach(|| Ok(Some(limiter.call_store(call)))));
    }
    let mut interrupted = None;
    let stop = || {
        interrupted = Python::attach(|py: Python<'_>| py.check_signals()).err();
        interrupted.is_some()
    };
    let answered = call_core(py, || py.detach(|| Ok(limiter.call_until(call, SIGNAL_CHECK_INTERVAL, stop))))?;
    match (answered, interrupted) {
        (None, Some(interrupted)) => Err(interrupted),
        (answered, _) => Ok(answered),
    }
}
