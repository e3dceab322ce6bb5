//! The rules of a domain, in an order in which the first one that matches a descriptor is the one that envoyproxy/ratelimit
//! finds in its tree.
//!
//! At each level it looks for an exact value, then for wildcards, then for the key alone, and never comes back: what it has found
//! hides its siblings, also where nothing below it matches. A rule that applies nothing stands for that.

use polylimit::raw::descriptor_attributes;

use crate::import::descriptors::{Descriptor, Domain, RateLimit, Values};

/// A rule for descriptors with these keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Attributes with what they have to be.
    pub(crate) conditions: Vec<(String, String)>,
    pub(crate) key: String,
    /// `domain.key_value.key`, for the policy's name.
    pub(crate) title: String,
    pub(crate) application: Application,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Application {
    Limit(Limit),
    /// Admits, and is in no mode: only a limit can be over.
    Unlimited {
        replaces: Vec<String>,
    },
    /// Hides later rules.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) quotas: String,
    pub(crate) name: Option<String>,
    pub(crate) shadow: bool,
    pub(crate) quota_mode: bool,
    pub(crate) replaces: Vec<String>,
}

impl Rule {
    pub(crate) fn limit(&self) -> Option<&Limit> {
        match &self.application {
            Application::Limit(limit) => Some(limit),
            _ => None,
        }
    }

    /// The keys of the descriptors that it is about.
    fn descriptor(&self) -> Option<&str> {
        self.conditions.iter().find(|(name, _)| name == "descriptor").map(|(_, keys)| &**keys)
    }
}

/// # Errors
/// Two nodes match the same entries.
pub(crate) fn of_domain(domain: &Domain) -> Result<Vec<Rule>, String> {
    let mut rules = Vec::new();
    walk(domain, domain.children(), &mut Vec::new(), &mut rules)?;
    // One that hides no limit says nothing, and one with the conditions of an earlier one is never found.
    let mut kept: Vec<Rule> = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let is_hidden = kept.iter().any(|earlier| earlier.conditions == rule.conditions);
        let hides = || {
            let later = &rules[at + 1..];
            later.iter().any(|later| {
                later.application != Application::Nothing && later.descriptor() == rule.descriptor()
            })
        };
        if !is_hidden && (rule.application != Application::Nothing || hides()) {
            kept.push(rule.clone());
        }
    }
    Ok(kept)
}

fn walk<'a>(
    domain: &Domain,
    level: &'a [Descriptor],
    steps: &mut Vec<&'a Descriptor>,
    rules: &mut Vec<Rule>,
) -> Result<(), String> {
    let mut sorted: Vec<&Descriptor> = level.iter().collect();
    sorted.sort_by_key(|node| node.rank());
    for (at, node) in sorted.iter().enumerate() {
        let hidden: Vec<&Descriptor> =
            sorted[at + 1..].iter().copied().filter(|other| overlap(node, other)).collect();
        if hidden.iter().any(|other| other.title() == node.title()) {
            return Err(format!("{} is a duplicate: remove one of them", title(domain, steps, Some(node))));
        }
        steps.push(node);
        match &node.rate_limit {
            Some(limit) => rules.push(rule(domain, steps, &[], application(node, limit))),
            None if hidden.iter().any(|other| other.rate_limit.is_some()) => {
                rules.push(rule(domain, steps, &[], Application::Nothing));
            }
            None => {}
        }
        walk(domain, node.children(), steps, rules)?;
        for other in hidden {
            for below in paths_of_limits(other.children()) {
                rules.push(rule(domain, steps, &below, Application::Nothing));
            }
        }
        steps.pop();
    }
    Ok(())
}

/// Whether an entry can match both.
fn overlap(one: &Descriptor, other: &Descriptor) -> bool {
    one.key == other.key
        && match (one.values(), other.values()) {
            (Values::All, _) | (_, Values::All) => true,
            (Values::Exact(one), Values::Exact(other)) => one == other,
            (Values::Exact(value), Values::Prefix(prefix))
            | (Values::Prefix(prefix), Values::Exact(value)) => value.starts_with(prefix),
            (Values::Prefix(one), Values::Prefix(other)) => one.starts_with(other) || other.starts_with(one),
        }
}

/// The keys on the way to each limit.
fn paths_of_limits(level: &[Descriptor]) -> Vec<Vec<&str>> {
    let mut paths = Vec::new();
    for node in level {
        if node.rate_limit.is_some() {
            paths.push(vec![&*node.key]);
        }
        for mut below in paths_of_limits(node.children()) {
            below.insert(0, &node.key);
            paths.push(below);
        }
    }
    paths
}

fn application(node: &Descriptor, limit: &RateLimit) -> Application {
    let replaces = limit.replaced();
    match limit.period() {
        Some(period) => Application::Limit(Limit {
            quotas: format!("{}/{period} fixed_window aligned", limit.requests_per_unit),
            name: limit.name.clone().filter(|name| !name.is_empty()),
            shadow: node.shadow_mode,
            quota_mode: node.quota_mode,
            replaces,
        }),
        None => Application::Unlimited { replaces },
    }
}

/// The rule for descriptors that match these nodes, and have these keys after them.
fn rule(domain: &Domain, steps: &[&Descriptor], below: &[&str], application: Application) -> Rule {
    let keys: Vec<&str> = steps.iter().map(|step| &*step.key).chain(below.iter().copied()).collect();
    let names = descriptor_attributes(&keys);
    let mut conditions =
        vec![("domain".to_owned(), domain.domain.clone()), ("descriptor".to_owned(), keys.join(","))];
    let mut placeholders = Vec::new();
    for (step, name) in steps.iter().zip(&names) {
        match step.values() {
            Values::Exact(value) => {
                conditions.push((name.clone(), value.to_owned()));
                continue;
            }
            Values::Prefix(prefix) => conditions.push((name.clone(), format!("{prefix}*"))),
            Values::All => {}
        }
        if !step.share_threshold {
            placeholders.push(format!("{{{name}}}"));
        }
    }
    let key = if placeholders.is_empty() { "all".to_owned() } else { placeholders.join("|") };
    Rule { conditions, key, title: title(domain, steps, None), application }
}

fn title(domain: &Domain, steps: &[&Descriptor], last: Option<&Descriptor>) -> String {
    let titles = steps.iter().copied().chain(last).map(Descriptor::title);
    std::iter::once(domain.domain.clone()).chain(titles).collect::<Vec<_>>().join(".")
}
