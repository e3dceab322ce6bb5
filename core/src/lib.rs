//! polylimit decides whether requests may proceed: exactly, in integers, to the microsecond, and with the same meaning in
//! every store and language.
//!
//! # Terms
//!
//! - A [`Quota`] is an algorithm with its numbers: at most `limit` units per `period`.
//! - A [`Policy`] is a named list of quotas. A request spends under all of them or under none.
//! - A key identifies the client or the resource that a policy is applied to. A cost is the number of units that one
//!   [`Request`] spends.
//! - A [`Decision`] is the result: allowed, remaining, retry after, reset after, delay, and its source.
//!
//! Stores keep the states in this process, in a file that the processes of one host share, or in Redis
//! ([`RedisOptions`]). Decisions are the same with each of them.
//!
//! [`Limiter`] has the operations for asynchronous callers, [`blocking::Limiter`] for blocking ones. [`headers`] formats
//! a decision as HTTP fields, [`ClientAddressRules`] find the client's address behind proxies, [`Backoff`] computes how
//! long the client of a limited service waits before a retry, and [`client`] is for HTTP clients that throttle themselves.
//!
//! # How much each algorithm can admit
//!
//! Over any span W of real time, per key, in units of cost; B is the capacity, L the limit, P the period. Spans are
//! half-open. [`Quota::most_admitted`] computes it.
//!
//! | algorithm | state | at most |
//! |---|---|---|
//! | [token bucket](Algorithm::TokenBucket) | a debt and a time | B + floor(W * L / P) |
//! | [leaky bucket](Algorithm::LeakyBucket) | a debt and a time | B + floor(W * L / P), and they leave evenly spaced |
//! | [fixed window](Algorithm::FixedWindow) | a count and a time | 2L in a span of P; L per window |
//! | [sliding window](Algorithm::SlidingWindow) of n buckets | n + 1 counts | L in any span of P - P/n; below 2L in a span of P, about L typically |
//! | [sliding log](Algorithm::SlidingLog) | every admitted unit's time | L in any span of P |
//! | [concurrency](Algorithm::Concurrency) | none of its own | counts no units: at most L reservations at a time |
//!
//! # What the operations do
//!
//! | operation | what it does |
//! |---|---|
//! | [check](Limiter::check) | decides; when allowed, spends the cost from every quota |
//! | [peek](Limiter::peek) | the decision that a check would give now; leaves no trace |
//! | [take](Limiter::take) | spends as much of the cost as every quota admits |
//! | [charge](Limiter::charge) | spends the cost whether it fits or not, up to 8 times the capacity |
//! | [refund](Limiter::refund) | gives back up to what is used, the newest first |
//! | [reset](Limiter::reset) | forgets the key |
//! | [reserve](Limiter::reserve) | decides as check does; when allowed, sets the cost aside until it is committed, cancelled, or its time has passed |
//! | [commit](Limiter::commit) | ends a reservation and charges what was spent |
//! | [cancel](Limiter::cancel) | ends a reservation and spends nothing |
//! | [renew](Limiter::renew) | the reservation ends later |
//! | [block](Limiter::block) | denies the key for a time, whatever its quotas would say |
//! | [explain](Limiter::explain) | tells why a request would be admitted or denied now; charges nothing |
//! | [list](Limiter::list) | the keys that the store has, with what is used |
//! | [acquire](Limiter::acquire) | waits until admitted, or says at once that the timeout cannot be met |
//!
//! A denied request spends nothing, unless a quota says `count_denied`. When the clock goes back, spent units stay spent,
//! and no wait becomes longer than the quota alone can require. When a policy's numbers change, the use of each key is
//! kept.

#![cfg_attr(
    not(all(feature = "redis", feature = "local", target_os = "linux")),
    allow(
        dead_code,
        unreachable_code,
        unused_imports,
        reason = "stores that are left out leave parts unused, such as the codec of states"
    )
)]

mod client_address;
mod configuration;
mod configuration_source;
mod error;
mod http;
mod limiter;
mod metrics;
mod names;
mod report;
mod rules;
mod runtime;
mod store;
mod units;
mod zone;

