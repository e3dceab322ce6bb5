//! The function that gives the credentials of new connections.
//!
//! The core calls it on a thread of its own, which never attaches to the interpreter. So a thread of Python waits for these calls; a
//! forked child starts another one.

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use polylimit::LimiterBuilder;
use polylimit::redis::Credentials;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::convert::wrong_type;

/// Where the answer to a call goes.
type Reply = Sender<Result<Credentials, String>>;

/// The standard library's lock and condition, which keep no list of threads: in a forked child those of its parent are gone.
#[derive(Default)]
struct Calls {
    waiting: Mutex<VecDeque<Reply>>,
    called: Condvar,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Reply>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calls of one function; the core holds it, and the thread ends when the core has dropped it.
struct Caller(Arc<Calls>);

impl Drop for Caller {
    fn drop(&mut self) {
        // Under the lock, the thread either waits already, or will find that the caller is gone.
        drop(self.0.lock());
        self.0.called.notify_all();
    }
}

/// Serves the calls of one function, on each thread that runs `serve`.
#[pyclass(name = "_CredentialsServer", module = "polylimit._core", frozen, weakref)]
pub(crate) struct CredentialsServer {
    give: Py<PyAny>,
    calls: Arc<Calls>,
    caller: Weak<Caller>,
}

#[pymethods]
impl CredentialsServer {
    /// Waits for calls and answers them until the limiter is gone.
    fn serve(&self, py: Python<'_>) {
        while let Some(reply) = py.detach(|| self.next()) {
            let given = self.give.bind(py).call0().and_then(|given| read(&given));
            // No attempt waits any more when the limiter was closed meanwhile.
            let _ = reply.send(given.map_err(|error| error.value(py).to_string()));
        }
    }
}

impl CredentialsServer {
    fn next(&self) -> Option<Reply> {
        let mut waiting = self.calls.lock();
        loop {
            if let Some(reply) = waiting.pop_front() {
                return Some(reply);
            }
            if self.caller.strong_count() == 0 {
                return None;
            }
            waiting = self.calls.called.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Reads a password, or a tuple of the user, which may be `None`, and the password.
fn read(given: &Bound<'_, PyAny>) -> PyResult<Credentials> {
    if let Ok(password) = given.cast::<PyString>() {
        return Ok(Credentials::new(None, password.to_str()?));
    }
    let pair = given.cast::<PyTuple>().ok().and_then(|pair| pair.extract().ok());
    let Some((username, password)): Option<(Option<String>, String)> = pair else {
        return Err(wrong_type(
            "the result of credentials",
            given,
            "allowed is a str, or a tuple of user and password",
        ));
    };
    Ok(Credentials::new(username.as_deref(), &password))
}

/// Makes the limiter take its credentials from a function of Python.
pub(crate) fn take_from(builder: LimiterBuilder, give: &Bound<'_, PyAny>) -> PyResult<LimiterBuilder> {
    if !give.is_callable() {
        return Err(wrong_type("credentials", give, "allowed is a function without arguments"));
    }
    let caller = Arc::new(Caller(Arc::default()));
    let server = CredentialsServer {
        give: give.clone().unbind(),
        calls: Arc::clone(&caller.0),
        caller: Arc::downgrade(&caller),
    };
    give.py().import("polylimit._credentials")?.call_method1("serve", (Bound::new(give.py(), server)?,))?;
    Ok(builder.credentials(move || {
        let (reply, answer) = channel();
        caller.0.lock().push_back(reply);
        caller.0.called.notify_all();
        answer.recv().unwrap_or_else(|_| Err("the interpreter has ended".to_owned()))
    }))
}
