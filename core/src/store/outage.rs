//! What to answer while the store cannot be asked, by name.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, excerpt};

/// What a policy answers while its store cannot be asked: it is out of reach, too late, overloaded or refuses.
///
/// It is chosen per policy. A decision that comes from it says so in its [source](crate::Source) and says why. A denial
/// that comes from it is no fault of the caller: it maps to the HTTP status 503 (Service Unavailable), not to 429
/// (Too Many Requests).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outage {
    /// A limiter in this process decides, which has followed every decision of the store, with a configurable share of
    /// each limit. All processes together then admit at most their number times that share. The default.
    #[default]
    Fallback,
    /// Everything is admitted, without any bound.
    Allow,
    /// Everything is denied.
    Deny,
}

impl Outage {
    /// Every answer, the default first.
    pub const ALL: [Self; 3] = [Self::Fallback, Self::Allow, Self::Deny];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fallback => "fallback",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// The answer of that name, if there is one.
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
    /// [`InvalidArgument`](crate::error::ErrorKind::InvalidArgument) when no answer has that name.
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
