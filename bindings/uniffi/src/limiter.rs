//! The limiter and its two faces.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use polylimit::{Answer, Call, blocking};

use crate::decision::{CheckResult, Decision, Finding, Usage};
use crate::error::{PolylimitError, Result, guarded, guarded_async};
use crate::event;
use crate::face::{decision, decisions, findings, ready, usage};
use crate::number::signed;
use crate::policy::Policy;
use crate::request::Request;
use crate::settings::Settings;
use crate::span::Span;
use crate::waiting::Waiting;

/// Decides whether requests may proceed, and waits on the caller's own thread. A denial is a value, never an error.
#[derive(Debug, uniffi::Object)]
pub struct Limiter {
    limiter: blocking::Limiter,
}

impl Limiter {
    fn call<'a, T>(
        &self,
        request: &'a Request,
        call: impl FnOnce(polylimit::Request<'a>) -> Call<'a>,
        read: impl FnOnce(std::result::Result<Answer, polylimit::Error>) -> Result<T>,
    ) -> Result<T> {
        guarded(|| read(self.limiter.call(&call(request.asked()?))))
    }

    fn start(&self, call: Call<'_>) -> Result<Arc<Waiting>> {
        guarded(|| Ok(Arc::new(Waiting::start(self.limiter.asynchronous(), &call))))
    }
}

#[uniffi::export]
impl Limiter {
    /// Makes a limiter. Connects to nothing: a store that cannot be reached is no error here.
    #[uniffi::constructor]
    pub fn new(settings: Settings) -> Result<Arc<Self>> {
        guarded(|| Ok(Arc::new(Self { limiter: settings.build()?.blocking() })))
    }

    /// The asynchronous face of the same limiter.
    pub fn asynchronous(&self) -> Arc<AsyncLimiter> {
        Arc::new(AsyncLimiter { limiter: self.limiter.asynchronous().clone() })
    }

    /// Decides, and spends the cost from every quota of the policy when all admit it.
    pub fn check(&self, request: Request) -> Result<Decision> {
        self.call(&request, Call::Check, decision)
    }

    /// The decision that a check would give now; leaves no trace.
    pub fn peek(&self, request: Request) -> Result<Decision> {
        self.call(&request, Call::Peek, decision)
    }

    /// Spends as much of the cost as every quota admits, from 0 to the cost, and says how much it took.
    pub fn take(&self, request: Request) -> Result<Usage> {
        self.call(&request, Call::Take, usage)
    }

    /// Spends the cost whether it fits or not, for a cost that is learnt afterwards.
    pub fn charge(&self, request: Request) -> Result<Usage> {
        self.call(&request, Call::Charge, usage)
    }

    /// Gives back up to what is used, the newest first.
    pub fn refund(&self, request: Request) -> Result<Usage> {
        self.call(&request, Call::Refund, usage)
    }

    /// Forgets the key under its policy; the cost does not matter.
    pub fn reset(&self, request: Request) -> Result<Usage> {
        self.call(&request, Call::Reset, usage)
    }

    /// Waits until the request is admitted. Says at once that the timeout cannot be met: then the decision is a denial,
    /// and nothing was spent.
    pub fn acquire(&self, request: Request, timeout: Span) -> Result<Decision> {
        let timeout = timeout.duration("timeout")?;
        self.call(&request, |request| Call::Acquire(request, timeout), decision)
    }

    /// Checks several requests in one call, of one or more policies. Each is decided on its own, in order.
    pub fn check_many(&self, requests: Vec<Request>) -> Result<Vec<CheckResult>> {
        guarded(|| {
            let (asked, refused) = asked_each(&requests);
            Ok(in_place(decisions(self.limiter.call(&Call::CheckMany(&asked)))?, refused))
        })
    }

    /// Checks several requests of one key that belong together, one for each policy: when one is denied, what the
    /// others have spent is given back. Requests of several keys are refused.
    pub fn check_together(&self, requests: Vec<Request>) -> Result<Vec<Decision>> {
        guarded(|| {
            if requests.windows(2).any(|two| two[0].key != two[1].key) {
                return Err(PolylimitError::InvalidArgument(
                    "the requests have several keys: allowed is one key, under several policies; those of several keys \
                     can be checked each on its own"
                        .to_owned(),
                ));
            }
            let decisions = self.limiter.check_together(&asked(&requests)?)?;
            Ok(decisions.iter().map(Into::into).collect())
        })
    }

