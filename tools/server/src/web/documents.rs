//! The document of limits: what is active, its history, and its changes.

use std::fs;

use axum::body::Body;
use axum::extract::State;
use http::header::{ETAG, HeaderValue, IF_MATCH};
use http::{Request, Response, StatusCode, Uri};
use polylimit::admin::{ConfigurationStatus, PublishOptions};
use polylimit::raw::canonical_document;
use polylimit::{Error, ErrorKind, Limiter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use similar::TextDiff;
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::log::LogRecord;
use crate::web::admin::MostQuery;
use crate::web::author::{Author, author};
use crate::web::query::{self, Shared, query};
use crate::web::refusal::{Refused, invalid, json, of_error, refuse};
use crate::web::shown::shown;

/// The source of a document that is published in Redis, as the limiter names it.
const PUBLISHED: &str = "store";
/// How many unchanged lines stand around a difference.
const CONTEXT: usize = 3;

/// Which document.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionQuery {
    /// One of the last 32 published documents; without it the newest.
    version: Option<u64>,
}

/// The document of limits, and what is active.
#[derive(Serialize)]
struct DocumentReport {
    /// The version of a published document, which `If-Match` names.
    document_version: Option<u64>,
    document: Option<Box<RawValue>>,
    /// The document as its author has written it, with comments.
    text: Option<Box<str>>,
    status: ConfigurationStatus,
}

pub(super) async fn policies(State(app): Shared, uri: Uri) -> Response<Body> {
    try_policies(&app, &uri).await.unwrap_or_else(Refused::response)
}

async fn try_policies(app: &App, uri: &Uri) -> Result<Response<Body>, Refused> {
    let VersionQuery { version } = query(uri)?;
    let Some(status) = app.limiter.admin().configuration() else {
        let detail = "this server has no document of limits: start it with --policies FILE, or with a store in Redis that has one";
        return Err(Refused::of(refuse(StatusCode::NOT_FOUND, "not_found", detail)));
    };
    let Newest { document_version, document, text } = newest(app, &status, version).await?;
    let tag = match document_version {
        Some(version) => format!("\"{version}\""),
        None => format!("\"{}\"", status.digest),
    };
    let document = document.and_then(|text| RawValue::from_string(text.into()).ok());
    let mut response = json(&DocumentReport { document_version, document, text, status });
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// The document where it comes from.
struct Newest {
    /// 0 where none is published yet; `None` for a document that is not published.
    document_version: Option<u64>,
    document: Option<Box<str>>,
    text: Option<Box<str>>,
}

async fn newest(app: &App, status: &ConfigurationStatus, version: Option<u64>) -> Result<Newest, Refused> {
    if &*status.source == PUBLISHED || version.is_some() {
        let published = app.limiter.admin().published_document(version).await.map_err(failed)?;
        return match published {
            Some(published) => Ok(Newest {
                document_version: Some(published.document_version),
                document: Some(published.document),
                text: Some(published.text),
            }),
            None if version.is_some() => {
                let detail =
                    "there is no such document: allowed is one of the last 32, which /v1/history lists";
                Err(Refused::of(refuse(StatusCode::NOT_FOUND, "not_found", detail)))
            }
            None => Ok(Newest { document_version: Some(0), document: None, text: None }),
        };
    }
    let text = app.options.policies.as_ref().and_then(|path| fs::read_to_string(path).ok());
    // The status says why a file that cannot be used is not active.
    let document = text.as_deref().and_then(|text| canonical_document(text).ok());
    Ok(Newest { document_version: None, text: text.filter(|_| document.is_some()).map(Into::into), document })
}

/// Why a document is published.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PutQuery {
    /// The reason, for the log; 1 to 1,024 bytes.
    why: String,
    /// The author's name, for the log: in brackets after the caller's name, where the server knows it. Up to 256 bytes with that.
    by: Option<String>,
}

pub(super) async fn put_policies(State(app): Shared, request: Request<Body>) -> Response<Body> {
    try_put(&app, request).await.unwrap_or_else(Refused::response)
}

