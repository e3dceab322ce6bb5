//! A compiled document with its entries: the lookups for each step of a decision.

pub mod statements;

use std::sync::{Arc, OnceLock};

use crate::Map;
use crate::attribute::Attribute;
use crate::attributes::{AttributeTable, Attributes, Reference};
use crate::document::Document;
use crate::effective::{EffectiveQuotas, QuotaSets};
use crate::entry::{Entries, Subject};
use crate::list::ListItem;
use crate::lists::{AttributeLists, ListVerdict};
use crate::matcher::{AppliedPolicies, AppliedPolicy, Matcher, PolicyMatch};
use crate::model::{CalendarAttributes, DocumentPolicy};
use crate::path::lower_case;
use crate::request::AttributeSource;
use crate::router_paths::RouterPaths;
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::calendar::KeyOptions;

/// An active configuration. It is immutable: a changed document or entry makes a new one.
#[derive(Debug)]
pub struct Configuration {
    document: Arc<Document>,
    indices: Map<Box<str>, usize>,
    /// In the order of the document's policies.
    sets: Vec<QuotaSets>,
    lists: AttributeLists,
    /// The rules as compiled for each kind of router; all but the document's own are compiled on first use.
    matchers: [OnceLock<Matcher>; RouterPaths::VARIANTS],
    table: AttributeTable,
    /// The attribute `plan`, if a policy has plans.
    plan: Option<Reference>,
    /// In the order of the document's policies; none if no policy takes the calendar of a key from requests.
    calendars: Vec<CalendarAttributes<Reference>>,
    /// Including those that have no effect.
    entries: Entries,
}

/// One policy of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct ConfiguredPolicy<'a> {
    pub document: &'a DocumentPolicy,
    /// The policy's sets of quotas without duplicates; the first is `quotas`.
    pub sets: &'a [Policy],
}

impl Configuration {
    /// Compiles a document with entries. Entries that are invalid under the document have no effect.
    pub fn compile(document: Arc<Document>, entries: &Entries) -> Self {
        let mut table = AttributeTable::default();
        let router = document.paths.over(RouterPaths::new());
        let matcher = Matcher::new(&document.rules, &mut table, router);
        let matchers = [const { OnceLock::new() }; RouterPaths::VARIANTS];
        // The cell is still empty.
        let _ = matchers[router.variant()].set(matcher);
        let has_plans = document.policies.iter().any(|policy| !policy.plans.is_empty());
        let plan = has_plans.then(|| table.refer(&Attribute::Provided("plan".into())));
        let calendars: Vec<_> =
            document.policies.iter().map(|policy| policy.calendar.compile(&mut table)).collect();
        let has_calendars = document.policies.iter().any(|policy| !policy.calendar.is_empty());
        let names = document.policies.iter().map(|policy| policy.policy.name().into());
        let mut compiled = Self {
            indices: names.zip(0..).collect(),
            sets: document.policies.iter().map(QuotaSets::new).collect(),
            lists: AttributeLists::default(),
            matchers,
            table,
            plan,
            calendars: if has_calendars { calendars } else { Vec::new() },
            entries: entries.clone(),
            document,
        };
        let document = Arc::clone(&compiled.document);
        for entry in &document.lists {
            compiled.list(&entry.item, entry.denies, entry.until_us);
        }
        for (_, entry) in entries.iter().filter(|(_, entry)| entry.check(&document).is_ok()) {
            match &entry.subject {
                Subject::List { denies, item } => compiled.list(item, *denies, entry.until_us),
                Subject::Override { policy, key, numbers, calendar } => {
                    if let Some(policy) = compiled.sets_mut(policy) {
                        policy.add_entry(key, numbers, calendar, entry.until_us);
                    }
                }
            }
        }
        compiled
    }

    fn list(&mut self, item: &ListItem, denies: bool, until_us: Option<u64>) {
        match item {
            ListItem::Client(network) => self.lists.network(*network).add(denies, until_us),
            ListItem::Attribute(attribute, value) => {
                let reference = self.table.refer(attribute);
                self.lists.value(&reference, value).add(denies, until_us);
                if *attribute == Attribute::Path {
                    self.lists.value(&Reference::FoldedPath, &lower_case(value)).add(denies, until_us);
                }
            }
            ListItem::Key { policy, key } => {
                if let Some(policy) = self.sets_mut(policy) {
                    policy.listing(key).add(denies, until_us);
                }
            }
        }
    }

