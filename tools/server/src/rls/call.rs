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
    /// Kuadrant's, before a request: its units are held until its `Commit`, or until they expire.
    Reserve,
    /// Kuadrant's, after it: what was held ends, and what was used is charged.
    Commit,
}

impl RateLimitCall {
    pub(crate) const ALL: [Self; 5] =
        [Self::ShouldRateLimit, Self::CheckRateLimit, Self::Report, Self::Reserve, Self::Commit];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::ShouldRateLimit => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Self::CheckRateLimit => "/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit",
            Self::Report => "/kuadrant.service.ratelimit.v1.RateLimitService/Report",
            Self::Reserve => "/kuadrant.service.ratelimit.v1.RateLimitService/Reserve",
            Self::Commit => "/kuadrant.service.ratelimit.v1.RateLimitService/Commit",
        }
    }

    pub(crate) fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.path() == path)
    }
}
