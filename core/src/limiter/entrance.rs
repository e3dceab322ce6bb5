//! The entry point of operations on a key: the configuration decides, or a cache, or the store.

use futures_util::future::Either;

use crate::limiter::configured::key_decision::DecidedAnswer;
use crate::limiter::{CHECK, KeyCall, Limiter};
use polylimit_rules::decision::Decision;
use polylimit_rules::error::Error;
use polylimit_rules::request::Request;
use polylimit_store::charge::{Action, StoreAnswer, Wait, at_once};

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

    pub(crate) async fn ask(&self, action: Action, request: Request<'_>) -> Result<StoreAnswer, Error> {
        self.ask_key(&KeyCall { action, request, hold: None }, Wait::Await).await
    }

    pub(crate) async fn ask_key(&self, call: &KeyCall<'_>, wait: Wait) -> Result<StoreAnswer, Error> {
        if let Some(decided) = self.decide_configured(call, wait) {
            return decided.await;
        }
        self.start_counted(self.shared().key_request(call)?, wait).await
    }

    /// Answers a request that need not wait; `None`, before any effect, for one that has to.
    #[inline]
    pub(crate) fn try_ask(&self, call: &KeyCall<'_>) -> Result<Option<StoreAnswer>, Error> {
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
        let charge = shared.key_request(call)?;
        let answer = shared.try_start(charge)?;
        if let Some(answer) = &answer {
            shared.count_decision(&charge, answer);
        }
        Ok(answer)
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

    pub(crate) fn ask_blocking(&self, action: Action, request: Request<'_>) -> Result<StoreAnswer, Error> {
        self.ask_key_blocking(&KeyCall { action, request, hold: None })
    }

    pub(crate) fn ask_key_blocking(&self, call: &KeyCall<'_>) -> Result<StoreAnswer, Error> {
        match self.try_ask(call)? {
            Some(answer) => Ok(answer),
            None => at_once(self.ask_key(call, Wait::Block)),
        }
    }

    pub(crate) async fn ask_many<'a, R: Into<Request<'a>>>(
        &self,
        requests: impl IntoIterator<Item = R>,
        wait: Wait,
    ) -> Vec<Result<Decision, Error>> {
        let shared = self.shared();
        if shared.registry.is_configured() {
            let requests: Vec<_> = requests.into_iter().map(Into::into).collect();
            return self.check_many_configured(&requests, wait).await;
        }
        let (cached, charges) = shared.ask_caches(requests);
        let answers = if charges.is_empty() { Ok(Vec::new()) } else { self.start_each(&charges, wait).await };
        shared.decisions(cached, &charges, answers)
    }
}
