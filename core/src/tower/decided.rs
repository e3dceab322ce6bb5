//! What was decided about one request, by as many layers as it passes through.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use parking_lot::Mutex;

use crate::decision::Decision;
use crate::headers::{HeaderField, HeaderSettings, HeaderStyle, Problem, fields, problem};
use crate::policy::Policy;

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
#[derive(Clone, Debug, Default)]
pub struct Decided {
    outcomes: Arc<Mutex<Vec<Outcome>>>,
}

#[derive(Debug)]
struct Outcome {
    policy: Policy,
    decision: Decision,
    settings: HeaderSettings,
}

impl Decided {
    /// Each policy that was applied, with its decision, in the order in which they were asked.
    pub fn all(&self) -> Vec<(Policy, Decision)> {
        let outcomes = self.outcomes.lock();
        outcomes.iter().map(|outcome| (outcome.policy.clone(), outcome.decision.clone())).collect()
    }

    /// Adds a decision; where a policy is applied twice to one request, the newer one stands.
    pub(super) fn add(&self, policy: Policy, decision: Decision, settings: HeaderSettings) {
        let mut outcomes = self.outcomes.lock();
        outcomes.retain(|outcome| outcome.policy.name() != policy.name());
        outcomes.push(Outcome { policy, decision, settings });
    }

    /// What to answer, if a policy denied a request of this cost.
    pub(super) fn problem(&self, cost: u64) -> Option<Problem> {
        let outcomes = self.outcomes.lock();
        problem(
            &outcomes.iter().map(|outcome| (&outcome.policy, &outcome.decision)).collect::<Vec<_>>(),
            cost,
        )
    }

    /// Adds the fields of the response: those of each layer in its style, and how long to wait once for all.
    pub(super) fn write(&self, headers: &mut HeaderMap, now_us: u64) {
        let outcomes = self.outcomes.lock();
        let all: Vec<_> = outcomes.iter().map(|outcome| (&outcome.policy, &outcome.decision)).collect();
        let mut settings: Vec<HeaderSettings> = Vec::new();
        for outcome in outcomes.iter() {
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
