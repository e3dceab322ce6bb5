//! Waiting on the thread of a caller, without the GIL, until there is an answer or a signal such as Ctrl-C.

use std::cell::Cell;
use std::process;
use std::time::Duration;

use polylimit::{Answer, Call, Error, blocking};
use pyo3::prelude::*;

use crate::error::guarded;

/// Between two looks at whether a signal came.
const LOOK_EVERY: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether this thread is Python's main one, and in which process: it may be another one's after a fork.
    static IS_MAIN: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

/// Whether signals are handled on this thread. Others have no reason to look for them, and a daemon thread that does so while
/// the interpreter ends finds none.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let here = process::id();
    if let Some((_, is_main)) = IS_MAIN.get().filter(|(process, _)| *process == here) {
        return Ok(is_main);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = threading.call_method0("get_ident")?.eq(main)?;
    IS_MAIN.set(Some((here, is_main)));
    Ok(is_main)
}

/// Waits on this thread until a call is answered or, on the main one, a signal raises; lets others run meanwhile.
pub(crate) fn wait(
    py: Python<'_>,
    limiter: &blocking::Limiter,
    call: &Call<'_>,
) -> PyResult<Option<Result<Answer, Error>>> {
    if !is_main_thread(py)? {
        return guarded(py, || py.detach(|| Ok(Some(limiter.call(call)))));
    }
    let mut interrupted = None;
    let stop = || {
        interrupted = Python::attach(|py: Python<'_>| py.check_signals()).err();
        interrupted.is_some()
    };
    let answered = guarded(py, || py.detach(|| Ok(limiter.call_until(call, LOOK_EVERY, stop))))?;
    match (answered, interrupted) {
        (None, Some(interrupted)) => Err(interrupted),
        (answered, _) => Ok(answered),
    }
}
