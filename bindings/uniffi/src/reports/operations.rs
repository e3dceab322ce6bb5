//! The operations that answer with reports.

use polylimit::raw::{Answer, Call};

use crate::admin::{Admin, AsyncAdmin};
use crate::decision::{AnswerResult, answer, unexpected};
use crate::error::{Result, guarded};
use crate::limiter::Limiter;
use crate::reports::listing::{ListOptions, most};
use crate::reports::metrics::MetricFamily;
use crate::reports::record;
use crate::reports::records::{KeyExplanation, KeyPage, RequestExplanation, ResetPage, TopKeys};
use crate::request::Request;
use crate::request_attributes::RequestAttributes;

pub(crate) fn keys(answer: AnswerResult) -> Result<KeyPage> {
    match answer? {
        Answer::Keys(page) => record(&page),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn keys_reset(answer: AnswerResult) -> Result<ResetPage> {
    match answer? {
        Answer::KeysReset(page) => record(&page),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn explanation(answer: AnswerResult) -> Result<KeyExplanation> {
    match answer? {
        Answer::Explanation(explained) => record(&explained),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn request_explanation(answer: AnswerResult) -> Result<RequestExplanation> {
    match answer? {
        Answer::RequestExplanation(explained) => record(&explained),
        other => Err(unexpected(&other)),
    }
}

#[uniffi::export]
impl Limiter {
    /// What the limiter has counted, and the state of its store and its configuration, for a monitoring system.
    pub fn metrics(&self) -> Vec<MetricFamily> {
        self.core().asynchronous().metrics().into_iter().map(Into::into).collect()
    }

    /// The same as text: `prometheus`, whose media type is `text/plain; version=0.0.4; charset=utf-8`, or `openmetrics`, whose media
    /// type is `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    pub fn metrics_text(&self, format: String) -> Result<String> {
        guarded(|| Ok(self.core().asynchronous().metrics_text(format.parse()?)))
    }
}

#[uniffi::export]
impl Admin {
    /// The keys that the store has, with what is used of their quotas, a page at a time.
    #[uniffi::method(default(options = None))]
    pub fn list(&self, options: Option<ListOptions>) -> Result<KeyPage> {
        guarded(|| {
            let options = options.unwrap_or_default();
            keys(self.core().raw().call(&Call::List(options.filter()?, options.budget()?, options.cursor())))
        })
    }

    /// The most used keys, at most this many, in descending order.
    #[uniffi::method(default(options = None))]
    pub fn scan_top(&self, number: i64, options: Option<ListOptions>) -> Result<KeyPage> {
        guarded(|| {
            let options = options.unwrap_or_default();
            keys(self.core().raw().call(&Call::ScanTop(options.filter()?, most(number)?, options.budget()?)))
        })
    }

    /// Lists a page of keys, and resets them: the store forgets them, and what they have used.
    #[uniffi::method(default(options = None))]
    pub fn reset_listed(&self, options: Option<ListOptions>) -> Result<ResetPage> {
        guarded(|| {
            let options = options.unwrap_or_default();
            let call = Call::ResetListed(options.filter()?, options.budget()?, options.cursor());
            keys_reset(self.core().raw().call(&call))
        })
    }

    /// Why a request would be admitted or denied now. It charges nothing.
    pub fn explain(&self, request: Request) -> Result<KeyExplanation> {
        guarded(|| explanation(self.core().raw().call(&Call::Explain(request.to_core()?))))
    }

    /// Why a request, by its attributes, would be admitted or denied by the configuration.
    pub fn explain_request(&self, attributes: RequestAttributes) -> Result<RequestExplanation> {
        guarded(|| request_explanation(self.core().raw().call(&Call::ExplainRequest(&attributes.to_core()))))
    }

    /// The keys that this limiter has denied and admitted most often in this process lately, this many of each at most. It needs the
    /// option `observe_keys`; without, there are none.
    pub fn top_keys(&self, number: i64) -> Result<TopKeys> {
        guarded(|| record(&self.core().asynchronous().admin().top_keys(most(number)?)))
    }
}

#[uniffi::export]
impl AsyncAdmin {
    /// The keys that the store has, with what is used of their quotas, a page at a time.
    #[uniffi::method(default(options = None))]
    pub async fn list(&self, options: Option<ListOptions>) -> Result<KeyPage> {
        let options = options.unwrap_or_default();
        let started = self
            .limiter
            .start_call(|| Ok(Call::List(options.filter()?, options.budget()?, options.cursor())))?;
        answer(started, keys).await
    }

    /// The most used keys, at most this many, in descending order.
    #[uniffi::method(default(options = None))]
    pub async fn scan_top(&self, number: i64, options: Option<ListOptions>) -> Result<KeyPage> {
        let options = options.unwrap_or_default();
        let started = self
            .limiter
            .start_call(|| Ok(Call::ScanTop(options.filter()?, most(number)?, options.budget()?)))?;
        answer(started, keys).await
    }

    /// Lists a page of keys, and resets them: the store forgets them, and what they have used.
    #[uniffi::method(default(options = None))]
    pub async fn reset_listed(&self, options: Option<ListOptions>) -> Result<ResetPage> {
        let options = options.unwrap_or_default();
        let call = || Ok(Call::ResetListed(options.filter()?, options.budget()?, options.cursor()));
        let started = self.limiter.start_call(call)?;
        answer(started, keys_reset).await
    }

    /// Why a request would be admitted or denied now. It charges nothing.
    pub async fn explain(&self, request: Request) -> Result<KeyExplanation> {
        let started = self.limiter.start_call(|| Ok(Call::Explain(request.to_core()?)))?;
        answer(started, explanation).await
    }

    /// Why a request, by its attributes, would be admitted or denied by the configuration.
    pub async fn explain_request(&self, attributes: RequestAttributes) -> Result<RequestExplanation> {
        let started = {
            let attributes = attributes.to_core();
            self.limiter.start_call(|| Ok(Call::ExplainRequest(&attributes)))?
        };
        answer(started, request_explanation).await
    }
}
