//! A guard's decision about one request, from its start to the end of the response.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use polylimit::http::guard::{self, RequestLimits, Spent, Verdict};
use polylimit::http::headers::{self, HeaderField, ProblemResponse};
use polylimit::raw::Call;

use crate::decision::{AnswerResult, Decision};
use crate::error::{PolylimitError, Result, guarded};
use crate::guard::by_policy::ByPolicy;
use crate::headers::{Outcome, Problem, by_name};
use crate::request::Policy;
use crate::reserve_options::spent_of;

/// What happens with a request: without a `problem` it proceeds.
#[derive(Clone, Debug, uniffi::Record)]
pub struct GuardAnswer {
    /// The fields of the response, for all guards of the request so far: values by names in lower case.
    pub fields: HashMap<String, String>,
    /// The response to a request that does not proceed.
    pub problem: Option<Problem>,
    /// The outage that must be reported to the program before there is an answer.
    pub outage: Option<GuardOutage>,
    /// What inner guards and the end of the request refer to, with the decisions.
    pub check: Arc<GuardCheck>,
}

/// An outage of the store: the outage policy decided, or nothing could because of an error.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct GuardOutage {
    /// The code of the error, such as `store_failed`.
    pub error_code: Option<String>,
    /// The error's message.
    pub error_message: Option<String>,
}

/// A guard's decision about one request.
#[derive(Debug, uniffi::Object)]
pub struct GuardCheck {
    check: Mutex<guard::GuardCheck>,
    hears_outages: bool,
    /// Whether an outage must still be reported to the program.
    is_pending: AtomicBool,
    /// What it does when the calls of limiters are answered that it needs at the moment.
    then: Mutex<Option<AfterCalls>>,
    accept: Option<String>,
    by_policy: Arc<ByPolicy>,
}

/// What a check does when its refunds, commits and cancels are made.
#[derive(Debug)]
enum AfterCalls {
    Conclude(Verdict),
    End,
}

/// The end of a check, or of the decision about its request.
pub(crate) enum Settled {
    Concluded(Conclusion),
    Ended(Vec<HeaderField>),
}

#[uniffi::export]
impl GuardCheck {
    /// Concludes an answer with an outage: the program admits the request, denies it, or leaves it to the outage policy.
    #[uniffi::method(default(admit = None))]
    pub fn overrule(self: Arc<Self>, admit: Option<bool>) -> Result<GuardAnswer> {
        guarded(|| self.conclude_with(admit, blocking).and_then(|settled| GuardAnswer::of(settled, self)))
    }

    /// The policies that were applied to the request so far, each with its newest decision; during an outage that the program
    /// has not concluded, those of this guard.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let one =
            |(policy, decision)| Outcome { policy: Policy::of(&policy), decision: Decision::from(&decision) };
        self.all_outcomes().into_iter().map(one).collect()
    }

    /// Whether the check holds reservations until the response is done: then `end` commits or cancels them.
    pub fn holds(&self) -> bool {
        self.holds_reservations()
    }

    /// Reads the fields of the response, for a check that holds. Returns whether `read_body` has to be called with each part of the body:
    /// what was spent is in it.
    pub fn read_head(&self, fields: HashMap<String, String>) -> bool {
        self.take_head(fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
    }

    /// Reads the next part of the body of the response, of any size, which is not kept.
    pub fn read_body(&self, part: Vec<u8>) {
        self.take_body(&part);
    }

    /// Ends what the check holds, when the last byte of the response is sent or its client has gone: commits the units that the
    /// request has spent, by default those that were reserved. A check that is freed ends by itself.
    #[uniffi::method(default(spent = None))]
    pub fn end(&self, spent: Option<i64>) -> Result<()> {
        guarded(|| self.end_with(spent_of(spent)?.into()))
    }

    /// As `end`, with the units that the request has spent under each policy, by what the guard's options call it: none, and a policy
    /// that is left out, is what was reserved.
    pub fn end_each(&self, spent: HashMap<String, Option<i64>>) -> Result<()> {
        guarded(|| {
            let spent = spent.iter().map(|(policy, units)| (policy.as_str(), *units));
            self.end_with(Spent::Each(&self.by_policy.spent(spent)?))
        })
    }

    /// Takes the response, when its head is known. One that does not count gives its units back. Returns the fields.
    pub fn finish(&self, counts: bool) -> Result<HashMap<String, String>> {
        guarded(|| match self.respond(counts, blocking)? {
            Some(Settled::Ended(fields)) => Ok(by_name(fields)),
            _ => Err(unsettled()),
        })
    }
}