    /// Waits until the store answers, at most for `timeout`. Nothing needs it; a service that starts may want it.
    pub fn ready(&self, timeout: Span) -> Result<()> {
        guarded(|| ready(self.limiter.call(&Call::Ready(timeout.duration("timeout")?))))
    }

    /// Looks at the store with the eyes of an operator.
    pub fn doctor(&self) -> Result<Vec<Finding>> {
        guarded(|| findings(self.limiter.call(&Call::Doctor)))
    }

    /// Starts `acquire`, for a thread that can be interrupted while it waits.
    pub fn start_acquire(&self, request: Request, timeout: Span) -> Result<Arc<Waiting>> {
        let timeout = timeout.duration("timeout")?;
        guarded(|| Waiting::in_line(self.limiter.asynchronous(), request, timeout))
    }

    /// Starts `ready`, for a thread that can be interrupted while it waits.
    pub fn start_ready(&self, timeout: Span) -> Result<Arc<Waiting>> {
        let timeout = timeout.duration("timeout")?;
        self.start(Call::Ready(timeout))
    }

    /// Starts `doctor`, for a thread that can be interrupted while it waits.
    pub fn start_doctor(&self) -> Result<Arc<Waiting>> {
        self.start(Call::Doctor)
    }

    /// Registers a policy, or changes the numbers of the one of that name. What was used is kept.
    pub fn set_policy(&self, name: String, quotas: String) -> Result<()> {
        guarded(|| {
            let policy = polylimit::Policy::parse(&name, &quotas)?;
            Ok(self.limiter.asynchronous().set_policy(policy)?)
        })
    }

    /// The policy of that name, with its current numbers; or the one of these quotas, if somebody asked for it.
    pub fn policy(&self, name: String) -> Option<Policy> {
        self.limiter.asynchronous().policy(&name).as_ref().map(Policy::of)
    }

    /// The policy by which a request that names this policy, quotas or none is decided. Quotas without a name are registered
    /// by it; with a scope (1 to 256 bytes), they are a policy of their own there. A policy that has a name is shared by all
    /// scopes.
    #[uniffi::method(default(policy = None, scope = None))]
    pub fn policy_for(&self, policy: Option<String>, scope: Option<String>) -> Result<Policy> {
        let (policy, scope) = (policy.as_deref(), scope.as_deref());
        guarded(|| Ok(Policy::of(&self.limiter.asynchronous().policy_for(policy, scope)?)))
    }

    /// All policies, in the order in which they were registered, those made of quotas in requests included.
    pub fn policies(&self) -> Vec<Policy> {
        self.limiter.asynchronous().policies().iter().map(Policy::of).collect()
    }

    /// How many keys the memory store or the local one holds a state for; nothing for a store elsewhere.
    pub fn keys(&self) -> Option<i64> {
        self.limiter.asynchronous().keys().map(|keys| signed(keys as u64))
    }

    /// What became of the operations so far: counts by name.
    pub fn stats(&self) -> HashMap<String, i64> {
        let stats = self.limiter.asynchronous().stats();
        stats.iter().map(|(name, count)| (name.to_owned(), signed(count))).collect()
    }

    /// Authenticates new connections with another password, and user name if there is one, from now on.
    pub fn set_credentials(&self, username: Option<String>, password: String) -> Result<()> {
        guarded(|| Ok(self.limiter.asynchronous().set_credentials(username.as_deref(), &password)?))
    }

    /// Has what the limiter tells kept for `take_events`, from now on and until it is closed, under the number that this gives.
    pub fn keep_events(&self) -> i64 {
        event::keep_of(self.limiter.asynchronous())
    }

    /// Gives back leases and closes connections; later operations fail. May be called again.
    pub fn shut_down(&self) -> Result<()> {
        guarded(|| {
            self.limiter.asynchronous().close();
            Ok(())
        })
    }
}

/// Decides whether requests may proceed, without holding a thread; made by a limiter, and shares everything with it.
/// Whoever is cancelled while it waits in `acquire` gives up its place.
#[derive(Debug, uniffi::Object)]
pub struct AsyncLimiter {
    limiter: polylimit::Limiter,
}

