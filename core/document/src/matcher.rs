//! Compiled rules: which requests they match, and which policies they apply.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::attribute::Attribute;
use crate::attributes::{AttributeTable, Attributes, Client, Reference};
use crate::condition::{ClientTest, Condition, Conditions};
use crate::cost::Cost;
use crate::key_template::{Key, KeyTemplate};
use crate::meter::Meter;
use crate::path::{PathPattern, Reading};
use crate::router_paths::RouterPaths;
use crate::rule::{Application, Rule};
use crate::rule_index::RuleIndex;
use crate::schedule::LocalMinute;
use polylimit_rules::error::Error;
use polylimit_rules::quota::calendar::KeyOptions;
use polylimit_rules::zone::Zone;

/// A policy that the rules apply to a request.
#[derive(Clone, PartialEq, Eq)]
pub struct AppliedPolicy {
    /// The index of the policy.
    pub policy: usize,
    /// The key under the policy.
    pub key: Key,
    /// The units that the request spends.
    pub cost: u64,
    /// The share of each quota that the request leaves, in percent.
    pub headroom: u8,
    /// Whether the cost is spent even if it is denied.
    pub spends_always: bool,
    /// What the response reports as spent; the cost is reserved until then.
    pub spent: Option<Arc<Meter>>,
    /// Whether the request is denied because it lacks an attribute of the key.
    pub is_missing: bool,
    /// The number of the rule in the document, from 1 up.
    pub rule: u32,
    /// The calendar of the key and the group of the request, where the policy takes them from requests.
    pub calendar: Option<Box<KeyOptions>>,
}

/// Shows no key.
impl fmt::Debug for AppliedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppliedPolicy")
            .field("policy", &self.policy)
            .field("key", &format_args!("{} bytes", self.key.len()))
            .field("cost", &self.cost)
            .field("headroom", &self.headroom)
            .field("spends_always", &self.spends_always)
            .field("spent", &self.spent)
            .field("is_missing", &self.is_missing)
            .field("rule", &self.rule)
            .field("calendar", &self.calendar)
            .finish()
    }
}

/// The policies of a request; most have no more than a few.
pub type AppliedPolicies = SmallVec<[AppliedPolicy; 2]>;

/// A policy that the rules of a configuration apply to a request, with its key, cost and headroom.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyMatch {
    /// The policy's name.
    pub policy: Arc<str>,
    /// The key that is checked under the policy.
    pub key: Vec<u8>,
    /// The units that the request spends, 0 to 10^12.
    pub cost: u64,
    /// Percent of the capacity that is kept for others, 0 to 99.
    pub headroom: u8,
}

/// Shows no key.
impl fmt::Debug for PolicyMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyMatch")
            .field("policy", &self.policy)
            .field("key", &format_args!("{} bytes", self.key.len()))
            .field("cost", &self.cost)
            .field("headroom", &self.headroom)
            .finish()
    }
}

/// The rules of a document, with an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matcher {
    rules: Vec<CompiledRule>,
    index: RuleIndex,
    /// Whether a rule depends on the time of day.
    has_schedule: bool,
    /// Whether a rule depends on the path.
    has_paths: bool,
}

#[derive(Clone, Debug)]
struct CompiledRule {
    when: Vec<Condition<Reference>>,
    /// The condition that the index has already found to hold.
    found_by: Option<usize>,
    unless: Vec<Condition<Reference>>,
    apply: Vec<CompiledApplication>,
    continues: bool,
}

#[derive(Clone, Debug)]
struct CompiledApplication {
    policy: usize,
    key: KeyTemplate<Reference>,
    cost: Cost<Reference>,
    headroom: u8,
    spends_always: bool,
    spent: Option<Arc<Meter>>,
    denies_missing: bool,
}

impl Matcher {
    /// Compiles rules for paths as this router reads them, and adds their attributes to the table.
    pub(crate) fn new(rules: &[Rule], table: &mut AttributeTable, router: RouterPaths) -> Self {
        let mut rules: Vec<_> = rules.iter().map(|rule| CompiledRule::new(rule, table, router)).collect();
        let conditions: Vec<_> = rules.iter().map(|rule| &*rule.when).collect();
        let (index, found_by) = RuleIndex::new(&conditions);
        for (rule, found_by) in rules.iter_mut().zip(found_by) {
            rule.found_by = found_by;
        }
        let is_about = |is_one: fn(&Condition<Reference>) -> bool| {
            rules.iter().any(|rule| rule.when.iter().chain(&rule.unless).any(is_one))
        };
        let has_schedule = is_about(|condition| matches!(condition, Condition::During(_)));
        let has_paths = is_about(|condition| matches!(condition, Condition::Path(_)));
        Self { rules, index, has_schedule, has_paths }
    }

