//! The conformance cases on the rules alone: what every store applies to its states, without a store, a limiter or a clock.
//!
//! After each operation the states go through the bytes that stores keep, and the shorter ways to a decision are compared with the longest.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by a panic")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polylimit_rules::algorithm::State;
use polylimit_rules::codec::value::Written;
use polylimit_rules::codec::{Bytes, PolicyCodec, States};
use polylimit_rules::decision::Decision;
use polylimit_rules::general::KeyOperation;
use polylimit_rules::groups::{Group, GroupTable};
use polylimit_rules::history::{Change, History};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::{Algorithm, Quota};
use polylimit_rules::reservation::id::ReservationId;
use polylimit_rules::reservation::list::{Hold, commit_cost};
use polylimit_rules::transition::{Applied, Operation, PolicyRules};
use polylimit_rules::wire::write_policy;
use serde_json::Value;

/// How often the sums of reservations sufficed.
static HELD: AtomicUsize = AtomicUsize::new(0);

fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/conformance/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let mut read: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let outdated = include_str!("../../../tests/conformance/outdated.tsv");
    let is_outdated =
        |name: &str| outdated.lines().any(|line| line.starts_with(&format!("{file}.json\t{name}\t")));
    let Value::Array(cases) = read["cases"].take() else { panic!("{file}: no cases") };
    cases.into_iter().filter(|case| !is_outdated(case["name"].as_str().unwrap())).collect()
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64()
}

fn quota(numbers: &Value) -> Quota {
    if let Some(text) = numbers["text"].as_str() {
        return text.parse().unwrap();
    }
    let period = Duration::from_micros(number(&numbers["period_us"]).unwrap_or(0));
    let mut builder = Quota::builder(number(&numbers["limit"]).unwrap(), period)
        .algorithm(numbers["algorithm"].as_str().unwrap().parse::<Algorithm>().unwrap())
        .aligned(numbers["aligned"] == true)
        .count_denied(numbers["count_denied"] == true);
    if let Some(burst) = number(&numbers["burst"]) {
        builder = builder.burst(burst);
    }
    if let Some(step) = number(&numbers["step"]) {
        builder = builder.step(step);
    }
    if let Some(buckets) = number(&numbers["buckets"]) {
        builder = builder.buckets(u32::try_from(buckets).unwrap());
    }
    if let Some(excess) = number(&numbers["excess"]) {
        builder = builder.excess(excess);
    }
    builder.build().unwrap()
}

fn policy(quotas: &Value) -> Policy {
    Policy::new("case", quotas.as_array().unwrap().iter().map(quota)).unwrap()
}

/// A key of a policy.
struct Key {
    policy: Policy,
    rules: PolicyRules,
    history: History,
    states: States,
    /// The same as Redis keeps it, under policies that its module decides.
    value: Bytes,
}

impl Key {
    fn new(policy: Policy) -> Self {
        let states = policy.quotas().iter().map(State::fresh).collect();
        Self {
            rules: PolicyRules::new(&policy),
            policy,
            history: History::default(),
            states,
            value: Bytes::new(),
        }
    }

    /// Replaces the policy's quotas, as a store does that keeps bytes.
    fn change(&mut self, policy: Policy, now_us: u64) {
        let before = PolicyCodec::new(&self.policy, Change::Past(&self.history));
        self.history = self.history.then(&self.policy, now_us);
        let after = PolicyCodec::new(&policy, Change::Past(&self.history));
        let mut bytes = Bytes::new();
        before.write(&self.states, &mut bytes);
        let mut states = after.read(&bytes, now_us).unwrap();
        // Logs have bytes of their own, and reservations and commits as well.
        for (quota, state) in policy.quotas().iter().zip(&mut states) {
            let found = self.policy.quotas().iter().zip(&self.states);
            let mut logs = found.filter(|(before, _)| before.identity() == quota.identity());
            if quota.algorithm() == Algorithm::SlidingLog
                && let Some((_, log)) = logs.next()
            {
                *state = log.clone();
            }
        }
        let beside = self.states[self.policy.quotas().len()..].iter();
        states.extend(beside.filter(|state| !matches!(state, State::Block(_))).cloned());
        (self.rules, self.policy, self.states) = (PolicyRules::new(&policy), policy, states);
    }

