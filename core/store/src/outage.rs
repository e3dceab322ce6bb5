//! The outage policies, by name.

use polylimit_rules::names::named_enum;

named_enum! {
    /// What a limiter answers when its store cannot decide: the store is unreachable, too slow, overloaded or refuses the
    /// operation.
    ///
    /// It is set per policy. The [source](crate::decision::Source) of such a decision is the outage policy, and the decision has
    /// the reason. A denial by the outage policy is not the caller's fault: it maps to the HTTP status 503 (Service
    /// Unavailable), not to 429 (Too Many Requests).
    #[derive(Default)]
    Outage, parsed as "outage" {
        /// A memory store in this process decides, with a configurable share of each limit. It follows every decision of Redis beforehand;
        /// with a local store it starts empty. All processes together then admit at most the number of processes times that share. The
        /// default.
        #[default]
        Fallback = "fallback",
        /// Everything is admitted, without a bound.
        Allow = "allow",
        /// Everything is denied.
        Deny = "deny",
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
