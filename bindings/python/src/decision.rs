//! `Decision`, `Usage` and `QuotaUsage`: the results of operations.

use std::fmt::Write as _;

use polylimit::{Cause, Decision, Degradation, QuotaUsage, QuotaVerdict, Source, Usage};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::seconds;

/// The result of a check, a peek, an acquire or a reserve; true when the request is allowed.
#[pyclass(name = "Decision", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyDecision(pub(crate) Decision);

#[pymethods]
impl PyDecision {
    /// Whether every quota of the policy admits the request.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.allowed()
    }

    /// Whole units that can be spent right after this decision: the minimum over the quotas.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining()
    }

    /// Seconds until the same request would be admitted if no other arrives: exactly then, and not earlier. 0 when allowed;
    /// ``None`` when the cost exceeds what a quota can ever admit.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after_us().map(seconds)
    }

    /// ``retry_after`` in whole microseconds, exact.
    #[getter]
    fn retry_after_us(&self) -> Option<u64> {
        self.0.retry_after_us()
    }

    /// Seconds until nothing counts as used if no other request arrives: the maximum over the quotas.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds(self.0.reset_after_us())
    }

    /// ``reset_after`` in whole microseconds, exact.
    #[getter]
    fn reset_after_us(&self) -> u64 {
        self.0.reset_after_us()
    }

    /// Seconds that this admitted request has to wait for its turn: leaky bucket only, otherwise 0.
    #[getter]
    fn delay(&self) -> f64 {
        seconds(self.0.delay_us())
    }

    /// ``delay`` in whole microseconds, exact.
    #[getter]
    fn delay_us(&self) -> u64 {
        self.0.delay_us()
    }

    /// Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit.
    #[getter]
    fn over(&self) -> u64 {
        self.0.over()
    }

    /// Why the request was denied: ``"quota"``, ``"concurrency"``, ``"blocked"``, ``"deny_list"`` or ``"missing_key"``; or why it was
    /// admitted without the store: ``"off"`` or ``"allow_list"``. ``None`` for every other decision.
    #[getter]
    fn cause(&self) -> Option<&'static str> {
        self.0.cause().map(Cause::name)
    }

    /// Whether the request's units were the first beyond the limit of a quota with an excess.
    #[getter]
    fn crossed(&self) -> bool {
        self.0.crossed()
    }

    /// Whether the pool of an elastic policy admitted the request; then nothing was spent in the policy itself.
    #[getter]
    fn elastic(&self) -> bool {
        self.0.elastic()
    }

    /// Whether the request would have been denied if its policy were not in shadow: it is allowed, and ``cause`` and ``retry_after``
    /// are those of the denial.
    #[getter]
    fn shadowed(&self) -> bool {
        self.0.shadowed()
    }

    /// Where the decision was made, such as ``"store"``, ``"configuration"`` where no store was asked, or ``"fallback"`` while the
    /// store could not be asked.
    #[getter]
    fn source(&self) -> &'static str {
        self.0.source().name()
    }

    /// Why this may differ from the decision of a healthy store, such as ``"timeout"``; ``None`` when it does not.
    #[getter]
    fn degraded(&self) -> Option<&'static str> {
        self.0.degraded().map(Degradation::name)
    }

    /// The usage of each quota and its verdict on the request, in the policy's order.
    ///
    /// A blocked key is denied whatever its quotas say. The pool of an elastic policy may admit sooner than its quotas, and a policy
    /// in shadow admits what they deny. Where no quota was asked, as for a deny list and the outage policies ``"allow"`` and
    /// ``"deny"``, every quota admits.
    #[getter]
    fn quotas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        quota_usages(py, self.0.quotas(), self.0.verdicts())
    }

    fn __bool__(&self) -> bool {
        self.0.allowed()
    }

    fn __repr__(&self) -> String {
        let decision = &self.0;
        let mut text = format!(
            "Decision(allowed={}, remaining={}, retry_after={}, reset_after={:?}",
            python_bool(decision.allowed()),
            decision.remaining(),
            show_wait(decision.retry_after_us()),
            seconds(decision.reset_after_us()),
        );
        if decision.delay_us() > 0 {
            let _ = write!(text, ", delay={:?}", seconds(decision.delay_us()));
        }
        if decision.over() > 0 {
            let _ = write!(text, ", over={}", decision.over());
        }
        if let Some(cause) = decision.cause() {
            let _ = write!(text, ", cause='{}'", cause.name());
        }
        let flags = [
            ("crossed", decision.crossed()),
            ("elastic", decision.elastic()),
            ("shadowed", decision.shadowed()),
        ];
        for (name, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
            let _ = write!(text, ", {name}=True");
        }
        text + &origin(decision.source(), decision.degraded()) + ")"
    }
}

/// The result of every operation that decides nothing, such as a charge, a commit or a block: what is left after it.
#[pyclass(name = "Usage", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyUsage(pub(crate) Usage);

