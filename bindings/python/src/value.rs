//! What all classes of values have in common: they never change, so that a copy is the object itself.

/// Adds `copy.copy` and `copy.deepcopy` to classes.
macro_rules! immutable {
    ($($class:ident),+) => {
        $(
            #[pyo3::pymethods]
            impl $class {
                fn __copy__(this: pyo3::Py<Self>) -> pyo3::Py<Self> {
                    this
                }

                fn __deepcopy__(this: pyo3::Py<Self>, _memo: &pyo3::Bound<'_, pyo3::PyAny>) -> pyo3::Py<Self> {
                    this
                }
            }
        )+
    };
}

pub(crate) use immutable;
