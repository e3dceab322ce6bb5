//! The numbers of one quota for the fields.

use crate::http::headers::Outcome;
use crate::http::headers::digits::push_digits;
use crate::rules::decision::{Decision, QuotaUsage};
use crate::rules::policy::Policy;
use crate::rules::quota::Quota;

/// The quotas of all outcomes, in order.
pub(crate) fn reports<'a>(outcomes: &[Outcome<'a>]) -> impl Iterator<Item = QuotaReport<'a>> {
    outcomes.iter().flat_map(|&(policy, decision)| {
        policy
            .quotas()
            .iter()
            .zip(decision.quotas())
            .enumerate()
            .map(move |(at, (quota, &usage))| QuotaReport { policy, decision, at, quota, usage })
    })
}

/// A quota of a policy, with its usage from the policy's decision.
#[derive(Clone, Copy)]
pub(crate) struct QuotaReport<'a> {
    policy: &'a Policy,
    decision: &'a Decision,
    /// The quota's index in the policy, from 0.
    at: usize,
    quota: &'a Quota,
    usage: QuotaUsage,
}

impl QuotaReport<'_> {
    /// The most units that can be spent at once.
    pub(crate) fn capacity(&self) -> u64 {
        self.quota.capacity()
    }

    /// Whole units that can still be spent now.
    pub(crate) fn remaining(&self) -> u64 {
        self.usage.remaining
    }

    /// The time in which as many units come back as can be spent at once; the period where the limit is 0. Never 0: a
    /// capacity is at least 1, a period at least 1 ms.
    pub(crate) fn window_us(&self) -> u128 {
        let period_us = u128::from(self.quota.period_us());
        match u128::from(self.quota.limit()) {
            0 => period_us,
            limit => (u128::from(self.capacity()) * period_us).div_ceil(limit),
        }
    }

    /// How long until nothing counts as used any more; the window where nothing counts already.
    pub(crate) fn reset_us(&self) -> u128 {
        match self.usage.reset_after_us {
            0 => self.window_us(),
            reset_after_us => reset_after_us.into(),
        }
    }

    /// The time in which no more than the remaining units should be used.
    pub(crate) fn effective_window_us(&self) -> u128 {
        let decision = self.decision;
        match decision.retry_after_us() {
            Some(retry_after_us) if !decision.allowed() && self.remaining() == 0 => {
                self.reset_us().min(retry_after_us.into())
            }
            _ => self.reset_us(),
        }
    }

    /// Whether this quota contributes to the denial of a request at this cost.
    pub(crate) fn is_violated(&self, cost: u64) -> bool {
        // An `acquire` that was denied because its wait would be too long may have enough units left in every quota. Then
        // the quota with the least is reported, so that every denial has a reason.
        !self.decision.allowed() && (self.remaining() < cost || self.remaining() == self.decision.remaining())
    }

    /// Appends the quota's name: unique among all quotas of policies with different names, because no policy's name
    /// contains a colon.
    ///
    /// A policy's name is a token (RFC 9110, section 5.6.2), which contains neither quotes nor backslashes, so within
    /// quotes it needs no escapes: neither in a String of a structured field (RFC 9651, section 3.3.3) nor in one of
    /// JSON.
    pub(crate) fn push_name(&self, text: &mut String) {
        text.push_str(self.policy.name());
        if self.policy.quotas().len() > 1 {
            text.push(':');
            push_digits(text, self.at as u64 + 1);
        }
    }

    pub(crate) fn name(&self) -> String {
        let mut name = String::new();
        self.push_name(&mut name);
        name
    }
}
