//! A caller's request: a key, a policy and a cost.

use crate::error::Error;
use crate::quota::Quota;

/// A key, the policy that is applied to it, and the units that the request spends.
///
/// Where a limiter has one policy, the key alone is enough; text and bytes convert into a request of cost 1.
///
/// ```
/// use polylimit::{Limiter, Policy, Request};
///
/// let limiter = Limiter::builder()
///     .policy(Policy::parse("api", "100/minute")?)
///     .policy(Policy::parse("login", "5/15m sliding_log")?)
///     .build()?
///     .blocking();
/// let login = limiter.check(Request::new("user:42").policy("login"))?;
/// let upload = limiter.check(Request::new("user:42").policy("api").cost(20))?;
/// assert_eq!((login.remaining(), upload.remaining()), (4, 80));
/// # Ok::<(), polylimit::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Request<'a> {
    #[doc(hidden)]
    pub key: &'a [u8],
    #[doc(hidden)]
    pub policy: Option<&'a str>,
    #[doc(hidden)]
    pub cost: u64,
    #[doc(hidden)]
    pub plan: Option<&'a str>,
    #[doc(hidden)]
    pub headroom: u8,
    #[doc(hidden)]
    pub is_reserved: bool,
}

impl<'a> Request<'a> {
    /// The longest key: 1 MiB.
    pub const MAX_KEY_LENGTH: usize = 1 << 20;
    /// The largest cost: 10^12 units.
    pub const MAX_COST: u64 = Quota::MAX_UNITS;
    /// The largest headroom: 99 percent.
    pub const MAX_HEADROOM: u8 = 99;

    /// A request of cost 1 for a key, which identifies a client or a resource, such as a user or an address. The key is
    /// any bytes, up to [`MAX_KEY_LENGTH`](Self::MAX_KEY_LENGTH).
    #[inline]
    pub fn new(key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: key.as_ref(), policy: None, cost: 1, plan: None, headroom: 0, is_reserved: false }
    }

    /// The policy's name; it may be left out where the limiter has only one policy.
    ///
    /// Quotas as text, such as `100/minute; 1000/hour`, are also a policy, which need not be registered: its name is made
    /// of the quotas, so that all requests with the same quotas share one budget, in every process and language. The text
    /// must come from the program and never from its users, who would choose their own limits. A limiter forgets such a policy when no
    /// request has used it for long.
    #[must_use]
    pub fn policy(mut self, name_or_quotas: &'a str) -> Self {
        self.policy = Some(name_or_quotas);
        self
    }

    /// The units that the request spends, up to [`MAX_COST`](Self::MAX_COST). A cost of 0 is always allowed and has no
    /// effect.
    #[must_use]
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }

    /// The part of each quota's capacity that a check, a peek or a reserve leaves for others, in percent, up to
    /// [`MAX_HEADROOM`](Self::MAX_HEADROOM); rounded up to whole units, and slots. So less important requests are denied first.
    #[must_use]
    pub fn headroom(mut self, percent: u8) -> Self {
        self.headroom = percent;
        self
    }

    /// The plan of the key, whose quotas decide where the policy has it; a calendar may follow, as in `gold from=15`.
    #[must_use]
    pub fn plan(mut self, name: &'a str) -> Self {
        self.plan = Some(name);
        self
    }

    /// Makes `Limiter::reserve_together` reserve the units also where the policy has no quota of
    /// concurrency, as for a request whose real cost is known only at its end. Other operations do as their names say.
    #[must_use]
    pub fn reserved(mut self) -> Self {
        self.is_reserved = true;
        self
    }

    /// The key that was given.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The name or the quotas of the policy, if one was given.
    pub fn policy_name(&self) -> Option<&'a str> {
        self.policy
    }

    /// The cost.
    pub fn units(&self) -> u64 {
        self.cost
    }

    /// The headroom, in percent.
    pub fn headroom_percent(&self) -> u8 {
        self.headroom
    }

    /// Whether its units are [reserved](Self::reserved).
    pub fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// The name of the plan, if one was given.
    pub fn plan_name(&self) -> Option<&'a str> {
        self.plan
    }

    /// Whether the request has nothing but a key, a policy and a cost.
    #[inline]
    #[doc(hidden)]
    pub fn is_plain(&self) -> bool {
        self.headroom == 0 && self.plan.is_none()
    }

    /// Whether the key, the cost and the headroom are in bounds.
    #[inline]
    #[doc(hidden)]
    pub fn is_valid(&self) -> bool {
        self.key.len() <= Self::MAX_KEY_LENGTH
            && self.cost <= Self::MAX_COST
            && self.headroom <= Self::MAX_HEADROOM
    }

    /// Refuses a key, a cost or a headroom that is out of bounds.
    #[inline]
    #[doc(hidden)]
    pub fn checked(self) -> Result<Self, Error> {
        if self.is_valid() {
            return Ok(self);
        }
        Err(Self::refusal(self.key.len(), self.cost, self.headroom))
    }

    /// Takes numbers, so that the request itself need not be in memory.
    #[cold]
    fn refusal(key_length: usize, cost: u64, headroom: u8) -> Error {
        Error::invalid_argument(if cost > Self::MAX_COST {
            format!("cost is {cost}: allowed is 0 to {} units", Self::MAX_COST)
        } else if headroom > Self::MAX_HEADROOM {
            format!("headroom is {headroom} %: allowed is 0 to {} %", Self::MAX_HEADROOM)
        } else {
            format!("key has {key_length} bytes: allowed are up to {}", Self::MAX_KEY_LENGTH)
        })
    }
}

/// `Debug` does not show the key: it may be a secret or a person's name.
impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("key", &format_args!("{} bytes", self.key.len()))
            .field("policy", &self.policy)
            .field("cost", &self.cost)
            .field("headroom", &self.headroom)
            .field("plan", &self.plan)
            .finish()
    }
}

/// Text and bytes are requests of cost 1.
impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Request<'a> {
    #[inline]
    fn from(key: &'a T) -> Self {
        Self::new(key)
    }
}