pub use client_address::{ClientAddress, ClientAddressRules, ClientAddressRulesBuilder, ForwardingHeader};
pub use configuration::descriptor::descriptor_attributes;
pub use configuration::document::canonical_document;
pub use configuration::matcher::PolicyMatch;
pub use configuration::request::{AttributeSource, Peer, RequestAttributes};
pub use configuration::router_paths::RouterPaths;
pub use configuration::schema::document_schema;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use configuration::testing as document_testing;
pub use configuration::time::time_text;
#[cfg(all(feature = "redis", feature = "testing"))]
#[doc(hidden)]
pub use configuration_source::testing as configuration_testing;
pub use error::{Error, ErrorKind};
#[cfg(feature = "reqwest")]
pub use http::reqwest;
pub use http::server_wait::server_wait;
#[cfg(feature = "tower")]
pub use http::tower;
pub use http::{client, guard, headers};
pub use limiter::blocking;
pub use limiter::call::{Answer, Call};
pub use limiter::completion::Completions;
pub use limiter::configured::candidate_counts::CandidateCounts;
pub use limiter::configured::lists::{ListName, ListOptions, ListedItem};
pub use limiter::configured::manage::PublishOptions;
pub use limiter::configured::published::{ConfigurationEntries, ConfigurationEntry, PublishedDocument};
pub use limiter::configured::request_decision::{PolicyDecision, RequestDecision};
pub use limiter::configured::request_match::{MatchedPolicy, RequestMatch};
pub use limiter::configured::status::{ConfigurationChange, ConfigurationStatus};
pub use limiter::event::DegradedEvent;
pub use limiter::explanation::report::{
    ConfigurationExplanation, EntryExplanation, KeyExplanation, NumbersSource, PenaltyExplanation,
    PolicyMode, QuotaExplanation, RequestExplanation,
};
pub use limiter::fleet::report::{DeniedKey, PolicyCounts, ProcessReport};
pub use limiter::fleet::top_denied;
pub use limiter::listing::page::{KeyFilter, KeyPage, ListBudget, ListedKey, ListedQuota, ResetPage};
#[cfg(feature = "opentelemetry")]
pub use limiter::metrics::opentelemetry;
pub use limiter::reservation::{Reservation, ReserveOptions};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use limiter::testing as limiter_testing;
pub use limiter::top_keys::{TopKey, TopKeys};
pub use limiter::{Limiter, LimiterBuilder};
pub use metrics::durations::Durations;
pub use metrics::{Family, FamilyKind, Sample, SampleValue, TextFormat};
pub use report::{printable, report_json};
#[doc(hidden)]
pub use rules::decision::UsageParts;
pub use rules::decision::{
    Cause, Decision, DecisionParts, Degradation, QuotaUsage, QuotaVerdict, Source, Usage,
};
pub use rules::policy::Policy;
pub use rules::quota::{Algorithm, Quota, QuotaBuilder, parse_duration};
pub use rules::request::Request;
pub use rules::reservation::id::ReservationId;
pub use rules::reservation::list::ReservationTerms;
pub use runtime::backoff::{Backoff, BackoffBuilder};
pub use runtime::clock::{Clock, ManualClock};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use runtime::simulation;
pub use store::credentials::Credentials;
pub use store::finding::{Finding, Severity};
pub use store::lease_size::Lease;
pub use store::option::{OptionKind, StoreOption};
pub use store::outage::Outage;
#[cfg(feature = "redis")]
pub use store::redis::RedisOptions;
#[cfg(all(feature = "redis", feature = "testing"))]
#[doc(hidden)]
pub use store::redis::script::testing;
pub use store::scan::KeyName;
pub use store::stats::Stats;
pub use store::suggestion::{OptionPlace, Suggestion};

/// The examples of the first steps, run as tests.
#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../../docs/start.md")]
struct StartDocs;

/// The examples of the page on Rust, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/rust.md")]
struct RustDocs;

/// The examples of the documentation of quotas, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/quotas.md")]
struct QuotasDocs;

/// The examples of the documentation of stores, run as tests.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../../docs/stores.md")]
struct StoresDocs;

/// The examples of the recipe for plans of an API, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/recipes/api-plans.md")]
struct ApiPlansRecipe;

/// The examples of the recipe for webhooks, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/recipes/webhooks.md")]
struct WebhooksRecipe;

/// The examples of the recipe for background jobs, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/recipes/background-jobs.md")]
struct BackgroundJobsRecipe;

/// The examples of the documentation of limits in front of HTTP handlers, run as tests.
#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../../docs/http.md")]
struct HttpDocs;

/// The examples of the documentation of lists of keys, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/listing.md")]
struct ListingDocs;

/// The examples of the shared-file store's documentation, run as tests.
#[cfg(all(doctest, feature = "local", target_os = "linux"))]
#[doc = include_str!("../../docs/local.md")]
struct LocalDocs;

/// The examples of the documentation of metrics, run as tests.
#[cfg(all(doctest, feature = "opentelemetry", feature = "tracing"))]
#[doc = include_str!("../../docs/metrics.md")]
struct MetricsDocs;

/// The examples of the documentation of limits as configuration, run as tests.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../../docs/policies.md")]
struct PoliciesDocs;

/// The examples of the documentation of reservations, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/reservations.md")]
struct ReservationsDocs;

/// The examples of the Redis store's documentation, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/redis.md")]
struct RedisDocs;