    fn reset(&mut self, asked: &Value, now_us: u64, context: &str) {
        self.states = self.policy.quotas().iter().map(State::fresh).collect();
        self.value.clear();
        let view = self.rules.view(&self.states, now_us);
        assert_answer(
            &asked["expect"],
            "reset",
            &view,
            Applied { allowed: true, spent: 0, written: true },
            context,
        );
    }

    fn apply(&mut self, rules: &PolicyRules, operation: KeyOperation<'_>) -> (Decision, Applied) {
        let before = self.states.clone();
        let (decision, applied) = rules.decide(&mut self.states, operation, None);
        assert!(
            applied.written || shown(&before) == shown(&self.states),
            "written without saying so: {operation:?}"
        );
        self.compare_ways(rules, &before, operation, &decision, applied);
        self.through_bytes(operation.now_us);
        // A log is a key of its own: src/codec/log/tests.rs.
        let has_log = self.policy.quotas().iter().any(|quota| quota.algorithm() == Algorithm::SlidingLog);
        if !has_log && write_policy(&self.policy, Change::NONE).is_some() {
            self.through_value(rules, operation, &decision, applied);
        }
        (decision, applied)
    }

    /// The value of a key gives the same decisions, is the same whether all of it was read or its sums alone, and lives long enough.
    fn through_value(
        &mut self,
        rules: &PolicyRules,
        operation: KeyOperation<'_>,
        decision: &Decision,
        applied: Applied,
    ) {
        let now_us = operation.now_us;
        let codec = PolicyCodec::new(&self.policy, Change::Past(&self.history));
        let before = std::mem::take(&mut self.value);
        let value = codec.cut(&before).unwrap();
        let mut states = codec.states(&value, now_us).unwrap();
        assert_eq!(
            value.has_reservations(),
            states.iter().any(|state| matches!(state, State::Reservations(_)))
        );
        let by_value = rules.decide(&mut states, operation, None);
        assert_eq!((&by_value.0, by_value.1.spent), (decision, applied.spent), "{operation:?}");
        let mut by_sums = Bytes::new();
        let held = codec.change_held(rules, &value, operation, &mut by_sums);
        let mut after = before.clone();
        if by_value.1.written {
            after.clear();
            let written = Written::by(operation.operation, applied.spent, operation.cost);
            let until_us = codec.write_value(&value, &states, written, now_us, &mut after);
            if !after.is_empty() {
                let expiry = rules.expiry(&states, now_us);
                if expiry.after_us < u64::MAX {
                    let ends_us = now_us + expiry.after_us;
                    let longest_us = self.policy.quotas().iter().map(Quota::period_us).max().unwrap_or(0);
                    // The numbers in front of reservations are bounds, which an ended one may have left.
                    let is_exact = states.len() == self.policy.quotas().len();
                    let most_us = if is_exact { ends_us + 3 * longest_us.max(10_000_000) } else { u64::MAX };
                    assert!(
                        (ends_us..=most_us).contains(&until_us),
                        "{ends_us} {until_us} {operation:?} {states:?}"
                    );
                }
                assert_eq!(codec.lives_until_us(&codec.cut(&after).unwrap()), until_us, "{operation:?}");
            }
            if let Some((_, held_until_us)) = held {
                assert_eq!(held_until_us, until_us, "{operation:?}");
            }
        }
        match held {
            Some((spent, _)) => {
                assert_eq!((&by_sums[..], spent), (&after[..], applied.spent), "{operation:?}");
                HELD.fetch_add(1, Ordering::Relaxed);
            }
            None => assert!(by_sums.is_empty()),
        }
        self.value = after;
    }

