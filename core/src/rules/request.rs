//! A caller's request: a key, a policy and a cost.

use crate::error::Error;
use crate::rules::quota::Quota;

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
    pub(crate) key: &'a [u8],
    pub(crate) policy: Option<&'a str>,
    pub(crate) cost: u64,
}

impl<'a> Request<'a> {
    /// The longest key: 1 MiB.
    pub const MAX_KEY_LENGTH: usize = 1 << 20;
    /// The largest cost: 10^12 units.
    pub const MAX_COST: u64 = Quota::MAX_UNITS;

    /// A request of cost 1 for a key, which identifies a client or a resource, such as a user or an address. The key is
    /// any bytes, up to [`MAX_KEY_LENGTH`](Self::MAX_KEY_LENGTH).
    #[inline]
    pub fn new(key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { key: key.as_ref(), policy: None, cost: 1 }
    }

    /// The policy's name; it may be left out where the limiter has only one policy.
    ///
    /// Quotas as text, such as `100/minute; 1000/hour`, are also a policy, which need not be registered: its name is made
    /// of the quotas, so that all requests with the same quotas share one budget, in every process and language. A
    /// limiter keeps each such policy, so the text must come from the program and never from its users.
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

    /// Whether the key and the cost are in bounds.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.key.len() <= Self::MAX_KEY_LENGTH && self.cost <= Self::MAX_COST
    }

    /// Refuses a key or a cost that is out of bounds.
    #[inline]
    pub(crate) fn checked(self) -> Result<Self, Error> {
        if self.is_valid() {
            return Ok(self);
        }
        Err(Self::refusal(self.key.len(), self.cost))
    }

    /// Takes numbers, so that the request itself need not be in memory.
    #[cold]
    fn refusal(key_length: usize, cost: u64) -> Error {
        Error::invalid_argument(if cost > Self::MAX_COST {
            format!("cost is {cost}: allowed is 0 to {} units", Self::MAX_COST)
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
