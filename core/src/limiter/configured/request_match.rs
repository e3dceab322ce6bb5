//! Matches a request against a configuration without deciding any policy, for a program that checks the policies itself.

use std::fmt;
use std::sync::Arc;

use crate::limiter::Admin;
use crate::limiter::configured::request_decision::RequestDecision;
use crate::limiter::explanation::report::PolicyMode;
use polylimit_document::key_calendar::plan_with;
use polylimit_document::model::Mode;
use polylimit_document::request::AttributeSource;
use polylimit_rules::decision::Cause;
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_store::charge::Wait;

/// The result of matching a request against a configuration, before any policy decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestMatch {
    /// The decision, where the configuration decides alone: it is off, a list has the request, or an attribute of a key is missing.
    pub decided: Option<RequestDecision>,
    /// The plan of the request, for [`Request::plan`](crate::Request::plan).
    pub plan: Option<Box<[u8]>>,
    /// The policies that the rules apply, in their order; none where the configuration decides alone.
    pub policies: Vec<MatchedPolicy>,
}

/// A policy that the rules apply to a request, with the key and the cost to check.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatchedPolicy {
    /// The policy's name.
    pub policy: Arc<str>,
    /// The key that is checked under the policy.
    pub key: Box<[u8]>,
    /// The units that the request spends, 0 to 10^12.
    pub cost: u64,
    /// Percent of the capacity that is kept for others, 0 to 99.
    pub headroom: u8,
    /// Whether the cost is spent even if it is denied, because it has happened already: see [`Raw::spend_always`](crate::raw::Raw).
    pub spends_always: bool,
    /// Whether the policy decides.
    pub mode: PolicyMode,
    /// The plan for further operations on the key, if the request has a calendar or a group for it: the request's plan with both, such as
    /// `gold zone=Asia/Tokyo from=15`. Otherwise [`RequestMatch::plan`] is.
    pub plan: Option<Box<str>>,
    /// The policy with the effective quotas of the key: those of its override or plan, or the policy's.
    pub effective_policy: Policy,
}

/// Shows no key.
impl fmt::Debug for MatchedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatchedPolicy")
            .field("policy", &self.policy)
            .field("key", &format_args!("{} bytes", self.key.len()))
            .field("cost", &self.cost)
            .field("headroom", &self.headroom)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Admin<'_> {
    /// Matches a request against the configuration before any policy decides: its lists, and the policies that its
    /// rules apply. [`decide`](crate::Limiter::decide) also lets the policies decide.
    ///
    /// ```
    /// # async fn example() -> Result<(), polylimit::Error> {
    /// use polylimit::document::RequestAttributes;
    /// use polylimit::{Limiter, Request};
    ///
    /// let limiter = Limiter::builder()
    ///     .document(
    ///         r#"{"polylimit": 1, "policies": {"api": {"quotas": "5/day"}}, "lists": {"deny": ["user mallory"]},
    ///             "rules": [{"apply": [{"policy": "api", "key": "{user}"}]}]}"#,
    ///     )
    ///     .build()?;
    /// let of = |user: &'static str| RequestAttributes::new().attribute("user", user);
    /// assert!(limiter.admin().match_request(&of("mallory")).await?.decided.is_some_and(|decided| !decided.allowed));
    /// let matched = limiter.admin().match_request(&of("alice")).await?;
    /// assert_eq!((&*matched.policies[0].policy, &*matched.policies[0].key), ("api", &b"alice"[..]));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// As for [`matching`](Self::matching).
    pub async fn match_request(self, request: &(dyn AttributeSource + Sync)) -> Result<RequestMatch, Error> {
        let in_force = self.limiter.wait_for_configuration(Wait::Await).await?;
        let now_us = self.limiter.shared().store.clock().now_us();
        let decided_alone =
            |decided| RequestMatch { decided: Some(decided), plan: None, policies: Vec::new() };
        let (applied, plan) = match in_force.apply_rules(request, now_us)? {
            Ok(applied) => applied,
            Err(decided) => return Ok(decided_alone(decided)),
        };
        let mut policies = Vec::with_capacity(applied.len());
        for applied in applied {
            let mode = in_force.document(applied.policy).mode;
            if applied.is_missing {
                if mode == Mode::On {
                    let denial = RequestDecision::without_policies(false, Some(Cause::MissingKey), None);
                    return Ok(decided_alone(denial));
                }
                continue;
            }
            let (own, name) = (applied.calendar.as_deref(), plan.as_deref());
            let choice = in_force.configuration.effective(applied.policy, &applied.key, name, own, now_us)?;
            policies.push(MatchedPolicy {
                policy: in_force.quotas(applied.policy, 0).name().into(),
                key: applied.key.into_vec().into(),
                cost: applied.cost,
                headroom: applied.headroom,
                spends_always: applied.spends_always,
                mode: mode.into(),
                effective_policy: in_force.quotas(applied.policy, choice.set).clone(),
                plan: own.map(|own| plan_with(name, own).into()),
            });
        }
        Ok(RequestMatch { decided: None, plan: plan.map(Vec::into_boxed_slice), policies })
    }
}
