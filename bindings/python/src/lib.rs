//! The Python module of polylimit: converts types between Python and the core, which makes all decisions.
#![allow(
    clippy::doc_markdown,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    missing_docs,
    unsafe_code,
    reason = "the documentation is Python's, in its form; pyo3's macros pass by value and methods need
              a self, and they write the unsafe code of the boundary"
)]

mod admin;
mod async_method;
mod call;
mod client;
mod configuration;
mod configured;
mod convert;
mod credentials;
mod decision;
mod error;
mod events;
mod fastcall;
mod field_cache;
mod guard;
mod guard_check;
mod http;
mod key_list;
mod limiter;
mod limiter_classes;
mod loop_queue;
mod metrics;
mod once;
mod operation;
mod operation_future;
mod operation_type;
mod options;
mod policy;
mod reports;
mod request;
mod request_decision;
mod request_limits;
mod request_reservation;
mod reservation;
mod reservation_end;
mod reserve;
mod reserve_operation;
mod response_sender;
mod store_call;
mod value;
mod waiting;
mod waiting_call;

use pyo3::prelude::*;
use pyo3::types::{PyDateTime, PyDelta, PyMapping, PyWeakrefReference};

/// The modules of the standard library that calls use. A process without a free descriptor can import none of them, so they are imported
/// with this module. For `datetime` that would be a panic: pyo3 takes its import for granted. A program with an
/// event loop has `asyncio`, which takes longer than all of them.
const NEEDED: [&str; 6] = ["contextvars", "datetime", "json", "logging", "threading", "types"];

#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for name in NEEDED {
        module.py().import(name)?;
    }
    error::add_to(module)?;
    module.add_class::<request::PyRequest>()?;
    module.add_class::<admin::PyAdmin>()?;
    module.add_class::<admin::PyAsyncAdmin>()?;
    module.add_class::<client::PyAttempts>()?;
    module.add_class::<client::PyBackoff>()?;
    module.add_class::<client::PyThrottle>()?;
    module.add_class::<configuration::PyCandidateCounts>()?;
    module.add_class::<configuration::PyConfigurationStatus>()?;
    module.add_class::<configuration::PyPolicyMatch>()?;
    module.add_class::<configuration::PyRequestAttributes>()?;
    module.add_class::<credentials::CredentialsServer>()?;
    module.add_class::<decision::PyDecision>()?;
    module.add_class::<decision::PyQuotaUsage>()?;
    module.add_class::<decision::PyUsage>()?;
    module.add_class::<events::PyDegradedEvent>()?;
    module.add_class::<events::PyFinding>()?;
    module.add_class::<guard::PyGuard>()?;
    module.add_class::<guard_check::PyGuardCheck>()?;
    module.add_class::<http::PyClientAddress>()?;
    module.add_class::<http::PyClientAddressRules>()?;
    module.add_class::<http::PyProblem>()?;
    module.add_class::<limiter_classes::PyAsyncLimiter>()?;
    module.add_class::<limiter_classes::PyLimiter>()?;
    module.add_class::<metrics::PyMetricFamily>()?;
    module.add_class::<metrics::PyMetricHistogram>()?;
    module.add_class::<metrics::PyMetricSample>()?;
    module.add_class::<options::PyManualClock>()?;
    module.add_class::<options::PyOption>()?;
    module.add_class::<policy::PyPolicy>()?;
    module.add_class::<policy::PyQuota>()?;
    module.add_class::<request_decision::PyPolicyDecision>()?;
    module.add_class::<request_decision::PyRequestDecision>()?;
    module.add_class::<request_limits::PyRequestLimits>()?;
    module.add_class::<request_reservation::PyRequestReservation>()?;
    module.add_class::<reservation::PyAsyncReservation>()?;
    module.add_class::<reservation::PyReservation>()?;
    module.add_class::<reserve_operation::PyReserveOperation>()?;
    module.add_class::<response_sender::ResponseSender>()?;
    module.add_class::<store_call::Settling>()?;
    module.add_class::<store_call::StoreCall>()?;
    module.add_class::<waiting_call::TrioCall>()?;
    module.add_function(wrap_pyfunction!(client::server_wait, module)?)?;
    module.add_function(wrap_pyfunction!(http::header_fields, module)?)?;
    module.add_function(wrap_pyfunction!(http::problem, module)?)?;
    module.add_function(wrap_pyfunction!(options::options, module)?)?;
    module.add_function(wrap_pyfunction!(options::advice, module)?)?;
    module.add("Operation", operation_type::create_type(module.py())?)?;
    initialise(module.py());
    async_method::create_type(module.py())?;
    fastcall::install(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}

/// Initialises what pyo3 itself would initialise at its first use, in cells that other threads wait for: a child that is forked meanwhile
/// would wait for ever, see [`once`]. At the import no thread uses a limiter yet.
fn initialise(py: Python<'_>) {
    let value = py.None().into_bound(py);
    // Each comparison looks up a class of the standard library.
    let _ = value.cast::<PyDateTime>();
    let _ = value.cast::<PyDelta>();
    let _ = value.cast::<PyMapping>();
    let _ = value.cast::<PyWeakrefReference>();
    // Classes that are no attribute of the module.
    let _ = py.get_type::<loop_queue::LoopQueue>();
    let _ = py.get_type::<operation_future::OperationFuture>();
}
