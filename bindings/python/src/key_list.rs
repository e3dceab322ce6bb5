//! What is asked of a list of keys: its filter, its budget and its cursor.

use polylimit::admin::{KeyFilter, ListBudget};
use pyo3::prelude::*;

use crate::convert::{Key, Utf8Text, read_integer};
use crate::request::PolicyArgument;

/// The arguments of `list`, `scan_top` and `reset_listed`, as Python gives them.
#[derive(Default)]
pub(crate) struct ListArguments<'a, 'py> {
    pub(crate) policy: Option<PolicyArgument>,
    pub(crate) key_prefix: Option<&'a Bound<'py, PyAny>>,
    pub(crate) at_least_used: Option<&'a Bound<'py, PyAny>>,
    pub(crate) entries: Option<&'a Bound<'py, PyAny>>,
    pub(crate) examined: Option<&'a Bound<'py, PyAny>>,
    pub(crate) pace_percent: Option<&'a Bound<'py, PyAny>>,
    pub(crate) cursor: Option<&'a Bound<'py, PyAny>>,
}

/// The same with texts of its own.
pub(crate) struct OwnedKeyList {
    policy: Option<PolicyArgument>,
    key_prefix: Option<Key>,
    at_least_used: Option<u8>,
    budget: ListBudget,
    cursor: Option<Utf8Text>,
}

impl OwnedKeyList {
    pub(crate) fn read(arguments: ListArguments<'_, '_>) -> PyResult<Self> {
        let ListArguments { policy, key_prefix, at_least_used, entries, examined, pace_percent, cursor } =
            arguments;
        let mut budget = ListBudget::default();
        if let Some(entries) = entries {
            budget = budget.entries(read_integer("entries", entries)?);
        }
        if let Some(examined) = examined {
            budget = budget.examined(read_integer("examined", examined)?);
        }
        if let Some(percent) = pace_percent {
            budget = budget.pace_percent(read_integer("pace_percent", percent)?);
        }
        Ok(Self {
            policy,
            key_prefix: key_prefix.map(|prefix| Key::read("key_prefix", prefix)).transpose()?,
            at_least_used: at_least_used.map(|percent| read_integer("at_least_used", percent)).transpose()?,
            budget,
            cursor: cursor.map(|cursor| Utf8Text::read(cursor, "cursor")).transpose()?,
        })
    }

    pub(crate) fn filter(&self) -> KeyFilter<'_> {
        let mut filter = KeyFilter::default();
        if let Some(policy) = &self.policy {
            filter = filter.policy(policy.as_str());
        }
        if let Some(prefix) = &self.key_prefix {
            filter = filter.key_prefix(prefix.as_bytes());
        }
        match self.at_least_used {
            Some(percent) => filter.at_least_used(percent),
            None => filter,
        }
    }

    pub(crate) fn budget(&self) -> ListBudget {
        self.budget
    }

    pub(crate) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }
}
