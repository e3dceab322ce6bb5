//! The calls of the rate limit services.

/// A call of one of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateLimitCall {
    /// Envoy's only call: each descriptor says what it asks for.
    ShouldRateLimit,
    /// Kuadrant's, before a request: would one hit be admitted? Nothing is spent.
    CheckRateLimit,
    /// Kuadrant's, after it: the hits have happened, and are charged whether they fit or not.
    Report,
}

impl RateLimitCall {
    pub(crate) const ALL: [Self; 3] = [Self::ShouldRateLimit, Self::CheckRateLimit, Self::Report];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::ShouldRateLimit => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Self::CheckRateLimit => "/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit",
            Self::Report => "/kuadrant.service.ratelimit.v1.RateLimitService/Report",
        }
    }

    pub(crate) fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.path() == path)
    }
}
