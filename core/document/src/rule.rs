//! A rule of a document: which requests it matches, and which policies it applies to them.

use std::sync::Arc;

use crate::condition::Conditions;
use crate::cost::Cost;
use crate::key_template::KeyTemplate;
use crate::meter::Meter;

/// A rule. Rules are tried in their order, up to the first one that matches and does not continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Must all hold for the rule to match.
    pub(crate) when: Conditions,
    /// Unless empty, must not all hold.
    pub(crate) unless: Conditions,
    /// Empty: the request is exempt from what later rules would apply.
    pub(crate) apply: Vec<Application>,
    /// Whether later rules are tried as well.
    pub(crate) continues: bool,
}

/// A policy that a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Application {
    /// The index of the policy in the document.
    pub(crate) policy: usize,
    pub(crate) key: KeyTemplate,
    pub(crate) cost: Cost,
    /// Percent of the capacity that is kept for others, 0 to 99.
    pub(crate) headroom: u8,
    /// Whether the cost is spent even if it is denied.
    pub(crate) spends_always: bool,
    /// What the response reports as spent. The cost is reserved until then.
    pub(crate) spent: Option<Arc<Meter>>,
    /// Whether a request that lacks an attribute of the key is denied.
    pub(crate) denies_missing: bool,
}
