//! Waiting for a decision on the caller's thread, without the GIL, until it is made or a signal such as Ctrl-C arrives. A greenlet of
//! gevent or eventlet waits in its hub, so that the others run.

use std::cell::Cell;
use std::process;
use std::time::Duration;

use polylimit::raw::{Answer, Call};
use polylimit::{Error, Limiter, blocking};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::call_core;
use crate::once::intern;
use crate::waiting_call::{Started, WaitingCall};

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

/// The function by which a greenlet waits for a descriptor; `None` for a thread without greenlets.
fn greenlet_wait(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let modules = modules.cast::<PyDict>()?;
    if !modules.contains(intern!(py, "gevent.monkey"))?
        && !modules.contains(intern!(py, "eventlet.patcher"))?
    {
        return Ok(None);
    }
    let found = py.import("polylimit._greenlets")?.call_method0("wait_function")?;
    Ok((!found.is_none()).then_some(found))
}

/// Waits in the hub of this thread. A greenlet that is killed, or whose timeout of gevent passes, ends the call.
fn wait_in_hub(
    py: Python<'_>,
    limiter: &Limiter,
    call: &Call<'_>,
    wait_function: &Bound<'_, PyAny>,
) -> PyResult<Result<Answer, Error>> {
    let waiting = match WaitingCall::start(py, limiter, call)? {
        Started::Known(answer) => return Ok(answer),
        Started::Waits(waiting) => waiting,
    };
    loop {
        if let Err(interrupted) = wait_function.call1((waiting.descriptor(),)) {
            waiting.cancel(py)?;
            return Err(interrupted);
        }
        if let Some(answer) = waiting.take(py)? {
            return Ok(answer);
        }
    }
}

/// Waits until a call is decided or, on the main thread, a signal handler raises. Other threads run meanwhile.
pub(crate) fn wait(
    py: Python<'_>,
    limiter: &blocking::Limiter,
    call: &Call<'_>,
) -> PyResult<Option<Result<Answer, Error>>> {
    if let Some(wait_function) = greenlet_wait(py)? {
        return wait_in_hub(py, limiter.asynchronous(), call, &wait_function).map(Some);
    }
    if !is_main_thread(py)? {
        return call_core(py, || py.detach(|| Ok(Some(limiter.raw().call_store(call)))));
    }
    let mut interrupted = None;
    let stop = || {
        interrupted = Python::attach(|py: Python<'_>| py.check_signals()).err();
        interrupted.is_some()
    };
    let answered =
        call_core(py, || py.detach(|| Ok(limiter.raw().call_until(call, SIGNAL_CHECK_INTERVAL, stop))))?;
    match (answered, interrupted) {
        (None, Some(interrupted)) => Err(interrupted),
        (answered, _) => Ok(answered),
    }
}