    fn sets_mut(&mut self, policy: &str) -> Option<&mut QuotaSets> {
        self.sets.get_mut(*self.indices.get(policy)?)
    }

    pub fn document(&self) -> &Arc<Document> {
        &self.document
    }

    /// The policies in the order of the document.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = ConfiguredPolicy<'_>> {
        let policies = self.document.policies.iter().zip(&self.sets);
        policies.map(|(document, sets)| ConfiguredPolicy { document, sets: sets.sets() })
    }

    /// The policy at an index.
    pub fn policy(&self, index: usize) -> ConfiguredPolicy<'_> {
        ConfiguredPolicy { document: &self.document.policies[index], sets: self.sets[index].sets() }
    }

    /// The quotas of a set of a policy.
    pub fn set(&self, index: usize, set: u32) -> &Policy {
        self.sets[index].set_at(set)
    }

    /// The index of a policy by its name.
    pub fn policy_index(&self, name: &str) -> Option<usize> {
        self.indices.get(name).copied()
    }

    /// The attributes of a request, as the steps below take them.
    pub fn attributes<'a>(&'a self, source: &'a dyn AttributeSource) -> Attributes<'a> {
        let router = self.document.paths.over(source.router_paths());
        Attributes::new(source, &self.table, &self.document.client, router)
    }

    /// Step 2: the verdict of the lists of attributes.
    pub fn list_verdict(&self, request: &Attributes<'_>, now_us: u64) -> Option<ListVerdict> {
        self.lists.verdict(request, now_us)
    }

    /// Step 3: the policies that apply to a request; without any, it is admitted.
    ///
    /// # Errors
    /// Invalid argument: an attribute that gives a cost, a time zone or a start does not hold one.
    pub fn apply_rules(&self, request: &Attributes<'_>, now_us: u64) -> Result<AppliedPolicies, Error> {
        let router = request.router();
        // The table has the attributes of all rules, whichever router they are compiled for.
        let compile = || Matcher::new(&self.document.rules, &mut self.table.clone(), router);
        let matcher = self.matchers[router.variant()].get_or_init(compile);
        let mut applied = matcher.apply(request, now_us, &self.document.zone)?;
        if !self.calendars.is_empty() {
            for applied in &mut applied {
                let calendar =
                    self.calendars[applied.policy].of(&self.sets[applied.policy].sets()[0], request)?;
                applied.calendar = Some(Box::new(calendar)).filter(|calendar| !calendar.is_empty());
            }
        }
        Ok(applied)
    }

    /// The policies that the rules apply to a request, in their public form.
    ///
    /// # Errors
    /// Those of [`apply_rules`](Self::apply_rules).
    pub fn matching(&self, source: &dyn AttributeSource, now_us: u64) -> Result<Vec<PolicyMatch>, Error> {
        let named = |applied: AppliedPolicy| PolicyMatch {
            policy: self.document.policies[applied.policy].policy.name().into(),
            key: applied.key.into_vec(),
            cost: applied.cost,
            headroom: applied.headroom,
        };
        Ok(self.apply_rules(&self.attributes(source), now_us)?.into_iter().map(named).collect())
    }

    /// The request's plan, for step 5.
    pub fn plan<'r>(&self, request: &'r Attributes<'_>) -> Option<&'r [u8]> {
        request.value(self.plan.as_ref()?)
    }

    /// Step 4: the verdict of the lists of keys on a key of a policy.
    pub fn key_verdict(&self, policy: usize, key: &[u8], now_us: u64) -> Option<ListVerdict> {
        self.sets.get(policy)?.key_listing(key)?.verdict(now_us)
    }

    /// Step 5: the effective quotas of a key of a policy in a request with this plan, and with this calendar where the policy takes one
    /// from requests.
    ///
    /// # Errors
    /// Those of [`QuotaSets::choose`].
    pub fn effective(
        &self,
        policy: usize,
        key: &[u8],
        plan: Option<&[u8]>,
        calendar: Option<&KeyOptions>,
        now_us: u64,
    ) -> Result<EffectiveQuotas, Error> {
        match (self.document.policies.get(policy), self.sets.get(policy)) {
            (Some(document), Some(sets)) => sets.choose(document.policy.name(), key, plan, calendar, now_us),
            _ => Ok(EffectiveQuotas::default()),
        }
    }
}

#[cfg(test)]
mod tests;
