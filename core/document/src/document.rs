//! A checked policy document: the policies, rules and lists that define limits.

mod clients;
mod policies;
mod rules;

use std::collections::{HashMap, HashSet};
use std::fmt;

pub(crate) use policies::{quotas, unknown_plan};

use crate::canonical::{canonical, digest};
use crate::client_address::ClientAddressRules;
use crate::list::{ListEntry, ListItem};
use crate::model::DocumentPolicy;
use crate::router_paths::DocumentPaths;
use crate::rule::Rule;
use crate::shape::DOCUMENT;
use crate::tree::{self, Node, Refusal};
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::zone::Zone;
use polylimit_store::lease_size::Lease;

/// The contents of a document. Every name is resolved, and every number is in bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Whether limits apply.
    pub enabled: bool,
    /// The time zone of `during`.
    pub(crate) zone: Zone,
    pub(crate) client: ClientAddressRules,
    pub(crate) paths: DocumentPaths,
    /// In the order of the document.
    pub(crate) policies: Vec<DocumentPolicy>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) lists: Vec<ListEntry>,
    names: Names,
    /// For each pool, one of the policies that use it.
    pools: HashMap<usize, usize>,
    /// The policies that a rule applies to what has happened already.
    charged: HashSet<usize>,
    /// The policies whose cost a rule reserves until the response reports what was spent.
    metered: HashSet<usize>,
    canonical: Box<str>,
    /// Whether the text has a table of policies, even an empty one.
    names_policies: bool,
    digest: Box<str>,
}

/// The indices of policies by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names(HashMap<Box<str>, usize>);

/// Why a document is refused, and at which place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The column in characters, from 1.
    pub(crate) column: usize,
    /// What was read and what is allowed.
    pub(crate) message: String,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl From<DocumentError> for Error {
    fn from(error: DocumentError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

/// Checks a document, in TOML or JSON, and returns it as canonical JSON (RFC 8785), the form in which stores keep it: the same
/// text for all equivalent documents.
///
/// # Errors
/// `InvalidArgument` when the document cannot be used: line, column, what was read and what is
/// allowed.
pub fn canonical_document(text: &str) -> Result<Box<str>, Error> {
    Ok(Document::parse(text.as_bytes())?.canonical)
}

impl Document {
    /// The maximum size of a document: 1 MiB.
    pub(crate) const MAX_BYTES: usize = 1 << 20;

    /// Reads TOML, or JSON when the first byte other than white space is `{`.
    ///
    /// # Errors
    /// The first mistake in the order of the text, or of its parts: syntax, then fields and types, then meaning.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let at_byte = |refusal: Refusal| {
            let (line, column) = tree::place(bytes, refusal.at);
            DocumentError { line, column, message: refusal.message }
        };
        if bytes.len() > Self::MAX_BYTES {
            let message =
                format!("the document has {} bytes: allowed are up to {}", bytes.len(), Self::MAX_BYTES);
            return Err(at_byte(Refusal::new(0, message)));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            at_byte(Refusal::new(error.valid_up_to(), "the document is no UTF-8 from here on"))
        })?;
        Self::read(text).map_err(at_byte)
    }

    fn read(text: &str) -> Result<Self, Refusal> {
        let root = tree::parse(text)?;
        // Another version has other fields, so this is reported first.
        if let Some(version) = root.get("polylimit") {
            DOCUMENT.check_field("polylimit", version)?;
        }
        DOCUMENT.check(&root)?;
        let policies::Policies { list: policies, names, sets } = policies::read(root.get("policies"))?;
        let rules = rules::read(root.get("rules"), &names)?;
        let lists = root.get("lists");
        let mut entries = Vec::new();
        for (name, denies) in [("deny", true), ("allow", false)] {
            for node in lists.and_then(|lists| lists.get(name)).map_or(&[][..], Node::elements) {
                entries.push(list_entry(node, denies, &names)?);
            }
        }
        let users = policies.iter().enumerate();
        let pools = users.filter_map(|(user, policy)| Some((policy.elastic.as_ref()?.pool, user))).collect();
        let applied = rules.iter().flat_map(|rule| &rule.apply);
        let charged =
            applied.clone().filter(|applied| applied.spends_always).map(|applied| applied.policy).collect();
        let metered =
            applied.filter(|applied| applied.spent.is_some()).map(|applied| applied.policy).collect();
        let canonical = canonical(&root);
        let document = Self {
            enabled: root.get("enabled").and_then(Node::boolean).unwrap_or(true),
            zone: zone(&root)?,
            client: clients::read(root.get("client"))?,
            paths: paths(root.get("paths")),
            policies,
            rules,
            lists: entries,
            names,
            pools,
            charged,
            metered,
            digest: digest(&canonical).into(),
            canonical: canonical.into(),
            names_policies: root.get("policies").is_some(),
        };
        for set in sets {
            let numbers = document.check_numbers(set.policy, &set.numbers);
            numbers.map_err(|error| Refusal::of(set.at, &error))?;
        }
        Ok(document)
    }

    /// Refuses to replace a document that has policies by one without any, unless this one declares that with an empty table or
    /// by `enabled = false`: a document whose writing was interrupted may end after its first line.
    ///
    /// # Errors
    /// Invalid argument, with what to write.
    pub fn refuse_lost_policies(&self, before: &Self) -> Result<(), Error> {
        let says_so = self.names_policies || !self.enabled;
        if before.policies.is_empty() || !self.policies.is_empty() || says_so {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "the document has no policies and the one in force has {}: it may be incomplete; if no policies are wanted, write an \
             empty table, [policies] in TOML or \"policies\": {{}} in JSON",
            before.policies.len()
        )))
    }

    /// The document as canonical JSON.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The SHA-256 of the canonical JSON, as 64 hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The index of a policy by its name.
    pub(crate) fn policy_index(&self, name: &str) -> Option<usize> {
        self.names.0.get(name).copied()
    }

    /// Refuses quotas that a policy cannot have because it is leased, elastic or a pool.
    pub(crate) fn check_numbers(&self, policy: usize, numbers: &Policy) -> Result<(), Error> {
        let Some(configured) = self.policies.get(policy) else { return Ok(()) };
        let name = configured.policy.name();
        let is_slot_or_counts_denied =
            |quota: &Quota| quota.algorithm() == Algorithm::Concurrency || quota.count_denied();
        if configured.lease.is_some() {
            Lease::check(numbers)?;
        }
        if configured.elastic.is_some()
            && let Some(quota) = numbers.quotas().iter().find(|quota| is_slot_or_counts_denied(quota))
        {
            return Err(Error::invalid_argument(format!(
                "policy {name} is elastic and has {quota}: concurrent and count_denied are not allowed, since the pool \
                 admits what it denies"
            )));
        }
        if self.charged.contains(&policy) {
            let slots = numbers.quotas().iter().find(|quota| !quota.algorithm().is_rate());
            if let Some(quota) = slots {
                return Err(Error::invalid_argument(format!(
                    "policy {name} has {quota}, and a rule applies it with spend = \"always\": reservations cannot be spent"
                )));
            }
            if configured.elastic.is_some() {
                return Err(Error::invalid_argument(format!(
                    "policy {name} is elastic, and a rule applies it with spend = \"always\": allowed is \"if_admitted\", since its pool \
                     admits what it denies"
                )));
            }
        }
        if self.metered.contains(&policy) {
            let refuse = |what: &str| {
                Err(Error::invalid_argument(format!(
                    "policy {name} {what}, and a rule applies it with spent: it cannot be reserved until the response reports what was spent"
                )))
            };
            if configured.elastic.is_some() {
                return refuse("is elastic");
            }
            if configured.lease.is_some() {
                return refuse("is leased");
            }
            if let Some(quota) =
                numbers.quotas().iter().find(|quota| quota.algorithm() == Algorithm::LeakyBucket)
            {
                return refuse(&format!("has {quota}"));
            }
        }
        if let Some(user) = self.pools.get(&policy).and_then(|user| self.policies.get(*user)) {
            let is_excluded = |quota: &&Quota| {
                is_slot_or_counts_denied(quota) || quota.algorithm() == Algorithm::LeakyBucket
            };
            if let Some(quota) = numbers.quotas().iter().find(is_excluded) {
                return Err(Error::invalid_argument(format!(
                    "policy {name} is the pool of {} and has {quota}: leaky_bucket, concurrent and count_denied are not \
                     allowed",
                    user.policy.name()
                )));
            }
        }
        Ok(())
    }
}

