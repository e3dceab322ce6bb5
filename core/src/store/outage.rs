//! The outage policies, by name.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, excerpt};

/// What a limiter answers when its store cannot decide: the store is unreachable, too slow, overloaded or refuses the
/// operation.
///
/// It is set per policy. The [source](crate::Source) of such a decision is the outage policy, and the decision tells
/// the reason. A denial by the outage policy is not the caller's fault: it maps to the HTTP status 503 (Service
/// Unavailable), not to 429 (Too Many Requests).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outage {
    /// A memory store in this process decides, with a configurable share of each limit. It follows every decision of
    /// the store beforehand. All processes together then admit at most the number of processes times that share. The
    /// default.
    #[default]
    Fallback,
    /// Everything is admitted, without a bound.
    Allow,
    /// Everything is denied.
    Deny,
}

impl Outage {
    /// All outage policies, the default first.
    pub const ALL: [Self; 3] = [Self::Fallback, Self::Allow, Self::Deny];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fallback => "fallback",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// The outage policy with this name, if there is one.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outage| outage.name() == name)
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Outage {
    type Err = Error;

    /// # Errors
    /// [`InvalidArgument`](crate::error::ErrorKind::InvalidArgument) when no outage policy has that name.
    fn from_str(name: &str) -> Result<Self, Error> {
        Self::from_name(name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::invalid_argument(format!("outage {} is not known: use one of {known}", excerpt(name)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_what_it_names() {
        for outage in Outage::ALL {
            assert_eq!(outage.to_string().parse(), Ok(outage));
        }
        assert_eq!(Outage::default(), Outage::ALL[0]);
    }

    #[test]
    fn another_name_is_refused() {
        for name in ["", "Fallback", "open", "deny "] {
            let message = name.parse::<Outage>().unwrap_err().to_string();
            assert_eq!(message, format!("outage {name:?} is not known: use one of fallback, allow, deny"));
        }
    }
}
