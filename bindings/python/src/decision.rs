//! `Decision`, `Usage` and `QuotaUsage`: the results of operations.

use std::fmt::Write as _;

use polylimit::Decision;
use polylimit::decision::{Cause, Degradation, QuotaUsage, QuotaVerdict, Source, Usage};
use polylimit::raw::{DecisionParts, UsageParts};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyTuple};

use crate::convert::{Utf8Text, read_bool, read_integer, read_items, seconds, wrong_type};
use crate::error::{call_core, invalid_argument};
use crate::value::immutable;

/// The result of a check, a peek, an acquire or a reserve; true when the request is allowed.
#[pyclass(name = "Decision", module = "polylimit", frozen, eq, weakref)]
pub(crate) struct PyDecision(pub(crate) Decision);

/// By the properties, of which a copy is made: the core has more, such as the limit over all quotas but those of concurrency.
impl PartialEq for PyDecision {
    fn eq(&self, other: &Self) -> bool {
        let times = |one: &Decision| (one.retry_after_us(), one.reset_after_us(), one.delay_us());
        let units = |one: &Decision| (one.remaining(), one.over());
        let flags = |one: &Decision| (one.allowed(), one.crossed(), one.elastic(), one.shadowed());
        let origin = |one: &Decision| (one.source(), one.degraded(), one.cause());
        let (one, other) = (&self.0, &other.0);
        (times(one), units(one), flags(one)) == (times(other), units(other), flags(other))
            && origin(one) == origin(other)
            && one.quotas() == other.quotas()
            && one.verdicts().eq(other.verdicts())
    }
}

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

    /// The decision as a dict of what JSON has, with the names of the properties; each of ``quotas`` is a dict as well.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let decision = &self.0;
        let dict = PyDict::new(py);
        dict.set_item("allowed", decision.allowed())?;
        dict.set_item("remaining", decision.remaining())?;
        set_wait(&dict, "retry_after", decision.retry_after_us())?;
        set_wait(&dict, "reset_after", Some(decision.reset_after_us()))?;
        set_wait(&dict, "delay", Some(decision.delay_us()))?;
        dict.set_item("over", decision.over())?;
        dict.set_item("cause", self.cause())?;
        dict.set_item("crossed", decision.crossed())?;
        dict.set_item("elastic", decision.elastic())?;
        dict.set_item("shadowed", decision.shadowed())?;
        dict.set_item("source", self.source())?;
        dict.set_item("degraded", self.degraded())?;
        dict.set_item("quotas", quota_dicts(py, decision.quotas(), decision.verdicts())?)?;
        Ok(dict)
    }

    /// The decision of which ``as_dict`` made this dict. A test may write one: ``allowed`` and ``quotas``, each with its ``limit``, are needed;
    /// what is left out is 0, false or ``None``. Of a time, the twin in microseconds is read.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     When the parts do not make a decision.
    #[staticmethod]
    fn from_dict(parts: &Bound<'_, PyAny>) -> PyResult<Self> {
        read_decision(parts).map(Self)
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        Ok((this.getattr("from_dict")?, (this.get().as_dict(this.py())?,)))
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

/// The result of every operation that decides nothing, such as a take, a charge, a commit or a block: what is left after it.
///
/// It is true when ``taken`` is above 0: ``if limiter.take("user:42", cost=5): ...``
#[pyclass(name = "Usage", module = "polylimit", frozen, eq, weakref)]
pub(crate) struct PyUsage(pub(crate) Usage);

/// By the properties, as a decision.
impl PartialEq for PyUsage {
    fn eq(&self, other: &Self) -> bool {
        let units = |one: &Usage| (one.remaining(), one.reset_after_us(), one.taken(), one.over());
        let origin = |one: &Usage| (one.found(), one.repeated(), one.source(), one.degraded());
        let (one, other) = (&self.0, &other.0);
        units(one) == units(other) && origin(one) == origin(other) && one.quotas() == other.quotas()
    }
}

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

    /// Whether this was a commit of an id that was committed before and is remembered, so that nothing was charged.
    #[getter]
    fn repeated(&self) -> bool {
        self.0.repeated()
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
        quota_usages(py, self.0.quotas(), std::iter::repeat(ADMITS))
    }

    /// The usage as a dict of what JSON has, with the names of the properties; each of ``quotas`` is a dict as well.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let usage = &self.0;
        let dict = PyDict::new(py);
        dict.set_item("remaining", usage.remaining())?;
        set_wait(&dict, "reset_after", Some(usage.reset_after_us()))?;
        dict.set_item("taken", usage.taken())?;
        dict.set_item("found", usage.found())?;
        dict.set_item("repeated", usage.repeated())?;
        dict.set_item("over", usage.over())?;
        dict.set_item("source", self.source())?;
        dict.set_item("degraded", self.degraded())?;
        dict.set_item("quotas", quota_dicts(py, usage.quotas(), std::iter::repeat(ADMITS))?)?;
        Ok(dict)
    }

    /// The usage of which ``as_dict`` made this dict. A test may write one: ``quotas``, each with its ``limit``, are needed; what is left out
    /// is 0, false or ``None``, and ``found`` is true. Of a time, the twin in microseconds is read.
    ///
    /// Raises
    /// ------
    /// InvalidArgumentError
    ///     When the parts do not make a usage.
    #[staticmethod]
    fn from_dict(parts: &Bound<'_, PyAny>) -> PyResult<Self> {
        read_usage(parts).map(Self)
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        Ok((this.getattr("from_dict")?, (this.get().as_dict(this.py())?,)))
    }

    fn __bool__(&self) -> bool {
        self.0.taken() > 0
    }

    fn __repr__(&self) -> String {
        let usage = &self.0;
        format!(
            "Usage(remaining={}, reset_after={:?}, taken={}{}{}{})",
            usage.remaining(),
            seconds(usage.reset_after_us()),
            usage.taken(),
            if usage.found() { "" } else { ", found=False" },
            if usage.repeated() { ", repeated=True" } else { "" },
            origin(usage.source(), usage.degraded())
        )
    }
}

