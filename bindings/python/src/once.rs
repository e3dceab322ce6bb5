//! What a process makes once, in a way that no fork leaves half made.
//!
//! A fork copies one thread. With `OnceLock`, and with pyo3's `PyOnceLock` and `intern!`, threads wait for the one that initialises
//! the value. In a child that is forked meanwhile that thread does not exist, so the child would wait for ever. Here nothing waits:
//! threads that come at the same time make the value each, and keep the first one.

pub(crate) use once_cell::race::OnceBox;

/// An interned string of Python, made at its first use.
macro_rules! intern {
    ($py:expr, $text:literal) => {{
        static NAME: $crate::once::OnceBox<pyo3::Py<pyo3::types::PyString>> = $crate::once::OnceBox::new();
        NAME.get_or_init(|| Box::new(pyo3::types::PyString::intern($py, $text).unbind())).bind($py)
    }};
}
pub(crate) use intern;
