//! The answer to a take, a charge, a refund or a reset, as plain numbers.

use polylimit::Usage;

use crate::decision::{POLYLIMIT_MAX_QUOTAS, polylimit_quota_usage, set_quotas};
use crate::names::{degradation_number, source_number};
use crate::pointer::Sized32;

/// The answer to a take, a charge, a refund or a reset: what is left after it.
#[repr(C)]
pub struct polylimit_usage {
    /// sizeof(polylimit_usage), set by the caller.
    pub size: u32,
    /// Where the answer came from: 0 is the store; see polylimit_source_name.
    pub source: u32,
    /// Why this is not what a healthy store would have answered for this key alone: 0 when it is; see
    /// polylimit_degradation_name.
    pub degraded: u32,
    /// How many of `quotas` there are: as many as the policy has.
    pub quota_count: u32,
    /// Whole units that can still be spent right now: the least over the quotas.
    pub remaining: u64,
    /// How long until nothing counts as used any more if nothing else arrives, in microseconds: the longest over the
    /// quotas.
    pub reset_after_us: u64,
    /// The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
    pub taken: u64,
    /// Each quota's own view, in the policy's order; only the first `quota_count` are written.
    pub quotas: [polylimit_quota_usage; POLYLIMIT_MAX_QUOTAS],
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_usage {
    const NAME: &'static str = "usage";
    const FIRST: u32 = 424;
}

impl polylimit_usage {
    /// Writes every field but `size`, which is the caller's.
    pub(crate) fn set(&mut self, usage: &Usage) {
        self.source = source_number(usage.source());
        self.degraded = degradation_number(usage.degraded());
        self.remaining = usage.remaining();
        self.reset_after_us = usage.reset_after_us();
        self.taken = usage.taken();
        self.quota_count = set_quotas(&mut self.quotas, usage.quotas());
    }
}