/// What a check says about a request.
pub(crate) enum Conclusion {
    Admitted(Vec<HeaderField>),
    Denied(Vec<HeaderField>, headers::Problem, ProblemResponse),
    /// An outage must be reported to the program first; without an error the outage policy decided.
    Outage(Option<PolylimitError>),
}

impl GuardAnswer {
    pub(super) fn of(settled: Option<Settled>, check: Arc<GuardCheck>) -> Result<Self> {
        let Some(Settled::Concluded(conclusion)) = settled else { return Err(unsettled()) };
        let (fields, problem, outage) = match conclusion {
            Conclusion::Admitted(fields) => (fields, None, None),
            Conclusion::Denied(fields, problem, response) => {
                (fields, Some(Problem::of(&problem, response)), None)
            }
            Conclusion::Outage(error) => (Vec::new(), None, Some(GuardOutage::of(error))),
        };
        Ok(Self { fields: by_name(fields), problem, outage, check })
    }
}

impl GuardOutage {
    fn of(error: Option<PolylimitError>) -> Self {
        Self {
            error_code: error.as_ref().map(|error| error.kind().code().to_owned()),
            error_message: error.map(|error| error.to_string()),
        }
    }
}

impl GuardCheck {
    /// A check that the core has started.
    pub(super) fn new(
        check: guard::GuardCheck,
        hears_outages: bool,
        accept: Option<&str>,
        by_policy: Arc<ByPolicy>,
    ) -> Self {
        Self {
            check: Mutex::new(check),
            hears_outages,
            is_pending: AtomicBool::new(false),
            then: Mutex::default(),
            accept: accept.map(ToOwned::to_owned),
            by_policy,
        }
    }

    /// The policies of its guard.
    pub(crate) fn by_policy(&self) -> &ByPolicy {
        &self.by_policy
    }

    /// Ends what it holds, and waits for the store.
    fn end_with(&self, spent: Spent<'_>) -> Result<()> {
        let ended = self.check.lock().end(spent);
        self.advance(&blocking);
        Ok(ended?)
    }