type Answered = std::result::Result<Answer, polylimit::Error>;
type Answering = Pin<Box<dyn Future<Output = Answered> + Send>>;

impl AsyncLimiter {
    fn start<'a>(
        &self,
        request: &'a Request,
        call: impl FnOnce(polylimit::Request<'a>) -> Call<'a>,
    ) -> Result<Answering> {
        self.start_call(|| Ok(call(request.asked()?)))
    }

    fn start_call<'a>(&self, call: impl FnOnce() -> Result<Call<'a>>) -> Result<Answering> {
        guarded(|| Ok(Box::pin(self.limiter.start(&call()?)) as Answering))
    }
}

async fn answer<T>(answering: Answering, read: impl FnOnce(Answered) -> Result<T>) -> Result<T> {
    guarded_async(async { read(answering.await) }).await
}

#[uniffi::export]
impl AsyncLimiter {
    /// Decides, and spends the cost from every quota of the policy when all admit it.
    pub async fn check(&self, request: Request) -> Result<Decision> {
        answer(self.start(&request, Call::Check)?, decision).await
    }

    /// The decision that a check would give now; leaves no trace.
    pub async fn peek(&self, request: Request) -> Result<Decision> {
        answer(self.start(&request, Call::Peek)?, decision).await
    }

    /// Spends as much of the cost as every quota admits, from 0 to the cost, and says how much it took.
    pub async fn take(&self, request: Request) -> Result<Usage> {
        answer(self.start(&request, Call::Take)?, usage).await
    }

    /// Spends the cost whether it fits or not, for a cost that is learnt afterwards.
    pub async fn charge(&self, request: Request) -> Result<Usage> {
        answer(self.start(&request, Call::Charge)?, usage).await
    }

    /// Gives back up to what is used, the newest first.
    pub async fn refund(&self, request: Request) -> Result<Usage> {
        answer(self.start(&request, Call::Refund)?, usage).await
    }

    /// Forgets the key under its policy; the cost does not matter.
    pub async fn reset(&self, request: Request) -> Result<Usage> {
        answer(self.start(&request, Call::Reset)?, usage).await
    }

    /// Waits until the request is admitted. Says at once that the timeout cannot be met: then the decision is a denial,
    /// and nothing was spent.
    pub async fn acquire(&self, request: Request, timeout: Span) -> Result<Decision> {
        let timeout = timeout.duration("timeout")?;
        answer(self.start(&request, |request| Call::Acquire(request, timeout))?, decision).await
    }

    /// Checks several requests in one call, of one or more policies. Each is decided on its own, in order.
    pub async fn check_many(&self, requests: Vec<Request>) -> Result<Vec<CheckResult>> {
        let (answering, refused) = {
            let (asked, refused) = asked_each(&requests);
            (self.start_call(|| Ok(Call::CheckMany(&asked)))?, refused)
        };
        Ok(in_place(answer(answering, decisions).await?, refused))
    }

    /// Waits until the store answers, at most for `timeout`. Nothing needs it; a service that starts may want it.
    pub async fn ready(&self, timeout: Span) -> Result<()> {
        let timeout = timeout.duration("timeout")?;
        answer(self.start_call(|| Ok(Call::Ready(timeout)))?, ready).await
    }

    /// Looks at the store with the eyes of an operator.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        answer(self.start_call(|| Ok(Call::Doctor))?, findings).await
    }
}

fn asked(requests: &[Request]) -> Result<Vec<polylimit::Request<'_>>> {
    requests.iter().map(Request::asked).collect::<std::result::Result<_, PolylimitError>>()
}

/// What of these can be asked, and in the place of each why it cannot, if so.
fn asked_each(requests: &[Request]) -> (Vec<polylimit::Request<'_>>, Vec<Option<CheckResult>>) {
    let mut asked = Vec::with_capacity(requests.len());
    let refused = requests.iter().map(|request| request.asked().map(|request| asked.push(request)).err());
    let refused = refused.map(|error| error.map(Into::into)).collect();
    (asked, refused)
}

/// What was decided, with what was refused between.
fn in_place(decided: Vec<CheckResult>, refused: Vec<Option<CheckResult>>) -> Vec<CheckResult> {
    let mut decided = decided.into_iter();
    refused.into_iter().filter_map(|refused| refused.or_else(|| decided.next())).collect()
}
