//! A request to another service, by its attributes.

use std::collections::BTreeMap;

use polylimit::document::RequestAttributes;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::web::query::check_length;
use crate::web::refusal::Refused;

/// The attributes of a request, by which the rules of the document find policies, keys and costs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AttributesRequest {
    /// The method, such as `GET`.
    method: Option<String>,
    /// The path as the client sent it; a query after it is ignored.
    path: Option<String>,
    /// The other end of the client's socket, an address.
    peer: Option<String>,
    /// The lines of the header: pairs of a name and a value.
    #[serde(default)]
    headers: Vec<(String, String)>,
    /// What the application knows of the request, such as `user` or `plan`.
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    /// Names the reservations of policies with concurrency, 1 to 64 bytes; random by default.
    pub(super) id: Option<String>,
    /// How long such reservations last, in microseconds: 1,000 to 172,800,000,000; 30 s by default.
    pub(super) ttl_us: Option<u64>,
    /// How long after their commits the id is remembered, in microseconds: 1,000 to 172,800,000,000; by default it is not.
    pub(super) remember_us: Option<u64>,
}

impl AttributesRequest {
    pub(super) fn check(&self, app: &App) -> Result<(), Refused> {
        for value in self.attributes.values() {
            check_length(app, "an attribute", value.len())?;
        }
        Ok(())
    }

    pub(super) fn attributes(&self) -> RequestAttributes<'_> {
        let mut attributes = RequestAttributes::new();
        if let Some(method) = &self.method {
            attributes = attributes.method(method);
        }
        if let Some(path) = &self.path {
            attributes = attributes.path(path);
        }
        if let Some(peer) = &self.peer {
            attributes = attributes.peer(peer);
        }
        for (name, value) in &self.headers {
            attributes = attributes.header(name, value);
        }
        for (name, value) in &self.attributes {
            attributes = attributes.attribute(name, value);
        }
        attributes
    }
}
