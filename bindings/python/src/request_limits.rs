//! The limits of one request, which all of its guards share, and the header fields of its response.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use polylimit::http::guard::{Guard, GuardCheck, RequestLimits, Spent};
use polylimit::http::headers::HeaderField;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::convert::{Key, Utf8Text, read_units};
use crate::error::call_core;
use crate::field_cache::FieldCache;
use crate::http::{PyOutcomes, outcomes_to_python};
use crate::once::intern;
use crate::store_call::{Settling, SharedCheck};

/// A guard with what Python adds to it. The garbage collector sees none of it: guards live as long as their application.
pub(crate) struct GuardParts {
    pub(crate) guard: Guard,
    /// Says whether a response counts.
    count: Option<Py<PyAny>>,
    spent: SpentFunctions,
    fields: FieldCache,
}

/// What says which units a response has spent; `None` is what was reserved.
pub(crate) enum SpentFunctions {
    /// Under every policy.
    ForAll(Option<Py<PyAny>>),
    /// Under each policy, by position, with its name in errors.
    Each(Vec<(String, Option<Py<PyAny>>)>),
}

impl GuardParts {
    pub(crate) fn new(guard: Guard, count: Option<Py<PyAny>>, spent: SpentFunctions) -> Self {
        Self { guard, count, spent, fields: FieldCache::default() }
    }

    fn counts(&self, response: &Bound<'_, PyAny>) -> PyResult<bool> {
        let count = self.count.as_ref();
        count.map_or(Ok(true), |count| count.bind(response.py()).call1((response,))?.is_truthy())
    }

    /// Ends a check with what a response has spent; returns the first exception that a function raised, in whose place is what was
    /// reserved. Without a response that is so for all.
    fn end(
        &self,
        py: Python<'_>,
        check: &SharedCheck,
        response: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<PyErr>> {
        let mut raised = None;
        let mut units_of = |name: &str, function: &Option<Py<PyAny>>| {
            let (Some(response), Some(function)) = (response, function) else { return None };
            let units = spent_units(name, function, response);
            units.unwrap_or_else(|error| {
                raised.get_or_insert(error);
                None
            })
        };
        let each: Vec<_>;
        let spent = match &self.spent {
            SpentFunctions::ForAll(function) => units_of("spent", function).into(),
            SpentFunctions::Each(functions) => {
                each = functions.iter().map(|(name, function)| units_of(name, function)).collect();
                Spent::Each(&each)
            }
        };
        call_core(py, || check.with(|check| check.end(spent)))?;
        Ok(raised)
    }
}

/// The units that a response has spent, as a function of the program says.
fn spent_units(name: &str, function: &Py<PyAny>, response: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let units = function.bind(response.py()).call1((response,))?;
    if units.is_none() { Ok(None) } else { read_units(name, &units).map(Some) }
}

/// The limits of one request: what its guards have decided.
#[pyclass(name = "RequestLimits", module = "polylimit", frozen, weakref)]
#[derive(Default)]
pub(crate) struct PyRequestLimits {
    limits: RequestLimits,
    /// The guard that decided first, if that made the object.
    maker: Option<Arc<GuardParts>>,
    /// The guard that decided first otherwise.
    first: OnceLock<Arc<GuardParts>>,
    /// The checks that admitted the request and depend on its response, until then.
    open: Mutex<Vec<OpenCheck>>,
    /// The other checks that admitted the request: the first one, and those after it. They end with the response where an open check
    /// matters, because their guards may rely on the same units.
    plain: Mutex<(Option<GuardCheck>, Vec<GuardCheck>)>,
    /// Whether a guard has a `count`, which is called with the response.
    has_count: AtomicBool,
    /// Whether there are open checks.
    has_open: AtomicBool,
    /// Whether an open check holds reservations.
    has_open_holds: AtomicBool,
    /// The checks that hold reservations until the response is done.
    held: Mutex<Held>,
    /// Whether there are such checks.
    holds: AtomicBool,
    /// Whether such a check reads the body of the response.
    reads_body: AtomicBool,
}

struct OpenCheck {
    guard: Arc<GuardParts>,
    check: SharedCheck,
}

#[derive(Default)]
struct Held {
    checks: Vec<OpenCheck>,
    /// The response; none for a handler that failed.
    response: Option<Py<PyAny>>,
}

impl PyRequestLimits {
    /// The limits of a request that this guard is about to decide first.
    pub(crate) fn made_by(guard: &Arc<GuardParts>) -> Self {
        Self { maker: Some(Arc::clone(guard)), ..Self::default() }
    }

    fn first(&self) -> Option<&GuardParts> {
        self.maker.as_deref().or_else(|| self.first.get().map(|first| &**first))
    }