    pub(crate) fn take_head<'h>(&self, fields: impl IntoIterator<Item = (&'h str, &'h [u8])>) -> bool {
        let mut check = self.check.lock();
        check.read_head(fields);
        check.reads_body()
    }

    pub(crate) fn take_body(&self, part: &[u8]) {
        self.check.lock().read_body(part);
    }

    pub(crate) fn limits(&self) -> RequestLimits {
        self.check.lock().limits().clone()
    }

    /// Takes the answer to the call that was submitted.
    pub(crate) fn answer_call(&self, answer: AnswerResult) {
        self.check.lock().answer_call(answer);
    }

    /// Takes the decisions on what the guard checks.
    pub(crate) fn answer(&self, answer: std::result::Result<Vec<polylimit::Decision>, polylimit::Error>) {
        self.check.lock().answer(answer);
    }

    /// Whether it holds reservations until the response is done.
    pub(crate) fn holds_reservations(&self) -> bool {
        self.check.lock().holds()
    }

    /// Makes the calls that are due. Returns whether all are answered.
    fn advance(&self, ask: &impl Ask) -> bool {
        let mut check = self.check.lock();
        while let Some(answer) = check.next_call(ask) {
            let Some(answer) = answer else { return false };
            check.answer_call(answer);
        }
        true
    }

    /// What happens with the request, or the outage that must be reported to the program first; nothing while a call has to
    /// be waited for. `ask` answers a call, or says that it has to be waited for.
    pub(crate) fn outage_or_conclusion(&self, ask: impl Ask) -> Result<Option<Settled>> {
        let is_concluding = self.then.lock().is_some();
        if !is_concluding && !self.advance(&ask) {
            return Ok(None);
        }
        if self.hears_outages
            && !is_concluding
            && let Some(outage) = self.check.lock().outage()
        {
            self.is_pending.store(true, Ordering::Relaxed);
            let error = outage.error.cloned().map(PolylimitError::from);
            return Ok(Some(Settled::Concluded(Conclusion::Outage(error))));
        }
        self.settle(|check| AfterCalls::Conclude(check.conclude()), ask)
    }

    /// What happens with the request, after the program has heard of an outage.
    pub(crate) fn conclude_with(&self, admit: Option<bool>, ask: impl Ask) -> Result<Option<Settled>> {
        self.is_pending.store(false, Ordering::Relaxed);
        let conclude = |check: &mut guard::GuardCheck| {
            if let Some(admit) = admit {
                check.overrule(admit);
            }
            AfterCalls::Conclude(check.conclude())
        };
        self.settle(conclude, ask)
    }

    /// Takes the head of the response, and refunds one that does not count.
    pub(crate) fn respond(&self, counts: bool, ask: impl Ask) -> Result<Option<Settled>> {
        let end = |check: &mut guard::GuardCheck| {
            check.finish(counts);
            AfterCalls::End
        };
        self.settle(end, ask)
    }

    /// Ends what it holds in the background, with the units that were spent.
    pub(crate) fn end_in_background(&self, spent: Spent<'_>) -> Result<()> {
        Ok(self.check.lock().end_in_background(spent)?)
    }

    /// Begins a step unless one is under way, makes its calls, and finishes it.
    fn settle(
        &self,
        begin: impl FnOnce(&mut guard::GuardCheck) -> AfterCalls,
        ask: impl Ask,
    ) -> Result<Option<Settled>> {
        let mut then = self.then.lock();
        then.get_or_insert_with(|| begin(&mut self.check.lock()));
        if !self.advance(&ask) {
            return Ok(None);
        }
        let check = self.check.lock();
        let Some(AfterCalls::Conclude(verdict)) = then.take() else {
            return Ok(Some(Settled::Ended(check.fields())));
        };
        let conclusion = match verdict {
            Verdict::Admit => Conclusion::Admitted(check.fields()),
            Verdict::Deny(problem) => {
                let response = problem.response(self.accept.as_deref());
                Conclusion::Denied(check.fields(), problem, response)
            }
            Verdict::Fail(error) => return Err(error.into()),
        };
        Ok(Some(Settled::Concluded(conclusion)))
    }

    /// Concludes a check whose verdict is known.
    pub(crate) fn conclude_again(&self) {
        drop(self.check.lock().conclude());
    }

    /// The policies of this guard, each with its decision.
    pub(crate) fn own_outcomes(&self) -> Vec<(polylimit::Policy, polylimit::Decision)> {
        self.check.lock().outcomes()
    }

    /// The policies that were applied to the request so far.
    pub(crate) fn all_outcomes(&self) -> Vec<(polylimit::Policy, polylimit::Decision)> {
        let check = self.check.lock();
        if self.is_pending.load(Ordering::Relaxed) { check.outcomes() } else { check.limits().outcomes() }
    }
}

/// Makes a call, or says that its answer has to be waited for.
pub(crate) trait Ask: Fn(&polylimit::Limiter, &Call<'_>) -> Option<AnswerResult> {}

impl<F: Fn(&polylimit::Limiter, &Call<'_>) -> Option<AnswerResult>> Ask for F {}

/// Makes a call, and waits for the store on this thread.
#[expect(clippy::unnecessary_wraps, reason = "others may have no answer yet")]
pub(super) fn blocking(limiter: &polylimit::Limiter, call: &Call<'_>) -> Option<AnswerResult> {
    Some(limiter.blocking().raw().call(call))
}

fn unsettled() -> PolylimitError {
    PolylimitError::Internal("a guard has not made its calls".to_owned())
}
