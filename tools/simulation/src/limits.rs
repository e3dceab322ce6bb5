//! The limits that are compared: one policy, or a document of policies, and their candidates.

#[cfg(feature = "command")]
mod compared;

#[cfg(feature = "command")]
pub(crate) use compared::read_limits;

use polylimit::{Limiter, LimiterBuilder, Policy};
use serde_json::Value;

use crate::error::{SimulationError, excerpt};

/// Limits under which the traffic runs.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// What the answer calls them.
    pub(crate) label: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// One policy for all clients.
    Policy(Policy),
    /// A document. All clients have the policy that is named; without one, the rules decide.
    Document { text: String, policy: Option<String> },
}

/// A policy, with what is known about the most that it admits.
#[derive(Clone, Debug)]
pub(crate) struct NamedPolicy {
    pub(crate) policy: Policy,
    /// Whether every key has these quotas and nothing else admits requests.
    pub(crate) is_bound: bool,
    /// Whether groups share it.
    pub(crate) has_groups: bool,
}

impl Limits {
    /// The limiter before it gets a clock.
    pub(crate) fn builder(&self) -> LimiterBuilder {
        match &self.kind {
            Kind::Policy(policy) => Limiter::builder().policy(policy.clone()),
            Kind::Document { text, .. } => Limiter::builder().document(text),
        }
    }

    /// The policies that may decide.
    pub(crate) fn policies(&self) -> Result<Vec<NamedPolicy>, SimulationError> {
        let (text, only) = match &self.kind {
            Kind::Policy(policy) => {
                let policy = policy.clone();
                return Ok(vec![NamedPolicy { policy, is_bound: true, has_groups: false }]);
            }
            Kind::Document { text, policy } => (text, policy),
        };
        let value = document_value(text)?;
        let enabled = value.get("enabled") != Some(&Value::Bool(false));
        let tables = value.get("policies").and_then(Value::as_object);
        let mut policies = Vec::new();
        for (name, table) in tables.into_iter().flatten() {
            if only.as_ref().is_none_or(|only| only == name) {
                let quotas = table.get("quotas").and_then(Value::as_str).unwrap_or_default();
                let others = ["plans", "overrides", "mode", "candidate", "elastic"];
                let is_bound = enabled && others.iter().all(|field| table.get(*field).is_none());
                let has_groups = table.get("groups").is_some();
                policies.push(NamedPolicy { policy: Policy::parse(name, quotas)?, is_bound, has_groups });
            }
        }
        Ok(policies)
    }
}

/// The limits of a document: those of a policy that it names, or those that its rules apply.
pub(crate) fn read_document(text: &str, policy: Option<&str>) -> Result<Limits, SimulationError> {
    let value = checked_document(text)?;
    if let Some(policy) = policy {
        table(&value, policy)?;
    }
    let (label, policy) = (policy.unwrap_or("document").to_owned(), policy.map(str::to_owned));
    Ok(Limits { label, kind: Kind::Document { text: text.to_owned(), policy } })
}

/// The data of a document. The limiter reports mistakes with their lines.
fn checked_document(text: &str) -> Result<Value, SimulationError> {
    Limiter::builder().document(text).build()?;
    document_value(text)
}

/// The data of a document that a limiter has accepted.
fn document_value(text: &str) -> Result<Value, SimulationError> {
    let wrong =
        |error: String| SimulationError::Internal(format!("the document cannot be read again: {error}"));
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| wrong(error.to_string()));
    }
    let value: toml::Value = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    serde_json::to_value(value).map_err(|error| wrong(error.to_string()))
}

/// The names of the policies of a document.
fn names(document: &Value) -> String {
    let tables = document.get("policies").and_then(Value::as_object);
    let names: Vec<_> = tables.into_iter().flat_map(|tables| tables.keys().map(String::as_str)).collect();
    names.join(" or --policy ")
}

fn table<'a>(document: &'a Value, policy: &str) -> Result<&'a Value, SimulationError> {
    document.get("policies").and_then(|policies| policies.get(policy)).ok_or_else(|| {
        SimulationError::usage(format!(
            "the document has no policy {}: allowed is --policy {}",
            excerpt(policy),
            names(document)
        ))
    })
}
