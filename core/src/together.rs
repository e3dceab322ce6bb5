//! Several policies on one request: all admit it, or nothing is spent under any.

use crate::blocking;
use crate::decision::Decision;
use crate::error::Error;
use crate::request::Request;

impl blocking::Limiter {
    /// Checks several requests that belong together, such as one client under several policies. When one of them is
    /// denied or fails, what the others have spent is given back, and their decisions show what is left then.
    ///
    /// Each is decided on its own, so that for a moment others may find units missing that are then given back.
    ///
    /// # Errors
    /// The first error of any of them.
    pub fn check_together(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, Error> {
        let mut answers = self.check_many(requests.iter().copied());
        let all_allowed = answers.iter().all(|answer| answer.as_ref().is_ok_and(Decision::allowed));
        if !all_allowed && requests.len() > 1 {
            for (answer, request) in answers.iter_mut().zip(requests) {
                if let Ok(decision) = answer
                    && decision.allowed()
                {
                    let left = self.refund(*request)?;
                    decision.show_refund(left);
                }
            }
        }
        answers.into_iter().collect()
    }
}

impl Decision {
    /// Shows what is left after what it has spent was given back.
    fn show_refund(&mut self, left: crate::decision::Usage) {
        (self.total, self.several) = left.into_quotas();
        self.wait_us = 0;
    }
}

#[cfg(test)]
mod tests {
    use crate::{Decision, ErrorKind, Limiter, Policy, Request};

    fn limiter() -> crate::blocking::Limiter {
        let policy = |name, quotas| Policy::parse(name, quotas).unwrap();
        let builder = Limiter::builder().policy(policy("wide", "9/hour")).policy(policy("narrow", "1/hour"));
        builder.build().unwrap().blocking()
    }

    #[test]
    fn a_denial_by_one_spends_nothing_from_any() {
        let limiter = limiter();
        let both = ["wide", "narrow"].map(|policy| Request::new("key").policy(policy));
        let shown = |decisions: &[Decision]| -> Vec<_> {
            decisions.iter().map(|decision| (decision.allowed(), decision.remaining())).collect()
        };
        assert_eq!(shown(&limiter.check_together(&both).unwrap()), [(true, 8), (true, 0)]);
        for _ in 0..3 {
            assert_eq!(shown(&limiter.check_together(&both).unwrap()), [(true, 8), (false, 0)]);
        }
        assert_eq!(limiter.peek(both[0]).unwrap().remaining(), 8);
    }

    #[test]
    fn an_error_of_one_spends_nothing_from_any() {
        let limiter = limiter();
        let both = ["wide", "unknown"].map(|policy| Request::new("key").policy(policy));
        assert_eq!(limiter.check_together(&both).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(limiter.peek(both[0]).unwrap().remaining(), 9);
    }
}
