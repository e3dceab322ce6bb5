//! Metrics: families of samples as values of Python, and as text.

use polylimit::Limiter;
use polylimit::metrics::{Family, Sample, SampleValue, TextFormat};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::Utf8Text;
use crate::error::call_core;
use crate::limiter_classes::{PyAsyncLimiter, PyLimiter};
use crate::value::immutable;

/// Samples of one kind, under one name.
#[pyclass(name = "MetricFamily", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyMetricFamily(Family);

#[pymethods]
impl PyMetricFamily {
    /// The name, such as ``"polylimit_decisions_total"``. That of a counter ends in ``_total``.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name
    }

    /// What is counted or measured, in one sentence.
    #[getter]
    fn help(&self) -> &'static str {
        self.0.help
    }

    /// What the samples are: ``"counter"``, ``"gauge"`` or ``"histogram"``.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// The samples, which differ in their labels; none where the family does not apply to the limiter.
    #[getter]
    fn samples(&self) -> Vec<PyMetricSample> {
        self.0.samples.iter().cloned().map(PyMetricSample).collect()
    }

    fn __repr__(&self) -> String {
        let Family { name, kind, samples, .. } = &self.0;
        format!("MetricFamily(name='{name}', kind='{}', samples={})", kind.name(), samples.len())
    }
}

/// One number or histogram of a ``MetricFamily``.
#[pyclass(name = "MetricSample", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyMetricSample(Sample);

#[pymethods]
impl PyMetricSample {
    /// The labels: names with values, which are any text. No value is a key.
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let labels = PyDict::new(py);
        for (name, value) in &self.0.labels {
            labels.set_item(name, &**value)?;
        }
        Ok(labels)
    }

    /// The value: a whole number if it is a count, a float, or a ``MetricHistogram``.
    #[getter]
    fn value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match &self.0.value {
            SampleValue::Count(count) => count.into_pyobject(py)?.into_any().unbind(),
            SampleValue::Number(number) => number.into_pyobject(py)?.into_any().unbind(),
            SampleValue::Histogram { buckets, sum, count } => {
                let histogram = PyMetricHistogram { buckets: buckets.clone(), sum: *sum, count: *count };
                Py::new(py, histogram)?.into_any()
            }
        })
    }

    fn __repr__(&self) -> String {
        let Sample { labels, value, .. } = &self.0;
        format!("MetricSample(labels={labels:?}, value={value:?})")
    }
}

/// How many observations were at most some numbers.
#[pyclass(name = "MetricHistogram", module = "polylimit", frozen, eq, weakref)]
#[derive(PartialEq)]
pub(crate) struct PyMetricHistogram {
    buckets: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

#[pymethods]
impl PyMetricHistogram {
    /// Upper bounds, in rising order, each with the number of observations up to it. The last bound, infinity, is left out: its
    /// number is ``count``.
    #[getter]
    fn buckets(&self) -> Vec<(f64, u64)> {
        self.buckets.clone()
    }

    /// The sum of the observations.
    #[getter]
    fn sum(&self) -> f64 {
        self.sum
    }

    /// The number of observations.
    #[getter]
    fn count(&self) -> u64 {
        self.count
    }

    fn __repr__(&self) -> String {
        format!("MetricHistogram(count={}, sum={:?})", self.count, self.sum)
    }
}

/// Writes the two methods, which are the same in both classes.
macro_rules! metrics_methods {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            /// What this limiter has decided since it was made, and the state of its store and of its configuration. No key is in
            /// it. Each family is described in docs/metrics.md; ``polylimit.prometheus`` and ``polylimit.opentelemetry`` hand them
            /// to a monitoring system.
            ///
            /// The families are always the same; those that do not apply to the limiter have no samples. A forked child counts from
            /// 0. Nothing is sent, and no decision waits.
            fn metrics(&self, py: Python<'_>) -> PyResult<Vec<PyMetricFamily>> {
                families(py, self.core())
            }

            /// The metrics as the text that monitoring systems read.
            ///
            /// Parameters
            /// ----------
            /// format
            ///     ``"prometheus"``, whose media type is ``text/plain; version=0.0.4; charset=utf-8``, or ``"openmetrics"``, whose
            ///     media type is ``application/openmetrics-text; version=1.0.0; charset=utf-8``.
            ///
            /// Raises
            /// ------
            /// InvalidArgumentError
            ///     When the format is another one.
            #[pyo3(signature = (format = None), text_signature = "($self, format='prometheus')")]
            fn metrics_text(&self, py: Python<'_>, format: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
                let format = format.map(|format| Utf8Text::read(format, "format")).transpose()?;
                let format = format.as_deref().unwrap_or("prometheus");
                call_core(py, || Ok(self.core().metrics_text(format.parse::<TextFormat>()?)))
            }
        }
    };
}

metrics_methods!(PyLimiter);
metrics_methods!(PyAsyncLimiter);

fn families(py: Python<'_>, limiter: &Limiter) -> PyResult<Vec<PyMetricFamily>> {
    call_core(py, || Ok(limiter.metrics().into_iter().map(PyMetricFamily).collect()))
}

immutable!(PyMetricFamily, PyMetricHistogram, PyMetricSample);
