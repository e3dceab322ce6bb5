//! What a limiter tells about its configuration.

/// Which configuration is in force, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigurationStatus {
    /// The source: `document` for one that the program gives, otherwise as the option `configuration` names it.
    pub source: Box<str>,
    /// Raised with each change: by Redis, or by the process where Redis has no part in it. 0 before the first.
    pub version: u64,
    /// SHA-256 of the canonical document in force, as hexadecimal digits; empty before the first.
    pub digest: Box<str>,
    /// When this version was applied, in microseconds since the Unix epoch, by this host's clock; 0 before the first.
    pub applied_at_us: u64,
    /// For how long the source has been unreachable, in microseconds; 0 when it is not.
    pub unreachable_for_us: u64,
    /// Why a newer configuration was not applied, or may not be known.
    pub error: Option<Box<str>>,
}