impl Names {
    fn insert(&mut self, name: Box<str>, index: usize) {
        self.0.insert(name, index);
    }

    /// The index of the policy that a value names.
    fn find(&self, node: &Node<'_>) -> Result<usize, Refusal> {
        let name = node.text().unwrap_or_default();
        self.0.get(name).copied().ok_or_else(|| Refusal::new(node.at, unknown_policy(name)))
    }
}

pub(crate) fn unknown_policy(name: &str) -> String {
    format!("there is no policy {}: allowed are the names in policies", excerpt(name))
}

/// The time zone of `during`: an offset, or the name of a place.
fn zone(root: &Node<'_>) -> Result<Zone, Refusal> {
    match (root.get("utc_offset"), root.get("zone")) {
        (None, None) => Ok(Zone::UTC),
        (Some(offset), None) => offset.read(Zone::parse_offset),
        (None, Some(name)) => name.read(Zone::parse_name),
        (Some(_), Some(name)) => {
            Err(Refusal::new(name.at, "the document has utc_offset and zone: allowed is one of the two"))
        }
    }
}

/// How the router reads paths, according to the table `paths`.
fn paths(node: Option<&Node<'_>>) -> DocumentPaths {
    let field = |name| node.and_then(|node| node.get(name));
    let drops = |name| field(name).and_then(Node::text).map(|word| word == "drop");
    DocumentPaths {
        ignore_case: field("ignore_case").and_then(Node::boolean),
        drop_parameters: drops("parameters"),
        drop_suffix: drops("suffix"),
    }
}

fn list_entry(node: &Node<'_>, denies: bool, names: &Names) -> Result<ListEntry, Refusal> {
    let (item, until_us) = node.read(ListItem::parse_with_until)?;
    match &item {
        ListItem::Key { policy, .. } if !names.0.contains_key(policy) => {
            Err(Refusal::new(node.at, unknown_policy(policy)))
        }
        _ => Ok(ListEntry { denies, item, until_us }),
    }
}

#[cfg(test)]
mod tests;
