//! The YAML of envoyproxy/ratelimit, checked.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// A file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Domain {
    #[serde(default)]
    pub(crate) domain: String,
    #[serde(default)]
    pub(crate) descriptors: Option<Vec<Descriptor>>,
}

/// A `ConfigMap` of Kubernetes, whose values are files.
#[derive(Debug, Deserialize)]
pub(crate) struct ConfigMap {
    kind: String,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// The names and texts of its files; `None` for another YAML.
    pub(crate) fn files(text: &str) -> Option<BTreeMap<String, String>> {
        serde_saphyr::from_str(text).ok().filter(|map: &Self| map.kind == "ConfigMap").map(|map| map.data)
    }
}

/// A node of the tree of descriptors. An entry of a request matches it by its key and, where there is one, its value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the file has them")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) value: Option<String>,
    #[serde(default)]
    pub(crate) rate_limit: Option<RateLimit>,
    #[serde(default)]
    pub(crate) descriptors: Option<Vec<Descriptor>>,
    #[serde(default)]
    pub(crate) shadow_mode: bool,
    #[serde(default)]
    pub(crate) quota_mode: bool,
    #[serde(default)]
    pub(crate) share_threshold: bool,
    #[serde(default)]
    detailed_metric: bool,
    #[serde(default)]
    value_to_metric: bool,
    #[serde(default)]
    metadata: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateLimit {
    #[serde(default)]
    pub(crate) requests_per_unit: u32,
    #[serde(default)]
    pub(crate) unit: String,
    #[serde(default)]
    pub(crate) unlimited: bool,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) replaces: Option<Vec<Replaced>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replaced {
    #[serde(default)]
    pub(crate) name: String,
}

/// Which values of an entry a node matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values<'a> {
    Exact(&'a str),
    Prefix(&'a str),
    All,
}

impl Domain {
    /// Reads a file. What does not change a decision is left out, and named in `left_out`.
    ///
    /// # Errors
    /// It is no YAML, has an unknown field, or what a document cannot say: all of that, a line each.
    pub(crate) fn parse(text: &str, left_out: &mut Vec<String>) -> Result<Self, String> {
        let domain: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let mut mistakes: Vec<String> = check_text("domain", &domain.domain).err().into_iter().collect();
        for descriptor in domain.children() {
            descriptor.check(&domain.domain, &mut mistakes, left_out);
        }
        if mistakes.is_empty() { Ok(domain) } else { Err(mistakes.join("\n")) }
    }

    pub(crate) fn children(&self) -> &[Descriptor] {
        self.descriptors.as_deref().unwrap_or_default()
    }
}

impl Descriptor {
    pub(crate) fn children(&self) -> &[Self] {
        self.descriptors.as_deref().unwrap_or_default()
    }

    /// `key`, or `key_value`.
    pub(crate) fn title(&self) -> String {
        match self.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => format!("{}_{value}", self.key),
            None => self.key.clone(),
        }
    }

    pub(crate) fn values(&self) -> Values<'_> {
        match self.value.as_deref().filter(|value| !value.is_empty()) {
            None => Values::All,
            Some(value) => match value.strip_suffix('*') {
                Some("") => Values::All,
                Some(prefix) => Values::Prefix(prefix),
                None => Values::Exact(value),
            },
        }
    }

    /// Whether it is looked for before nodes with other values: exact values are first, then wildcards, then none.
    pub(crate) fn rank(&self) -> u8 {
        match self.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => u8::from(value.contains('*')),
            None => 2,
        }
    }

    /// Notes what a document cannot say, and what is left out because it decides nothing.
    fn check(&self, parent: &str, mistakes: &mut Vec<String>, left_out: &mut Vec<String>) {
        mistakes.extend(check_text("key of a descriptor", &self.key).err());
        let path = format!("{parent}.{}", self.title());
        for (is_used, name) in [
            (self.detailed_metric, "detailed_metric"),
            (self.value_to_metric, "value_to_metric"),
            (self.metadata.is_some(), "metadata"),
        ] {
            if is_used {
                left_out.push(format!(
                    "{path}: {name} is left out, since metrics and answers of polylimit name policies"
                ));
            }
        }
        let value = self.value.as_deref().unwrap_or_default();
        let fixed = value.strip_suffix('*').unwrap_or(value);
        for (is_wrong, mistake) in [
            (
                self.key.contains(','),
                "the key has a comma, which separates keys in a document: use another key",
            ),
            (fixed.contains('*'), "the value has a * before its end: allowed is one at the end"),
            (
                fixed.starts_with('!'),
                "the value begins with !, which a document cannot say: write it without",
            ),
            (
                self.share_threshold && !value.contains('*'),
                "share_threshold is for values with a *: remove it, or end the value with *",
            ),
        ] {
            if is_wrong {
                mistakes.push(format!("{path}: {mistake}"));
            }
        }
        mistakes.extend(self.rate_limit.as_ref().and_then(|limit| limit.check(&path).err()));
        for child in self.children() {
            child.check(&path, mistakes, left_out);
        }
    }
}

impl RateLimit {
    /// The period of the unit as quotas write it.
    pub(crate) fn period(&self) -> Option<&'static str> {
        Some(match self.unit.to_ascii_lowercase().as_str() {
            "second" => "second",
            "minute" => "minute",
            "hour" => "hour",
            "day" => "day",
            "week" => "week",
            "month" => "30d",
            "year" => "365d",
            _ => return None,
        })
    }

    pub(crate) fn replaced(&self) -> Vec<String> {
        self.replaces.iter().flatten().map(|replaced| replaced.name.clone()).collect()
    }

    fn check(&self, path: &str) -> Result<(), String> {
        match (self.unlimited, self.period()) {
            (true, Some(_)) => {
                return Err(format!("{path}: an unlimited rate_limit has a unit: remove one of them"));
            }
            (false, None) => {
                return Err(format!(
                    "{path}: the unit is {:?}: allowed are second, minute, hour, day, week, month and year",
                    self.unit
                ));
            }
            _ => {}
        }
        for replaced in self.replaced() {
            if replaced.is_empty() || Some(&replaced) == self.name.as_ref() {
                return Err(format!("{path}: replaces has an empty name, or that of the same rate_limit"));
            }
        }
        Ok(())
    }
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.contains('*') || text.starts_with('!') {
        return Err(format!(
            "the {what} is {text:?}: allowed is a text without * that does not begin with !"
        ));
    }
    Ok(())
}
