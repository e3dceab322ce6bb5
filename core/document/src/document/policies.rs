//! The table `policies`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::document::Names;
use crate::effective::QuotaSets;
use crate::key_calendar;
use crate::model::{Candidate, DocumentPolicy, Elastic, Mode, Override, OverrideQuotas};
use crate::tree::{Node, Refusal, Value};
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::groups::{Group, GroupTable};
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Quota, parse_duration_us};
use polylimit_rules::report::hex;
use polylimit_rules::time::parse_time_us;
use polylimit_store::lease_size::Lease;
use polylimit_store::outage::Outage;

/// The maximum number of different sets of quotas of one policy: its own, its candidate's, and those of plans and overrides.
const MAX_SETS: usize = QuotaSets::MAX_SETS;
/// The maximum length of the name of a policy with a candidate, in bytes: the name of its comparison has 9 more.
const MAX_COMPARED_NAME: usize = Policy::MAX_NAME_LENGTH - 9;

/// The policies, and all quotas that they may decide by.
#[derive(Default)]
pub(super) struct Policies {
    pub(super) list: Vec<DocumentPolicy>,
    pub(super) names: Names,
    pub(super) sets: Vec<Set>,
}

/// Quotas that a policy may decide by, and their place in the text.
pub(super) struct Set {
    pub(super) policy: usize,
    pub(super) at: usize,
    pub(super) numbers: Policy,
}

pub(super) fn read(node: Option<&Node<'_>>) -> Result<Policies, Refusal> {
    let fields = node.map_or(&[][..], Node::fields);
    let mut read = Policies::default();
    for (index, field) in fields.iter().enumerate() {
        let has_candidate = field.node.get("candidate").is_some();
        check_name(&field.name, has_candidate).map_err(|error| Refusal::of(field.at, &error))?;
        read.names.insert(field.name.as_ref().into(), index);
        let mut numbers = Reader {
            name: &field.name,
            index,
            sets: &mut read.sets,
            different: HashSet::new(),
            groups: groups(&field.node)?,
        };
        read.list.push(numbers.policy(&field.node)?);
    }
    for (policy, field) in read.list.iter_mut().zip(fields) {
        policy.elastic = field.node.get("elastic").map(|node| elastic(node, &read.names)).transpose()?;
    }
    let nodes: Vec<_> = fields.iter().map(|field| &field.node).collect();
    check_pools(&read.list, &nodes)?;
    Ok(read)
}

/// Settings that a policy cannot have that is shared by groups, and why.
const NOT_WITH_GROUPS: [(&str, &str); 6] = [
    ("plans", "all groups share one set of quotas"),
    ("overrides", "all groups share one set of quotas"),
    ("candidate", "all groups share one set of quotas"),
    ("lease", "units that a process takes in advance belong to no group"),
    ("elastic", "its groups borrow from each other already"),
    ("penalty", "a block of the key would block all groups"),
];

/// Reads one policy, and remembers its quotas.
struct Reader<'r> {
    name: &'r str,
    index: usize,
    sets: &'r mut Vec<Set>,
    different: HashSet<Arc<[Quota]>>,
    groups: Option<Arc<GroupTable>>,
}

