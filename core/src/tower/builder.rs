//! The options of a layer, by the names that they have in every language.

use std::sync::Arc;

use http::request::Parts;
use http::{Response, response};

use super::denial::{Denial, InPlace, StoreOutage};
use super::rules::Rules;
use super::service::RateLimitLayer;
use crate::error::{Error, excerpt};
use crate::headers::{HeaderSettings, HeaderStyle, ResetForm};
use crate::limiter::Limiter;
use crate::policy::Policy;

/// The options of a [`RateLimitLayer`] before they are checked. `B` is the body of the service's responses.
#[must_use = "a builder makes a layer only when `build` is called"]
pub struct RateLimitBuilder<B> {
    rules: Rules<B>,
}

impl<B> RateLimitBuilder<B> {
    pub(super) fn new<K: AsRef<[u8]>>(
        limiter: Limiter,
        key: impl Fn(&Parts) -> K + Send + Sync + 'static,
    ) -> Self {
        Self {
            rules: Rules {
                limiter,
                policies: Vec::new(),
                key: Box::new(move |request| key(request).as_ref().to_vec()),
                cost: Box::new(|_| 1),
                count: None,
                skip: None,
                on_denied: None,
                on_outage: None,
                headers: HeaderSettings::default(),
            },
        }
    }

    /// Adds a policy by its name, or by its quotas such as `100/minute`. It may be left out where the limiter has one.
    ///
    /// Several are decided in one round trip. When one of them denies, what the others took is given back to them.
    pub fn policy(mut self, name_or_quotas: impl Into<String>) -> Self {
        self.rules.policies.push(name_or_quotas.into());
        self
    }

    /// The units that each request spends; 1 unless told otherwise, and at most
    /// [`MAX_COST`](crate::Request::MAX_COST).
    pub fn cost(self, units: u64) -> Self {
        self.cost_of(move |_| units)
    }

    /// The units that a request spends. Above [`MAX_COST`](crate::Request::MAX_COST) it is answered with 500.
    pub fn cost_of(mut self, units: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.rules.cost = Box::new(units);
        self
    }

    /// Counts only requests whose response is of this kind, such as failed log-ins; every one unless told otherwise.
    ///
    /// The cost is spent before the service sees the request, and given back before the response that does not count is
    /// handed on. A service that fails counts as one that answers 500. What cannot be given back stays spent, as it does for
    /// a request that is given up before there is a response.
    pub fn count(mut self, counts: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.rules.count = Some(Box::new(counts));
        self
    }

    /// Lets requests of this kind through without a decision.
    pub fn skip(mut self, is_skipped: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.rules.skip = Some(Box::new(is_skipped));
        self
    }

    /// Answers denied requests in place of the problem document. The fields are added to that response.
    pub fn on_denied(
        mut self,
        answer: impl Fn(&Denial<'_>, &Parts) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        self.rules.on_denied = Some(Box::new(answer));
        self
    }

    /// Hears of each request that the store did not decide, and says what becomes of it.
    pub fn on_outage(
        mut self,
        answer: impl Fn(&StoreOutage<'_>, &Parts) -> InPlace<B> + Send + Sync + 'static,
    ) -> Self {
        self.rules.on_outage = Some(Box::new(answer));
        self
    }

    /// Which fields tell clients their limits; [`Ietf`](HeaderStyle::Ietf) unless told otherwise.
    pub fn headers(mut self, style: HeaderStyle) -> Self {
        self.rules.headers = self.rules.headers.style(style);
        self
    }

    /// How `x-ratelimit-reset` tells a time; [`Seconds`](ResetForm::Seconds) unless told otherwise.
    pub fn reset_form(mut self, form: ResetForm) -> Self {
        self.rules.headers = self.rules.headers.reset_form(form);
        self
    }

    /// Makes the layer.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when a policy is not known or no quotas, when one is given
    /// twice, and when none is given and the limiter has not exactly one.
    pub fn build(mut self) -> Result<RateLimitLayer<B>, Error> {
        let rules = &mut self.rules;
        let known: Vec<String> =
            rules.limiter.policies().iter().map(|policy| policy.name().to_owned()).collect();
        if rules.policies.is_empty() {
            let [only] = &known[..] else {
                return Err(Error::invalid_argument(format!(
                    "no policy is given, and this limiter has {}: give one, or quotas such as 100/minute",
                    known.len()
                )));
            };
            rules.policies.push(only.clone());
        }
        // Quotas may be written in several ways.
        let mut names: Vec<String> = Vec::with_capacity(rules.policies.len());
        for policy in &rules.policies {
            let name = if policy.contains('/') {
                Policy::one_off(policy, None)?.name().to_owned()
            } else if known.contains(policy) {
                policy.clone()
            } else {
                let (read, known) = (excerpt(policy), known.join(", "));
                return Err(Error::invalid_argument(format!(
                    "policy {read} is not known: this limiter has {known}"
                )));
            };
            if names.contains(&name) {
                return Err(Error::invalid_argument(format!(
                    "policy {} is given twice: once is enough",
                    excerpt(policy)
                )));
            }
            names.push(name);
        }
        Ok(RateLimitLayer { rules: Arc::new(self.rules) })
    }
}
