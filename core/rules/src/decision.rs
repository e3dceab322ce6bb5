//! The results of operations: decisions and usages.

mod origin;
mod quota_usage;
mod report;

use std::time::Duration;

use smallvec::SmallVec;

pub use crate::decision::origin::{Cause, Degradation, Source};
use crate::decision::quota_usage::NEVER_US;
pub use crate::decision::quota_usage::{QuotaUsage, QuotaVerdict};
pub use crate::decision::quota_usage::{Several, Waits};
use crate::error::Error;
use crate::policy::Policy;

/// The result of a check, a peek or an acquire.
#[derive(Clone, Debug, Eq)]
#[must_use = "a decision has to be looked at: a denied request must not proceed"]
#[expect(clippy::struct_excessive_bools, reason = "each is an answer of its own")]
pub struct Decision {
    /// The only quota's usage, or that of all quotas together.
    #[doc(hidden)]
    pub total: QuotaUsage,
    #[doc(hidden)]
    pub several: Option<Box<Several>>,
    /// How long an admitted request waits for its turn, or how long until a denied one would be admitted.
    #[doc(hidden)]
    pub wait_us: u64,
    #[doc(hidden)]
    pub allowed: bool,
    #[doc(hidden)]
    pub source: Source,
    #[doc(hidden)]
    pub degraded: Option<Degradation>,
    #[doc(hidden)]
    pub cause: Option<Cause>,
    #[doc(hidden)]
    pub elastic: bool,
    #[doc(hidden)]
    pub shadowed: bool,
    /// Whether a commit was one of an id that was committed before, or a reserve found the reservation of an earlier one.
    #[doc(hidden)]
    pub repeated: bool,
    /// Behind the fields that are the same for every admitted check, which are written together.
    #[doc(hidden)]
    pub crossed: bool,
}

const _: () = assert!(size_of::<Decision>() == 56);

impl PartialEq for Decision {
    /// A reserve that finds the reservation of an earlier one has the same decision, and so `repeated` is no part of it.
    fn eq(&self, other: &Self) -> bool {
        let Self { total, several, wait_us, allowed, source, degraded, cause, .. } = self;
        let Self { elastic, shadowed, repeated: _, crossed, .. } = self;
        (total, several, wait_us, allowed) == (&other.total, &other.several, &other.wait_us, &other.allowed)
            && (source, degraded, cause) == (&other.source, &other.degraded, &other.cause)
            && (elastic, shadowed, crossed) == (&other.elastic, &other.shadowed, &other.crossed)
    }
}

/// The parts of a decision, for a language that represents decisions as plain values of its own and passes one back to
/// write `headers`.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an answer of its own")]
pub struct DecisionParts<'a> {
    /// Whether the request was admitted.
    pub allowed: bool,
    /// The delay of an admitted request, or how long until a denied one would be admitted, in microseconds; `None` means
    /// never.
    pub wait_us: Option<u64>,
    /// Which part made the decision.
    pub source: Source,
    /// Why the decision may differ from what a healthy store would have answered.
    pub degraded: Option<Degradation>,
    /// Why the request was denied, or admitted without the store.
    pub cause: Option<Cause>,
    /// Whether the request's units were the first beyond a quota's limit.
    pub crossed: bool,
    /// Whether the pool of an elastic policy admitted the request.
    pub elastic: bool,
    /// Whether the request would have been denied if its policy were not in shadow.
    pub shadowed: bool,
    /// Whole units that can still be spent now. It does not follow from the quotas: free slots of concurrency are no units.
    pub remaining: u64,
    /// Each quota's usage, in the policy's order.
    pub quotas: &'a [QuotaUsage],
    /// How long each quota denies the request, in the same order: 0 where it admits it; `None` means for ever.
    pub quota_waits_us: &'a [Option<u64>],
}

impl Decision {
    /// A wait that never ends; all other waits are below 2^63.
    #[doc(hidden)]
    pub const NEVER: u64 = NEVER_US;