    /// Whatever is asked about these states, there is one answer.
    fn compare_ways(
        &self,
        rules: &PolicyRules,
        before: &States,
        operation: KeyOperation<'_>,
        decision: &Decision,
        applied: Applied,
    ) {
        let now_us = operation.now_us;
        let mut alone = before.clone();
        assert_eq!(rules.apply_alone(&mut alone, operation), applied, "{operation:?}");
        assert_eq!(shown(&alone), shown(&self.states), "{operation:?}");
        if operation.operation == Operation::Check && operation.headroom == 0 {
            let mut bucket = before.clone();
            if let Some((admitted, written)) = rules.check_bucket(&mut bucket, now_us, operation.cost) {
                assert_eq!((&admitted, written), (decision, applied.written), "{operation:?}");
                assert_eq!(shown(&bucket), shown(&self.states), "{operation:?}");
            }
        }
        let peek = KeyOperation { operation: Operation::Peek, hold: None, ..operation };
        if matches!(operation.operation, Operation::Check | Operation::Reserve) {
            let mut tried = before.clone();
            assert_eq!(rules.would_admit(&mut tried, operation), decision.allowed, "{operation:?}");
            assert_eq!(shown(&tried), shown(before), "{operation:?}");
            if operation.operation == Operation::Check {
                let peeked = rules.decide(&mut tried, peek, None).0;
                assert_eq!(peeked.allowed, decision.allowed, "{operation:?}");
                assert_eq!(rules.view_admitted(&mut tried, operation, None), peeked, "{operation:?}");
            }
        }
        // What is left now does not depend on what was asked before.
        let zero = KeyOperation { cost: 0, headroom: 0, ..peek };
        let (seen, _) = rules.decide(&mut self.states.clone(), zero, None);
        let view = rules.view(&self.states, now_us);
        assert_eq!(view.remaining(), decision_of(rules, &self.states, now_us).remaining());
        assert_eq!((view.remaining(), view.reset_after_us()), (seen.remaining(), seen.reset_after_us()));
        let expiry = rules.expiry(&self.states, now_us);
        assert!(expiry.after_us >= expiry.when_full_us, "{expiry:?}");
        let is_frozen = self.policy.quotas().iter().zip(&self.states);
        let is_frozen =
            is_frozen.into_iter().any(|(quota, state)| quota.limit() == 0 && !state.holds_nothing());
        assert_eq!(
            expiry.when_full_us,
            if is_frozen { u64::MAX } else { view.reset_after_us() },
            "{operation:?}"
        );
    }

    /// The states are the same after they were written and read.
    fn through_bytes(&self, now_us: u64) {
        let codec = PolicyCodec::new(&self.policy, Change::Past(&self.history));
        let mut bytes = Bytes::new();
        codec.write(&self.states, &mut bytes);
        let read = codec.read(&bytes, now_us).unwrap();
        let (of_quotas, beside) = self.states.split_at(self.policy.quotas().len());
        for ((quota, state), read) in self.policy.quotas().iter().zip(of_quotas).zip(&read) {
            if quota.algorithm() != Algorithm::SlidingLog && !state.holds_nothing() {
                assert_eq!(format!("{state:?}"), format!("{read:?}"), "{quota}");
            }
        }
        let is_block = |state: &&State| matches!(state, State::Block(_));
        let blocks = beside.iter().find(is_block);
        assert_eq!(format!("{blocks:?}"), format!("{:?}", read.iter().find(is_block)));
    }
}

/// States have no equality of their own.
fn shown(states: &[State]) -> String {
    format!("{states:?}")
}

fn decision_of(rules: &PolicyRules, states: &States, now_us: u64) -> Decision {
    let peek = KeyOperation { now_us, operation: Operation::Peek, cost: 0, headroom: 0, hold: None };
    rules.decide(&mut states.clone(), peek, None).0
}

