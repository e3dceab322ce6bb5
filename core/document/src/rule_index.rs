//! Finds the few rules that may match a request.
//!
//! Each rule is in one index: by its paths, by the exact values of one attribute, or by the client's networks, whichever puts
//! it with the fewest others. A request looks into each index once and gets sorted lists of rules; no other rule matches it. A
//! rule without such a condition is in the list that every request gets.

use smallvec::{SmallVec, smallvec};

use crate::Map;
use crate::attributes::{Attributes, Client, Reference};
use crate::client_address::address::Network;
use crate::condition::{ClientTest, Condition, TextTest};
use crate::network_table::NetworkTable;
use crate::path::{PathPattern, Segment, segments};
use crate::value_table::ValueTable;

/// A rule's number, counted from 0 in the order of the document.
pub(crate) type RuleNumber = u32;

/// Up to this many rules at one place of the path tree count as none: one walk of the tree serves all rules.
const FEW: usize = 4;

#[derive(Clone, Debug, Default)]
pub(crate) struct RuleIndex {
    always: Vec<RuleNumber>,
    paths: PathTree,
    has_paths: bool,
    values: ValueTable<Vec<RuleNumber>>,
    networks: NetworkTable<Vec<RuleNumber>>,
}

impl RuleIndex {
    /// Indexes rules with these conditions, in their order, and returns by which of its conditions each rule is found: for a
    /// rule that is found, that condition holds.
    pub(crate) fn new(rules: &[&[Condition<Reference>]]) -> (Self, Vec<Option<usize>>) {
        // First insert every rule wherever it could be; then keep each where the fewest others are.
        let mut all = Self::default();
        for (number, conditions) in (0..).zip(rules) {
            for condition in *conditions {
                all.insert(number, condition);
            }
        }
        let mut index = Self::default();
        let mut found_by = Vec::with_capacity(rules.len());
        for (number, conditions) in (0..).zip(rules) {
            let crowds = conditions.iter().enumerate();
            let crowds = crowds.filter_map(|(at, condition)| Some((all.crowd(condition)?, at)));
            let least = crowds.min().map(|(_, at)| at);
            match least {
                Some(at) => index.insert(number, &conditions[at]),
                None => index.always.push(number),
            }
            found_by.push(least);
        }
        (index, found_by)
    }

    fn insert(&mut self, number: RuleNumber, condition: &Condition<Reference>) {
        let push = |numbers: &mut Vec<RuleNumber>| {
            if numbers.last() != Some(&number) {
                numbers.push(number);
            }
        };
        match condition {
            Condition::Path(patterns) => {
                self.has_paths = true;
                for pattern in patterns {
                    push(self.paths.place(pattern));
                }
            }
            Condition::Text(reference, tests) => {
                for value in exact_values(tests).into_iter().flatten() {
                    push(self.values.entry(reference, value));
                }
            }
            Condition::Client(tests) => {
                for network in exact_networks(tests).into_iter().flatten() {
                    push(self.networks.entry(network));
                }
            }
            Condition::During(_) => {}
        }
    }

    /// The number of rules at the most crowded place of a condition; `None` if it cannot be indexed.
    fn crowd(&mut self, condition: &Condition<Reference>) -> Option<usize> {
        match condition {
            Condition::Path(patterns) => {
                let crowd = patterns.iter().map(|pattern| self.paths.place(pattern).len()).max()?;
                Some(if crowd <= FEW { 0 } else { crowd })
            }
            Condition::Text(reference, tests) => {
                exact_values(tests)?.map(|value| self.values.entry(reference, value).len()).max()
            }
            Condition::Client(tests) => {
                exact_networks(tests)?.map(|network| self.networks.entry(network).len()).max()
            }
            Condition::During(_) => None,
        }
    }

    /// The numbers of the rules that may match a request with this path, in their order.
    pub(crate) fn candidates<'i>(&'i self, request: &Attributes<'_>, path: Option<&[u8]>) -> Candidates<'i> {
        let mut lists = SmallVec::new();
        add(&mut lists, &self.always);
        if self.has_paths
            && let Some(path) = path
        {
            self.paths.find(path, &mut lists);
        }
        self.values.of(request).for_each(|numbers| add(&mut lists, numbers));
        if !self.networks.is_empty()
            && let Some(address) = request.client().and_then(Client::address)
        {
            self.networks.containing(address).for_each(|(_, numbers)| add(&mut lists, numbers));
        }
        Candidates { lists }
    }
}

/// The values that pass a condition, if only exact values do.
fn exact_values(tests: &[TextTest]) -> Option<impl Iterator<Item = &[u8]>> {
    tests.iter().all(|test| test.exact().is_some()).then(|| tests.iter().filter_map(TextTest::exact))
}

/// The networks that pass a condition, if only networks do.
fn exact_networks(tests: &[ClientTest]) -> Option<impl Iterator<Item = Network>> {
    tests.iter().all(|test| test.network().is_some()).then(|| tests.iter().filter_map(ClientTest::network))
}

fn add<'i>(lists: &mut SmallVec<[&'i [RuleNumber]; 8]>, numbers: &'i [RuleNumber]) {
    if !numbers.is_empty() {
        lists.push(numbers);
    }
}

/// Several sorted lists merged into one, without duplicates.
pub(crate) struct Candidates<'i> {
    lists: SmallVec<[&'i [RuleNumber]; 8]>,
}

impl Iterator for Candidates<'_> {
    type Item = RuleNumber;

    fn next(&mut self) -> Option<RuleNumber> {
        let next = self.lists.iter().filter_map(|list| list.first()).min().copied()?;
        for list in &mut self.lists {
            if list.first() == Some(&next) {
                *list = &list[1..];
            }
        }
        Some(next)
    }
}

/// The segments of patterns as a tree: a path is compared with all patterns in one walk.
#[derive(Clone, Debug)]
struct PathTree {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    literals: Map<Box<[u8]>, usize>,
    /// The node after any segment.
    any: Option<usize>,
    /// The rules whose pattern ends here.
    ends: Vec<RuleNumber>,
    /// The rules whose pattern takes all the rest from here.
    rest: Vec<RuleNumber>,
}

impl Default for PathTree {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl PathTree {
    /// The rules with this pattern, whatever its names are.
    fn place(&mut self, pattern: &PathPattern) -> &mut Vec<RuleNumber> {
        let (pattern_segments, has_rest) = pattern.parts();
        let mut at = 0;
        for segment in pattern_segments {
            let new = self.nodes.len();
            let node = &mut self.nodes[at];
            at = match segment {
                Segment::Any(_) => *node.any.get_or_insert(new),
                Segment::Literal(literal) => *node.literals.entry(literal.clone()).or_insert(new),
            };
            if at == new {
                self.nodes.push(Node::default());
            }
        }
        let node = &mut self.nodes[at];
        if has_rest { &mut node.rest } else { &mut node.ends }
    }

    fn find<'i>(&'i self, path: &[u8], lists: &mut SmallVec<[&'i [RuleNumber]; 8]>) {
        // Where both a literal and `{name}` fit, both branches are followed.
        let mut open: SmallVec<[_; 8]> = smallvec![(0, segments(path))];
        while let Some((at, mut rest)) = open.pop() {
            let node = &self.nodes[at];
            add(lists, &node.rest);
            let Some(segment) = rest.next() else {
                add(lists, &node.ends);
                continue;
            };
            if let Some(any) = node.any {
                open.push((any, rest.clone()));
            }
            if let Some(literal) = node.literals.get(segment) {
                open.push((*literal, rest));
            }
        }
    }
}