    /// Makes the decision with these parts.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there is no quota or not one wait for each, an admitted request
    /// waits for ever, or a wait is 2^63 microseconds or longer.
    pub fn from_parts(parts: DecisionParts<'_>) -> Result<Self, Error> {
        let DecisionParts { allowed, wait_us, source, degraded, cause, .. } = parts;
        let DecisionParts { crossed, elastic, shadowed, remaining, quotas, quota_waits_us, .. } = parts;
        if quotas.is_empty() {
            return Err(Error::invalid_argument(
                "a decision has no quotas: it has one for each of its policy",
            ));
        }
        if quota_waits_us.len() != quotas.len() {
            return Err(Error::invalid_argument(format!(
                "a decision has {} waits of {} quotas: it has one for each",
                quota_waits_us.len(),
                quotas.len()
            )));
        }
        let wait_us = match wait_us {
            None if allowed && !shadowed => {
                return Err(Error::invalid_argument(
                    "an admitted request waits for ever: only a denied one does",
                ));
            }
            None => Self::NEVER,
            Some(wait_us) => wait_us,
        };
        let longest_us = quotas.iter().map(|usage| usage.reset_after_us).max().unwrap_or(0);
        let each_us: Waits = quota_waits_us.iter().map(|wait_us| wait_us.unwrap_or(Self::NEVER)).collect();
        for read_us in each_us.iter().copied().chain([wait_us, longest_us]) {
            if read_us >= 1 << 63 && read_us != Self::NEVER {
                return Err(Error::invalid_argument(format!(
                    "a decision waits {read_us} us: allowed is less than 2^63"
                )));
            }
        }
        let (total, several) = Several::of(quotas.iter().copied());
        let total = QuotaUsage { remaining, ..total };
        let decision = Self {
            total,
            several,
            wait_us,
            allowed,
            source,
            degraded,
            cause,
            elastic,
            shadowed,
            crossed,
            repeated: false,
        };
        Ok(decision.with_waits(&each_us))
    }

    /// An answer without the store: it admits, with all units left, or denies for a time.
    #[doc(hidden)]
    pub fn without_store(policy: &Policy, cause: Option<Cause>, denied_for_us: Option<u64>) -> Self {
        let allowed = denied_for_us.is_none();
        let each = policy.quotas().iter().map(|quota| QuotaUsage {
            limit: quota.limit(),
            remaining: if allowed { quota.capacity() } else { 0 },
            reset_after_us: 0,
            over: 0,
        });
        let (total, several) = Several::of(each);
        Self {
            total,
            several,
            wait_us: denied_for_us.unwrap_or(0),
            allowed,
            source: Source::Configuration,
            degraded: None,
            cause,
            crossed: false,
            elastic: false,
            shadowed: false,
            repeated: false,
        }
    }

    /// Whether every quota of the policy admits the request.
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// Why the request was denied, or why it was admitted without the store; `None` for every other decision, and when the
    /// outage policy denies without knowing.
    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// Whether the request's units were the first beyond a quota's limit: some quota's [`over`](QuotaUsage::over) is above 0 and
    /// at most what this request has spent or set aside.
    pub fn crossed(&self) -> bool {
        self.crossed
    }

    /// Whether the pool of an elastic policy admitted the request; then nothing was spent in the policy itself.
    pub fn elastic(&self) -> bool {
        self.elastic
    }

    /// Whether the request would have been denied if its policy were not in shadow.
    pub fn shadowed(&self) -> bool {
        self.shadowed
    }

    /// How long until the same request would be admitted if no other request arrives, in microseconds: exactly then and
    /// not one microsecond earlier. 0 when allowed, unless in [shadow](Self::shadowed); `None` means never: the cost exceeds what a quota can ever admit.
    pub fn retry_after_us(&self) -> Option<u64> {
        match self.wait_us {
            _ if self.allowed && !self.shadowed => Some(0),
            Self::NEVER => None,
            wait_us => Some(wait_us),
        }
    }