async fn try_put(app: &App, request: Request<Body>) -> Result<Response<Body>, Refused> {
    let (head, body) = request.into_parts();
    let PutQuery { why, by } = query(&head.uri)?;
    let Author { by, why } = author(&head.extensions, by, why)?;
    check_published(app)?;
    let Some(tag) = head.headers.get(IF_MATCH) else {
        let detail =
            "If-Match is missing: send the ETag of GET /v1/policies, or \"0\" for the first document";
        return Err(Refused::of(refuse(StatusCode::PRECONDITION_REQUIRED, "if_match_missing", detail)));
    };
    let tag = tag.to_str().unwrap_or_default();
    let expected: u64 = tag.trim().trim_matches('"').parse().map_err(|_| {
        invalid(&format!(
            "If-Match {tag:?} cannot be read: allowed is the ETag of GET /v1/policies, such as \"7\""
        ))
    })?;
    let text = text(app, body).await?;
    let options = PublishOptions::default().expected_version(expected).by(&by).why(&why);
    match app.limiter.admin().publish(&text, options).await {
        Ok(status) => {
            let record = LogRecord::info("document_published", "a document of limits was published")
                .with("version", status.version);
            app.log(&record.with("by", &by).with("why", &why));
            Ok(json(&status))
        }
        Err(error) => {
            // Another version than the expected one is a conflict and no mistake in the document.
            let there = app.limiter.admin().published_document(None).await.ok().flatten();
            let there = there.map_or(0, |published| published.document_version);
            let is_conflict = error.kind() == ErrorKind::InvalidArgument && there != expected;
            Err(Refused::of(if is_conflict {
                refuse(StatusCode::PRECONDITION_FAILED, "version_conflict", error.message())
            } else {
                of_error(&error)
            }))
        }
    }
}

/// Which document is published again, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RollbackRequest {
    /// The version of one of the last 32 documents.
    version: u64,
    /// The reason, for the log; 1 to 1,024 bytes.
    why: String,
    /// The author's name, for the log: in brackets after the caller's name, where the server knows it. Up to 256 bytes with that.
    by: Option<String>,
}

pub(super) async fn rollback(State(app): Shared, request: Request<Body>) -> Response<Body> {
    let rolled_back = async {
        let (head, body) = request.into_parts();
        let RollbackRequest { version, why, by } = query::parse(&query::body(&app, body).await?)?;
        check_published(&app)?;
        let Author { by, why } = author(&head.extensions, by, why)?;
        let options = PublishOptions::default().by(&by).why(&why);
        let status = app.limiter.admin().rollback(version, options).await.map_err(failed)?;
        let record =
            LogRecord::info("document_rolled_back", format!("document {version} was published again"));
        app.log(&record.with("version", status.version).with("by", &by).with("why", &why));
        Ok(json(&status))
    };
    rolled_back.await.unwrap_or_else(Refused::response)
}

fn check_published(app: &App) -> Result<(), Refused> {
    match app.limiter.admin().configuration() {
        Some(status) if &*status.source != PUBLISHED => {
            let detail = format!("the document comes from {}: change it there", status.source);
            Err(Refused::of(refuse(StatusCode::CONFLICT, "not_published", &detail)))
        }
        _ => Ok(()),
    }
}

/// Whether a limiter would take a document.
#[derive(Serialize)]
struct ValidityReport<'a> {
    valid: bool,
    error: Option<&'a str>,
}

pub(super) async fn validate(State(app): Shared, request: Request<Body>) -> Response<Body> {
    let validated = async {
        let text = text(&app, request.into_body()).await?;
        let error = Limiter::builder().document(&text).build().err();
        let error = error.as_ref().map(Error::message);
        Ok(json(&ValidityReport { valid: error.is_none(), error }))
    };
    validated.await.unwrap_or_else(Refused::response)
}

/// How a document differs from the one that is there.
#[derive(Serialize)]
struct DifferenceReport {
    equal: bool,
    difference: String,
}

pub(super) async fn diff(State(app): Shared, request: Request<Body>) -> Response<Body> {
    let compared = async {
        let (head, body) = request.into_parts();
        let VersionQuery { version } = query(&head.uri)?;
        let text = text(&app, body).await?;
        let after = canonical_document(&text).map_err(failed)?;
        let status = app.limiter.admin().configuration();
        let before = match &status {
            Some(status) => newest(&app, status, version).await?.document,
            None => None,
        };
        let [before, after] = [before.unwrap_or_default(), after].map(|canonical| lines(&canonical));
        let equal = before == after;
        let difference = TextDiff::from_lines(&before, &after);
        let difference = difference.unified_diff().context_radius(CONTEXT).to_string();
        Ok(json(&DifferenceReport { equal, difference: if equal { String::new() } else { difference } }))
    };
    compared.await.unwrap_or_else(Refused::response)
}

/// A document in as many lines as it has values.
fn lines(canonical: &str) -> String {
    serde_json::from_str::<Value>(canonical)
        .map_or_else(|_| String::new(), |document| format!("{document:#}\n"))
}

pub(super) async fn history(State(app): Shared, uri: Uri) -> Response<Body> {
    let most = match MostQuery::read(&uri) {
        Ok(most) => most,
        Err(refused) => return refused.response(),
    };
    match app.limiter.admin().configuration_history(most).await {
        Ok(changes) => shown(&app, &changes),
        Err(error) => of_error(&error),
    }
}

async fn text(app: &App, body: Body) -> Result<String, Refused> {
    let body = query::body(app, body).await?;
    String::from_utf8(body.into()).map_err(|_| invalid("the document is not text in UTF-8"))
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of a map_err")]
fn failed(error: Error) -> Refused {
    Refused::of(of_error(&error))
}
