//! Why an operation was not carried out, and whether the outage policy answers it.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use polylimit_rules::decision::Degradation;
use polylimit_rules::error::{Error, ErrorKind};

/// An operation that was not carried out.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Set if a later attempt may succeed: then the outage policy answers.
    pub(crate) reason: Option<Degradation>,
    /// Another process may be about to release what is needed: a caller that can wait tries again at once.
    pub(crate) is_busy: bool,
    /// The file system has no space for the file.
    pub(crate) lacks_space: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, reason: None, is_busy: false, lacks_space: false }
    }
}

impl Failure {
    /// The same failure with the error of the system that has caused it.
    #[cold]
    pub(crate) fn caused_by(self, cause: &io::Error) -> Self {
        Self { error: self.error.caused_by_io(cause), ..self }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// The file cannot be used, and stays as it is.
#[cold]
pub(crate) fn failed(path: &Path, why: &str) -> Failure {
    let error = Error::new(ErrorKind::StoreFailed, format!("the local store {}: {why}", path.display()));
    Failure::from(error)
}

/// The file cannot be used at the moment.
#[cold]
pub(crate) fn unavailable(path: &Path, reason: Degradation, why: &str) -> Failure {
    let error = Error::new(ErrorKind::StoreUnavailable, format!("the local store {}: {why}", path.display()));
    Failure { reason: Some(reason), ..Failure::from(error) }
}

/// The file system has no space for the file.
#[cold]
pub(crate) fn without_space(path: &Path, why: &str) -> Failure {
    Failure { lacks_space: true, ..unavailable(path, Degradation::NoResources, why) }
}

/// A system call failed: for lack of something that this process or the system may get again, or for good.
#[cold]
pub(crate) fn unusable(path: &Path, done: &str, error: &io::Error) -> Failure {
    let why = format!("it cannot be {done}: {error}");
    let failure = match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOLCK | Errno::AGAIN) => {
            unavailable(path, Degradation::NoResources, &why)
        }
        _ => failed(path, &why),
    };
    failure.caused_by(error)
}
