//! Entries: list items and overrides that are set individually, in addition to the document. An entry has a text that names its
//! subject, such as `override api user=alice`, and a JSON value, such as `{"numbers": "gold"}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::document::{Document, quotas, unknown_plan, unknown_policy};
use crate::key_calendar;
use crate::list::{ListItem, decode_word, encode_word};
use crate::model::OverrideQuotas;
use crate::shape::{LIST_ENTRY, OVERRIDE_ENTRY, Shape};
use crate::tree::{self, Node, Refusal};
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::calendar::KeyOptions;
use polylimit_rules::request::Request;
use polylimit_rules::time::parse_time_us;

/// The maximum length of an entry's text: each byte of the longest key may be written as `%XX`.
const MAX_TEXT_BYTES: usize = 3 * Request::MAX_KEY_LENGTH + 1024;
/// The maximum length of an entry's value.
const MAX_VALUE_BYTES: usize = 1 << 16;

/// An entry that is not yet checked against a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub(crate) subject: Subject,
    /// The time from which it has no effect.
    pub(crate) until_us: Option<u64>,
    /// The author's name.
    pub by: Option<Box<str>>,
    /// The reason.
    pub why: Option<Box<str>>,
}

/// The subject of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// `deny ITEM` or `allow ITEM`.
    List { denies: bool, item: ListItem },
    /// `override POLICY KEY`.
    Override { policy: Box<str>, key: Box<[u8]>, numbers: OverrideQuotas, calendar: KeyOptions },
}

/// Entries by their texts. A clone is cheap until one of the two changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    entries: Arc<BTreeMap<Box<str>, Entry>>,
}

impl Entry {
    /// Reads an entry.
    ///
    /// # Errors
    /// Invalid argument: the text or the value is too long or malformed.
    pub fn parse(text: &str, value: &str) -> Result<Self, Error> {
        if text.len() > MAX_TEXT_BYTES || value.len() > MAX_VALUE_BYTES {
            return Err(Error::invalid_argument(format!(
                "the entry has {} bytes and its value {}: allowed are up to {MAX_TEXT_BYTES} and {MAX_VALUE_BYTES}",
                text.len(),
                value.len()
            )));
        }
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let denies = match word {
            "deny" => true,
            "allow" => false,
            "override" => return Self::parse_override(rest, value),
            _ => {
                return Err(Error::invalid_argument(format!(
                    "the entry begins with {}: allowed are deny ITEM, allow ITEM and override POLICY KEY",
                    excerpt(word)
                )));
            }
        };
        let item = ListItem::parse(rest)?;
        Self::with_value(value, |root| {
            Shape::Table(&LIST_ENTRY).check("it", root)?;
            Ok(Subject::List { denies, item })
        })
    }

    fn parse_override(rest: &str, value: &str) -> Result<Self, Error> {
        let Some((policy, key)) = rest.split_once(' ').filter(|(_, key)| !key.contains(' ')) else {
            return Err(Error::invalid_argument(
                "the entry is an override without exactly a policy and a key: allowed is override POLICY KEY, with %20 for \
                 a space in the key",
            ));
        };
        Policy::check_name(policy)?;
        let key = decode_word(key)?;
        Self::with_value(value, |root| {
            Shape::Table(&OVERRIDE_ENTRY).check("it", root)?;
            let node = root.get("numbers").unwrap_or(root);
            let numbers = match node.text().filter(|text| !Policy::is_quotas(text)) {
                Some(plan) => OverrideQuotas::Plan(plan.into()),
                None => OverrideQuotas::Quotas(quotas(policy, node)?),
            };
            let calendar = key_calendar::read(root)?;
            Ok(Subject::Override { policy: policy.into(), key, numbers, calendar })
        })
    }

    /// Reads a value, which `subject` checks.
    fn with_value(
        value: &str,
        subject: impl FnOnce(&Node<'_>) -> Result<Subject, Refusal>,
    ) -> Result<Self, Error> {
        let read = || {
            let root = tree::parse_json(value)?;
            let subject = subject(&root)?;
            let note = |name| root.get(name).and_then(Node::text).map(Box::from);
            let until_us = root.get("until").map(|until| until.read(parse_time_us)).transpose()?;
            Ok(Self { subject, until_us, by: note("by"), why: note("why") })
        };
        read().map_err(|refusal: Refusal| {
            Error::invalid_argument(format!("the entry's value: {}", refusal.message))
        })
    }

    /// The canonical spelling of an entry's text: `deny user é` and `deny user %C3%A9` are the same entry. `None` for a text
    /// that is not an entry.
    pub fn canonical_text(text: &str) -> Option<String> {
        let (word, rest) = text.split_once(' ')?;
        match word {
            "deny" | "allow" => Some(format!("{word} {}", ListItem::parse(rest).ok()?)),
            "override" => {
                let (policy, key) = rest.split_once(' ')?;
                Some(format!("override {policy} {}", encode_word(&decode_word(key).ok()?)))
            }
            _ => None,
        }
    }

    /// Refuses an entry that has no effect under a document: one with an unknown policy or plan, or with quotas that the policy
    /// cannot have.
    ///
    /// # Errors
    /// Invalid argument with what was read and what is allowed.
    pub fn check(&self, document: &Document) -> Result<(), Error> {
        let name = match &self.subject {
            Subject::List { item: ListItem::Key { policy, .. }, .. } | Subject::Override { policy, .. } => {
                policy
            }
            Subject::List { .. } => return Ok(()),
        };
        let Some(index) = document.policy_index(name) else {
            return Err(Error::invalid_argument(unknown_policy(name)));
        };
        let Subject::Override { numbers, calendar, .. } = &self.subject else { return Ok(()) };
        let policy = &document.policies[index];
        if policy.policy.groups().is_some() {
            return Err(Error::invalid_argument(format!(
                "policy {name} is shared by groups: an override is not allowed, since all groups share one set of quotas"
            )));
        }
        let quotas = match numbers {
            OverrideQuotas::Quotas(quotas) => {
                document.check_numbers(index, quotas)?;
                quotas
            }
            OverrideQuotas::Plan(plan) => match policy.plans.iter().find(|(name, _)| name == plan) {
                Some((_, quotas)) => quotas,
                None => return Err(Error::invalid_argument(unknown_plan(name, plan))),
            },
        };
        key_calendar::check_override(quotas, calendar, &policy.calendar).map_err(|(_, error)| error)
    }
}

impl Entries {
    /// The maximum number of entries.
    pub(crate) const MAX: usize = 100_000;

    /// Sets an entry, replacing one with the same text.
    ///
    /// # Errors
    /// Invalid argument: it is malformed, or there are too many entries.
    pub fn set(&mut self, text: &str, value: &str) -> Result<(), Error> {
        let entry = Entry::parse(text, value)?;
        if self.entries.len() >= Self::MAX && !self.entries.contains_key(text) {
            let message = format!("there are {} entries: allowed are up to {}", Self::MAX, Self::MAX);
            return Err(Error::invalid_argument(message));
        }
        Arc::make_mut(&mut self.entries).insert(text.into(), entry);
        Ok(())
    }

    /// Removes the entry with this text; returns false if there is none.
    pub fn remove(&mut self, text: &str) -> bool {
        Arc::make_mut(&mut self.entries).remove(text).is_some()
    }

    /// The entries with their texts, in the order of the texts: the same in every process.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(text, entry)| (&**text, entry))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests;
