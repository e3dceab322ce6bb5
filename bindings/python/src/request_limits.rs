//! The limits of one request, which all of its guards share, and the header fields of its response.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use polylimit::guard::{Guard, GuardCheck, RequestLimits};
use polylimit::headers::HeaderField;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::convert::Utf8Text;
use crate::error::call_core;
use crate::field_cache::FieldCache;
use crate::http::{PyOutcomes, outcomes_to_python};
use crate::store_call::{StoreCall, refunds_of};

/// A guard with what Python adds to it. The garbage collector sees none of it: guards live as long as their application.
pub(crate) struct GuardParts {
    pub(crate) guard: Guard,
    /// Says whether a response counts.
    count: Option<Py<PyAny>>,
    fields: FieldCache,
}

impl GuardParts {
    pub(crate) fn new(guard: Guard, count: Option<Py<PyAny>>) -> Self {
        Self { guard, count, fields: FieldCache::default() }
    }
}

/// The limits of one request: what its guards have decided.
#[pyclass(name = "RequestLimits", module = "polylimit", frozen)]
#[derive(Default)]
pub(crate) struct PyRequestLimits {
    limits: RequestLimits,
    /// The guard that decided first, if that made the object.
    maker: Option<Arc<GuardParts>>,
    /// The guard that decided first otherwise.
    first: OnceLock<Arc<GuardParts>>,
    /// The checks that admitted the request and depend on its response, until then.
    open: Mutex<Vec<OpenCheck>>,
    /// Whether a guard has a `count`, which is called with the response.
    has_count: AtomicBool,
    /// Whether there are open checks.
    has_open: AtomicBool,
}

struct OpenCheck {
    guard: Arc<GuardParts>,
    check: GuardCheck,
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

    /// Takes a check that admitted the request. It stays open until the response if that may refund: where the guard has a
    /// `count`, and where units are unclaimed that the store has admitted for later guards.
    pub(crate) fn admit(&self, guard: &Arc<GuardParts>, check: GuardCheck, has_unclaimed: bool) {
        self.decided_by(guard);
        if guard.count.is_none() && !has_unclaimed {
            return;
        }
        self.open.lock().push(OpenCheck { guard: Arc::clone(guard), check });
        self.has_open.store(true, Ordering::Relaxed);
        if guard.count.is_some() {
            self.has_count.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets the checks of a request that is denied: their units are refunded.
    pub(crate) fn end(&self, guard: &Arc<GuardParts>) {
        self.decided_by(guard);
        self.has_count.store(false, Ordering::Relaxed);
        drop(self.take_open());
    }

    fn take_open(&self) -> Vec<OpenCheck> {
        std::mem::take(&mut *self.open.lock())
    }

    /// Ends the checks of guards without a `count`.
    pub(crate) fn finish_counted(&self) {
        if !self.has_open.load(Ordering::Relaxed) {
            return;
        }
        for mut open in self.take_open().into_iter().rev() {
            open.check.finish(true);
        }
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

    /// Ends the guards of a request with this response, the innermost first. Returns the calls that refund, all of which have to be
    /// made, and the first exception that a ``count`` raised, which keeps its units.
    fn finish(
        &self,
        py: Python<'_>,
        response: &Bound<'_, PyAny>,
    ) -> PyResult<(Vec<StoreCall>, Option<Py<PyAny>>)> {
        let open = self.take_open();
        let mut raised = None;
        let mut refunds = Vec::new();
        for OpenCheck { guard, mut check } in open.into_iter().rev() {
            let counts = guard.count.as_ref().map(|count| count.bind(py).call1((response,))?.is_truthy());
            let counts = counts.unwrap_or(Ok(true)).unwrap_or_else(|error| {
                raised.get_or_insert(error);
                true
            });
            call_core(py, || {
                check.finish(counts);
                Ok(())
            })?;
            if check.refunds().next().is_some() {
                refunds.extend(refunds_of(check));
            }
        }
        Ok((refunds, raised.map(|error| error.into_value(py).into_any())))
    }

    /// Whether ``finish`` has to be called with the response.
    #[getter]
    pub(crate) fn must_finish(&self) -> bool {
        self.has_count.load(Ordering::Relaxed)
            || (self.has_open.load(Ordering::Relaxed) && self.limits.has_unclaimed())
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
