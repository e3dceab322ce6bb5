//! Gives back the units of an `acquire`, and the reservation of a `reserve`, whose caller stops waiting.
//!
//! The caller drops the future: by a timeout of its own, a cancelled task or an interrupted thread. At that time the
//! store may be processing the check, or the caller may be waiting out the delay of a leaky bucket. A check that was
//! sent is awaited in the background; if its answer does not arrive before the deadline, it is unknown whether the
//! units were spent, and they are not refunded. Neither is an admission by an outage policy: the store has not spent
//! it.
//!
//! A refund and the end of a reservation always run to completion. An operation that the store of this host has not
//! performed, because a part of it was locked, needs no refund.

use std::future::Future;
use std::pin::Pin;
use std::slice;
use std::task::{Context, Poll};

use smallvec::{SmallVec, smallvec};

use crate::limiter::call::Call;
use crate::limiter::{CHECK, KeyCall, Limiter, RESERVE};
use polylimit_rules::decision::{Decision, Source};
use polylimit_rules::error::Error;
use polylimit_rules::transition::Operation;
use polylimit_runtime::fork::{self, ProcessGeneration};
use polylimit_store::charge::{
    Action, Charge, OwnedCharge, StoreAnswer, StoreAnswers, Wait, is_admitted, only,
};

