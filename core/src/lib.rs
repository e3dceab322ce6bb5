//! polylimit decides whether requests may proceed: exactly, in integers, to the microsecond, and with the same meaning in
//! every store and language.
//!
//! ```
//! use polylimit::{Limiter, Policy};
//!
//! let limiter = Limiter::builder()
//!     .store("memory:") // or "local:", or "redis://host"
//!     .policy(Policy::parse("api", "100/minute; 2000/day")?)
//!     .build()?
//!     .blocking();
//! let decision = limiter.check("user:42")?;
//! if !decision.allowed() {
//!     println!("retry after {:?}", decision.retry_after());
//! }
//! # Ok::<(), polylimit::Error>(())
//! ```
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
//! ([`RedisOptions`](redis::RedisOptions)). Decisions are the same with each of them.
//!
//! [`Limiter`] has the operations for asynchronous callers, [`blocking::Limiter`] for blocking ones. [`http`] limits handlers, formats
//! decisions as HTTP fields, finds the client's address behind proxies, and has what clients of limited services need.
//! [`adaptive`] is a limit of concurrent calls that follows latency and errors, for a service that protects itself.
//! [`document`] is for requests under a policy document, [`admin`] for what operators ask, and [`storage`] for a store of
//! your own.
//!
//! # How much each algorithm can admit
//!
//! Over any span W of real time, per key, in units of cost; B is the capacity, L the limit, P the period. Spans are
//! half-open. [`Quota::most_admitted`] computes it.
//!
//! | algorithm | state | at most |
//! |---|---|---|
//! | [token bucket](quota::Algorithm::TokenBucket) | a debt and a time | B + floor(W * L / P) |
//! | [leaky bucket](quota::Algorithm::LeakyBucket) | a debt and a time | B + floor(W * L / P), and they leave evenly spaced |
//! | [fixed window](quota::Algorithm::FixedWindow) | a count and a time | 2L in a span of P; L per window |
//! | [sliding window](quota::Algorithm::SlidingWindow) of n buckets | n + 1 counts | L in any span of P - P/n; below 2L in a span of P, about L typically |
//! | [sliding log](quota::Algorithm::SlidingLog) | every admitted unit's time | L in any span of P |
//! | [concurrency](quota::Algorithm::Concurrency) | none of its own | counts no units: at most L reservations at a time |
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
//! | [block](admin::Admin::block) | denies the key for a time, whatever its quotas would say |
//! | [explain](admin::Admin::explain) | explains why a request would be admitted or denied now; charges nothing |
//! | [list](admin::Admin::list) | the keys that the store has, with what is used |
//! | [acquire](Limiter::acquire) | waits until admitted, or says at once that the timeout cannot be met |
//!
//! A denied request spends nothing, unless a quota says `count_denied`. When the clock goes back, spent units stay spent,
//! and no wait becomes longer than the quota alone can require. When a policy's quotas change, the use of each key is
//! kept.

pub mod adaptive;
pub mod http;
mod limiter;
pub mod storage;
mod store;

pub use limiter::{Limiter, LimiterBuilder, blocking};
pub use polylimit_rules::{Decision, Error, ErrorKind, Policy, Quota, Request};

pub mod quota {
    //! The parts of a [`Quota`](crate::Quota).

    pub use polylimit_rules::quota::{Algorithm, Calendar, QuotaBuilder};
}

pub mod decision {
    //! The parts of a [`Decision`](crate::Decision): the use of each quota, its source and its cause.

    pub use polylimit_rules::decision::{Cause, Degradation, QuotaUsage, QuotaVerdict, Source, Usage};
}

pub mod reservation {
    //! Units that are set aside before the cost is known, and places of a concurrency limit.

    pub use crate::limiter::reservation::{Reservation, ReserveOptions};
    pub use polylimit_rules::reservation::id::ReservationId;
}

pub mod clock {
    //! The time that a limiter reads; tests set it by hand.

    pub use polylimit_runtime::clock::{Clock, ManualClock};
}

pub mod redis {
    //! Options of the store in Redis.

    #[cfg(feature = "redis")]
    pub use crate::store::redis::RedisOptions;
    pub use polylimit_store::credentials::Credentials;
    pub use polylimit_store::lease_size::Lease;
}

