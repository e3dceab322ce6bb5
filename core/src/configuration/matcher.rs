//! Compiled rules: which requests they match, and what they apply.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::configuration::attributes::{AttributeTable, Attributes, Client, Reference};
use crate::configuration::condition::{ClientTest, Condition, Conditions};
use crate::configuration::cost::Cost;
use crate::configuration::key_template::{Key, KeyTemplate};
use crate::configuration::path::PathPattern;
use crate::configuration::rule::{Application, Rule};
use crate::configuration::rule_index::RuleIndex;
use crate::configuration::schedule::LocalMinute;
use crate::error::Error;

/// A policy that the rules apply to a request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AppliedPolicy {
    /// The index of the policy.
    pub(crate) policy: usize,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    pub(crate) headroom: u8,
    /// Whether the request is denied, since it lacks an attribute of the key.
    pub(crate) is_missing: bool,
    /// The number of the rule among those of the document, from 1 up.
    pub(crate) rule: u32,
}

/// Shows no key.
impl fmt::Debug for AppliedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppliedPolicy")
            .field("policy", &self.policy)
            .field("key", &format_args!("{} bytes", self.key.len()))
            .field("cost", &self.cost)
            .field("headroom", &self.headroom)
            .field("is_missing", &self.is_missing)
            .field("rule", &self.rule)
            .finish()
    }
}

/// The policies of a request; most have no more than a few.
pub(crate) type AppliedPolicies = SmallVec<[AppliedPolicy; 2]>;

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
    /// Whether a rule asks for the time of day.
    has_schedule: bool,
}

#[derive(Clone, Debug)]
struct CompiledRule {
    when: Vec<Condition<Reference>>,
    /// Which of these conditions the index has already found to hold.
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
    denies_missing: bool,
}

impl Matcher {
    /// Compiles rules; the attributes that they are about are added to the table.
    pub(crate) fn new(rules: &[Rule], table: &mut AttributeTable) -> Self {
        let mut rules: Vec<_> = rules.iter().map(|rule| CompiledRule::new(rule, table)).collect();
        let conditions: Vec<_> = rules.iter().map(|rule| &*rule.when).collect();
        let (index, found_by) = RuleIndex::new(&conditions);
        for (rule, found_by) in rules.iter_mut().zip(found_by) {
            rule.found_by = found_by;
        }
        let is_schedule = |condition: &Condition<_>| matches!(condition, Condition::During(_));
        let has_schedule = rules.iter().any(|rule| rule.when.iter().chain(&rule.unless).any(is_schedule));
        Self { rules, index, has_schedule }
    }

    /// The policies that the rules apply to a request, each by the first rule that names it.
    ///
    /// # Errors
    /// Invalid argument: the attribute that gives a cost holds none.
    pub(crate) fn apply(
        &self,
        request: &Attributes<'_>,
        now_us: u64,
        utc_offset_us: i64,
    ) -> Result<AppliedPolicies, Error> {
        let now =
            if self.has_schedule { LocalMinute::at(now_us, utc_offset_us) } else { LocalMinute::default() };
        let mut applied = AppliedPolicies::new();
        for number in self.index.candidates(request) {
            let rule = &self.rules[number as usize];
            if !rule.matches_found(request, now) {
                continue;
            }
            let pattern = rule.pattern(request);
            for application in &rule.apply {
                if applied.iter().all(|other| other.policy != application.policy) {
                    applied.push(application.apply(request, pattern, number + 1)?);
                }
            }
            if !rule.continues {
                break;
            }
        }
        Ok(applied)
    }
}

impl CompiledRule {
    fn new(rule: &Rule, table: &mut AttributeTable) -> Self {
        let mut compile = |conditions: &Conditions| {
            conditions.iter().map(|condition| condition.map(|attribute| table.refer(attribute))).collect()
        };
        let (when, unless) = (compile(&rule.when), compile(&rule.unless));
        let apply = rule.apply.iter().map(|from| CompiledApplication::new(from, table)).collect();
        Self { when, found_by: None, unless, apply, continues: rule.continues }
    }

    /// Whether it matches a request for which the index has found it.
    fn matches_found(&self, request: &Attributes<'_>, now: LocalMinute) -> bool {
        self.when
            .iter()
            .enumerate()
            .all(|(at, condition)| self.found_by == Some(at) || holds(condition, request, now))
            && !self.is_excepted(request, now)
    }

    fn is_excepted(&self, request: &Attributes<'_>, now: LocalMinute) -> bool {
        !self.unless.is_empty() && self.unless.iter().all(|condition| holds(condition, request, now))
    }

    /// The pattern that matches the path of a request that the rule matches.
    fn pattern(&self, request: &Attributes<'_>) -> Option<&PathPattern> {
        let patterns = self.when.iter().find_map(|condition| match condition {
            Condition::Path(patterns) => Some(patterns),
            _ => None,
        })?;
        match &patterns[..] {
            [pattern] => Some(pattern),
            patterns => {
                let path = request.path()?;
                patterns.iter().find(|pattern| pattern.matches(path))
            }
        }
    }
}

fn holds(condition: &Condition<Reference>, request: &Attributes<'_>, now: LocalMinute) -> bool {
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
            request.path().is_some_and(|path| patterns.iter().any(|pattern| pattern.matches(path)))
        }
        Condition::During(spans) => spans.iter().any(|span| span.contains(now)),
    }
}

impl CompiledApplication {
    fn new(from: &Application, table: &mut AttributeTable) -> Self {
        Self {
            policy: from.policy,
            key: from.key.map(|attribute| table.refer(attribute)),
            cost: from.cost.map(|attribute| table.refer(attribute)),
            headroom: from.headroom,
            denies_missing: from.denies_missing,
        }
    }

    fn apply(
        &self,
        request: &Attributes<'_>,
        pattern: Option<&PathPattern>,
        rule: u32,
    ) -> Result<AppliedPolicy, Error> {
        let cost = self.cost.units(|reference| request.value_under(reference, pattern))?;
        let (key, lacks_attribute) = self.key.write(|reference| request.value_under(reference, pattern));
        Ok(AppliedPolicy {
            policy: self.policy,
            key,
            cost,
            headroom: self.headroom,
            is_missing: lacks_attribute && self.denies_missing,
            rule,
        })
    }
}

#[cfg(test)]
mod tests;
