//! Several policies on one request: all admit it, or nothing is spent under any.

use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::blocking;
use crate::rules::decision::{Decision, Usage};
use crate::rules::request::Request;

impl Limiter {
    /// Checks several requests that belong together, such as one client under several policies. When one of them is
    /// denied or fails, the units of the others are refunded, and their decisions show what is left afterwards.
    ///
    /// The store decides each request separately, so for a moment other callers may find units missing that are refunded
    /// right after.
    ///
    /// # Errors
    /// The first error of any of them.
    pub async fn check_together(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, Error> {
        let mut answers = self.check_many(requests.iter().copied()).await;
        let mut given_back = Ok(());
        for (decision, request) in spent_in_vain(&mut answers, requests) {
            given_back = given_back.and(decision.show_refund(self.refund(request).await));
        }
        together(answers, given_back)
    }
}

impl blocking::Limiter {
    /// See [`Limiter::check_together`].
    ///
    /// # Errors
    /// The first error of any of them.
    pub fn check_together(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, Error> {
        let mut answers = self.check_many(requests.iter().copied());
        let mut given_back = Ok(());
        for (decision, request) in spent_in_vain(&mut answers, requests) {
            given_back = given_back.and(decision.show_refund(self.refund(request)));
        }
        together(answers, given_back)
    }
}

/// The admitted decisions whose units must be refunded because another request was not admitted.
fn spent_in_vain<'answers, 'a>(
    answers: &'answers mut [Result<Decision, Error>],
    requests: &[Request<'a>],
) -> Vec<(&'answers mut Decision, Request<'a>)> {
    if answers.iter().all(|answer| answer.as_ref().is_ok_and(Decision::allowed)) {
        return Vec::new();
    }
    let decided = answers.iter_mut().zip(requests).filter_map(|(answer, request)| {
        let decision = answer.as_mut().ok()?;
        decision.allowed().then_some((decision, *request))
    });
    decided.collect()
}

/// All decisions, or the first error. By then every refund has been tried: an error of one request does not keep the
/// units of the others.
fn together(
    answers: Vec<Result<Decision, Error>>,
    given_back: Result<(), Error>,
) -> Result<Vec<Decision>, Error> {
    let decisions: Vec<Decision> = answers.into_iter().collect::<Result<_, _>>()?;
    given_back.map(|()| decisions)
}

impl Decision {
    /// Shows what is left after the decision's units were refunded.
    fn show_refund(&mut self, left: Result<Usage, Error>) -> Result<(), Error> {
        *self = self.clone().refunded(left?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Answer, Call, Decision, Error, ErrorKind, Limiter, Policy, Request};

    type Way = fn(&Limiter, &[Request<'_>]) -> Result<Vec<Decision>, Error>;

    /// The asynchronous limiter, the blocking limiter and the operation as a call.
    const WAYS: [Way; 3] = [
        |limiter, requests| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(limiter.check_together(requests))
        },
        |limiter, requests| limiter.blocking().check_together(requests),
        |limiter, requests| match limiter.try_call(&Call::CheckTogether(requests)) {
            Some(Ok(Answer::Decisions(decisions))) => decisions.into_iter().collect(),
            Some(Err(error)) => Err(error),
            other => panic!("{other:?}"),
        },
    ];

    fn limiter() -> Limiter {
        let policy = |name, quotas| Policy::parse(name, quotas).unwrap();
        let builder = Limiter::builder().policy(policy("wide", "9/hour")).policy(policy("narrow", "1/hour"));
        builder.build().unwrap()
    }

    #[test]
    fn a_denial_by_one_spends_nothing_from_any() {
        let both = ["wide", "narrow"].map(|policy| Request::new("key").policy(policy));
        for check_together in WAYS {
            let limiter = limiter();
            let shown = || -> Vec<_> {
                let decisions = check_together(&limiter, &both).unwrap();
                decisions.iter().map(|decision| (decision.allowed(), decision.remaining())).collect()
            };
            assert_eq!(shown(), [(true, 8), (true, 0)]);
            for _ in 0..3 {
                assert_eq!(shown(), [(true, 8), (false, 0)]);
            }
            assert_eq!(limiter.blocking().peek(both[0]).unwrap().remaining(), 8);
        }
    }

    #[test]
    fn an_error_of_one_spends_nothing_from_any() {
        let both = ["wide", "unknown"].map(|policy| Request::new("key").policy(policy));
        for check_together in WAYS {
            let limiter = limiter();
            assert_eq!(check_together(&limiter, &both).unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert_eq!(limiter.blocking().peek(both[0]).unwrap().remaining(), 9);
        }
    }
}
