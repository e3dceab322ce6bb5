//! Decisions as attributes of the caller's span, with the feature `tracing`.
//!
//! A span has only the fields that it was created with: those of these names that it declares are filled in, and
//! nothing else is recorded.

use tracing::Span;
use tracing::level_filters::LevelFilter;

use crate::limiter::operations::Shared;
use polylimit_rules::decision::Source;
use polylimit_store::charge::PolicyId;

/// Whether any span is enabled in this process: one load.
#[inline]
pub(crate) fn are_enabled() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

impl Shared {
    /// Records a decision in the caller's span. `retry_after_us` is `None` where a request is never admitted.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_decision(
        &self,
        id: PolicyId,
        allowed: bool,
        source: Source,
        retry_after_us: Option<u64>,
    ) {
        let span = Span::current();
        if span.is_disabled() {
            return;
        }
        self.registry.with_policy(id, |policy| {
            span.record("polylimit.policy", policy.name());
        });
        span.record("polylimit.allowed", allowed);
        span.record("polylimit.source", source.name());
        if let Some(retry_after_us) = retry_after_us.filter(|_| !allowed) {
            span.record("polylimit.retry_after_us", retry_after_us);
        }
    }
}
