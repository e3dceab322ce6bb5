//! Finds the line of the document or the entry that applies to a request. It explains decisions to people, so it scans all of them.

use crate::attribute::Attribute;
use crate::attributes::{Attributes, Client, Reference};
use crate::compiled::Configuration;
use crate::effective::QuotasOrigin;
use crate::entry::{Entry, Subject};
use crate::key_calendar::split_plan;
use crate::list::{ListItem, encode_word};
use crate::model::OverrideQuotas;
use crate::path::lower_case;

/// An item of a list that has an effect.
#[derive(Clone, Copy)]
struct ActiveItem<'c> {
    item: &'c ListItem,
    denies: bool,
    until_us: Option<u64>,
    /// The entry that contains it; `None` for a line of the document.
    entry: Option<(&'c str, &'c Entry)>,
}

/// A line of the document's lists or overrides, or an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// In the form of an entry, such as `deny client 192.0.2.0/24`.
    pub text: String,
    pub is_in_document: bool,
    /// The time from which it has no effect.
    pub until_us: Option<u64>,
    pub by: Option<Box<str>>,
    pub why: Option<Box<str>>,
    /// The plan that an override names.
    pub plan: Option<Box<str>>,
}

impl Statement {
    fn of_document(text: String, until_us: Option<u64>) -> Self {
        Self { text, is_in_document: true, until_us, by: None, why: None, plan: None }
    }

    fn of_entry(text: &str, entry: &Entry) -> Self {
        let Entry { until_us, by, why, .. } = entry.clone();
        Self { text: text.to_owned(), is_in_document: false, until_us, by, why, plan: None }
    }

    fn with_plan(self, numbers: &OverrideQuotas) -> Self {
        let plan = match numbers {
            OverrideQuotas::Plan(plan) => Some((**plan).into()),
            OverrideQuotas::Quotas(_) => None,
        };
        Self { plan, ..self }
    }
}

impl Configuration {
    /// The statement of the lists of keys about a key: of several lines, the one that lasts longest.
    pub fn key_statement(&self, policy: usize, key: &[u8], denies: bool, now_us: u64) -> Option<Statement> {
        let name = self.document.policies.get(policy)?.policy.name();
        let is_it = |item: &ListItem| matches!(item, ListItem::Key { policy, key: listed } if **policy == *name && **listed == *key);
        longest(self.items(now_us).filter(|of| of.denies == denies && is_it(of.item)))
    }

    /// The statement of the lists of attributes about a request.
    pub fn request_statement(
        &self,
        request: &Attributes<'_>,
        denies: bool,
        now_us: u64,
    ) -> Option<Statement> {
        let address = request.client().and_then(Client::address);
        let prefix = |item: &ListItem| match item {
            ListItem::Client(network) => {
                address.filter(|address| network.contains(*address)).map(|_| network.prefix())
            }
            _ => None,
        };
        // Of the networks around a client only the smallest counts.
        let smallest = self.items(now_us).filter_map(|of| prefix(of.item)).max();
        let is_about = |item: &ListItem| match item {
            ListItem::Client(_) => prefix(item).is_some_and(|prefix| Some(prefix) == smallest),
            ListItem::Attribute(attribute, value) => {
                let is_value = |reference| request.value(&reference) == Some(&**value);
                let is_folded = |value| request.value(&Reference::FoldedPath) == Some(&*lower_case(value));
                self.table.known(attribute).is_some_and(is_value)
                    || *attribute == Attribute::Path && is_folded(value)
            }
            ListItem::Key { .. } => false,
        };
        longest(self.items(now_us).filter(|of| of.denies == denies && is_about(of.item)))
    }

    /// Where a key's effective quotas come from, and the override if there is one.
    pub fn quotas_origin(
        &self,
        policy: usize,
        key: &[u8],
        plan: Option<&[u8]>,
        now_us: u64,
    ) -> (QuotasOrigin, Option<Statement>) {
        let (Some(document), Some(sets)) = (self.document.policies.get(policy), self.sets.get(policy)) else {
            return (QuotasOrigin::Quotas, None);
        };
        let name = document.policy.name();
        let (_, origin, _) = sets.decide(name, key, plan.map(|plan| split_plan(plan).0), now_us);
        let statement = match origin {
            QuotasOrigin::Entry => self.entries.iter().find_map(|(text, entry)| match &entry.subject {
                Subject::Override { policy, key: of, numbers, .. } if **policy == *name && **of == *key => {
                    Some(Statement::of_entry(text, entry).with_plan(numbers))
                }
                _ => None,
            }),
            QuotasOrigin::Document => document.overrides.iter().find(|of| *of.key == *key).map(|of| {
                let text = format!("override {name} {}", encode_word(key));
                Statement::of_document(text, of.until_us).with_plan(&of.numbers)
            }),
            _ => None,
        };
        (origin, statement)
    }

    /// The items of all lists that are effective now.
    fn items(&self, now_us: u64) -> impl Iterator<Item = ActiveItem<'_>> {
        let of_document = self.document.lists.iter().map(|line| ActiveItem {
            item: &line.item,
            denies: line.denies,
            until_us: line.until_us,
            entry: None,
        });
        let of_entries = self.entries.iter().filter_map(|(text, entry)| match &entry.subject {
            Subject::List { denies, item } => Some(ActiveItem {
                item,
                denies: *denies,
                until_us: entry.until_us,
                entry: Some((text, entry)),
            }),
            Subject::Override { .. } => None,
        });
        let all = of_document.chain(of_entries);
        all.filter(move |of| of.until_us.is_none_or(|until_us| now_us < until_us))
    }
}

/// The statement of the item that lasts longest.
fn longest<'c>(items: impl Iterator<Item = ActiveItem<'c>>) -> Option<Statement> {
    let of = items.max_by_key(|of| of.until_us.unwrap_or(u64::MAX))?;
    if let Some((text, entry)) = of.entry {
        return Some(Statement::of_entry(text, entry));
    }
    let word = if of.denies { "deny" } else { "allow" };
    Some(Statement::of_document(format!("{word} {}", of.item), of.until_us))
}