/// The usage of one quota by a key after the operation and, in a ``Decision``, the quota's verdict on the request.
#[pyclass(name = "QuotaUsage", module = "polylimit", frozen, eq, weakref)]
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

/// The verdict of a quota that was not asked; as in C.
const ADMITS: QuotaVerdict = QuotaVerdict { allowed: true, retry_after_us: Some(0) };

immutable!(PyDecision, PyUsage, PyQuotaUsage);

/// Sets a time in seconds, and its exact twin.
fn set_wait(dict: &Bound<'_, PyDict>, name: &str, wait_us: Option<u64>) -> PyResult<()> {
    dict.set_item(name, wait_us.map(seconds))?;
    dict.set_item(format!("{name}_us"), wait_us)
}

fn quota_dicts<'py>(
    py: Python<'py>,
    quotas: &[QuotaUsage],
    verdicts: impl Iterator<Item = QuotaVerdict>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let each = quotas.iter().zip(verdicts).map(|(usage, verdict)| {
        let dict = PyDict::new(py);
        dict.set_item("limit", usage.limit)?;
        dict.set_item("remaining", usage.remaining)?;
        set_wait(&dict, "reset_after", Some(usage.reset_after_us))?;
        dict.set_item("over", usage.over)?;
        dict.set_item("allowed", verdict.allowed)?;
        set_wait(&dict, "retry_after", verdict.retry_after_us)?;
        Ok(dict)
    });
    each.collect()
}

/// Reads what `as_dict` has written.
fn read_decision(parts: &Bound<'_, PyAny>) -> PyResult<Decision> {
    let py = parts.py();
    let parts = Parts::of("parts", parts)?;
    let (quotas, quota_waits_us): (Vec<_>, Vec<_>) = parts.quotas("a decision")?.into_iter().unzip();
    let allowed = parts.flag("allowed")?;
    let decision = DecisionParts {
        allowed,
        wait_us: if allowed && !parts.flag("shadowed")? {
            Some(parts.number("delay_us")?.unwrap_or(0))
        } else {
            parts.wait("retry_after_us")?
        },
        source: parts.source()?,
        degraded: parts.degraded()?,
        cause: parts.named("cause", Cause::ALL, Cause::name)?,
        crossed: parts.flag("crossed")?,
        elastic: parts.flag("elastic")?,
        shadowed: parts.flag("shadowed")?,
        remaining: parts.number("remaining")?.unwrap_or(0),
        quotas: &quotas,
        quota_waits_us: &quota_waits_us,
    };
    call_core(py, || Decision::from_parts(decision))
}

