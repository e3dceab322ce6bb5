//! The options of a guard.

use napi_derive::napi;
use polylimit::http::guard::{Guard, KeyPart};
use polylimit::http::headers::HeaderSettings;

use crate::error::{Result, to_js_error};
use crate::number::{ANY, TTL, WAIT, cost, duration, whole};

/// The options of a guard, as in the core. Those that are absent have the core's defaults.
#[napi(object, object_to_js = false)]
#[expect(clippy::struct_excessive_bools, reason = "the options of a program are independent of each other")]
pub struct GuardSettings {
    /// `None` for the only policy of the limiter.
    pub policies: Option<Vec<String>>,
    /// The costs that policies have for themselves, by their position.
    pub costs: Vec<Option<f64>>,
    /// Whether the program says what a request has spent under a policy, by its position; such a policy is reserved.
    pub reserved: Vec<bool>,
    /// Whether the configuration of the limiter decides.
    pub by_configuration: bool,
    /// Whether the policies are a function of the request.
    pub per_request: bool,
    pub scope: Option<String>,
    pub key_parts: Vec<String>,
    pub missing_key: Option<String>,
    pub cost: Option<f64>,
    pub methods: Vec<String>,
    pub separate_head: bool,
    pub count_preflights: bool,
    pub cors_origins: Vec<String>,
    pub headers: Option<String>,
    pub status: Option<f64>,
    pub message: Option<String>,
    pub dry_run: bool,
    /// Whether the program has a `spent`, for which requests are reserved under every policy.
    pub spends: bool,
    /// What the response reports as spent, in place of the program: for all policies, or by their position.
    pub spent_by: Option<String>,
    pub spent_by_each: Vec<Option<String>>,
    pub ttl_ms: Option<f64>,
    pub max_age_ms: Option<f64>,
    pub wait_ms: Option<f64>,
    pub max_waiting: Option<f64>,
    /// Whether the program has an `onOutage`, for which the guard stops at [`GuardStep::Outage`].
    pub hears_outages: bool,
}

/// Makes the guard of these options.
pub(crate) fn build(limiter: polylimit::Limiter, settings: GuardSettings) -> Result<Guard> {
    let mut builder = Guard::builder(limiter)
        .per_request(settings.per_request)
        .per_route(true)
        .separate_head(settings.separate_head)
        .count_preflights(settings.count_preflights)
        .cors_origins(settings.cors_origins)
        .dry_run(settings.dry_run)
        .reserved(settings.spends)
        .reserved_each(settings.reserved);
    if settings.by_configuration {
        builder = builder.by_configuration();
    }
    if !settings.spent_by_each.is_empty() {
        builder = builder.spent_by_each(settings.spent_by_each);
    } else if let Some(meter) = settings.spent_by {
        builder = builder.spent_by(meter);
    }
    if let Some(ttl_ms) = settings.ttl_ms {
        builder = builder.ttl(duration("ttlMs", ttl_ms, &TTL)?);
    }
    if let Some(max_age_ms) = settings.max_age_ms {
        builder = builder.max_age(duration("maxAgeMs", max_age_ms, &ANY)?);
    }
    if let Some(wait_ms) = settings.wait_ms {
        builder = builder.wait(duration("waitMs", wait_ms, &WAIT)?);
    }
    if let Some(most) = settings.max_waiting {
        let most = whole("maxWaiting", most, "1 to 1000000")?;
        builder = builder.max_waiting(u32::try_from(most).unwrap_or(u32::MAX));
    }
    if let Some(policies) = settings.policies {
        builder = builder.policies(policies);
    }
    if let Some(scope) = settings.scope {
        builder = builder.scope(scope);
    }
    for part in settings.key_parts {
        builder = builder.key_part(part.parse::<KeyPart>().map_err(to_js_error)?);
    }
    if let Some(missing) = settings.missing_key {
        builder = builder.missing_key(missing.parse().map_err(to_js_error)?);
    }
    if let Some(units) = settings.cost {
        builder = builder.cost(cost(units)?);
    }
    if settings.costs.iter().any(Option::is_some) {
        let costs = settings.costs.into_iter().map(|units| units.map(cost).transpose());
        builder = builder.costs(costs.collect::<Result<Vec<_>>>()?);
    }
    for method in settings.methods {
        builder = builder.method(method);
    }
    if let Some(headers) = settings.headers {
        builder = builder.headers(headers.parse::<HeaderSettings>().map_err(to_js_error)?);
    }
    if let Some(status) = settings.status {
        let status = whole("status", status, "400 to 599")?;
        builder = builder.status(u16::try_from(status).unwrap_or(u16::MAX));
    }
    if let Some(message) = settings.message {
        builder = builder.message(message);
    }
    builder.build().map_err(to_js_error)
}
