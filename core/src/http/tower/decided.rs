//! What was decided about one request, by as many layers as it passes through.

use std::fmt;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use parking_lot::Mutex;

use crate::http::headers::{HeaderField, HeaderSettings, HeaderStyle, fields};
use crate::limiter::Limiter;
use crate::rules::decision::{Decision, Usage};
use crate::rules::policy::Policy;

/// What was decided about a request so far: an extension of each request that a layer has let through.
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
    /// What the layers have spent that this request has passed so far, the innermost first.
    spent: Option<Arc<Spent>>,
}

/// What all layers know about a request, those further out as well.
#[derive(Default)]
struct Shared {
    outcomes: Vec<Outcome>,
    /// Whether the layer that saw the request last has answered it in place of the service.
    is_refused: bool,
}

struct Outcome {
    policy: Policy,
    decision: Decision,
    settings: HeaderSettings,
    /// How many layers had spent something before.
    depth: usize,
}

/// What one layer has spent for a request.
pub(crate) struct Spent {
    pub(crate) key: Vec<u8>,
    pub(crate) cost: u64,
    /// What this layer has asked for: not what was decided further out.
    pub(crate) outcomes: Vec<(Policy, Decision)>,
    limiter: Limiter,
    before: Option<Arc<Self>>,
    depth: usize,
}

impl Decided {
    /// Each policy that was applied, with its decision, in the order in which they were asked. Once units were given back, the
    /// decision tells what is left since.
    pub fn all(&self) -> Vec<(Policy, Decision)> {
        let outcomes = &self.shared.lock().outcomes;
        outcomes.iter().map(|outcome| (outcome.policy.clone(), outcome.decision.clone())).collect()
    }

    /// What a layer further out has decided by the same policy for the same key: it is charged once for each request.
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

    /// Adds a decision; where policies of one name are applied to one request, the newer one stands.
    pub(crate) fn add(&self, policy: Policy, decision: Decision, settings: HeaderSettings) {
        let outcomes = &mut self.shared.lock().outcomes;
        outcomes.retain(|outcome| outcome.policy.name() != policy.name());
        outcomes.push(Outcome { policy, decision, settings, depth: self.depth() });
    }

    /// What a layer has spent that lets the request through.
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

    /// What the layers further in see, after one that has spent this.
    pub(crate) fn after(&self, spent: Option<&Arc<Spent>>) -> Self {
        Self { shared: Arc::clone(&self.shared), spent: spent.or(self.spent.as_ref()).cloned() }
    }

    /// Notes what is left since a layer gave back what it had spent from a policy.
    pub(crate) fn refunded(&self, spent: &Spent, policy: &Policy, left: Usage) {
        let outcomes = &mut self.shared.lock().outcomes;
        let is_it =
            |outcome: &&mut Outcome| outcome.depth == spent.depth && outcome.policy.name() == policy.name();
        if let Some(outcome) = outcomes.iter_mut().find(is_it) {
            outcome.decision = outcome.decision.clone().refunded(left);
        }
    }

    /// Notes whether a layer has answered the request in place of the service.
    pub(crate) fn set_refused(&self, is_refused: bool) {
        self.shared.lock().is_refused = is_refused;
    }

    /// Whether a layer further in has answered the request in place of the service.
    pub(crate) fn is_refused(&self) -> bool {
        self.shared.lock().is_refused
    }

    fn depth(&self) -> usize {
        self.spent.as_ref().map_or(0, |spent| spent.depth + 1)
    }

    /// Adds the fields of the response: those of each layer in its style, and how long to wait once for all.
    pub(crate) fn write(&self, headers: &mut HeaderMap, now_us: u64) {
        let outcomes = &self.shared.lock().outcomes;
        let all: Vec<_> = outcomes.iter().map(|outcome| (&outcome.policy, &outcome.decision)).collect();
        let mut settings: Vec<HeaderSettings> = Vec::new();
        for outcome in outcomes {
            if !settings.contains(&outcome.settings) {
                settings.push(outcome.settings);
            }
        }
        for settings in settings {
            let own = outcomes.iter().filter(|outcome| outcome.settings == settings);
            let own: Vec<_> = own.map(|outcome| (&outcome.policy, &outcome.decision)).collect();
            add(
                headers,
                fields(&own, settings, now_us).into_iter().filter(|field| field.name != "retry-after"),
            );
        }
        let wait = fields(&all, HeaderSettings::default().style(HeaderStyle::None), now_us);
        if !wait.is_empty() {
            headers.remove(RETRY_AFTER);
        }
        add(headers, wait.into_iter());
    }
}

/// No keys are shown: they may be secrets or people's names.
impl fmt::Debug for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decided").field("all", &self.all()).finish_non_exhaustive()
    }
}

/// The fields are lists, and may have several lines; of the others the first one stands.
fn add(headers: &mut HeaderMap, fields: impl Iterator<Item = HeaderField>) {
    for field in fields {
        let name = HeaderName::from_static(field.name);
        let is_list = field.name.starts_with("ratelimit");
        if let Ok(value) = HeaderValue::from_str(&field.value)
            && (is_list || !headers.contains_key(&name))
        {
            headers.append(name, value);
        }
    }
}
