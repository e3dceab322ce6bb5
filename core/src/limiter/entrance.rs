//! The entry point of operations on a key: the configuration decides, or a cache, or the store.

use futures_util::future::{Either, FutureExt};

use crate::error::Error;
use crate::limiter::configured::wait::{DecidedAnswer, Wait};
use crate::limiter::{CHECK, KeyCall, Limiter};
use crate::rules::decision::Decision;
use crate::rules::request::Request;
use crate::store::request::{Action, Answer};

impl Limiter {
    /// The answer of the configuration to an operation on a key of one of its policies; `None` for every other policy.
    #[inline]
    pub(crate) fn decide_configured<'a>(
        &'a self,
        call: &'a KeyCall<'a>,
        wait: Wait,
    ) -> Option<DecidedAnswer<'a>> {
        if self.shared().registry.is_configured() { self.find_configured(call, wait) } else { None }
    }

    pub(crate) async fn ask(&self, action: Action, request: Request<'_>) -> Result<Answer, Error> {
        let call = KeyCall { action, request, hold: None };
        if let Some(decided) = self.decide_configured(&call, Wait::Await) {
            return decided.await;
        }
        self.ask_kept(self.shared().request(action, request)?).await
    }

    /// Answers a request that need not wait; `None`, before any effect, for one that has to.
    #[inline]
    pub(crate) fn try_ask(&self, call: &KeyCall<'_>) -> Result<Option<Answer>, Error> {
        let shared = self.shared();
        if shared.registry.is_configured() {
            if !shared.store.is_here() {
                return Ok(None);
            }
            match self.find_configured(call, Wait::Block) {
                // It calls a store several times, or again, and any of these calls may have to wait.
                Some(Either::Right(_)) if !shared.store.never_waits() => return Ok(None),
                Some(decided) => return at_once(decided).map(Some),
                None => {}
            }
        }
        shared.try_store(shared.key_request(call)?)
    }

    /// Checks, by the shortest path if there is one.
    #[expect(clippy::inline_always, reason = "as for `check_known`")]
    #[inline(always)]
    pub(crate) fn check_blocking(&self, request: Request<'_>) -> Result<Decision, Error> {
        if let Some(decision) = self.shared().check_known(request) {
            return Ok(decision);
        }
        if !request.is_plain() {
            return self.check_special_blocking(&request);
        }
        let Request { key, policy, cost, .. } = request;
        self.check_any_blocking(key, policy, cost).map(Decision::by_fields)
    }

    /// Takes the parts of a request, so that the request need not be in memory.
    #[inline(never)]
    fn check_any_blocking(&self, key: &[u8], policy: Option<&str>, cost: u64) -> Result<Decision, Error> {
        Ok(self.ask_blocking(CHECK, Request { policy, cost, ..Request::new(key) })?.0)
    }

    #[cold]
    fn check_special_blocking(&self, request: &Request<'_>) -> Result<Decision, Error> {
        Ok(self.ask_blocking(CHECK, *request)?.0)
    }

    pub(crate) fn ask_blocking(&self, action: Action, request: Request<'_>) -> Result<Answer, Error> {
        self.ask_key_blocking(&KeyCall { action, request, hold: None })
    }

    pub(crate) fn ask_key_blocking(&self, call: &KeyCall<'_>) -> Result<Answer, Error> {
        let shared = self.shared();
        if let Some(decided) = self.decide_configured(call, Wait::Block) {
            return at_once(decided);
        }
        let request = shared.key_request(call)?;
        shared.ask_store_blocking(request)
    }

    pub(crate) fn check_many_blocking<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<Decision, Error>> {
        let shared = self.shared();
        if shared.registry.is_configured() {
            let requests: Vec<_> = requests.into_iter().map(Into::into).collect();
            let decided = self.check_many_configured(&requests, Wait::Block);
            return decided.now_or_never().unwrap_or_default();
        }
        let (cached, asked) = shared.ask_caches(requests);
        let answers = if asked.is_empty() { Ok(Vec::new()) } else { shared.store.ask_many_blocking(&asked) };
        shared.decisions(cached, &asked, answers)
    }
}

/// The answer of a future that is never pending.
fn at_once(decided: DecidedAnswer<'_>) -> Result<Answer, Error> {
    decided.now_or_never().unwrap_or_else(|| Err(Error::no_answer()))
}