impl Reader<'_> {
    /// The policy without its references to other policies.
    fn policy(&mut self, node: &Node<'_>) -> Result<DocumentPolicy, Refusal> {
        // The shape is already checked: the table has the required fields, each of its kind.
        let policy = self.quotas(node.get("quotas").unwrap_or(node))?;
        let mut plans: Vec<(Arc<str>, Policy)> = Vec::new();
        for plan in node.get("plans").map_or(&[][..], Node::fields) {
            check_plan(&plan.name).map_err(|error| Refusal::of(plan.at, &error))?;
            plans.push((Arc::from(&*plan.name), self.quotas(&plan.node)?));
        }
        let names: HashMap<&str, Arc<str>> = plans.iter().map(|(name, _)| (&**name, name.clone())).collect();
        let calendar = key_calendar::read_attributes(node)?;
        let mut overrides = Vec::new();
        for field in node.get("overrides").map_or(&[][..], Node::fields) {
            let numbers = self.numbers(field.node.get("numbers").unwrap_or(&field.node), &names)?;
            let until_us = field.node.get("until").map(|until| until.read(parse_time_us)).transpose()?;
            let own = key_calendar::read(&field.node)?;
            let quotas = match &numbers {
                OverrideQuotas::Quotas(quotas) => Some(quotas),
                OverrideQuotas::Plan(plan) => {
                    plans.iter().find(|(name, _)| name == plan).map(|(_, plan)| plan)
                }
            };
            if let Some(quotas) = quotas {
                key_calendar::check_override(quotas, &own, &calendar).map_err(at_field(&field.node))?;
            }
            overrides.push(Override { key: field.name.as_bytes().into(), numbers, calendar: own, until_us });
        }
        let lease: Option<Lease> = node.get("lease").map(lease).transpose()?;
        let candidate =
            node.get("candidate").map(|node| self.candidate(node, lease.is_some())).transpose()?;
        if !calendar.is_empty() {
            let own = self.sets.iter().filter(|set| set.policy == self.index).map(|set| set.numbers.clone());
            key_calendar::check_attributes(&own.collect::<Vec<_>>(), &calendar).map_err(at_field(node))?;
            let at = ["zone", "from"].into_iter().find_map(|name| node.get(name)).unwrap_or(node).at;
            if lease.is_some() {
                let message =
                    "a policy with a lease takes no zone and from of a request: all keys have its quotas";
                return Err(Refusal::new(at, message));
            }
            if candidate.as_ref().is_some_and(|candidate| candidate.compare > 0) {
                let message = "compare is allowed as 0 for a policy that takes zone or from of a request";
                return Err(Refusal::new(at, message));
            }
        }
        if self.groups.is_some() {
            for (name, about) in NOT_WITH_GROUPS {
                if let Some(setting) = node.get(name) {
                    let message = format!(
                        "policy {} is shared by groups: {name} is not allowed with it, since {about}",
                        self.name
                    );
                    return Err(Refusal::new(setting.at, message));
                }
            }
        }
        let word = |name| node.get(name).and_then(Node::text);
        Ok(DocumentPolicy {
            policy,
            plans,
            overrides,
            mode: match word("mode") {
                Some("off") => Mode::Off,
                Some("shadow") => Mode::Shadow,
                _ => Mode::On,
            },
            outage: word("outage").map(|word| match word {
                "allow" => Outage::Allow,
                "deny" => Outage::Deny,
                _ => Outage::Fallback,
            }),
            lease,
            calendar,
            candidate,
            elastic: None,
            penalty: node.get("penalty").map(penalty).transpose()?,
        })
    }

    /// Quotas as one text or as a list of them, as a policy of this name.
    fn quotas(&mut self, node: &Node<'_>) -> Result<Policy, Refusal> {
        let numbers = quotas(self.name, node)?;
        let numbers =
            numbers.with_groups(self.groups.as_ref()).map_err(|error| Refusal::of(node.at, &error))?;
        self.different.insert(numbers.quotas().into());
        if self.different.len() > MAX_SETS {
            let message = format!(
                "policy {} has more than {MAX_SETS} different sets of quotas: allowed are up to {MAX_SETS}, of quotas, plans, \
                 overrides and candidate together",
                self.name
            );
            return Err(Refusal::new(node.at, message));
        }
        self.sets.push(Set { policy: self.index, at: node.at, numbers: numbers.clone() });
        Ok(numbers)
    }

    fn numbers(
        &mut self,
        node: &Node<'_>,
        plans: &HashMap<&str, Arc<str>>,
    ) -> Result<OverrideQuotas, Refusal> {
        let plan = node.text().filter(|text| !Policy::is_quotas(text));
        let Some(plan) = plan else { return self.quotas(node).map(OverrideQuotas::Quotas) };
        match plans.get(plan) {
            Some(plan) => Ok(OverrideQuotas::Plan(plan.clone())),
            None => Err(Refusal::new(node.at, unknown_plan(self.name, plan))),
        }
    }

    fn candidate(&mut self, node: &Node<'_>, is_leased: bool) -> Result<Candidate, Refusal> {
        let policy = self.quotas(node.get("quotas").unwrap_or(node))?;
        let thousandths = |name| node.get(name).map_or(0, Node::number);
        let (compare, enforce): (u16, u16) = (thousandths("compare"), thousandths("enforce"));
        let at = node.get("compare").map_or(node.at, |node| node.at);
        if compare + enforce > 1_000 {
            let message =
                format!("compare is {compare} and enforce is {enforce}: allowed is a sum of up to 1000");
            return Err(Refusal::new(at, message));
        }
        if compare > 0 && is_leased {
            let message = format!(
                "compare is {compare}: allowed is 0 for a policy with a lease, whose checks reach no store"
            );
            return Err(Refusal::new(at, message));
        }
        let comparison = comparison(&policy).map_err(|error| Refusal::of(node.at, &error))?;
        Ok(Candidate { policy, comparison, compare, enforce })
    }
}

