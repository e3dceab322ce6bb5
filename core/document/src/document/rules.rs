//! The rules: conditions, and the policies that apply.

use std::collections::HashSet;
use std::sync::Arc;

use crate::condition::{Condition, Conditions};
use crate::cost::Cost;
use crate::document::Names;
use crate::key_template::KeyTemplate;
use crate::meter::Meter;
use crate::rule::{Application, Rule};
use crate::tree::{Node, Refusal};

/// The maximum number of rules in a document.
const MAX_RULES: usize = 1_000;
/// The maximum number of policies that a rule and the continuing rules before it can apply to one request.
const MAX_POLICIES: usize = 8;

pub(super) fn read(node: Option<&Node<'_>>, names: &Names) -> Result<Vec<Rule>, Refusal> {
    let nodes = node.map_or(&[][..], Node::elements);
    if let Some(excess) = nodes.get(MAX_RULES) {
        let message = format!("the document has {} rules: allowed are up to {MAX_RULES}", nodes.len());
        return Err(Refusal::new(excess.at, message));
    }
    let mut rules = Vec::with_capacity(nodes.len());
    let mut continuing = HashSet::new();
    for node in nodes {
        let rule = rule(node, names)?;
        let own = rule.apply.iter().map(|application| application.policy);
        let together: HashSet<usize> = own.chain(continuing.iter().copied()).collect();
        if together.len() > MAX_POLICIES {
            return Err(too_many(node.get("apply").unwrap_or(node), together.len()));
        }
        if rule.continues {
            continuing = together;
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn rule(node: &Node<'_>, names: &Names) -> Result<Rule, Refusal> {
    let when = conditions(node.get("match"))?;
    let unless = conditions(node.get("unless"))?;
    let mut apply: Vec<Application> = Vec::new();
    let list = node.get("apply").unwrap_or(node);
    if list.elements().len() > MAX_POLICIES {
        return Err(too_many(list, list.elements().len()));
    }
    for node in list.elements() {
        let application = application(node, &when, names)?;
        if apply.iter().any(|other| other.policy == application.policy) {
            let policy = node.get("policy").unwrap_or(node);
            return Err(Refusal::new(
                policy.at,
                format!("policy {policy} is applied before: allowed is once in a rule"),
            ));
        }
        apply.push(application);
    }
    let continues = node.get("continue").and_then(Node::boolean).unwrap_or(false);
    Ok(Rule { when, unless, apply, continues })
}

fn too_many(apply: &Node<'_>, policies: usize) -> Refusal {
    let message = format!(
        "the rule, with the continuing rules before it, applies {policies} policies: allowed are up to {MAX_POLICIES}"
    );
    Refusal::new(apply.at, message)
}

fn conditions(node: Option<&Node<'_>>) -> Result<Conditions, Refusal> {
    let mut conditions = Conditions::default();
    for field in node.map_or(&[][..], Node::fields) {
        if field.name == "header" {
            for header in field.node.fields() {
                conditions.push(condition(&format!("header.{}", header.name), header.at, &header.node)?);
            }
        } else {
            conditions.push(condition(&field.name, field.at, &field.node)?);
        }
    }
    Ok(conditions)
}

fn condition(name: &str, at: usize, node: &Node<'_>) -> Result<Condition, Refusal> {
    let mut condition = Condition::about(name).map_err(|error| Refusal::of(at, &error))?;
    for text in node.elements() {
        text.read(|text| condition.add(text))?;
    }
    Ok(condition)
}

fn application(node: &Node<'_>, when: &Conditions, names: &Names) -> Result<Application, Refusal> {
    // The shape is already checked: the table has the required fields.
    let field = |name| node.get(name).unwrap_or(node);
    let cost = match node.get("cost") {
        None => Cost::Units(1),
        Some(node) if node.integer().is_some() => Cost::Units(node.number()),
        Some(node) => node.read(|text| Cost::parse(text, when))?,
    };
    let spends_always = node.get("spend").and_then(Node::text) == Some("always");
    let spent = node.get("spent").map(|node| Ok((node.at, node.read(Meter::parse)?))).transpose()?;
    if let Some((at, _)) = spent.as_ref().filter(|_| spends_always) {
        return Err(Refusal::new(
            *at,
            "spent is next to spend = \"always\": allowed is one of the two, since what has happened already is not reserved",
        ));
    }
    Ok(Application {
        policy: names.find(field("policy"))?,
        key: field("key").read(|text| KeyTemplate::parse(text, when))?,
        cost,
        headroom: node.get("headroom").map_or(0, Node::number),
        spends_always,
        spent: spent.map(|(_, meter)| Arc::new(meter)),
        denies_missing: node.get("missing").and_then(Node::text) == Some("deny"),
    })
}
