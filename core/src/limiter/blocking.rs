//! The blocking limiter: the same operations for callers that are not asynchronous.

use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::runtime::Handle;

use crate::limiter::{KeyCall, Limiter as AsyncLimiter, usage};
use polylimit_rules::decision::{Decision, Usage};
use polylimit_rules::error::{Error, ErrorKind};
use polylimit_rules::request::Request;
use polylimit_rules::transition::Operation;
use polylimit_runtime::driver::no_resources;
use polylimit_store::charge::{Action, Wait};
use polylimit_store::finding::Finding;

/// Decides whether requests may proceed, without `await`; created by [`Limiter::blocking`](AsyncLimiter::blocking).
/// Clones share everything, and so do the blocking and the asynchronous limiter.
///
/// Every operation behaves as on the [asynchronous limiter](crate::Limiter), with the same errors.
///
/// ```
/// use polylimit::{Limiter, Policy};
///
/// let limiter = Limiter::builder().policy(Policy::parse("api", "2/minute")?).build()?.blocking();
/// let allowed = [(); 3].map(|()| limiter.check("user:42").is_ok_and(|decision| decision.allowed()));
/// assert_eq!(allowed, [true, true, false]);
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    limiter: AsyncLimiter,
}

/// The operations for operators, by [`Limiter::admin`]. Each behaves as that of [`admin::Admin`](crate::admin::Admin), with the same errors.
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(super) limiter: &'a Limiter,
}

/// The operations for bindings, by [`Limiter::raw`].
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    pub(super) limiter: &'a Limiter,
}

impl AsyncLimiter {
    /// The blocking limiter, which shares everything with this one.
    pub fn blocking(&self) -> Limiter {
        Limiter { limiter: self.clone() }
    }
}

impl Admin<'_> {
    /// See [`Admin::doctor`](crate::admin::Admin::doctor).
    ///
    /// # Errors
    /// [`StoreUnavailable`](ErrorKind::StoreUnavailable) as for [`ready`](Limiter::ready).
    pub fn doctor(self) -> Result<Vec<Finding>, Error> {
        self.limiter.block_on(self.limiter.limiter.admin().doctor())?
    }

    /// See [`Admin::block`](crate::admin::Admin::block).
    ///
    /// # Errors
    /// See [`Admin::block`](crate::admin::Admin::block).
    pub fn block<'a>(self, request: impl Into<Request<'a>>, time: Duration) -> Result<Usage, Error> {
        self.limiter.limiter.ask_key_blocking(&KeyCall::block(request.into(), time)).map(usage)
    }
}

impl Limiter {
    /// The asynchronous limiter, which shares everything with this one and also has the methods that never wait, such as
    /// those for policies.
    pub fn asynchronous(&self) -> &AsyncLimiter {
        &self.limiter
    }

    /// The operations for operators.
    pub fn admin(&self) -> Admin<'_> {
        Admin { limiter: self }
    }

    /// The operations that only bindings need.
    #[inline]
    pub fn raw(&self) -> Raw<'_> {
        Raw { limiter: self }
    }

    /// See [`Limiter::check`](AsyncLimiter::check).
    ///
    /// # Errors
    /// See [`Limiter`](AsyncLimiter).
    #[expect(
        clippy::inline_always,
        reason = "its answer would go through memory, which takes longer than deciding"
    )]
    #[inline(always)]
    pub fn check<'a>(&self, request: impl Into<Request<'a>>) -> Result<Decision, Error> {
        self.limiter.check_blocking(request.into())
    }

    /// See [`Limiter::check_many`](AsyncLimiter::check_many).
    ///
    /// # Errors
    /// Each request has its own result; see [`Limiter`](AsyncLimiter).
    pub fn check_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision, Error>> {
        self.limiter.ask_many(requests, Wait::Block).now_or_never().unwrap_or_default()
    }

    /// See [`Limiter::acquire`](AsyncLimiter::acquire). Blocks this thread while it waits, even when called in an asynchronous context.
    ///
    /// # Errors
    /// See [`Limiter`](AsyncLimiter); [`StoreUnavailable`](ErrorKind::StoreUnavailable) on a thread of a tokio runtime when the
    /// operating system refuses a thread.
    pub fn acquire<'a>(&self, request: impl Into<Request<'a>>, timeout: Duration) -> Result<Decision, Error> {
        self.block_on_wait(self.limiter.acquire(request.into(), timeout))?
    }

    /// See [`Limiter::ready`](AsyncLimiter::ready).
    ///
    /// # Errors
    /// See [`Limiter::ready`](AsyncLimiter::ready); [`StoreUnavailable`](ErrorKind::StoreUnavailable) also when the operating
    /// system refuses a timer, a thread or a descriptor.
    pub fn ready(&self, timeout: Duration) -> Result<(), Error> {
        self.block_on(self.limiter.ready(timeout))?
    }

    /// See [`Limiter::close`](AsyncLimiter::close).
    pub fn close(&self) {
        self.limiter.close();
    }

    /// Blocks on a future that may need a timer and connections.
    pub(crate) fn block_on<F: Future<Output: Send> + Send>(&self, future: F) -> Result<F::Output, Error> {
        let store = self.limiter.shared().store();
        outside_of_runtimes(|| store.block_on(future))
    }

    /// Blocks on a future that waits in line, even when the system has no resources for a timer or for connections.
    pub(super) fn block_on_wait<F: Future<Output: Send> + Send>(
        &self,
        future: F,
    ) -> Result<F::Output, Error> {
        let store = self.limiter.shared().store();
        outside_of_runtimes(|| store.block_on_wait(future))
    }
}

/// A thread inside a runtime must not drive another one: there a new thread does the work.
fn outside_of_runtimes<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    if Handle::try_current().is_err() {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("polylimit-waiting".to_owned());
        let waiter = thread.spawn_scoped(scope, work).map_err(|error| no_resources("thread", &error))?;
        waiter.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "waiting panicked")))
    })
}

/// The operations that differ only in their action.
macro_rules! operations {
    ($($name:ident($action:expr) -> $answer:ident = $read:expr;)*) => {
        impl Limiter {
            $(
                #[doc = concat!("See [`Limiter::", stringify!($name), "`](AsyncLimiter::", stringify!($name), ").")]
                ///
                /// # Errors
                /// See [`Limiter`](AsyncLimiter).
                pub fn $name<'a>(&self, request: impl Into<Request<'a>>) -> Result<$answer, Error> {
                    self.limiter.ask_blocking($action, request.into()).map($read)
                }
            )*
        }
    };
}

operations! {
    peek(Action::Apply(Operation::Peek)) -> Decision = |(decision, _)| decision;
    take(Action::Apply(Operation::Take)) -> Usage = usage;
    charge(Action::Apply(Operation::Charge)) -> Usage = usage;
    refund(Action::Apply(Operation::Refund)) -> Usage = usage;
    reset(Action::Reset) -> Usage = usage;
}