pub mod document {
    //! Requests under a policy document: their attributes, the rules that match, and the decisions.

    pub use crate::limiter::configured::request_decision::{PolicyDecision, RequestDecision};
    pub use crate::limiter::configured::request_match::{MatchedPolicy, RequestMatch};
    pub use polylimit_document::matcher::PolicyMatch;
    pub use polylimit_document::request::{AttributeSource, Peer, RequestAttributes};
    pub use polylimit_document::router_paths::RouterPaths;
}

pub mod metrics {
    //! Metrics as values, and as the text that monitoring systems read. [`Limiter::metrics`](crate::Limiter::metrics) fills them.

    pub use crate::limiter::event::DegradedEvent;
    #[cfg(feature = "opentelemetry")]
    pub use crate::limiter::metrics::opentelemetry;
    pub use polylimit_store::families::durations::Durations;
    pub use polylimit_store::families::{Family, FamilyKind, Sample, SampleValue, TextFormat};
    pub use polylimit_store::stats::Stats;
}

pub mod admin {
    //! What operators ask, behind [`Limiter::admin`](crate::Limiter::admin): keys of a store, explanations, published documents and
    //! their entries, lists, processes.

    pub use crate::limiter::Admin;
    pub use crate::limiter::configured::candidate_counts::CandidateCounts;
    pub use crate::limiter::configured::lists::{ListName, ListOptions, ListedItem};
    pub use crate::limiter::configured::manage::PublishOptions;
    pub use crate::limiter::configured::published::{
        ConfigurationEntries, ConfigurationEntry, PublishedDocument,
    };
    pub use crate::limiter::configured::status::{ConfigurationChange, ConfigurationStatus};
    pub use crate::limiter::explanation::report::{
        ConfigurationExplanation, EntryExplanation, KeyExplanation, PenaltyExplanation, PolicyMode,
        QuotaExplanation, QuotasSource, RequestExplanation,
    };
    pub use crate::limiter::fleet::report::{DeniedKey, PolicyCounts, ProcessReport};
    pub use crate::limiter::fleet::top_denied;
    pub use crate::limiter::listing::page::{
        KeyFilter, KeyPage, ListBudget, ListedKey, ListedQuota, ResetPage,
    };
    pub use crate::limiter::top_keys::{TopKey, TopKeys};
    pub use polylimit_store::finding::{Finding, Severity};
    pub use polylimit_store::scan::KeyName;
}

pub mod raw {
    //! For the bindings, the command line and the server, with [`Limiter::raw`](crate::Limiter::raw). Programs do not need it, and it may
    //! change in any version.

    pub use crate::limiter::Raw;
    pub use crate::limiter::call::{Answer, Call};
    pub use crate::limiter::completion::Completions;
    pub use polylimit_document::descriptor::descriptor_attributes;
    pub use polylimit_document::document::canonical_document;
    pub use polylimit_document::schema::document_schema;
    pub use polylimit_rules::decision::{DecisionParts, UsageParts};
    pub use polylimit_rules::quota::parse_duration;
    pub use polylimit_rules::report::{printable, report_json};
    pub use polylimit_rules::reservation::list::ReservationTerms;
    pub use polylimit_rules::suggestion::{OptionPlace, Suggestion};
    pub use polylimit_rules::time::time_text;
    #[cfg(not(target_family = "wasm"))]
    pub use polylimit_runtime::event_descriptor::{EventDescriptor, RawDescriptor};
    pub use polylimit_store::option::{OptionKind, StoreOption};
}

/// What tests and simulations of this project reach.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing {
    pub use crate::limiter::testing as limiter;
    #[cfg(feature = "redis")]
    pub use crate::store::configuration_testing as configuration;
    #[cfg(feature = "redis")]
    pub use crate::store::redis::script::testing as script;
    pub use polylimit_document::testing as document;
    pub use polylimit_runtime::simulation;
}

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

/// The examples of the documentation of limits in gRPC servers, run as tests.
#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../../docs/grpc.md")]
struct GrpcDocs;

/// The examples of the documentation of lists of keys, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/listing.md")]
struct ListingDocs;

/// The examples of the local store's documentation, run as tests.
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

/// The examples of the documentation of adaptive limits, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/adaptive.md")]
struct AdaptiveDocs;
