//! The command line tool, which `python -m polylimit` runs in its process.

use std::ffi::OsString;

use polylimit_cli::{Terminal, run};
use pyo3::prelude::*;

use crate::error::call_core;

/// Runs a command of the command line tool, which writes to the standard output and the standard error of this process.
///
/// Parameters
/// ----------
/// arguments
///     The name of the program, and then its arguments.
///
/// Returns
/// -------
/// int
///     The exit status.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    call_core(py, || py.detach(|| Ok(run(arguments, &mut Terminal::of_process()))))
}