/// Makes the refusal of a field of a table.
fn at_field(table: &Node<'_>) -> impl Fn((&'static str, Error)) -> Refusal {
    |(field, error)| Refusal::of(table.get(field).unwrap_or(table).at, &error)
}

/// Quotas as one text or as a list of them, as a policy.
pub(crate) fn quotas(policy: &str, node: &Node<'_>) -> Result<Policy, Refusal> {
    let Value::List(elements) = &node.value else { return node.read(|text| Policy::parse(policy, text)) };
    let quotas = elements.iter().map(|element| element.read(str::parse::<Quota>));
    let quotas: Vec<Quota> = quotas.collect::<Result<_, _>>()?;
    Policy::new(policy, quotas).map_err(|error| Refusal::of(node.at, &error))
}

/// The policy under which compared checks are counted.
fn comparison(candidate: &Policy) -> Result<Policy, Error> {
    let quotas: Vec<String> = candidate.quotas().iter().map(Quota::to_string).collect();
    let digits = hex(&Sha256::digest(quotas.join("; "))[..4]);
    Policy::new(&format!("{}~{digits}", candidate.name()), candidate.quotas().iter().cloned())
}

pub(crate) fn unknown_plan(policy: &str, plan: &str) -> String {
    format!(
        "policy {policy} has no plan {}: allowed are the names in its plans, and quotas such as \"100/minute\"",
        excerpt(plan)
    )
}

fn check_name(name: &str, has_candidate: bool) -> Result<(), Error> {
    Policy::check_name(name)?;
    let read = excerpt(name);
    if name.contains('~') {
        let message = format!(
            "policy name {read} has a ~: it marks comparisons with candidates, allowed are other names"
        );
        return Err(Error::invalid_argument(message));
    }
    if has_candidate && name.len() > MAX_COMPARED_NAME {
        let message = format!(
            "policy name {read} has {} bytes: allowed are up to {MAX_COMPARED_NAME} with a candidate",
            name.len()
        );
        return Err(Error::invalid_argument(message));
    }
    Ok(())
}

/// The value of an override must show whether it is a plan or quotas.
fn check_plan(name: &str) -> Result<(), Error> {
    if name.is_empty() || Policy::is_quotas(name) || key_calendar::split_plan(name.as_bytes()).1.is_some() {
        let message = format!(
            "plan is {}: allowed are names without / and spaces, which quotas have, and without zone= and from= at their start, which \
             follow a plan",
            excerpt(name)
        );
        return Err(Error::invalid_argument(message));
    }
    Ok(())
}

