//! Which keys a list has, and when a page of it ends.

use std::fmt;

use polylimit::admin::{KeyFilter, ListBudget};

use crate::error::{PolylimitError, Result};

/// Which keys a list has, and when a page of it ends. What is left out is as the core has it. Its text form does not show the
/// prefix, which is part of keys.
#[derive(Clone, Default, PartialEq, Eq, uniffi::Record)]
#[uniffi::export(Debug, Display)]
pub struct ListOptions {
    /// Only keys of this policy: its name, or its quotas as text.
    #[uniffi(default)]
    pub policy: Option<String>,
    /// Only keys that begin with these bytes. A key of which only the digest is known begins with none.
    #[uniffi(default)]
    pub key_prefix: Option<Vec<u8>>,
    /// Only keys of which at least this much is used, in percent, 0 to 255.
    #[uniffi(default)]
    pub at_least_used: Option<i64>,
    /// The page ends once it has this many keys, 1 or more; it may have about a thousand more. 1,000 by default.
    #[uniffi(default)]
    pub entries: Option<i64>,
    /// The page ends once the store has examined this many keys, 1 or more. 100,000 by default.
    #[uniffi(default)]
    pub examined: Option<i64>,
    /// The share of one server's time that a list in Redis may take, 1 to 100; 10 by default.
    #[uniffi(default)]
    pub pace_percent: Option<i64>,
    /// Where the list goes on: that of the page before. `scan_top` has none.
    #[uniffi(default)]
    pub cursor: Option<String>,
}

impl fmt::Debug for ListOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListOptions")
            .field("policy", &self.policy)
            .field("key_prefix", &self.key_prefix.as_ref().map(Vec::len))
            .field("at_least_used", &self.at_least_used)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ListOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl ListOptions {
    pub(crate) fn filter(&self) -> Result<KeyFilter<'_>> {
        let mut filter = KeyFilter::default();
        if let Some(policy) = &self.policy {
            filter = filter.policy(policy);
        }
        if let Some(prefix) = &self.key_prefix {
            filter = filter.key_prefix(prefix);
        }
        if let Some(percent) = self.at_least_used {
            filter = filter.at_least_used(bounded("at_least_used", percent, "0 to 255")?);
        }
        Ok(filter)
    }

    pub(crate) fn budget(&self) -> Result<ListBudget> {
        let mut budget = ListBudget::default();
        if let Some(entries) = self.entries {
            budget = budget.entries(bounded("entries", entries, "1 or more")?);
        }
        if let Some(examined) = self.examined {
            budget = budget.examined(bounded("examined", examined, "1 or more")?);
        }
        if let Some(percent) = self.pace_percent {
            budget = budget.pace_percent(bounded("pace_percent", percent, "1 to 100")?);
        }
        Ok(budget)
    }

    pub(crate) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }
}

/// The most keys that are asked for.
pub(crate) fn most(number: i64) -> Result<usize> {
    bounded("most", number, "0 or more")
}

/// A number of the type that the core has. It checks the bounds within that itself.
fn bounded<T: TryFrom<i64>>(name: &str, number: i64, allowed: &str) -> Result<T> {
    T::try_from(number).map_err(|_| {
        PolylimitError::InvalidArgument(format!("{name} of a list is {number}: allowed is {allowed}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_does_not_show_the_prefix() {
        let options = ListOptions { key_prefix: Some(b"hunter2".to_vec()), ..ListOptions::default() };
        let shown = format!("{options} {options:?}");
        assert!(shown.contains("key_prefix: Some(7)") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        let refused = |options: ListOptions| match (options.filter(), options.budget()) {
            (Err(error), _) | (_, Err(error)) => error.to_string(),
            both => panic!("{both:?}"),
        };
        let none = ListOptions::default;
        assert_eq!(
            refused(ListOptions { at_least_used: Some(256), ..none() }),
            "at_least_used of a list is 256: allowed is 0 to 255"
        );
        assert_eq!(
            refused(ListOptions { entries: Some(-1), ..none() }),
            "entries of a list is -1: allowed is 1 or more"
        );
        assert_eq!(
            refused(ListOptions { pace_percent: Some(i64::MAX), ..none() }),
            format!("pace_percent of a list is {}: allowed is 1 to 100", i64::MAX)
        );
        assert_eq!(none().budget(), Ok(ListBudget::default()));
    }
}