#[pymethods]
impl PyUsage {
    /// Whole units that can be spent right now: the minimum over the quotas.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining()
    }

    /// Seconds until nothing counts as used if no other request arrives: the maximum over the quotas.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds(self.0.reset_after_us())
    }

    /// ``reset_after`` in whole microseconds, exact.
    #[getter]
    fn reset_after_us(&self) -> u64 {
        self.0.reset_after_us()
    }

    /// The units that a take spent from every quota, from 0 to its cost; 0 for every other operation.
    #[getter]
    fn taken(&self) -> u64 {
        self.0.taken()
    }

    /// Whether a commit, a cancel or a renew has found the reservation; true for every other operation.
    #[getter]
    fn found(&self) -> bool {
        self.0.found()
    }

    /// Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit.
    #[getter]
    fn over(&self) -> u64 {
        self.0.over()
    }

    /// Where the decision was made, such as ``"store"``, or ``"fallback"`` while the store could not be asked.
    #[getter]
    fn source(&self) -> &'static str {
        self.0.source().name()
    }

    /// Why this may differ from the result of a healthy store, such as ``"timeout"``; ``None`` when it does not.
    #[getter]
    fn degraded(&self) -> Option<&'static str> {
        self.0.degraded().map(Degradation::name)
    }

    /// The usage of each quota, in the policy's order.
    #[getter]
    fn quotas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        // Nothing was asked, so nothing denies; as in C.
        let admits = QuotaVerdict { allowed: true, retry_after_us: Some(0) };
        quota_usages(py, self.0.quotas(), std::iter::repeat(admits))
    }

    fn __repr__(&self) -> String {
        let usage = &self.0;
        format!(
            "Usage(remaining={}, reset_after={:?}, taken={}{}{})",
            usage.remaining(),
            seconds(usage.reset_after_us()),
            usage.taken(),
            if usage.found() { "" } else { ", found=False" },
            origin(usage.source(), usage.degraded())
        )
    }
}

/// The usage of one quota by a key after the operation and, in a ``Decision``, the quota's verdict on the request.
#[pyclass(name = "QuotaUsage", module = "polylimit", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyQuotaUsage {
    usage: QuotaUsage,
    verdict: QuotaVerdict,
}

#[pymethods]
impl PyQuotaUsage {
    /// The quota's limit, in units per period.
    #[getter]
    fn limit(&self) -> u64 {
        self.usage.limit
    }

    /// Whole units that this quota would admit right now.
    #[getter]
    fn remaining(&self) -> u64 {
        self.usage.remaining
    }

    /// Seconds until nothing counts as used under this quota if no other request arrives.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds(self.usage.reset_after_us)
    }

    /// ``reset_after`` in whole microseconds, exact.
    #[getter]
    fn reset_after_us(&self) -> u64 {
        self.usage.reset_after_us
    }

    /// Units of the quota's excess that are in use: above 0 once use is beyond the limit.
    #[getter]
    fn over(&self) -> u64 {
        self.usage.over
    }

    /// Whether this quota admits the request of the decision; true in a ``Usage``, which decides nothing.
    #[getter]
    fn allowed(&self) -> bool {
        self.verdict.allowed
    }

    /// Seconds until this quota would admit the same request if no other arrives: exactly then, and not earlier. 0 when it admits it;
    /// ``None`` when the cost exceeds what it can ever admit.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.verdict.retry_after_us.map(seconds)
    }

    /// ``retry_after`` in whole microseconds, exact.
    #[getter]
    fn retry_after_us(&self) -> Option<u64> {
        self.verdict.retry_after_us
    }

    fn __repr__(&self) -> String {
        let QuotaUsage { limit, remaining, reset_after_us, over } = self.usage;
        let reset_after = seconds(reset_after_us);
        let mut text =
            format!("QuotaUsage(limit={limit}, remaining={remaining}, reset_after={reset_after:?}");
        if over > 0 {
            let _ = write!(text, ", over={over}");
        }
        if !self.verdict.allowed {
            let _ = write!(text, ", allowed=False, retry_after={}", show_wait(self.verdict.retry_after_us));
        }
        text + ")"
    }
}

fn quota_usages<'py>(
    py: Python<'py>,
    quotas: &[QuotaUsage],
    verdicts: impl Iterator<Item = QuotaVerdict>,
) -> PyResult<Bound<'py, PyTuple>> {
    let each =
        quotas.iter().zip(verdicts).map(|(&usage, verdict)| Py::new(py, PyQuotaUsage { usage, verdict }));
    PyTuple::new(py, each.collect::<PyResult<Vec<_>>>()?)
}

/// The `repr` of a wait, which may be never.
fn show_wait(wait_us: Option<u64>) -> String {
    wait_us.map_or("None".to_owned(), |us| format!("{:?}", seconds(us)))
}

const fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// The part of a `repr` that is shown only when the store did not decide as usual.
fn origin(source: Source, degraded: Option<Degradation>) -> String {
    let mut text = String::new();
    if source != Source::Store {
        let _ = write!(text, ", source='{}'", source.name());
    }
    if let Some(degraded) = degraded {
        let _ = write!(text, ", degraded='{}'", degraded.name());
    }
    text
}
