//! What a function returns.

use polylimit::ErrorKind;

/// What became of a call: 0 when it did what it was asked to, -1 when its answer is still to come, otherwise why it could
/// not. A denial is no failure: it is a decision.
pub type polylimit_status = i32;

/// It did what it was asked to.
pub const POLYLIMIT_OK: i32 = 0;
/// Only of polylimit_completions_submit: the answer comes by polylimit_completions_drain.
pub const POLYLIMIT_PENDING: i32 = -1;
/// The caller passed something that is not allowed; the same call fails again.
pub const POLYLIMIT_INVALID_ARGUMENT: i32 = 1;
/// The store could not be reached in time; trying again later may succeed.
pub const POLYLIMIT_STORE_UNAVAILABLE: i32 = 2;
/// The store was reached and could not decide.
pub const POLYLIMIT_STORE_FAILED: i32 = 3;
/// The limiter was closed.
pub const POLYLIMIT_CLOSED: i32 = 4;
/// A defect in polylimit itself.
pub const POLYLIMIT_INTERNAL: i32 = 5;

/// The status of a kind of error: the one conversion there is.
pub(crate) fn status_of(kind: ErrorKind) -> polylimit_status {
    kind.number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_status_of_its_number() {
        let statuses = [
            ("invalid_argument", POLYLIMIT_INVALID_ARGUMENT),
            ("store_unavailable", POLYLIMIT_STORE_UNAVAILABLE),
            ("store_failed", POLYLIMIT_STORE_FAILED),
            ("closed", POLYLIMIT_CLOSED),
            ("internal", POLYLIMIT_INTERNAL),
        ];
        assert_eq!(ErrorKind::ALL.map(|kind| (kind.code(), status_of(kind))), statuses);
    }
}