impl Limiter {
    /// The store's answers to charges, of which all are applied or none. The caller counts the decisions of checks and reserves. A reserve
    /// whose task stops waiting leaves no reservation behind, and a refund, commit or cancel is performed even then.
    pub(super) async fn start_charges(
        &self,
        charges: &[Charge<'_>],
        wait: Wait,
    ) -> Result<StoreAnswers, Error> {
        let is_kept = |charge: &Charge<'_>| charge.action == RESERVE || gives_back(charge.action);
        match wait {
            Wait::Await if charges.iter().any(is_kept) => self.start_kept(charges).await,
            _ => self.shared().start(charges, wait).await,
        }
    }

    /// [`start_charges`](Self::start_charges) for one charge, whose decision is counted.
    pub(super) async fn start_counted(&self, charge: Charge<'_>, wait: Wait) -> Result<StoreAnswer, Error> {
        let shared = self.shared();
        let answer = match shared.try_start(charge)? {
            Some(answer) => answer,
            None => only(self.start_charges(&[charge], wait).await?)?,
        };
        shared.count_decision(&charge, &answer);
        Ok(answer)
    }

    /// [`start_charges`](Self::start_charges) for a task that needs what it is admitted: when it drops the future, charges that were sent still complete,
    /// and those admitted are given back.
    pub(super) async fn start_kept(&self, charges: &[Charge<'_>]) -> Result<StoreAnswers, Error> {
        if let [charge] = charges
            && let Some(answer) = self.shared().try_start(*charge)?
        {
            return Ok(smallvec![answer]);
        }
        let (answers, generation) = (Some(self.start_owned(charges)), ProcessGeneration::here());
        InFlight { limiter: self, charges, answers, generation }.await
    }

    /// Sends charges to the store, each decided by itself. When the caller drops the future between two of them, units that a store of
    /// this host has admitted are given back.
    pub(super) async fn start_each(
        &self,
        charges: &[Charge<'_>],
        wait: Wait,
    ) -> Result<Vec<StoreAnswer>, Error> {
        let store = self.shared().store();
        if wait == Wait::Block || charges.len() < 2 || !store.is_here() {
            return store.start_each(charges, wait).await;
        }
        let answers = Vec::with_capacity(charges.len());
        let mut admitted =
            Admitted { limiter: self, charges, answers, generation: ProcessGeneration::here() };
        let mut failed = Ok(());
        for charge in charges {
            match store.start(slice::from_ref(charge), wait).await {
                Ok(answers) => admitted.answers.extend(answers),
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        let answers = std::mem::take(&mut admitted.answers);
        failed.map(|()| answers)
    }

    /// Gives back units that the caller does not use: refunds an admission, or cancels a reservation. If the store
    /// cannot, the units stay spent, or set aside until the reservation ends.
    pub(super) fn give_back_unused(&self, charge: Charge<'_>, decision: &Decision) {
        let shared = self.shared();
        // The store has not spent units that an outage policy admits; a reservation of the fallback is ended in this process.
        let is_local = charge.hold.is_some() && decision.source() == Source::Fallback;
        let is_outage = decision.source().is_outage() && !is_local;
        if !decision.allowed || is_outage || shared.closing.is_closed() {
            return;
        }
        let ending = if charge.hold.is_some() { Operation::Cancel } else { Operation::Refund };
        self.start_in_background(Charge { action: Action::Apply(ending), ..charge });
    }

    /// Gives back what the checks and reserves among these charges were admitted.
    fn give_back_all(&self, charges: &[Charge<'_>], answers: &[StoreAnswer]) {
        for (charge, (decision, _)) in charges.iter().zip(answers) {
            if charge.action == CHECK || charge.action == RESERVE {
                self.give_back_unused(*charge, decision);
            }
        }
    }

    /// Performs an operation whose answer is not needed: at once if it need not wait, otherwise on the limiter's own
    /// thread. A closed limiter drops it.
    fn start_in_background(&self, charge: Charge<'_>) {
        let shared = self.shared();
        if let Ok(None) = shared.try_start(charge)
            && !shared.closing.is_closed()
        {
            let started = self.start_owned(&[charge]);
            self.in_background(async move { drop(started.await) });
        }
    }

    /// The store's answers, as a future that owns the charges and so can outlive the caller.
    fn start_owned(&self, charges: &[Charge<'_>]) -> Pending {
        let limiter = self.clone();
        let owned: SmallVec<[OwnedCharge; 1]> = charges.iter().map(OwnedCharge::of).collect();
        Box::pin(async move {
            let charges: SmallVec<[Charge<'_>; 1]> = owned.iter().map(OwnedCharge::borrowed).collect();
            limiter.shared().start(&charges, Wait::Await).await
        })
    }

    /// Ends a reservation whose handle is dropped: at once in a store of this process or host, unless a part of it is
    /// locked, and in the background otherwise. If that fails, the reservation ends by its ttl.
    pub(super) fn end_in_background(&self, call: &KeyCall<'_>) {
        if let Ok(charge) = self.shared().key_request(call) {
            self.start_in_background(charge);
        }
    }

    /// Performs a call on one key whose answer is not needed, as [`end_in_background`](Self::end_in_background) does.
    pub(crate) fn call_in_background(&self, call: &Call<'_>) {
        if let Some(call) = call.on_key() {
            self.end_in_background(&call);
        }
    }

    /// Runs a task on the limiter's own thread; a closed limiter drops it.
    pub(crate) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(driver) = self.shared().driver() {
            driver.spawn(task);
        }
    }
}

type Pending = Pin<Box<dyn Future<Output = Result<StoreAnswers, Error>> + Send>>;

/// Whether an operation gives back units or a reservation of its caller.
pub(super) fn gives_back(action: Action) -> bool {
    matches!(action, Action::Apply(Operation::Refund | Operation::Commit | Operation::Cancel))
}

/// Charges that may have been sent to Redis, or that wait for a lock on a part of the store of this host.
struct InFlight<'a> {
    limiter: &'a Limiter,
    charges: &'a [Charge<'a>],
    /// `None` once the store has answered.
    answers: Option<Pending>,
    generation: ProcessGeneration,
}

impl Future for InFlight<'_> {
    type Output = Result<StoreAnswers, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(pending) = &mut self.answers else { return Poll::Pending };
        let answers = pending.as_mut().poll(cx);
        if answers.is_ready() {
            self.answers = None;
        }
        answers
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Some(answers) = self.answers.take() else { return };
        if !self.generation.is_here() {
            // The parent process awaits the answers with its own copy.
            return fork::leave(answers);
        }
        let is_done_anyway = |charge: &Charge<'_>| gives_back(charge.action);
        if self.limiter.shared().store.is_here() && !self.charges.iter().any(is_done_anyway) {
            // Nothing was done.
            return;
        }
        let (limiter, owned) =
            (self.limiter.clone(), self.charges.iter().map(OwnedCharge::of).collect::<Vec<_>>());
        self.limiter.in_background(async move {
            let Ok(answers) = answers.await else { return };
            let charges: Vec<_> = owned.iter().map(OwnedCharge::borrowed).collect();
            if is_admitted(&charges, &answers) {
                limiter.give_back_all(&charges, &answers);
            }
        });
    }
}

/// The answers of a call in progress: admitted units are given back unless the caller takes the answers.
struct Admitted<'a> {
    limiter: &'a Limiter,
    charges: &'a [Charge<'a>],
    answers: Vec<StoreAnswer>,
    generation: ProcessGeneration,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        // In a forked child this is a copy, and the units belong to the parent.
        if self.generation.is_here() {
            self.limiter.give_back_all(self.charges, &self.answers);
        }
    }
}

/// An admission that is refunded unless the caller keeps it: the caller waits out its delay.
pub(super) struct Admission<'a> {
    limiter: &'a Limiter,
    charge: Charge<'a>,
    /// `None` once the caller keeps it.
    decision: Option<&'a Decision>,
    generation: ProcessGeneration,
}

impl<'a> Admission<'a> {
    pub(super) fn new(limiter: &'a Limiter, charge: Charge<'a>, decision: &'a Decision) -> Self {
        Self { limiter, charge, decision: Some(decision), generation: ProcessGeneration::here() }
    }

    /// Called once the delay is over: the caller uses the units.
    pub(super) fn keep(mut self) {
        self.decision = None;
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        // In a forked child this is a copy, and the units belong to the parent.
        if let Some(decision) = self.decision.filter(|_| self.generation.is_here()) {
            self.limiter.give_back_unused(self.charge, decision);
        }
    }
}
