//! The operations for operators, of both faces; further ones are in `configured` and `reports`.

use std::sync::Arc;
use std::time::Duration;

use polylimit::blocking;
use polylimit::raw::Call;

use crate::decision::{Finding, Usage, answer, findings, usage};
use crate::error::{Result, guarded};
use crate::limiter::{AsyncLimiter, Limiter};
use crate::number::{Span, signed};
use crate::request::Request;

/// The operations for operators; made by `Limiter.admin`.
#[derive(Debug, uniffi::Object)]
pub struct Admin {
    pub(crate) limiter: Arc<Limiter>,
}

impl Admin {
    pub(crate) fn core(&self) -> &blocking::Limiter {
        self.limiter.core()
    }
}

#[uniffi::export]
impl Limiter {
    /// The operations for operators: keys of the store, explanations, the policy document, lists. The object keeps the
    /// limiter alive.
    pub fn admin(self: Arc<Self>) -> Arc<Admin> {
        Arc::new(Admin { limiter: self })
    }
}

#[uniffi::export]
impl Admin {
    /// Denies every request of the key under its policy for that long, 1 ms to 366 days; 0 ends a block and forgets the key's
    /// penalties.
    pub fn block(&self, request: Request, time: Span) -> Result<Usage> {
        let time = time.duration("time")?;
        self.limiter.call(&request, |request| Call::Block(request, time), usage)
    }

    /// Ends a block of the key under its policy, and forgets its penalties.
    pub fn unblock(&self, request: Request) -> Result<Usage> {
        self.limiter.call(&request, |request| Call::Block(request, Duration::ZERO), usage)
    }

    /// Examines the store for an operator.
    pub fn doctor(&self) -> Result<Vec<Finding>> {
        guarded(|| findings(self.core().raw().call(&Call::Doctor)))
    }

    /// How many keys the memory store or the local one holds a state for; nothing for a store elsewhere.
    pub fn keys(&self) -> Option<i64> {
        self.core().asynchronous().admin().keys().map(|keys| signed(keys as u64))
    }

    /// Authenticates new connections with another password, and user name if there is one, from now on.
    pub fn set_credentials(&self, username: Option<String>, password: String) -> Result<()> {
        guarded(|| Ok(self.core().asynchronous().admin().set_credentials(username.as_deref(), &password)?))
    }
}

/// The operations for operators, without holding a thread; made by `AsyncLimiter.admin`.
#[derive(Debug, uniffi::Object)]
pub struct AsyncAdmin {
    pub(crate) limiter: Arc<AsyncLimiter>,
}

#[uniffi::export]
impl AsyncLimiter {
    /// See `Limiter.admin`.
    pub fn admin(self: Arc<Self>) -> Arc<AsyncAdmin> {
        Arc::new(AsyncAdmin { limiter: self })
    }
}

#[uniffi::export]
impl AsyncAdmin {
    /// See `Admin.block`.
    pub async fn block(&self, request: Request, time: Span) -> Result<Usage> {
        let time = time.duration("time")?;
        answer(self.limiter.start(&request, |request| Call::Block(request, time))?, usage).await
    }

    /// See `Admin.unblock`.
    pub async fn unblock(&self, request: Request) -> Result<Usage> {
        let started = self.limiter.start(&request, |request| Call::Block(request, Duration::ZERO))?;
        answer(started, usage).await
    }

    /// See `Admin.doctor`.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        answer(self.limiter.start_call(|| Ok(Call::Doctor))?, findings).await
    }
}
