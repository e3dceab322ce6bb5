//! Documents made from the limits of envoyproxy/ratelimit.
//!
//! Each descriptor of a request is matched by itself. It has these attributes, which `docs/internals/envoy-ratelimit.md` explains:
//! `domain`; `descriptor`, the keys of its entries in their order, joined by commas; and the value of each entry.

mod descriptors;
mod rules;

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::arguments::Spend;
use crate::import::descriptors::{ConfigMap, Domain};
use crate::import::rules::{Application, Rule};

/// The policies whose names begin with this say which others an application of theirs replaces.
const REPLACES: &str = "replaces.";
/// The policy that is applied with those whose denials count only together.
const QUOTA_MODE: &str = "quota_mode";
/// The longest name of a policy: `replaces.` is put in front of some.
const MAX_NAME: usize = 55;

/// The rules of some files, each of which has a domain.
#[derive(Debug, Default)]
pub(crate) struct EnvoyImport {
    domains: HashSet<String>,
    rules: Vec<Rule>,
    spend: Spend,
    /// What decides nothing, and is not in the document.
    pub(crate) left_out: Vec<String>,
}

impl EnvoyImport {
    pub(crate) fn new(spend: Spend) -> Self {
        Self { spend, ..Self::default() }
    }

    /// Adds a file, given as YAML, or the files of a `ConfigMap` of Kubernetes.
    ///
    /// # Errors
    /// What cannot be read, or has no counterpart in a document.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        let Some(files) = ConfigMap::files(text) else { return self.add_domain(text) };
        let failed = |(name, text): (String, String)| {
            self.add_domain(&text).err().map(|error| format!("{name}: {error}"))
        };
        let mistakes: Vec<_> = files.into_iter().filter_map(failed).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes.join("\n")) }
    }

    fn add_domain(&mut self, text: &str) -> Result<(), String> {
        let domain = Domain::parse(text, &mut self.left_out)?;
        if !self.domains.insert(domain.domain.clone()) {
            return Err(format!("the domain {:?} is a duplicate: merge its files into one", domain.domain));
        }
        self.rules.extend(rules::of_domain(&domain)?);
        Ok(())
    }

    /// The document, in TOML.
    pub(crate) fn document(&self) -> String {
        write(&self.rules, self.spend)
    }
}

/// A policy of the document.
struct Policy {
    name: String,
    /// As limits name each other.
    limit_name: Option<String>,
    quotas: String,
    mode: Option<&'static str>,
}

fn write(rules: &[Rule], spend: Spend) -> String {
    let mut policies: Vec<Policy> = Vec::new();
    let mut taken = HashSet::from([QUOTA_MODE.to_owned()]);
    // The policy of each rule, by its place.
    let names: Vec<Option<String>> = rules
        .iter()
        .map(|rule| {
            let limit = rule.limit()?;
            let name = free_name(limit.name.as_deref().unwrap_or(&rule.title), &mut taken);
            policies.push(Policy {
                name: name.clone(),
                limit_name: limit.name.clone(),
                quotas: limit.quotas.clone(),
                mode: limit.shadow.then_some("shadow"),
            });
            Some(name)
        })
        .collect();
    // Those that only mark others admit everything and ask no store.
    let mut marks: Vec<String> = Vec::new();
    let mut applied = String::new();
    for (rule, name) in rules.iter().zip(&names) {
        let marked = marks_of(rule, &policies);
        marks.extend(marked.iter().filter(|mark| !marks.contains(mark)).cloned().collect::<Vec<_>>());
        write_rule(rule, name.as_deref(), spend, &marked, &mut applied);
    }
    policies.extend(marks.into_iter().map(|name| Policy {
        name,
        limit_name: None,
        quotas: "0/second".to_owned(),
        mode: Some("off"),
    }));
    let mut document = "polylimit = 1\n".to_owned();
    for Policy { name, quotas, mode, .. } in &policies {
        let _ = write!(document, "\n[policies.{}]\nquotas = {}\n", quoted(name), quoted(quotas));
        if let Some(mode) = mode {
            let _ = writeln!(document, "mode = {}", quoted(mode));
        }
    }
    document + &applied
}

/// The names of the policies that mark how a rule's limit stands to others.
fn marks_of(rule: &Rule, policies: &[Policy]) -> Vec<String> {
    let (quota_mode, replaces) = match &rule.application {
        Application::Limit(limit) => (limit.quota_mode, &limit.replaces),
        Application::Unlimited { replaces } => (false, replaces),
        Application::Nothing => return Vec::new(),
    };
    let is_replaced =
        |policy: &&Policy| policy.limit_name.as_ref().is_some_and(|name| replaces.contains(name));
    let mut marks: Vec<_> =
        policies.iter().filter(is_replaced).map(|policy| format!("{REPLACES}{}", policy.name)).collect();
    if quota_mode {
        marks.push(QUOTA_MODE.to_owned());
    }
    marks
}

fn write_rule(rule: &Rule, policy: Option<&str>, spend: Spend, marks: &[String], out: &mut String) {
    let spend = if spend == Spend::Always { ", spend = \"always\"" } else { "" };
    let conditions: Vec<_> =
        rule.conditions.iter().map(|(name, text)| format!("{name} = {}", quoted(text))).collect();
    let mut applied: Vec<_> = policy
        .into_iter()
        .map(|name| format!("{{ policy = {}, key = {}{spend} }}", quoted(name), quoted(&rule.key)))
        .collect();
    applied.extend(marks.iter().map(|name| format!("{{ policy = {}, key = \"\" }}", quoted(name))));
    let _ = write!(out, "\n[[rules]]\nmatch = {{ {} }}\napply = [", conditions.join(", "));
    let _ = writeln!(out, "{}]", applied.join(", "));
}

/// A name of a policy like this text that no other one has.
fn free_name(text: &str, taken: &mut HashSet<String>) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|".contains(c);
    let clean: String = text.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
    let clean = if clean.starts_with(REPLACES) { format!("limit.{clean}") } else { clean };
    let name = |number: usize| {
        let suffix = if number == 1 { String::new() } else { format!(".{number}") };
        let length = clean.len().min(MAX_NAME - suffix.len());
        format!("{}{suffix}", &clean[..length])
    };
    // There are more numbers than policies, so one is free.
    let mut names = (1..=taken.len() + 2).map(name);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

/// A text of TOML: those of JSON are the same.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests;