    /// How long to wait before the same request is admitted. `None` when no wait helps: it is admitted already, or
    /// [`retry_after_us`](Self::retry_after_us) is `None`, because its cost exceeds what a quota can ever admit.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_us().filter(|&wait_us| wait_us > 0).map(Duration::from_micros)
    }

    /// How long this admitted request has to wait for its turn, in microseconds: leaky bucket only, otherwise 0.
    pub fn delay_us(&self) -> u64 {
        if self.allowed && !self.shadowed { self.wait_us } else { 0 }
    }

    /// [`delay_us`](Self::delay_us) as a duration.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us())
    }

    /// Each quota's verdict, in the policy's order. It shows which quota denied a request.
    ///
    /// Every quota has a verdict of its own, which [`allowed`](Self::allowed) and
    /// [`retry_after_us`](Self::retry_after_us) sum up: the request is admitted when every quota admits it, and otherwise when
    /// the last of them does. A quota that [counts denied requests](crate::Quota::count_denied) has counted this one.
    ///
    /// - A [blocked](Cause::Blocked) key is denied before its quotas are asked; the verdicts are what they say all the same.
    /// - The pool of an [elastic](Self::elastic) policy may admit sooner than its quotas, and a policy in
    ///   [shadow](Self::shadowed) admits what they deny.
    /// - An `acquire` counts the requests ahead of it in line as admitted before it.
    /// - Where no quota was asked, as for a deny list and the outage policies `allow` and `deny`, every quota admits.
    ///
    /// ```
    /// use polylimit::{Limiter, Policy};
    ///
    /// let policy = Policy::parse("login", "2/minute; 100/day")?;
    /// let limiter = Limiter::builder().policy(policy.clone()).build()?.blocking();
    /// while limiter.check("user:42")?.allowed() {}
    /// let denied = limiter.check("user:42")?;
    /// let denying = policy.quotas().iter().zip(denied.verdicts()).find(|(_, verdict)| !verdict.allowed);
    /// assert_eq!(denying.expect("one of them denies").0.to_string(), "2/minute");
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    #[inline]
    pub fn verdicts(&self) -> impl ExactSizeIterator<Item = QuotaVerdict> + Clone + '_ {
        let (quotas, waits_us) = match &self.several {
            Some(several) => (several.each.len(), &*several.waits_us),
            None => (1, std::slice::from_ref(self.only_wait_us())),
        };
        (0..quotas).map(move |at| QuotaVerdict::of(waits_us.get(at).copied().unwrap_or(0)))
    }

    /// The usage and the verdict of the only quota; `None` where there are several. They are what [`quotas`](Self::quotas) and
    /// [`verdicts`](Self::verdicts) have, by value: a language binding need not keep the decision in memory for them.
    #[inline]
    pub fn only_quota(&self) -> Option<(QuotaUsage, QuotaVerdict)> {
        if self.several.is_some() {
            return None;
        }
        let QuotaUsage { limit, remaining, reset_after_us, over } = self.total;
        let usage = QuotaUsage { limit, remaining, reset_after_us, over };
        Some((usage, QuotaVerdict::of(*self.only_wait_us())))
    }

    /// How long the only quota denies the request, as far as it follows from the decision.
    #[inline]
    fn only_wait_us(&self) -> &u64 {
        let is_admitted = self.allowed && !self.shadowed;
        // No quota was asked.
        let is_without_quotas = matches!(self.source, Source::Configuration | Source::Deny);
        if is_admitted || is_without_quotas { &0 } else { &self.wait_us }
    }

    /// How long each quota denies the request.
    #[doc(hidden)]
    pub fn waits_us(&self) -> Waits {
        self.verdicts().map(|verdict| verdict.retry_after_us.unwrap_or(Self::NEVER)).collect()
    }

    /// The same decision with these waits of its quotas.
    #[doc(hidden)]
    pub fn with_waits(mut self, waits_us: &[u64]) -> Self {
        // Equal decisions have equal fields: what follows from others is not there.
        let all_admit = waits_us.iter().all(|wait_us| *wait_us == 0);
        let told_us = if all_admit { Waits::new() } else { waits_us.into() };
        match (&mut self.several, waits_us) {
            (several, [only_us]) => {
                *several = None;
                if only_us != self.only_wait_us() {
                    let each = SmallVec::from_slice(&[self.total]);
                    self.several = Some(Box::new(Several { each, waits_us: told_us }));
                }
            }
            (Some(several), _) => several.waits_us = told_us,
            (None, _) => debug_assert!(false, "several waits of one quota"),
        }
        self
    }

    /// The decision after the units of an admitted request were refunded: no delay is left, no limit was crossed, and the usage is that of the
    /// refund, unless an outage policy answered the refund in place of the store.
    pub fn refunded(mut self, left: Usage) -> Self {
        let waits_us = self.waits_us();
        if self.allowed {
            (self.wait_us, self.crossed) = (0, false);
        }
        if !left.source().is_outage() || self.source.is_outage() {
            (self.total, self.several) = (left.total, left.several);
        }
        if self.allowed { self } else { self.with_waits(&waits_us) }
    }

    /// The same decision, moved field by field. A function that is not inlined returns a decision in memory; where its
    /// result merges with one that is computed inline, this lets the compiler keep the latter in registers.
    #[inline]
    #[doc(hidden)]
    pub fn by_fields(self) -> Self {
        let Self { total: QuotaUsage { limit, remaining, reset_after_us, over }, .. } = self;
        let Self { several, wait_us, allowed, source, degraded, cause, .. } = self;
        let Self { crossed, elastic, shadowed, repeated, .. } = self;
        let total = QuotaUsage { limit, remaining, reset_after_us, over };
        Self {
            total,
            several,
            wait_us,
            allowed,
            source,
            degraded,
            cause,
            elastic,
            shadowed,
            repeated,
            crossed,
        }
    }

    /// The usage, without the verdict.
    #[doc(hidden)]
    pub fn into_usage(self, taken: u64) -> Usage {
        let Self { total, several, allowed, source, degraded, repeated, .. } = self;
        Usage { total, several, taken, found: allowed, repeated, source, degraded }
    }
}

