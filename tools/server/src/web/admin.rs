//! The admin listener: metrics, keys, explanations and what the server reports about itself.

use axum::body::Body;
use axum::extract::State;
use http::header::HeaderValue;
use http::{Request, Response, StatusCode, Uri};
use polylimit::admin::{ConfigurationStatus, KeyFilter, ListBudget};
use polylimit::metrics::{Family, FamilyKind, SampleValue, TextFormat};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use utoipa::IntoParams;

use crate::access::Role;
use crate::app::App;
use crate::caller::Caller;
use crate::process;
use crate::tls::Tls;
use crate::web::operation::KeyRequest;
use crate::web::query::{self, Shared, from_base64, query};
use crate::web::refusal::{Refused, invalid, json, of_error, with_body};
use crate::web::shown::shown;

pub(super) async fn metrics(State(app): Shared) -> Response<Body> {
    let mut families = app.limiter.metrics();
    families.extend(app.counters.families());
    families.extend([denied_keys(&app), certificate_expiry(&app)]);
    // Reading them takes time where thousands of files are open. Where a task ends early, its samples are left out.
    families.extend(spawn_blocking(process::families).await.unwrap_or_default());
    let format = TextFormat::Prometheus;
    let content_type = HeaderValue::from_static(format.content_type());
    with_body(StatusCode::OK, content_type, format.write(&families))
}

fn denied_keys(app: &App) -> Family {
    let mut denied = Family::new(
        "polylimit_server_denied_keys",
        FamilyKind::Gauge,
        "Keys whose denials have become more in the last minute, of the 256 that are denied most often in the sample of --observe-keys.",
    );
    if app.limiter.admin().top_keys(0).counters > 0 {
        #[expect(clippy::cast_precision_loss, reason = "there are at most hundreds")]
        denied.add([], SampleValue::Number(app.traffic.denied_keys() as f64));
    }
    denied
}

fn certificate_expiry(app: &App) -> Family {
    let mut expiry = Family::new(
        "polylimit_server_certificate_expiry_timestamp_seconds",
        FamilyKind::Gauge,
        "When the certificate of the listeners expires, or one between it and the authority before it, since 1970.",
    );
    if let Some(at) = app.tls.as_ref().and_then(Tls::expires_at) {
        #[expect(clippy::cast_precision_loss, reason = "years up to 9999 are exact")]
        expiry.add([], SampleValue::Number(at as f64));
    }
    expiry
}

pub(super) async fn stats(State(app): Shared) -> Response<Body> {
    json(&app.limiter.stats())
}

/// What an operator may do here, and what there is to see.
#[derive(Serialize)]
struct SessionReport {
    /// `check`, `read` or `admin`.
    role: &'static str,
    /// The name of the token or certificate; `None` where callers need none.
    name: Option<String>,
    version: &'static str,
    show_keys: &'static str,
    /// How many keys are counted for `/v1/top` at most.
    observed_keys: u64,
    configuration: Option<ConfigurationStatus>,
}

pub(super) async fn session(State(app): Shared, request: Request<Body>) -> Response<Body> {
    let identity = request.extensions().get::<Caller>().and_then(|caller| caller.identity.as_ref());
    json(&SessionReport {
        role: if app.asks_who() {
            identity.map_or(Role::Check, |identity| identity.role)
        } else {
            Role::Admin
        }
        .name(),
        name: identity.map(|identity| identity.name.to_string()),
        version: env!("CARGO_PKG_VERSION"),
        show_keys: app.options.show_keys.name(),
        observed_keys: app.limiter.admin().top_keys(0).counters,
        configuration: app.limiter.admin().configuration(),
    })
}

/// What the doctor finds about the store.
pub(super) async fn doctor(State(app): Shared) -> Response<Body> {
    match app.limiter.admin().doctor().await {
        Ok(findings) => json(&findings),
        Err(error) => of_error(&error),
    }
}

/// How much of a log is returned.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct MostQuery {
    /// How many, 1 to 1,000; 20 by default.
    most: Option<usize>,
}