fn lease(node: &Node<'_>) -> Result<Lease, Refusal> {
    match node.integer() {
        Some(units) => {
            let units = u64::try_from(units).unwrap_or_default();
            Lease::new(units, Lease::auto().max_age()).map_err(|error| Refusal::of(node.at, &error))
        }
        None => node.read(str::parse),
    }
}

/// The groups that share a policy.
fn groups(policy: &Node<'_>) -> Result<Option<Arc<GroupTable>>, Refusal> {
    let Some(node) = policy.get("groups") else { return Ok(None) };
    let percent = |group: &Node<'_>, name: &str, otherwise| group.get(name).map_or(otherwise, Node::number);
    let groups = node.fields().iter().map(|field| Group {
        name: Arc::from(&*field.name),
        weight: percent(&field.node, "weight", 1),
        minimum: percent(&field.node, "minimum", 0),
        maximum: percent(&field.node, "maximum", 100),
    });
    let table = GroupTable::new(groups).map_err(|error| Refusal::of(node.at, &error))?;
    Ok(Some(Arc::new(table)))
}

fn penalty(node: &Node<'_>) -> Result<Penalty, Refusal> {
    let duration = |name| node.get(name).map(|node: &Node<'_>| node.read(parse_duration_us)).transpose();
    let block_us = duration("block")?.unwrap_or_default();
    let max_us = duration("max")?.unwrap_or(block_us);
    if max_us < block_us {
        let at = node.get("max").map_or(node.at, |max| max.at);
        return Err(Refusal::new(at, "max is shorter than block: allowed are times from block up"));
    }
    Ok(Penalty {
        denials: node.get("denials").map_or(0, Node::number),
        within_us: duration("within")?.unwrap_or_default(),
        block_us,
        max_us,
        forget_us: duration("forget")?.unwrap_or(max_us),
    })
}

fn elastic(node: &Node<'_>, names: &Names) -> Result<Elastic, Refusal> {
    Ok(Elastic {
        pool: names.find(node.get("policy").unwrap_or(node))?,
        key: node.get("key").and_then(Node::text).unwrap_or_default().as_bytes().into(),
        headroom: node.get("headroom").map_or(0, Node::number),
        counts_all: node.get("counts").and_then(Node::text) != Some("elastic"),
    })
}

/// Refuses settings other than quotas that an elastic policy or its pool cannot have, at their place in the text.
fn check_pools(policies: &[DocumentPolicy], nodes: &[&Node<'_>]) -> Result<(), Refusal> {
    for (user, node) in policies.iter().zip(nodes) {
        let Some(elastic) = &user.elastic else { continue };
        let (name, pool) = (user.policy.name(), &policies[elastic.pool]);
        let refuse = |node: &Node<'_>, field: &str, message: String| {
            Err(Refusal::new(node.get(field).map_or(node.at, |node| node.at), message))
        };
        if user.penalty.is_some() {
            return refuse(
                node,
                "penalty",
                format!("policy {name} is elastic: a penalty is not allowed with it"),
            );
        }
        let is_pool = format!("policy {} is the pool of {name}", pool.policy.name());
        let pool_node = nodes[elastic.pool];
        if pool.elastic.is_some() {
            return refuse(
                pool_node,
                "elastic",
                format!("{is_pool}: a pool is not allowed to be elastic itself"),
            );
        }
        if pool.penalty.is_some() {
            return refuse(pool_node, "penalty", format!("{is_pool}: a penalty is not allowed for a pool"));
        }
        if !pool.calendar.is_empty() {
            let field = if pool.calendar.zone.is_some() { "zone" } else { "from" };
            return refuse(pool_node, field, format!("{is_pool}: its windows are the same for all keys"));
        }
        if pool.policy.groups().is_some() {
            return refuse(
                pool_node,
                "groups",
                format!("{is_pool}: a pool is not allowed to have groups, since it is asked for no group"),
            );
        }
        if pool.mode != Mode::On {
            return refuse(
                pool_node,
                "mode",
                format!("{is_pool}: the mode of a pool is only allowed to be \"on\""),
            );
        }
    }
    Ok(())
}
