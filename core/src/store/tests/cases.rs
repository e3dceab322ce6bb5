//! The cases of policies whose answers depend on one policy and its penalty alone.

use serde_json::Value;

use super::{Asked, Subject};
use polylimit_rules::decision::Cause;
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::{Hold, commit_cost};
use polylimit_rules::transition::Operation;
use polylimit_runtime::clock::ManualClock;
use polylimit_store::charge::{Action, StoreAnswer};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/policies.json");
/// Monday 2026-09-21, from which the times of cases count.
const START_US: u64 = 1_789_948_800_000_000;

fn duration_us(text: &str) -> u64 {
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap();
    let factor = match &text[unit..] {
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        other => panic!("{other}"),
    };
    text[..unit].parse::<u64>().unwrap() * factor
}

fn penalty(value: &Value) -> Option<Penalty> {
    let time = |name: &str| value.get(name).map(|text| duration_us(text.as_str().unwrap()));
    let block_us = time("block")?;
    let max_us = time("max").unwrap_or(block_us);
    Some(Penalty {
        denials: value["denials"].as_u64()?.try_into().unwrap(),
        within_us: time("within")?,
        block_us,
        max_us,
        forget_us: time("forget").unwrap_or(max_us),
    })
}

/// The policies of a document that have nothing but quotas and a penalty, and that no other policy changes.
fn policies(document: &Value) -> Vec<Policy> {
    let all = document["policies"].as_object().unwrap();
    let is_pool = |name: &str| all.values().any(|policy| policy["elastic"]["policy"] == *name);
    let is_plain = |name: &str, policy: &Value| {
        let fields = policy.as_object().unwrap().keys();
        !is_pool(name) && fields.into_iter().all(|field| field == "quotas" || field == "penalty")
    };
    let plain = all.iter().filter(|(name, policy)| is_plain(name, policy));
    let policies = plain.map(|(name, policy)| {
        let quotas = policy["quotas"].as_str().unwrap();
        Policy::parse(name, quotas).unwrap().with_penalty(penalty(&policy["penalty"]))
    });
    policies.collect()
}

/// The operation, and whether it answers with a decision; `None` for one on anything but a policy.
fn asked(op: &Value, policies: &[Policy]) -> Option<(Asked, bool)> {
    let name = op["policy"].as_str().unwrap_or("p");
    let policy = policies.iter().position(|policy| policy.name() == name)?;
    let operation = match op["op"].as_str()? {
        "check" | "reset" => Operation::Check,
        "peek" => Operation::Peek,
        "take" => Operation::Take,
        "charge" => Operation::Charge,
        "refund" => Operation::Refund,
        "reserve" => Operation::Reserve,
        "commit" => Operation::Commit,
        "cancel" => Operation::Cancel,
        "renew" => Operation::Renew,
        "block" => Operation::Block,
        _ => return None,
    };
    let id = op["id"].as_str().map(|id| ReservationId::new(id).unwrap());
    let hold = id.map(|id| {
        let time = |name: &str| op[name].as_u64().unwrap_or(0);
        Hold { id, ttl_us: time("ttl_us"), remember_us: time("remember_us") }
    });
    let cost = match operation {
        Operation::Commit => commit_cost(op["cost"].as_u64()),
        _ => op["cost"].as_u64().unwrap_or(1),
    };
    let asked = Asked {
        policy: policy.try_into().unwrap(),
        key: op["key"].as_str().unwrap_or("k").to_owned(),
        action: if op["op"] == "reset" { Action::Reset } else { Action::Apply(operation) },
        cost,
        headroom: op["headroom"].as_u64().unwrap_or(0).try_into().unwrap(),
        hold: op["for_us"].as_u64().map(Hold::of_block).or(hold),
    };
    let decides = [Operation::Check, Operation::Peek, Operation::Reserve].contains(&operation);
    Some((asked, decides && op["op"] != "reset"))
}

/// An answer as cases have it.
fn shown((decision, spent): StoreAnswer, decides: bool) -> Value {
    if decides {
        return serde_json::json!({
            "allowed": decision.allowed(),
            "remaining": decision.remaining(),
            "retry_after_us": decision.retry_after_us(),
            "reset_after_us": decision.reset_after_us(),
            "delay_us": decision.delay_us(),
            "over": decision.over(),
            "crossed": decision.crossed(),
            "elastic": decision.elastic(),
            "shadowed": decision.shadowed(),
            "cause": decision.cause().map(Cause::name),
        });
    }
    let usage = decision.into_usage(spent);
    serde_json::json!({
        "remaining": usage.remaining(),
        "reset_after_us": usage.reset_after_us(),
        "taken": usage.taken(),
        "found": usage.found(),
    })
}

/// Runs the operations of a case, up to the first that changes more than these policies. Returns how many were compared.
fn run(case: &Value) -> usize {
    let name = case["name"].as_str().unwrap();
    let policies = policies(&case["document"]);
    let clock = ManualClock::new(START_US).unwrap();
    let mut subjects = Subject::all(&policies, &clock);
    // Keys that a request with rules has changed.
    let mut changed = Vec::new();
    let mut compared = 0;
    for op in case["ops"].as_array().unwrap() {
        clock.set(START_US + op["t_us"].as_u64().unwrap()).unwrap();
        match op["op"].as_str().unwrap() {
            "configuration" | "entry" => break,
            "decide" => {
                let decisions = op["expect"]["decisions"].as_array().into_iter().flatten();
                changed.extend(decisions.map(|decision| decision["key"].as_str().unwrap().to_owned()));
            }
            _ => {}
        }
        let Some((asked, decides)) = asked(op, &policies) else { continue };
        if changed.contains(&asked.key) || op["expect"].get("error").is_some() {
            continue;
        }
        for subject in &mut subjects {
            let shown = shown(subject.ask(&asked), decides);
            for (field, expected) in op["expect"].as_object().unwrap() {
                assert_eq!(shown[field], *expected, "{name}: {field} of {op}");
            }
        }
        compared += 1;
    }
    compared
}

#[test]
fn cases_of_headroom_excess_penalties_and_blocks_are_answered_alike_everywhere() {
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(CASES).unwrap()).unwrap();
    let (mut whole, mut compared) = (0, 0);
    for case in cases["cases"].as_array().unwrap() {
        let document = &case["document"];
        if document.get("enabled").is_some() || document.get("lists").is_some() || !document.is_object() {
            continue;
        }
        let compared_here = run(case);
        let about = case["name"].as_str().unwrap().split(':').next().unwrap();
        if ["headroom", "excess", "penalty", "block"].contains(&about) {
            assert_eq!(compared_here, case["ops"].as_array().unwrap().len(), "{}", case["name"]);
            whole += 1;
        }
        compared += compared_here;
    }
    assert!(whole >= 17 && compared >= 140, "{whole} cases, {compared} operations");
}
