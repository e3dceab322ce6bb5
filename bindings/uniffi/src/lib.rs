//! polylimit for Kotlin, Java, Ruby and Swift: one interface, exported.
//!
//! Every type and function only converts between the core and the generated interface. Numbers are signed, because Java has
//! no unsigned ones; a negative number is an invalid argument.

#![allow(
    unsafe_code,
    unreachable_pub,
    clippy::needless_pass_by_value,
    reason = "exported functions have the calling convention of C, are called from other languages, and own their arguments"
)]
#![allow(clippy::missing_errors_doc, reason = "the documentation of the core lists the errors")]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod admin;
mod client;
mod client_address;
mod configured;
mod credentials;
mod decision;
mod descriptor;
mod direct;
mod error;
mod event;
mod guard;
mod headers;
mod limiter;
mod number;
mod reports;
mod request;
mod request_attributes;
mod reservation;
mod reserve_options;
mod settings;

pub use admin::{Admin, AsyncAdmin};
pub use client::{AttemptStep, Attempts, Backoff, Throttle, server_wait};
pub use client_address::ClientAddressRules;
pub use configured::{
    CandidateCounts, ConfigurationStatus, PolicyDecision, PolicyMatch, PublishOptions, RequestDecision,
};
pub use credentials::CredentialsCalls;
pub use decision::{CheckResult, Decision, Finding, QuotaUsage, Usage};
pub use direct::{
    Java_polylimit_DirectCalls_call, cause_names, degradation_names, polylimit_direct_call, source_names,
};
pub use error::{ErrorRow, PolylimitError, error_table};
pub use event::{DegradedEvent, take_events, wait_for_events};
pub use guard::{Guard, GuardAnswer, GuardCheck, GuardFacts, GuardOptions, GuardOutage};
pub use headers::{Outcome, Problem, header_fields, problem_of};
pub use limiter::{AsyncLimiter, Limiter};
pub use number::Span;
pub use reports::{
    ConfigurationExplanation, EntryExplanation, KeyExplanation, KeyName, KeyPage, ListOptions, ListedKey,
    ListedQuota, MetricBucket, MetricFamily, MetricSample, MetricValue, PenaltyExplanation, QuotaExplanation,
    RequestExplanation, ResetPage, TopKey, TopKeys,
};
pub use request::{Policy, QuotaNumbers, Request, concurrent, quota};
pub use request_attributes::{HeaderLine, RequestAttributes};
pub use reservation::{AsyncReservation, Reservation};
pub use reserve_options::ReserveOptions;
pub use settings::{ManualClock, Settings, StoreOption, store_options, suggestion};

uniffi::setup_scaffolding!("polylimit_native");
