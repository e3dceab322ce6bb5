//! The names of the numbers in decisions and statuses, the same in every language.

use std::ffi::{CString, c_char};

use std::ptr::null;

use once_cell::race::OnceBox;
use polylimit::ErrorKind;
use polylimit::decision::{Cause, Degradation, Source};

use crate::error::{POLYLIMIT_OK, POLYLIMIT_PENDING, guard_or, polylimit_status, status_of};

/// Names as texts of C, made at their first use. Threads that come at the same time make them each and keep the first: with a cell
/// that threads wait for, a child that is forked meanwhile would wait for ever.
pub(crate) struct Names(OnceBox<Vec<CString>>);

static STATUSES: Names = Names::new();
static SOURCES: Names = Names::new();
static DEGRADATIONS: Names = Names::new();
static CAUSES: Names = Names::new();

impl Names {
    pub(crate) const fn new() -> Self {
        Self(OnceBox::new())
    }

    /// The name at a position in `names`, which contain no NUL; NULL beyond the last.
    pub(crate) fn at(
        &self,
        position: Option<usize>,
        names: impl Iterator<Item = &'static str>,
    ) -> *const c_char {
        let made = || Box::new(names.map(|name| CString::new(name).unwrap_or_default()).collect());
        let names = self.0.get_or_init(made);
        position.and_then(|at| names.get(at)).map_or(null(), |name| name.as_ptr())
    }
}

/// The name of a status, such as "invalid_argument"; NULL for an unknown number. Not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_status_name(status: polylimit_status) -> *const c_char {
    let others = [(POLYLIMIT_OK, "ok"), (POLYLIMIT_PENDING, "pending")];
    let known = || others.into_iter().chain(ErrorKind::ALL.map(|kind| (status_of(kind), kind.code())));
    guard_or(null(), || {
        STATUSES.at(known().position(|(number, _)| number == status), known().map(|(_, name)| name))
    })
}

/// The name of the `source` of a decision or usage, such as "store"; NULL for an unknown number. Not to be freed. Later
/// versions may add sources, so programs must accept unknown names.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_source_name(source: u32) -> *const c_char {
    guard_or(null(), || SOURCES.at(Some(source as usize), Source::ALL.into_iter().map(Source::name)))
}

/// The name of the `degraded` of a decision or usage, such as "timeout"; NULL for 0, which means not degraded, and for an
/// unknown number. Not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_degradation_name(degraded: u32) -> *const c_char {
    let names = || Degradation::ALL.into_iter().map(Degradation::name);
    guard_or(null(), || DEGRADATIONS.at((degraded as usize).checked_sub(1), names()))
}

/// The name of the `cause` of a decision, such as "quota"; NULL for 0, which means none, and for an unknown number. Not to be
/// freed.
#[unsafe(no_mangle)]
pub extern "C" fn polylimit_cause_name(cause: u32) -> *const c_char {
    guard_or(null(), || CAUSES.at((cause as usize).checked_sub(1), Cause::ALL.into_iter().map(Cause::name)))
}

/// The number of a source: its index in the core's list.
#[inline]
pub(crate) fn source_number(source: Source) -> u32 {
    index(Source::ALL.iter().position(|known| *known == source))
}

/// The number of a degradation: its index in the core's list plus 1; 0 means not degraded.
#[inline]
pub(crate) fn degradation_number(degraded: Option<Degradation>) -> u32 {
    degraded.map_or(0, |degraded| index(Degradation::ALL.iter().position(|known| *known == degraded)) + 1)
}

/// The number of a cause: its index in the core's list plus 1; 0 means none.
#[inline]
pub(crate) fn cause_number(cause: Option<Cause>) -> u32 {
    cause.map_or(0, |cause| index(Cause::ALL.iter().position(|known| *known == cause)) + 1)
}

/// The source of a number.
pub(crate) fn source(number: u32) -> Option<Source> {
    Source::ALL.get(number as usize).copied()
}

/// The degradation of a number that is not 0.
pub(crate) fn degradation(number: u32) -> Option<Degradation> {
    (number as usize).checked_sub(1).and_then(|at| Degradation::ALL.get(at)).copied()
}

/// The cause of a number that is not 0.
pub(crate) fn cause(number: u32) -> Option<Cause> {
    (number as usize).checked_sub(1).and_then(|at| Cause::ALL.get(at)).copied()
}

/// The index as a number; every value is in its list, and lists are short.
fn index(position: Option<usize>) -> u32 {
    position.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn name(name: *const c_char) -> Option<String> {
        // SAFETY: the functions above return NULL or a static text.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned())
    }

    #[test]
    fn every_number_has_a_name_and_unknown_numbers_have_none() {
        for known in Source::ALL {
            assert_eq!(name(polylimit_source_name(source_number(known))).as_deref(), Some(known.name()));
            assert_eq!(source(source_number(known)), Some(known));
        }
        for known in Degradation::ALL {
            let number = degradation_number(Some(known));
            assert_eq!(name(polylimit_degradation_name(number)).as_deref(), Some(known.name()));
            assert_eq!(degradation(number), Some(known));
        }
        for known in Cause::ALL {
            let number = cause_number(Some(known));
            assert_eq!(name(polylimit_cause_name(number)).as_deref(), Some(known.name()));
            assert_eq!(cause(number), Some(known));
        }
        for kind in ErrorKind::ALL {
            assert_eq!(name(polylimit_status_name(kind.number())).as_deref(), Some(kind.code()));
        }
        assert_eq!(name(polylimit_status_name(0)).as_deref(), Some("ok"));
        assert_eq!(name(polylimit_status_name(-1)).as_deref(), Some("pending"));
        assert_eq!((degradation_number(None), cause_number(None)), (0, 0));
        let unknown = [polylimit_degradation_name(0), polylimit_degradation_name(u32::MAX)];
        let unknown = unknown.into_iter().chain([polylimit_cause_name(0), polylimit_cause_name(u32::MAX)]);
        let unknown = unknown.into_iter().chain([polylimit_source_name(u32::MAX), polylimit_status_name(99)]);
        assert!(unknown.into_iter().all(<*const c_char>::is_null));
    }

    /// Programs write these numbers to logs and compare them.
    #[test]
    fn numbers_never_change() {
        let sources = Source::ALL.map(Source::name);
        assert!(
            sources.starts_with(&[
                "store",
                "denial_cache",
                "lease",
                "fallback",
                "allow",
                "deny",
                "configuration"
            ]),
            "{sources:?}"
        );
        let causes = Cause::ALL.map(Cause::name);
        assert!(
            causes.starts_with(&[
                "off",
                "allow_list",
                "deny_list",
                "missing_key",
                "blocked",
                "quota",
                "concurrency"
            ]),
            "{causes:?}"
        );
        let degradations = Degradation::ALL.map(Degradation::name);
        assert!(
            degradations.starts_with(&[
                "store_full",
                "unreachable",
                "timeout",
                "late",
                "shed",
                "loading",
                "busy",
                "out_of_memory",
                "misconfigured",
                "no_replicas",
                "max_clients",
                "read_only",
                "cluster_down",
                "auth",
                "wrong_type",
                "protocol",
                "refused",
                "connection_lost",
                "no_resources",
                "newer_format"
            ]),
            "{degradations:?}"
        );
    }
}
