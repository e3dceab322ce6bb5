//! The messages that Kuadrant's rate limit service adds to Envoy's, by its RFC 0021.

use prost_types::Duration;

use super::messages::{Code, RateLimitDescriptor};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ReserveRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint64, tag = "3")]
    pub(crate) amount: u64,
    #[prost(message, optional, tag = "4")]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ReserveResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) reservation_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CommitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
    #[prost(string, tag = "3")]
    pub(crate) reservation_id: String,
    #[prost(uint64, tag = "4")]
    pub(crate) actual_amount: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct CommitResponse {
    #[prost(bool, tag = "1")]
    pub(crate) reservation_released: bool,
}
