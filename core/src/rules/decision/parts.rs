//! A decision made from its parts.

use crate::error::Error;
use crate::rules::decision::{Decision, Degradation, QuotaUsage, Several, Source};

/// The parts of a decision, for a language that represents decisions as plain values of its own and passes one back to
/// write [`headers`](crate::http::headers).
#[derive(Clone, Copy, Debug)]
pub struct DecisionParts<'a> {
    /// Whether the request was admitted.
    pub allowed: bool,
    /// The delay of an admitted request, or how long until a denied one would be admitted, in microseconds; `None` means
    /// never.
    pub wait_us: Option<u64>,
    /// Which part made the decision.
    pub source: Source,
    /// Why the decision may differ from what a healthy store would have answered.
    pub degraded: Option<Degradation>,
    /// Each quota's usage, in the policy's order.
    pub quotas: &'a [QuotaUsage],
}

impl Decision {
    /// Makes the decision with these parts.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there is no quota, an admitted request waits for
    /// ever, or a wait is 2^63 microseconds or longer.
    pub fn from_parts(parts: DecisionParts<'_>) -> Result<Self, Error> {
        let DecisionParts { allowed, wait_us, source, degraded, quotas } = parts;
        if quotas.is_empty() {
            return Err(Error::invalid_argument(
                "a decision has no quotas: it has one for each of its policy",
            ));
        }
        let wait_us = match wait_us {
            None if allowed => {
                return Err(Error::invalid_argument(
                    "an admitted request waits for ever: only a denied one does",
                ));
            }
            None => Self::NEVER,
            Some(wait_us) => wait_us,
        };
        let longest_us = quotas.iter().map(|usage| usage.reset_after_us).max().unwrap_or(0);
        for read_us in [wait_us, longest_us] {
            if read_us >= 1 << 63 && read_us != Self::NEVER {
                return Err(Error::invalid_argument(format!(
                    "a decision waits {read_us} us: allowed is less than 2^63"
                )));
            }
        }
        let several = (quotas.len() > 1).then(|| Box::new(Several { each: quotas.into() }));
        Ok(Self { total: QuotaUsage::of_all(quotas), several, wait_us, allowed, source, degraded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limiter, Policy, Request};

    fn parts(decision: &Decision) -> DecisionParts<'_> {
        let wait_us = if decision.allowed() { Some(decision.delay_us()) } else { decision.retry_after_us() };
        DecisionParts {
            allowed: decision.allowed(),
            wait_us,
            source: decision.source(),
            degraded: decision.degraded(),
            quotas: decision.quotas(),
        }
    }

    #[test]
    fn a_decision_comes_back_from_its_parts() {
        for quotas in ["2/minute leaky_bucket", "2/minute; 10/hour sliding_log"] {
            let policy = Policy::parse("api", quotas).unwrap();
            let limiter = Limiter::builder().policy(policy).build().unwrap().blocking();
            for cost in [1, 1, 1, 100] {
                let decision = limiter.check(Request::new("a").cost(cost)).unwrap();
                assert_eq!(Decision::from_parts(parts(&decision)).unwrap(), decision);
            }
        }
    }

    #[test]
    fn what_no_decision_is_like_is_refused() {
        let quotas = [QuotaUsage { limit: 1, remaining: 0, reset_after_us: 5 }];
        let denied = DecisionParts {
            allowed: false,
            wait_us: None,
            source: Source::Store,
            degraded: None,
            quotas: &quotas,
        };
        assert_eq!(Decision::from_parts(denied).unwrap().retry_after_us(), None);
        Decision::from_parts(DecisionParts { quotas: &[], ..denied }).unwrap_err();
        Decision::from_parts(DecisionParts { allowed: true, ..denied }).unwrap_err();
        Decision::from_parts(DecisionParts { wait_us: Some(1 << 63), ..denied }).unwrap_err();
        let endless = [QuotaUsage { reset_after_us: 1 << 63, ..quotas[0] }];
        Decision::from_parts(DecisionParts { quotas: &endless, ..denied }).unwrap_err();
    }
}