    /// The policies that the rules apply to a request, each by the first rule that names it. A request whose path can be read
    /// in several ways has the policies of every reading, so that none of them bypasses a rule.
    ///
    /// # Errors
    /// Invalid argument: the attribute that gives a cost does not hold one.
    pub(crate) fn apply(
        &self,
        request: &Attributes<'_>,
        now_us: u64,
        zone: &Zone,
    ) -> Result<AppliedPolicies, Error> {
        let now = if self.has_schedule { LocalMinute::at(now_us, zone) } else { LocalMinute::default() };
        let mut applied = AppliedPolicies::new();
        let readings = if self.has_paths { request.readings() } else { &[] };
        self.apply_to(request, readings.first(), now, &mut applied)?;
        for reading in readings.iter().skip(1) {
            self.apply_to(request, Some(reading), now, &mut applied)?;
        }
        Ok(applied)
    }

    /// Adds the policies that the rules apply to a request with one reading of its path.
    fn apply_to(
        &self,
        request: &Attributes<'_>,
        reading: Option<&Reading<'_>>,
        now: LocalMinute,
        applied: &mut AppliedPolicies,
    ) -> Result<(), Error> {
        let path = reading.map(|reading| &*reading.compared);
        for number in self.index.candidates(request, path) {
            let rule = &self.rules[number as usize];
            if !rule.matches_found(request, path, now) {
                continue;
            }
            let matched = reading.and_then(|reading| Some((rule.pattern(&reading.compared)?, reading)));
            for application in &rule.apply {
                if applied.iter().all(|other| other.policy != application.policy) {
                    applied.push(application.apply(request, matched, number + 1)?);
                }
            }
            if !rule.continues {
                break;
            }
        }
        Ok(())
    }
}

impl CompiledRule {
    fn new(rule: &Rule, table: &mut AttributeTable, router: RouterPaths) -> Self {
        let mut compile = |conditions: &Conditions| {
            let conditions = conditions.iter();
            conditions
                .map(|condition| condition.compile(|attribute| table.refer(attribute), router))
                .collect()
        };
        let (when, unless) = (compile(&rule.when), compile(&rule.unless));
        let apply = rule.apply.iter().map(|from| CompiledApplication::new(from, table, router)).collect();
        Self { when, found_by: None, unless, apply, continues: rule.continues }
    }

    /// Whether the rule matches a request for which the index has found it.
    fn matches_found(&self, request: &Attributes<'_>, path: Option<&[u8]>, now: LocalMinute) -> bool {
        self.when
            .iter()
            .enumerate()
            .all(|(at, condition)| self.found_by == Some(at) || holds(condition, request, path, now))
            && !self.is_excepted(request, path, now)
    }

    fn is_excepted(&self, request: &Attributes<'_>, path: Option<&[u8]>, now: LocalMinute) -> bool {
        !self.unless.is_empty() && self.unless.iter().all(|condition| holds(condition, request, path, now))
    }

    /// The pattern that matches the path of a request that the rule matches.
    fn pattern(&self, path: &[u8]) -> Option<&PathPattern> {
        let patterns = self.when.iter().find_map(|condition| match condition {
            Condition::Path(patterns) => Some(patterns),
            _ => None,
        })?;
        match &patterns[..] {
            [pattern] => Some(pattern),
            patterns => patterns.iter().find(|pattern| pattern.matches(path)),
        }
    }
}

fn holds(
    condition: &Condition<Reference>,
    request: &Attributes<'_>,
    path: Option<&[u8]>,
    now: LocalMinute,
) -> bool {
    match condition {
        Condition::Text(reference, tests) => {
            let value = request.value(reference);
            tests.iter().any(|test| test.passes(value))
        }
        Condition::Client(tests) => {
            let client = request.client();
            let address = client.and_then(Client::address);
            tests.iter().any(|test| match test {
                ClientTest::Network(network) => address.is_some_and(|address| network.contains(address)),
                ClientTest::Present => client.is_some(),
                ClientTest::Absent => client.is_none(),
            })
        }
        Condition::Path(patterns) => {
            path.is_some_and(|path| patterns.iter().any(|pattern| pattern.matches(path)))
        }
        Condition::During(spans) => spans.iter().any(|span| span.contains(now)),
    }
}

impl CompiledApplication {
    fn new(from: &Application, table: &mut AttributeTable, router: RouterPaths) -> Self {
        // All spellings of a path that reach the same handler must share one key.
        let mut refer = |attribute: &Attribute| match attribute {
            Attribute::Path if router.ignores_case() => Reference::FoldedPath,
            attribute => table.refer(attribute),
        };
        Self {
            policy: from.policy,
            key: from.key.map(&mut refer),
            cost: from.cost.map(&mut refer),
            headroom: from.headroom,
            spends_always: from.spends_always,
            spent: from.spent.clone(),
            denies_missing: from.denies_missing,
        }
    }

    fn apply(
        &self,
        request: &Attributes<'_>,
        matched: Option<(&PathPattern, &Reading<'_>)>,
        rule: u32,
    ) -> Result<AppliedPolicy, Error> {
        let cost = self.cost.units(|reference| request.value_under(reference, matched))?;
        let (key, lacks_attribute) = self.key.write(|reference| request.value_under(reference, matched));
        Ok(AppliedPolicy {
            policy: self.policy,
            key,
            cost,
            headroom: self.headroom,
            spends_always: self.spends_always,
            spent: self.spent.clone(),
            is_missing: lacks_attribute && self.denies_missing,
            rule,
            calendar: None,
        })
    }
}

#[cfg(test)]
mod tests;