/// The result of a take, a charge, a refund, a reset, a commit, a cancel, a renew or a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    total: QuotaUsage,
    several: Option<Box<Several>>,
    taken: u64,
    found: bool,
    repeated: bool,
    source: Source,
    degraded: Option<Degradation>,
}

/// The parts of a usage, for a language that copies one by value.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct UsageParts<'a> {
    /// The units that a take has spent from every quota.
    pub taken: u64,
    /// Whether a commit, a cancel or a renew has found the reservation.
    pub found: bool,
    /// Whether a commit was one of an id that was committed before and is remembered.
    pub repeated: bool,
    /// Which part gave the answer.
    pub source: Source,
    /// Why the answer may differ from that of a healthy store.
    pub degraded: Option<Degradation>,
    /// Whole units that can still be spent now. It does not follow from the quotas: free slots of concurrency are no units.
    pub remaining: u64,
    /// Each quota's usage, in the policy's order.
    pub quotas: &'a [QuotaUsage],
}

impl Usage {
    /// Makes the usage with these parts.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when there is no quota, or a time is 2^63 microseconds or longer.
    #[doc(hidden)]
    pub fn from_parts(parts: UsageParts<'_>) -> Result<Self, Error> {
        let UsageParts { taken, found, repeated, source, degraded, remaining, quotas } = parts;
        if quotas.is_empty() {
            return Err(Error::invalid_argument("a usage has no quotas: it has one for each of its policy"));
        }
        if let Some(usage) = quotas.iter().find(|usage| usage.reset_after_us >= 1 << 63) {
            return Err(Error::invalid_argument(format!(
                "a usage resets after {} us: allowed is less than 2^63",
                usage.reset_after_us
            )));
        }
        let (total, several) = Several::of(quotas.iter().copied());
        let total = QuotaUsage { remaining, ..total };
        Ok(Self { total, several, taken, found, repeated, source, degraded })
    }

    /// The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether a commit, a cancel or a renew has found the reservation; true for every other operation.
    pub fn found(&self) -> bool {
        self.found
    }

    /// Whether this was a commit of an id that was committed before and is remembered: nothing was
    /// charged, whether the reservation was [found](Self::found) or not. A commit that is neither found nor repeated concerns a
    /// reservation that had ended without one, or whose commit is no longer remembered.
    pub fn repeated(&self) -> bool {
        self.repeated
    }
}

/// The accessors that a decision and a usage have in common.
macro_rules! usage_accessors {
    ($($type:ident),+) => {
        $(impl $type {
            /// The limit in units per period, the smallest of the quotas.
            pub fn limit(&self) -> u64 {
                self.total.limit
            }

            /// Whole units that can still be spent now, after this operation: the least over the quotas.
            pub fn remaining(&self) -> u64 {
                self.total.remaining
            }

            /// Units of an [`excess`](crate::Quota::excess) that are in use, the most over the quotas: above 0 once use is
            /// beyond a quota's limit.
            pub fn over(&self) -> u64 {
                self.total.over
            }

            /// How long until nothing counts as used any more if no other request arrives, in microseconds: the longest
            /// over the quotas.
            pub fn reset_after_us(&self) -> u64 {
                self.total.reset_after_us
            }

            /// [`reset_after_us`](Self::reset_after_us) as a duration.
            pub fn reset_after(&self) -> Duration {
                Duration::from_micros(self.total.reset_after_us)
            }

            /// Which part gave this answer.
            pub fn source(&self) -> Source {
                self.source
            }

            /// Why this answer may differ from what a healthy store would have given for this key; `None` when the store
            /// answered normally.
            pub fn degraded(&self) -> Option<Degradation> {
                self.degraded
            }

            /// Each quota's usage, in the policy's order.
            #[inline]
            pub fn quotas(&self) -> &[QuotaUsage] {
                self.several.as_ref().map_or(std::slice::from_ref(&self.total), |several| &several.each)
            }
        })+
    };
}

usage_accessors!(Decision, Usage);