impl MostQuery {
    pub(super) fn read(uri: &Uri) -> Result<usize, Refused> {
        let most = query::<Self>(uri)?.most.unwrap_or(20);
        if (1..=1_000).contains(&most) {
            return Ok(most);
        }
        Err(invalid(&format!("most is {most}: allowed are 1 to 1000")))
    }
}

pub(super) async fn top(State(app): Shared, uri: Uri) -> Response<Body> {
    match MostQuery::read(&uri) {
        Ok(most) => shown(&app, &app.limiter.admin().top_keys(most)),
        Err(refused) => refused.response(),
    }
}

/// Which keys are listed, and how much of them at once.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct KeysQuery {
    /// The name of a policy, or its quotas; without it the keys of all.
    policy: Option<String>,
    /// What the keys begin with.
    prefix: Option<String>,
    /// The same in base64, where it is no text.
    prefix_base64: Option<String>,
    /// Keys of which at least this much is used, in percent; 0 by default.
    used: Option<u8>,
    /// Only blocked keys.
    #[serde(default)]
    blocked: bool,
    /// The page ends with this many keys, 1 or more; 1,000 by default.
    entries: Option<usize>,
    /// The page ends once the store has examined this many keys, 1 or more; 100,000 by default.
    examined: Option<u64>,
    /// The share of a server's time that this may take, 1 to 100 percent; 10 by default.
    pace: Option<u8>,
    /// Where the list goes on, as returned by the page before.
    cursor: Option<String>,
}

pub(super) async fn keys(State(app): Shared, uri: Uri) -> Response<Body> {
    try_keys(&app, &uri).await.unwrap_or_else(Refused::response)
}

async fn try_keys(app: &App, uri: &Uri) -> Result<Response<Body>, Refused> {
    let asked: KeysQuery = query(uri)?;
    let prefix = match (asked.prefix, asked.prefix_base64) {
        (Some(_), Some(_)) => return Err(invalid("prefix and prefix_base64 are given: give one of them")),
        (Some(prefix), None) => prefix.into_bytes(),
        (None, Some(prefix)) => from_base64("prefix_base64", &prefix)?,
        (None, None) => Vec::new(),
    };
    // Of a blocked key everything counts as used.
    let used = asked.used.unwrap_or(0).max(if asked.blocked { 100 } else { 0 });
    let mut filter = KeyFilter::default().key_prefix(&prefix).at_least_used(used);
    let policy = match &asked.policy {
        Some(text) => {
            let one_off = app.one_off.resolve(&app.limiter, text, None);
            Some(
                one_off.map_err(|error| invalid(&error.to_string()))?.unwrap_or_else(|| text.as_str().into()),
            )
        }
        None => None,
    };
    if let Some(policy) = &policy {
        filter = filter.policy(policy);
    }
    let mut budget = ListBudget::default();
    if let Some(entries) = asked.entries {
        budget = budget.entries(entries);
    }
    if let Some(examined) = asked.examined {
        budget = budget.examined(examined);
    }
    if let Some(percent) = asked.pace {
        budget = budget.pace_percent(percent);
    }
    let page = app.limiter.admin().list(&filter, &budget, asked.cursor.as_deref()).await;
    let mut page = page.map_err(|error| Refused::of(of_error(&error)))?;
    page.keys.retain(|key| !asked.blocked || key.blocked_for_us > 0);
    Ok(shown(app, &page))
}

/// Why a key would be admitted or denied; spends nothing.
pub(super) async fn explain(State(app): Shared, request: Request<Body>) -> Response<Body> {
    let explained = async {
        let asked: KeyRequest = query::parse(&query::body(&app, request.into_body()).await?)?;
        let prepared = asked.prepare(&app, None)?;
        let explained = app.limiter.admin().explain(prepared.request()).await;
        explained.map(|explained| shown(&app, &explained)).map_err(|error| Refused::of(of_error(&error)))
    };
    explained.await.unwrap_or_else(Refused::response)
}
