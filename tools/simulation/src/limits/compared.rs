//! The limits that arguments name: a policy or a document, and what it is compared with.

use std::path::Path;

use polylimit::Policy;
use serde_json::Value;

use super::{Kind, Limits, checked_document, names, table};
use crate::error::{SimulationError, excerpt};

/// The limits of the arguments, the active ones first, then the candidates.
pub(crate) fn read_limits(
    policy: Option<&str>,
    candidates: &[String],
    document: Option<&Path>,
    has_rules: bool,
) -> Result<Vec<Limits>, SimulationError> {
    let Some(path) = document else {
        let text = policy.ok_or_else(|| {
            SimulationError::usage(
                "there is no policy: give one such as --policy 'api=100/minute', or a document with --policies FILE",
            )
        })?;
        return read_policies(text, candidates);
    };
    let text = std::fs::read_to_string(path).map_err(|error| SimulationError::file("read", path, &error))?;
    let value = checked_document(&text)
        .map_err(|error| SimulationError::usage(format!("{}: {error}", path.display())))?;
    if policy.is_none() && !has_rules {
        return Err(SimulationError::usage(format!(
            "generated clients have no paths that rules could match: name the policy that they have, with --policy {}",
            names(&value)
        )));
    }
    if let Some(policy) = policy {
        table(&value, policy)?;
    }
    let policy = policy.map(str::to_owned);
    let label = policy.clone().unwrap_or_else(|| path.display().to_string());
    let mut limits = vec![Limits { label, kind: Kind::Document { text, policy: policy.clone() } }];
    for candidate in candidates {
        let (label, text) = replaced(&value, candidate)?;
        limits.push(Limits { label, kind: Kind::Document { text, policy: policy.clone() } });
    }
    Ok(limits)
}

/// A policy and its candidates, all as quotas.
fn read_policies(text: &str, candidates: &[String]) -> Result<Vec<Limits>, SimulationError> {
    let (name, quotas) = named_quotas(text);
    let name = name.unwrap_or("policy");
    if !is_quotas(quotas) {
        return Err(SimulationError::usage(format!(
            "read --policy {}, allowed are quotas such as 'api=100/minute'; a name needs a document, with --policies FILE",
            excerpt(text)
        )));
    }
    let mut limits = Vec::new();
    for text in [text].into_iter().chain(candidates.iter().map(String::as_str)) {
        let (given, quotas) = named_quotas(text);
        if given.is_some_and(|given| given != name) {
            return Err(SimulationError::usage(format!(
                "read --candidate {}, allowed are other quotas of the policy {name}, such as '{name}=100/minute'",
                excerpt(text)
            )));
        }
        let policy = Policy::parse(name, quotas)?;
        limits.push(Limits { label: policy.to_string(), kind: Kind::Policy(policy) });
    }
    Ok(limits)
}

/// The name before the first `=`, unless that is within quotas.
fn named_quotas(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, quotas)) if !is_quotas(name.trim()) => (Some(name.trim()), quotas.trim()),
        _ => (None, text.trim()),
    }
}

/// Names of policies contain neither `/` nor spaces.
fn is_quotas(text: &str) -> bool {
    text.contains(|c: char| c == '/' || c.is_whitespace())
}

/// The document with other quotas of a policy: those that are given, or the candidate's that the document has.
fn replaced(document: &Value, candidate: &str) -> Result<(String, String), SimulationError> {
    let (name, quotas) = match named_quotas(candidate) {
        (Some(name), quotas) => (name, quotas),
        (None, text) if is_quotas(text) => {
            return Err(SimulationError::usage(format!(
                "read --candidate {}, allowed is the name of a policy before the quotas, such as 'api=100/minute'",
                excerpt(candidate)
            )));
        }
        (None, name) => {
            let quotas = table(document, name)?.get("candidate").and_then(|table| table.get("quotas"));
            let quotas = quotas.and_then(Value::as_str).ok_or_else(|| {
                SimulationError::usage(format!(
                    "the document has no candidate of {name}: give quotas, such as --candidate '{name}=100/minute'"
                ))
            })?;
            (name, quotas)
        }
    };
    table(document, name)?;
    let policy = Policy::parse(name, quotas)?;
    let mut changed = document.clone();
    if let Some(table) =
        changed.pointer_mut(&format!("/policies/{}", pointer(name))).and_then(Value::as_object_mut)
    {
        table.insert("quotas".to_owned(), Value::String(quotas.to_owned()));
        table.remove("candidate");
    }
    Ok((policy.to_string(), changed.to_string()))
}

/// A name in a JSON pointer (RFC 6901).
fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(policy: &str, candidates: &[&str]) -> Result<Vec<String>, String> {
        let candidates: Vec<String> = candidates.iter().map(|text| (*text).to_owned()).collect();
        let limits =
            read_limits(Some(policy), &candidates, None, false).map_err(|error| error.to_string())?;
        Ok(limits.into_iter().map(|limits| limits.label).collect())
    }

    #[test]
    fn quotas_have_names_or_not() {
        let read = labels("api=100/minute burst=0", &[]).unwrap_err();
        assert!(read.contains("burst"), "{read}");
        let read = labels("api = 100/minute", &["200/minute", "api=10/s token_bucket burst=20"]);
        assert_eq!(
            read.unwrap(),
            ["api: 100/minute", "api: 200/minute", "api: 10/second token_bucket burst=20"]
        );
        assert_eq!(
            labels("10/s token_bucket burst=20", &[]).unwrap(),
            ["policy: 10/second token_bucket burst=20"]
        );
    }

    #[test]
    fn mistakes_are_told() {
        for (policy, candidates, part) in [
            ("api", &[][..], "a name needs a document"),
            ("api=100/minuet", &[], "minuet"),
            ("api=100/minute", &["web=5/s"], "other quotas of the policy api"),
            ("api=100/minute", &["api=5/fortnight"], "fortnight"),
        ] {
            let message = labels(policy, candidates).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
        let message = read_limits(None, &[], None, false).unwrap_err().to_string();
        assert!(message.contains("--policies FILE"), "{message}");
    }

    #[test]
    fn a_candidate_replaces_quotas_of_a_document() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "polylimit = 1\n[policies.api]\nquotas = \"100/minute\"\ncandidate = { quotas = \"80/minute\" }\n",
        )
        .unwrap();
        let read = |policy, candidates: &[&str]| {
            let candidates: Vec<String> = candidates.iter().map(|text| (*text).to_owned()).collect();
            read_limits(policy, &candidates, Some(file.path()), false).map_err(|error| error.to_string())
        };
        let limits = read(Some("api"), &["api=50/s", "api"]).unwrap();
        let quotas = |limits: &Limits| limits.policies().unwrap()[0].policy.to_string();
        assert_eq!(
            limits.iter().map(quotas).collect::<Vec<_>>(),
            ["api: 100/minute", "api: 50/second", "api: 80/minute"]
        );
        assert!(!limits[0].policies().unwrap()[0].is_bound && limits[1].policies().unwrap()[0].is_bound);
        for limits in &limits {
            limits.builder().build().unwrap();
        }
        assert!(read(None, &[]).unwrap_err().contains("--policy api"));
        assert!(read(Some("web"), &[]).unwrap_err().contains("no policy \"web\""));
        assert!(read(Some("api"), &["5/s"]).unwrap_err().contains("the name of a policy"));
        std::fs::write(file.path(), "polylimit = 1\n[policies.api]\nquotas = \"x\"\n").unwrap();
        assert!(read(Some("api"), &[]).unwrap_err().contains("line 3"));
    }
}
