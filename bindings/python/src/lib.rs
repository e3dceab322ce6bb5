//! The Python module of polylimit: converts types, and decides nothing itself.
#![allow(
    clippy::doc_markdown,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    missing_docs,
    unsafe_code,
    reason = "the documentation is Python's, in its form; pyo3's macros pass by value and methods need
              a self, and they write the unsafe code of the boundary"
)]

mod async_limiter;
mod call;
mod client_address;
mod clock;
mod decision;
mod doctor;
mod duration;
mod error;
mod event;
mod http;
mod key;
mod limiter;
mod loop_queue;
mod operation;
mod operation_future;
mod operation_type;
mod options;
mod plain_call;
mod plain_guard;
mod policy;
mod quota;
mod request;
mod sender;
mod settings;
mod utf8;
mod waiting;
mod wake_up;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::add_to(module)?;
    module.add_class::<async_limiter::PyAsyncLimiter>()?;
    module.add_class::<client_address::PyClientAddress>()?;
    module.add_class::<client_address::PyClientAddressRules>()?;
    module.add_class::<clock::PyManualClock>()?;
    module.add_class::<decision::PyDecision>()?;
    module.add_class::<decision::PyQuotaUsage>()?;
    module.add_class::<decision::PyUsage>()?;
    module.add_class::<doctor::PyFinding>()?;
    module.add_class::<event::PyDegradedEvent>()?;
    module.add_class::<http::PyProblem>()?;
    module.add_class::<limiter::PyLimiter>()?;
    module.add_class::<options::PyOption>()?;
    module.add_class::<plain_guard::Passed>()?;
    module.add_class::<plain_guard::PlainGuard>()?;
    module.add_class::<policy::PyPolicy>()?;
    module.add_class::<quota::PyQuota>()?;
    module.add_class::<request::PyRequest>()?;
    module.add_class::<sender::Sender>()?;
    module.add_function(wrap_pyfunction!(decision::refunded, module)?)?;
    module.add_function(wrap_pyfunction!(http::header_fields, module)?)?;
    module.add_function(wrap_pyfunction!(http::problem, module)?)?;
    module.add_function(wrap_pyfunction!(options::options, module)?)?;
    module.add_function(wrap_pyfunction!(options::suggestion, module)?)?;
    module.add("Operation", operation_type::make(module.py())?)?;
    plain_call::install(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