/// An operation of a case and its name.
fn operation_of<'a>(
    asked: &Value,
    now_us: u64,
    hold: &'a mut Option<Hold>,
) -> (&'static str, KeyOperation<'a>) {
    let cost = number(&asked["cost"]).unwrap_or(1);
    let micros = |name: &str| number(&asked[name]).unwrap_or(0);
    let id = || ReservationId::new(asked["id"].as_str().unwrap()).unwrap();
    let (name, operation, cost) = match asked["op"].as_str().unwrap() {
        "check" | "check_all" => ("decision", Operation::Check, cost),
        "peek" | "peek_all" => ("decision", Operation::Peek, cost),
        "take" => ("taken", Operation::Take, cost),
        "charge" => ("usage", Operation::Charge, cost),
        "refund" => ("usage", Operation::Refund, cost),
        "reserve" | "reserve_all" => {
            *hold = Some(Hold { id: id(), ttl_us: micros("ttl_us"), remember_us: micros("remember_us") });
            ("decision", Operation::Reserve, cost)
        }
        "commit" => {
            *hold = Some(Hold::of_end(id()));
            ("found", Operation::Commit, commit_cost(Some(cost)))
        }
        "cancel" => {
            *hold = Some(Hold::of_end(id()));
            ("found", Operation::Cancel, 0)
        }
        "renew" => {
            *hold = Some(Hold::of_renewal(id(), Duration::from_micros(micros("ttl_us"))));
            ("found", Operation::Renew, 0)
        }
        other => panic!("{other}"),
    };
    let headroom = u8::try_from(number(&asked["headroom"]).unwrap_or(0)).unwrap();
    (name, KeyOperation { now_us, operation, cost, headroom, hold: hold.as_ref() })
}

/// Asserts every field that is expected.
fn assert_answer(expected: &Value, name: &str, decision: &Decision, applied: Applied, context: &str) {
    for (field, expected) in expected.as_object().unwrap() {
        let got: Value = match field.as_str() {
            "allowed" => decision.allowed().into(),
            "remaining" => decision.remaining().into(),
            "retry_after_us" => decision.retry_after_us().into(),
            "reset_after_us" => decision.reset_after_us().into(),
            "delay_us" => decision.delay_us().into(),
            "over" => decision.over().into(),
            "taken" => applied.spent.into(),
            "found" => decision.allowed.into(),
            "repeated" => decision.repeated.into(),
            other => panic!("{other} of a {name}"),
        };
        assert_eq!(got, *expected, "{context}: {field}");
    }
}

fn run(file: &str) {
    for case in cases(file) {
        let mut key = Key::new(policy(&case["quotas"]));
        for (at, asked) in case["ops"].as_array().unwrap().iter().enumerate() {
            let context = format!("{file}, {}, operation {at}", case["name"]);
            let now_us = number(&asked["at_us"]).unwrap();
            if asked["op"] == "change" {
                key.change(policy(&asked["quotas"]), now_us);
                continue;
            }
            if asked["op"] == "reset" {
                key.reset(asked, now_us, &context);
                continue;
            }
            let mut hold = None;
            let (name, operation) = operation_of(asked, now_us, &mut hold);
            let rules = key.rules.clone();
            let (decision, applied) = key.apply(&rules, operation);
            assert_answer(&asked["expect"], name, &decision, applied, &context);
        }
    }
}

#[test]
fn named_cases() {
    run("named");
}

#[test]
fn random_cases() {
    run("random");
}

#[test]
fn cases_of_reservations() {
    run("reservations");
    run("commits");
    assert!(HELD.load(Ordering::Relaxed) > 100, "{HELD:?}");
}

#[test]
fn cases_by_the_calendar() {
    run("calendar");
    run("calendar_past");
}

/// Requests of several groups of one policy.
#[test]
fn cases_of_groups() {
    for case in cases("groups") {
        let of_policy = &case["document"]["policies"]["p"];
        let percent = |value: &Value, default| number(value).map_or(default, |it| u8::try_from(it).unwrap());
        let groups = of_policy["groups"].as_object().unwrap().iter().map(|(name, group)| Group {
            name: name.as_str().into(),
            weight: percent(&group["weight"], 1),
            minimum: percent(&group["minimum"], 0),
            maximum: percent(&group["maximum"], 100),
        });
        let table = Arc::new(GroupTable::new(groups).unwrap());
        let policy = Policy::parse("p", of_policy["quotas"].as_str().unwrap()).unwrap();
        let policy = policy.with_groups(Some(&table)).unwrap();
        let all = policy.groups().unwrap().clone();
        let mut key = Key::new(policy.clone());
        for (at, asked) in case["ops"].as_array().unwrap().iter().enumerate() {
            if asked["op"] == "decide" {
                continue;
            }
            let context = format!("groups, {}, operation {at}", case["name"]);
            let now_us = 1_789_948_800_000_000 + number(&asked["t_us"]).unwrap();
            let group = asked["plan"].as_str().and_then(|plan| plan.strip_prefix("group="));
            let rules = PolicyRules::new(&policy.clone().shared_by(&all.of(group)).unwrap());
            let mut hold = None;
            let (name, operation) = operation_of(asked, now_us, &mut hold);
            let (decision, applied) = key.apply(&rules, operation);
            assert_answer(&asked["expect"], name, &decision, applied, &context);
        }
    }
}

