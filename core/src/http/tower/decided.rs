//! The decisions on one request, by all layers that it passes through.

use std::fmt;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use parking_lot::Mutex;

use crate::http::headers::{HeaderField, HeaderSettings, push_limits, push_retry_after};
use crate::limiter::Limiter;
use crate::rules::decision::{Decision, Usage};
use crate::rules::policy::Policy;

/// The decisions on a request so far: an extension of each request that a layer has passed on.
///
/// ```
/// use polylimit::tower::Decided;
///
/// fn remaining(request: &http::Request<()>) -> Option<u64> {
///     let decided = request.extensions().get::<Decided>()?;
///     decided.all().iter().map(|(_, decision)| decision.remaining()).min()
/// }
/// # assert_eq!(remaining(&http::Request::new(())), None);
/// ```
#[derive(Clone, Default)]
pub struct Decided {
    shared: Arc<Mutex<Shared>>,
    /// What the layers that this request has passed have spent, the innermost first.
    spent: Option<Arc<Spent>>,
}

/// What all layers share about a request, including those further out.
#[derive(Default)]
struct Shared {
    outcomes: Vec<Outcome>,
    /// Whether the layer that handled the request last has answered it in place of the service.
    is_refused: bool,
}

struct Outcome {
    policy: Policy,
    decision: Decision,
    settings: HeaderSettings,
    /// How many layers had spent units before this one.
    depth: usize,
}

/// What one layer has spent for a request.
pub(crate) struct Spent {
    pub(crate) key: Vec<u8>,
    pub(crate) cost: u64,
    /// The decisions that this layer made itself, without those it reused from an outer layer.
    pub(crate) outcomes: Vec<(Policy, Decision)>,
    limiter: Limiter,
    before: Option<Arc<Self>>,
    depth: usize,
}

impl Decided {
    /// Each policy that was applied, with its decision, in the order of the decisions. After a refund, a decision shows
    /// what is left since.
    pub fn all(&self) -> Vec<(Policy, Decision)> {
        let outcomes = &self.shared.lock().outcomes;
        outcomes.iter().map(|outcome| (outcome.policy.clone(), outcome.decision.clone())).collect()
    }

    /// The decision of an outer layer under the same policy for the same key, which is charged only once for each
    /// request.
    pub(crate) fn known(&self, limiter: &Limiter, key: &[u8], policy: &str) -> Option<&(Policy, Decision)> {
        let mut next = self.spent.as_deref();
        while let Some(spent) = next {
            if spent.key == key && spent.limiter.is_clone_of(limiter) {
                let found = spent.outcomes.iter().find(|(known, _)| known.name() == policy);
                if found.is_some() {
                    return found;
                }
            }
            next = spent.before.as_deref();
        }
        None
    }

    /// Adds a decision; a newer one replaces an older one of a policy with the same name.
    pub(crate) fn add(&self, policy: Policy, decision: Decision, settings: HeaderSettings) {
        let outcomes = &mut self.shared.lock().outcomes;
        outcomes.retain(|outcome| outcome.policy.name() != policy.name());
        outcomes.push(Outcome { policy, decision, settings, depth: self.depth() });
    }

    /// Records what a layer that passes the request on has spent.
    pub(crate) fn spend(
        &self,
        limiter: &Limiter,
        key: Vec<u8>,
        cost: u64,
        outcomes: Vec<(Policy, Decision)>,
    ) -> Arc<Spent> {
        let (limiter, before, depth) = (limiter.clone(), self.spent.clone(), self.depth());
        Arc::new(Spent { key, cost, outcomes, limiter, before, depth })
    }

    /// The decisions as inner layers see them, after a layer that has spent this.
    pub(crate) fn after(&self, spent: Option<&Arc<Spent>>) -> Self {
        Self { shared: Arc::clone(&self.shared), spent: spent.or(self.spent.as_ref()).cloned() }
    }

    /// Records what is left after a layer refunded its units under a policy.
    pub(crate) fn refunded(&self, spent: &Spent, policy: &Policy, left: Usage) {
        let outcomes = &mut self.shared.lock().outcomes;
        let is_it =
            |outcome: &&mut Outcome| outcome.depth == spent.depth && outcome.policy.name() == policy.name();
        if let Some(outcome) = outcomes.iter_mut().find(is_it) {
            outcome.decision = outcome.decision.clone().refunded(left);
        }
    }

    /// Records whether a layer has answered the request in place of the service.
    pub(crate) fn set_refused(&self, is_refused: bool) {
        self.shared.lock().is_refused = is_refused;
    }

    /// Whether an inner layer has answered the request in place of the service.
    pub(crate) fn is_refused(&self) -> bool {
        self.shared.lock().is_refused
    }

    fn depth(&self) -> usize {
        self.spent.as_ref().map_or(0, |spent| spent.depth + 1)
    }

    /// Adds the response fields: those of each layer in its style, and one `retry-after` for all.
    pub(crate) fn write(&self, headers: &mut HeaderMap, now_us: u64) {
        let outcomes = &self.shared.lock().outcomes;
        let all: Vec<_> = outcomes.iter().map(|outcome| (&outcome.policy, &outcome.decision)).collect();
        let mut settings: Vec<&HeaderSettings> = Vec::new();
        for outcome in outcomes {
            if !settings.contains(&&outcome.settings) {
                settings.push(&outcome.settings);
            }
        }
        for settings in settings {
            let own = outcomes.iter().filter(|outcome| outcome.settings == *settings);
            let own: Vec<_> = own.map(|outcome| (&outcome.policy, &outcome.decision)).collect();
            let mut fields = Vec::new();
            push_limits(&mut fields, &own, settings, now_us);
            add(headers, fields.into_iter());
        }
        let mut wait = Vec::new();
        push_retry_after(&mut wait, &all);
        if !wait.is_empty() {
            headers.remove(RETRY_AFTER);
        }
        add(headers, wait.into_iter());
    }
}

/// `Debug` shows no keys: they may be secrets or people's names.
impl fmt::Debug for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decided").field("all", &self.all()).finish_non_exhaustive()
    }
}

/// The `ratelimit` fields are lists and may have several lines; of any other field the first value stays.
fn add(headers: &mut HeaderMap, fields: impl Iterator<Item = HeaderField>) {
    for field in fields {
        let Ok(name) = HeaderName::from_bytes(field.name.as_bytes()) else { continue };
        let is_list = field.name.starts_with("ratelimit");
        if let Ok(value) = HeaderValue::from_str(&field.value)
            && (is_list || !headers.contains_key(&name))
        {
            headers.append(name, value);
        }
    }
}
