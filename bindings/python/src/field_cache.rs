//! The header fields of ASGI responses as Python objects, kept from one response to the next.

use parking_lot::Mutex;
use polylimit::http::headers::HeaderField;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// The fields of a guard's previous response in the form of ASGI: most of them are the same in the next one.
#[derive(Default)]
pub(crate) struct FieldCache(Mutex<Vec<EncodedField>>);

struct EncodedField {
    field: HeaderField,
    pair: Py<PyTuple>,
}

impl FieldCache {
    /// Appends fields to a list of pairs of bytes.
    pub(crate) fn append(&self, fields: Vec<HeaderField>, list: &Bound<'_, PyList>) -> PyResult<()> {
        let py = list.py();
        // Creating an object may run a finalizer and switch to a thread that comes here too. Waiting for the lock could then
        // deadlock, so a thread that does not get it works without the cache.
        let mut shared = self.0.try_lock();
        let mut own = Vec::new();
        let cache = shared.as_deref_mut().unwrap_or(&mut own);
        cache.truncate(fields.len());
        for (at, field) in fields.into_iter().enumerate() {
            if let Some(cached) = cache.get(at).filter(|cached| cached.field == field) {
                list.append(&cached.pair)?;
                continue;
            }
            let name = match cache.get(at).filter(|cached| cached.field.name == field.name) {
                Some(cached) => cached.pair.bind(py).get_item(0)?,
                None => PyBytes::new(py, field.name.as_bytes()).into_any(),
            };
            let value = PyBytes::new(py, field.value.as_bytes()).into_any();
            let pair = PyTuple::new(py, [name, value])?;
            list.append(&pair)?;
            let encoded = EncodedField { field, pair: pair.unbind() };
            match cache.get_mut(at) {
                Some(cached) => *cached = encoded,
                None => cache.push(encoded),
            }
        }
        Ok(())
    }
}
