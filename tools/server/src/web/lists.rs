//! Deny and allow lists, and blocks of keys.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use http::{Request, Response, StatusCode};
use polylimit::Error;
use polylimit::admin::{ListName, ListOptions, ListedItem};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::caller::Caller;
use crate::log::LogRecord;
use crate::web::author::{self, Author, author, check_note};
use crate::web::operation::KeyRequest;
use crate::web::query::{self, Shared};
use crate::web::refusal::{Refused, json, of_error, refuse};
use crate::web::shown::{shown, shown_item};

/// The items of both lists.
#[derive(Serialize)]
struct ListsReport {
    deny: Vec<ListedItem>,
    allow: Vec<ListedItem>,
}

pub(super) async fn lists(State(app): Shared) -> Response<Body> {
    let lists = async {
        let deny = app.limiter.admin().list_items(ListName::Deny).await?;
        Ok::<_, Error>(ListsReport { deny, allow: app.limiter.admin().list_items(ListName::Allow).await? })
    };
    match lists.await {
        Ok(lists) => shown(&app, &lists),
        Err(error) => of_error(&error),
    }
}

/// A change of a list.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ItemRequest {
    /// `deny` or `allow`.
    list: String,
    /// `client NETWORK`, `ATTRIBUTE VALUE` or `key POLICY KEY`, with %20 for a space in a value.
    item: String,
    /// For how long an added item has an effect, in microseconds; without it until it is removed.
    for_us: Option<u64>,
    /// The reason, for the log; 1 to 1,024 bytes.
    why: String,
    /// The author's name, for the log: in brackets after the caller's name, where the server knows it. Up to 256 bytes with that.
    by: Option<String>,
}

/// What has become of an item.
#[derive(Serialize)]
struct ChangeReport {
    entry: String,
    version: u64,
}

pub(super) async fn add(State(app): Shared, request: Request<Body>) -> Response<Body> {
    change(&app, request, true).await.unwrap_or_else(Refused::response)
}

pub(super) async fn remove(State(app): Shared, request: Request<Body>) -> Response<Body> {
    change(&app, request, false).await.unwrap_or_else(Refused::response)
}

async fn change(app: &App, request: Request<Body>, adds: bool) -> Result<Response<Body>, Refused> {
    let (head, body) = request.into_parts();
    let ItemRequest { list, item, for_us, why, by } = query::parse(&query::body(app, body).await?)?;
    let list: ListName = list.parse().map_err(|error: Error| Refused::of(of_error(&error)))?;
    let Author { by, why } = author(&head.extensions, by, why)?;
    let mut options = ListOptions::default().by(&by).why(&why);
    options.lasts = for_us.map(Duration::from_micros);
    let changed = if adds {
        app.limiter.admin().add_list_item(list, &item, options).await.map(Some)
    } else {
        app.limiter.admin().remove_list_item(list, &item, options).await
    };
    let entry = format!("{list} {item}");
    if let Some(status) = changed.map_err(|error| Refused::of(of_error(&error)))? {
        let (event, what) = if adds {
            ("list_item_added", "an item was added to a list")
        } else {
            ("list_item_removed", "an item was removed from a list")
        };
        let record = LogRecord::info(event, what).with("entry", shown_item(app, &entry));
        app.log(&record.with("by", &by).with("why", &why).with("version", status.version));
        return Ok(json(&ChangeReport { entry, version: status.version }));
    }
    let detail = format!(
        "there is no entry {entry:?}: GET /v1/lists lists them, and those of the document are changed there"
    );
    Err(Refused::of(refuse(StatusCode::NOT_FOUND, "not_found", &detail)))
}

/// A key that is blocked, or whose block ends.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockRequest {
    /// The name of a policy, or its quotas.
    policy: Option<String>,
    /// The key.
    key: Option<String>,
    /// The key in base64, where it is no text.
    key_base64: Option<String>,
    /// For how long, in microseconds, 1,000 to 31,622,400,000,000; 0 ends the block, and forgets what a penalty has counted.
    for_us: u64,
    /// The reason, for the log; up to 1,024 bytes.
    #[serde(default)]
    why: String,
    /// The author's name, for the log: in brackets after the caller's name, where the server knows it. Up to 256 bytes.
    by: Option<String>,
}

/// What has become of a block.
#[derive(Serialize)]
struct BlockReport {
    /// How long the key stays blocked at most, longer where it was blocked before.
    reset_after_us: u64,
    /// Whole units that are left: 0 while the key is blocked.
    remaining: u64,
}

pub(super) async fn block(State(app): Shared, request: Request<Body>) -> Response<Body> {
    let blocked = async {
        let (head, body) = request.into_parts();
        let asked = query::parse(&query::body(&app, body).await?)?;
        let BlockRequest { policy, key, key_base64, for_us, why, by } = asked;
        check_note(by.as_deref(), &why)?;
        let prepared = KeyRequest::of(policy, key, key_base64).prepare(&app, None)?;
        let usage = app.limiter.admin().block(prepared.request(), Duration::from_micros(for_us)).await;
        let usage = usage.map_err(|error| Refused::of(of_error(&error)))?;
        if usage.source().is_outage() {
            let detail = "the store has not answered, so nothing has changed: try again once it does";
            return Err(Refused::of(refuse(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", detail)));
        }
        let (event, what) = match for_us {
            0 => ("key_unblocked", "the block of a key was ended"),
            _ => ("key_blocked", "a key was blocked"),
        };
        let caller = head.extensions.get::<Caller>();
        let record = LogRecord::info(event, what)
            .with("policy", prepared.policy())
            .with("key", app.options.show_keys.of(prepared.key()));
        let record = if for_us > 0 { record.with("for_us", for_us) } else { record };
        app.log(
            &record
                .with("by", author::name(caller, by))
                .with("why", why)
                .with("peer", caller.map(Caller::place).unwrap_or_default()),
        );
        Ok(json(&BlockReport { reset_after_us: usage.reset_after_us(), remaining: usage.remaining() }))
    };
    blocked.await.unwrap_or_else(|refused: Refused| refused.response())
}