    fn decided_by(&self, guard: &Arc<GuardParts>) {
        if self.maker.is_none() {
            self.first.get_or_init(|| Arc::clone(guard));
        }
    }

    pub(crate) fn core(&self) -> &RequestLimits {
        &self.limits
    }

    /// Takes a check that admitted the request without waiting. It stays open until the response if that matters: where the guard has a
    /// `count`, and where the check holds reservations.
    pub(crate) fn admit(&self, guard: &Arc<GuardParts>, check: GuardCheck) {
        self.decided_by(guard);
        let holds = check.holds();
        if guard.count.is_some() || holds {
            return self.open(guard, SharedCheck::new(check, None), holds);
        }
        let mut plain = self.plain.lock();
        match &mut *plain {
            (first @ None, _) => *first = Some(check),
            (_, others) => others.push(check),
        }
    }

    /// Takes a check that admitted the request and has been a Python object. It stays open until the response.
    pub(crate) fn admit_shared(&self, guard: &Arc<GuardParts>, check: &SharedCheck) {
        self.decided_by(guard);
        self.open(guard, check.clone(), check.with(|check| check.holds()));
    }

    fn open(&self, guard: &Arc<GuardParts>, check: SharedCheck, holds: bool) {
        self.open.lock().push(OpenCheck { guard: Arc::clone(guard), check });
        self.has_open.store(true, Ordering::Relaxed);
        if guard.count.is_some() {
            self.has_count.store(true, Ordering::Relaxed);
        }
        if holds {
            self.has_open_holds.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets the checks of a request that is denied: their units are refunded.
    pub(crate) fn deny(&self, guard: &Arc<GuardParts>) {
        self.decided_by(guard);
        drop(self.take_open());
    }

    fn take_open(&self) -> Vec<OpenCheck> {
        for flag in [&self.has_count, &self.has_open, &self.has_open_holds] {
            flag.store(false, Ordering::Relaxed);
        }
        std::mem::take(&mut *self.open.lock())
    }

    /// Ends the checks of guards without a `count`.
    pub(crate) fn finish_counted(&self) {
        if !self.has_open.load(Ordering::Relaxed) {
            return;
        }
        for open in self.take_open().into_iter().rev() {
            open.check.with(|check| check.finish(true));
        }
    }

    /// Whether `end` has to be called when the response is done.
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    /// Whether the body of the response has to be read.
    pub(crate) fn reads_body(&self) -> bool {
        self.reads_body.load(Ordering::Relaxed)
    }

    /// Passes a part of the body to the checks that read it.
    pub(crate) fn read_part(&self, part: &Bound<'_, PyAny>) -> PyResult<()> {
        let text: String;
        let copied: Bound<'_, PyAny>;
        let bytes = if let Ok(bytes) = part.cast::<PyBytes>() {
            bytes.as_bytes()
        } else if let Ok(found) = part.cast::<PyString>() {
            text = found.extract()?;
            text.as_bytes()
        } else {
            // Servers also accept a bytearray and a memoryview.
            copied = part.py().get_type::<PyBytes>().call1((part,))?;
            copied.cast::<PyBytes>()?.as_bytes()
        };
        for held in &self.held.lock().checks {
            held.check.with(|check| check.read_body(bytes));
        }
        Ok(())
    }

    fn core_fields(&self, py: Python<'_>) -> PyResult<Vec<HeaderField>> {
        self.first().map_or(Ok(Vec::new()), |first| self.fields_of(py, first))
    }

    fn fields_of(&self, py: Python<'_>, first: &GuardParts) -> PyResult<Vec<HeaderField>> {
        call_core(py, || Ok(first.guard.fields(&self.limits)))
    }

    /// Appends the fields to those of an ASGI response.
    pub(crate) fn append_to(&self, list: &Bound<'_, PyList>) -> PyResult<()> {
        let Some(first) = self.first() else { return Ok(()) };
        first.fields.append(self.fields_of(list.py(), first)?, list)
    }
}

#[pymethods]
impl PyRequestLimits {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Each policy that was applied, with its newest decision. After a refund a decision shows what is left.
    #[getter]
    fn outcomes(&self) -> PyOutcomes {
        outcomes_to_python(self.limits.outcomes())
    }

    /// The fields of the response, as pairs of a lower-case name and a value.
    fn fields(&self, py: Python<'_>) -> PyResult<Vec<(Cow<'static, str>, String)>> {
        let fields = self.core_fields(py)?;
        Ok(fields.into_iter().map(|field| (field.name, field.value)).collect())
    }

    /// Ends the guards of a request with the head of this response, the innermost first. Returns the calls that refund, all of which have
    /// to be made, and the first exception that a ``count`` raised, which keeps its units. ``has_failed`` says that the response stands
    /// for one that the handler did not make.
    #[pyo3(signature = (response, *, has_failed = false))]
    fn finish(
        &self,
        py: Python<'_>,
        response: &Bound<'_, PyAny>,
        has_failed: bool,
    ) -> PyResult<(Settling, Option<Py<PyAny>>)> {
        let mut raised = None;
        let mut settling = Vec::new();
        let mut held = Vec::new();
        let (first, others) = std::mem::take(&mut *self.plain.lock());
        for mut plain in others.into_iter().rev().chain(first) {
            plain.finish(true);
        }
        for open in self.take_open().into_iter().rev() {
            let counts = open.guard.counts(response).unwrap_or_else(|error| {
                raised.get_or_insert(error);
                true
            });
            let holds = call_core(py, || {
                Ok(open.check.with(|check| {
                    check.finish(counts);
                    check.holds()
                }))
            })?;
            settling.push(open.check.clone());
            if holds {
                held.push(open);
            }
        }
        if !held.is_empty() {
            let mut all = self.held.lock();
            all.checks.append(&mut held);
            all.response = (!has_failed).then(|| response.clone().unbind());
            self.holds.store(true, Ordering::Relaxed);
        }
        settling.reverse();
        Ok((Settling::new(settling), raised.map(|error| error.into_value(py).into_any())))
    }

    /// Whether ``finish`` has to be called with the response.
    #[getter]
    pub(crate) fn must_finish(&self) -> bool {
        self.has_count.load(Ordering::Relaxed)
            || self.has_open_holds.load(Ordering::Relaxed)
            || (self.has_open.load(Ordering::Relaxed) && self.limits.has_unclaimed())
    }

    /// Whether ``end`` has to be called when the response is done or its client has gone.
    #[getter(holds)]
    fn is_holding(&self) -> bool {
        self.holds()
    }

    /// Whether ``read_head`` has to be called with the fields of the response, because it reports what was spent.
    #[getter]
    fn reads_response(&self) -> bool {
        self.holds()
            && self.held.lock().checks.iter().any(|held| held.check.with(|check| check.reads_response()))
    }

    /// Reads the fields of the response, pairs of a name and a value. Returns whether ``read_body`` has to be called with each part of the
    /// body.
    fn read_head(&self, fields: Vec<(Key, Key)>) -> bool {
        let fields = || {
            fields.iter().filter_map(|(name, value)| {
                Some((std::str::from_utf8(name.as_bytes()).ok()?, value.as_bytes()))
            })
        };
        let mut reads_body = false;
        for held in &self.held.lock().checks {
            reads_body |= held.check.with(|check| {
                check.read_head(fields());
                check.reads_body()
            });
        }
        self.reads_body.store(reads_body, Ordering::Relaxed);
        reads_body
    }

    /// Reads the next part of the body: bytes, or text that is sent as UTF-8. It is not kept.
    fn read_body(&self, part: &Bound<'_, PyAny>) -> PyResult<()> {
        self.read_part(part)
    }

    /// Ends the reservations of a request whose response is done or whose client has gone, the innermost first. Returns the calls that
    /// commit and cancel, all of which have to be made, and the first exception that a ``spent`` raised, in whose place what was reserved
    /// is committed.
    fn end(&self, py: Python<'_>) -> PyResult<(Settling, Option<Py<PyAny>>)> {
        self.holds.store(false, Ordering::Relaxed);
        self.reads_body.store(false, Ordering::Relaxed);
        let Held { checks, response } = std::mem::take(&mut *self.held.lock());
        let mut raised = None;
        let mut settling = Vec::new();
        for OpenCheck { guard, check } in checks {
            let error = guard.end(py, &check, response.as_ref().map(|response| response.bind(py)))?;
            raised = raised.or(error);
            settling.push(check);
        }
        settling.reverse();
        Ok((Settling::new(settling), raised.map(|error| error.into_value(py).into_any())))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.held.try_lock().map_or(Ok(()), |held| visit.call(&held.response))
    }

    fn __clear__(&self) {
        let response = self.held.lock().response.take();
        drop(response);
    }

    /// Ends the guards and sets the fields in the headers of a Werkzeug response.
    fn add_to(&self, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = headers.py();
        self.finish_counted();
        let fields = self.core_fields(py)?;
        // Werkzeug's `add` is much faster than `set`, which is needed only to replace fields.
        let mut has_fields = false;
        for header in headers.try_iter()? {
            let name = header?.get_item(0)?.cast_into::<PyString>()?;
            let name = Utf8Text::new(&name, "header")?;
            has_fields |= fields.iter().any(|field| field.name.eq_ignore_ascii_case(&name));
        }
        let method = if has_fields { intern!(py, "set") } else { intern!(py, "add") };
        for HeaderField { name, value } in fields {
            headers.call_method1(method, (&*name, value))?;
        }
        Ok(())
    }
}