/// Whether a request charges a key twice by one policy: limiters add the costs up before they ask the rules.
fn charges_twice(case: &Value) -> bool {
    case["ops"].as_array().unwrap().iter().any(|asked| {
        let charges = asked["charges"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = || charges.iter().map(|charge| (charge["policy"].as_str(), charge["key"].as_str()));
        names().enumerate().any(|(at, name)| names().take(at).any(|before| before == name))
    })
}

/// Requests over several policies, of which each is admitted or denied as a whole.
#[test]
fn cases_of_requests() {
    for case in cases("requests").iter().filter(|case| !charges_twice(case)) {
        let policies = case["policies"].as_object().unwrap();
        let mut keys: HashMap<(String, String), Key> = HashMap::new();
        for (at, asked) in case["ops"].as_array().unwrap().iter().enumerate() {
            let context = format!("requests, {}, operation {at}", case["name"]);
            let now_us = number(&asked["at_us"]).unwrap();
            let name_of = |charge: &Value| {
                (charge["policy"].as_str().unwrap().to_owned(), charge["key"].as_str().unwrap().to_owned())
            };
            let one = std::slice::from_ref(asked);
            let charges = asked["charges"].as_array().map_or(one, Vec::as_slice);
            for name in charges.iter().map(name_of) {
                keys.entry(name.clone()).or_insert_with(|| Key::new(policy(&policies[&name.0])));
            }
            if asked["op"] == "reset" {
                keys.get_mut(&name_of(asked)).unwrap().reset(asked, now_us, &context);
                continue;
            }
            let mut holds = vec![None; charges.len()];
            let operations = charges.iter().zip(&mut holds).map(|(charge, hold)| {
                let mut asked = asked.clone();
                asked["cost"] = charge["cost"].clone();
                let (kind, mut operation) = operation_of(&asked, now_us, hold);
                // Limiters reserve the slots of a request and spend the units of its other policies.
                let is_reserve = operation.operation == Operation::Reserve;
                if is_reserve && !keys[&name_of(charge)].policy.is_only_reserved() {
                    operation = KeyOperation { operation: Operation::Check, hold: None, ..operation };
                }
                (name_of(charge), (kind, operation))
            });
            let operations: Vec<_> = operations.collect();
            let tries = operations.iter().map(|(key, (_, operation))| {
                let key = keys.get_mut(key).unwrap();
                charges.len() == 1 || key.rules.would_admit(&mut key.states, *operation)
            });
            let admits: Vec<bool> = tries.collect();
            let is_admitted = admits.iter().all(|admits| *admits);
            let (mut allowed, mut longest_us) = (true, Some(0));
            for (place, ((name, (kind, operation)), admits)) in operations.iter().zip(&admits).enumerate() {
                let key = keys.get_mut(name).unwrap();
                let rules = key.rules.clone();
                let (decision, applied) = if is_admitted || !admits {
                    key.apply(&rules, *operation)
                } else {
                    let decision = rules.view_admitted(&mut key.states, *operation, None);
                    (decision, Applied { allowed: true, spent: 0, written: false })
                };
                allowed &= decision.allowed();
                longest_us = longest_us.zip(decision.retry_after_us()).map(|(longest, own)| longest.max(own));
                let decisions = asked["expect"].get("decisions");
                let expected = decisions.map_or(&asked["expect"], |decisions| &decisions[place]);
                assert_answer(expected, kind, &decision, applied, &context);
            }
            if asked["expect"].get("decisions").is_some() {
                assert_eq!(asked["expect"]["allowed"], allowed, "{context}");
                assert_eq!(asked["expect"]["retry_after_us"], Value::from(longest_us), "{context}");
            }
        }
    }
}