/// The same for a usage.
fn read_usage(parts: &Bound<'_, PyAny>) -> PyResult<Usage> {
    let py = parts.py();
    let parts = Parts::of("parts", parts)?;
    let quotas: Vec<_> = parts.quotas("a usage")?.into_iter().map(|(usage, _)| usage).collect();
    let usage = UsageParts {
        taken: parts.number("taken")?.unwrap_or(0),
        found: parts.get("found")?.map_or(Ok(true), |found| read_bool("found", &found))?,
        repeated: parts.get("repeated")?.map_or(Ok(false), |repeated| read_bool("repeated", &repeated))?,
        source: parts.source()?,
        degraded: parts.degraded()?,
        remaining: parts.number("remaining")?.unwrap_or(0),
        quotas: &quotas,
    };
    call_core(py, || Usage::from_parts(usage))
}

/// A dict of which parts are read.
struct Parts<'py>(Bound<'py, PyMapping>);

impl<'py> Parts<'py> {
    fn of(name: &str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let mapping = value.cast::<PyMapping>().map_err(|_| wrong_type(name, value, "allowed is a dict"))?;
        Ok(Self(mapping.clone()))
    }

    fn get(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.0.contains(name)? {
            return Ok(None);
        }
        self.0.get_item(name).map(|value| (!value.is_none()).then_some(value))
    }

    /// The usage of each quota of `owner`, and how long it denies the request.
    fn quotas(&self, owner: &str) -> PyResult<Vec<(QuotaUsage, Option<u64>)>> {
        let missing =
            || invalid_argument(self.0.py(), &format!("parts have no quotas: {owner} has one or more"));
        read_items("quotas", &self.get("quotas")?.ok_or_else(missing)?, "a list of dicts", |quota| {
            let quota = Self::of("an item of quotas", &quota)?;
            let usage = QuotaUsage {
                limit: quota.number("limit")?.unwrap_or(0),
                remaining: quota.number("remaining")?.unwrap_or(0),
                reset_after_us: quota.number("reset_after_us")?.unwrap_or(0),
                over: quota.number("over")?.unwrap_or(0),
            };
            Ok((usage, quota.wait("retry_after_us")?))
        })
    }

    fn source(&self) -> PyResult<Source> {
        Ok(self.named("source", Source::ALL, Source::name)?.unwrap_or(Source::Store))
    }

    fn degraded(&self) -> PyResult<Option<Degradation>> {
        self.named("degraded", Degradation::ALL, Degradation::name)
    }

    fn number(&self, name: &str) -> PyResult<Option<u64>> {
        self.get(name)?.map(|value| read_integer(name, &value)).transpose()
    }

    /// A wait, which is 0 where it is left out, and endless where it is `None`.
    fn wait(&self, name: &str) -> PyResult<Option<u64>> {
        if self.0.contains(name)? { self.number(name) } else { Ok(Some(0)) }
    }

    fn flag(&self, name: &str) -> PyResult<bool> {
        self.get(name)?.map_or(Ok(false), |value| read_bool(name, &value))
    }

    fn named<T: Copy>(
        &self,
        name: &str,
        all: impl IntoIterator<Item = T>,
        name_of: fn(T) -> &'static str,
    ) -> PyResult<Option<T>> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        let text = Utf8Text::read(&value, name)?;
        let known: Vec<_> = all.into_iter().collect();
        let found = known.iter().copied().find(|one| name_of(*one) == &*text);
        let names = || known.iter().map(|one| name_of(*one)).collect::<Vec<_>>().join(", ");
        found.map(Some).ok_or_else(|| {
            invalid_argument(value.py(), &format!("{name} is not known: allowed are {}", names()))
        })
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
