//! The counts of each policy, and its quotas.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limiter::configured::in_force::InForce;
use crate::limiter::metrics::{number, seconds};
use crate::limiter::operations::Shared;
use crate::limiter::tally::counts::MAX_COUNTED;
use crate::limiter::tally::totals::{PolicyTotals, Totals};
use polylimit_rules::decision::{Cause, Degradation, Source};
use polylimit_rules::policy::Policy;
use polylimit_store::families::{Family, FamilyKind, SampleValue};

/// The label of all policies without samples of their own, and of quotas that their policy no longer has.
const OTHER: &str = "other";
const RESULTS: [(bool, &str); 2] = [(true, "allowed"), (false, "denied")];

/// A policy, or all that are counted together.
struct Counted {
    name: Box<str>,
    /// `None` for policies that requests can no longer use, and for those that are counted together.
    policy: Option<Policy>,
    totals: PolicyTotals,
}

pub(super) fn families(shared: &Shared) -> Vec<Family> {
    let totals = shared.tally.read();
    let in_force = shared.configured.in_force();
    let counted = counted(shared, &totals, in_force.as_deref());
    let mut families = Vec::new();
    families.extend(decisions(&counted));
    families.extend(denials(&counted));
    families.extend(operations(&counted));
    families.push(requests(&totals));
    families.push(candidates(in_force.as_deref()));
    families.extend(quotas(&counted));
    families
}

/// The policies in the order in which they were registered, each name once.
fn counted(shared: &Shared, totals: &Totals, in_force: Option<&InForce>) -> Vec<Counted> {
    let compared = in_force.map(|in_force| in_force.comparisons().collect::<Vec<_>>()).unwrap_or_default();
    let mut all: Vec<Counted> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    let mut add = |name: &str, policy: Option<Policy>, totals: PolicyTotals| {
        // A policy that was registered again under its name, or that has the name of those that are counted together.
        if let Some(at) = places.get(name) {
            let known = &mut all[*at];
            known.totals.merge(&totals);
            known.policy = policy.or(known.policy.take());
            return;
        }
        places.insert(name.into(), all.len());
        all.push(Counted { name: name.into(), policy, totals });
    };
    for (id, policy, is_known) in shared.registry.listed().into_iter().take(MAX_COUNTED) {
        let (totals, is_shown) = (totals.of(id.index()), is_known && !compared.contains(&id));
        if is_shown || totals.has_any() {
            let name = policy.name().to_owned();
            add(&name, Some(policy).filter(|_| is_shown), totals);
        }
    }
    if let Some(others) = totals.others().filter(|others| others.has_any()) {
        add(OTHER, None, others.clone());
    }
    all
}

fn decisions(all: &[Counted]) -> [Family; 5] {
    let counter = |name, help| Family::new(name, FamilyKind::Counter, help);
    let mut decisions = counter(
        "polylimit_decisions_total",
        "Decisions of checks, reserves and acquires, as callers get them.",
    );
    let mut units = counter("polylimit_units_total", "Units that these decisions were about.");
    let mut near = counter(
        "polylimit_near_limit_total",
        "Admissions that left less than a fifth of a quota's capacity.",
    );
    let mut shadowed = counter(
        "polylimit_shadowed_total",
        "Admissions that would be denials if the policy were not in shadow.",
    );
    let mut elastic = counter("polylimit_elastic_total", "Admissions by the pool of an elastic policy.");
    for Counted { name, totals, policy } in all {
        for source in Source::ALL {
            for (allowed, result) in RESULTS {
                let made = totals.decisions(source, allowed);
                let labels = [("policy", &**name), ("result", result), ("source", source.name())];
                if made.decisions > 0 || (source == Source::Store && policy.is_some()) {
                    decisions.add(labels, SampleValue::Count(made.decisions));
                    units.add(labels, SampleValue::Count(made.units));
                }
            }
        }
        near.add([("policy", name)], SampleValue::Count(totals.near));
        shadowed.add_seen([("policy", name)], totals.shadowed);
        elastic.add_seen([("policy", name)], totals.elastic);
    }
    [decisions, units, near, shadowed, elastic]
}

fn denials(all: &[Counted]) -> [Family; 2] {
    let mut by_quota = Family::new(
        "polylimit_denials_total",
        FamilyKind::Counter,
        "Denials by a quota; a denial by more than one quota counts for each.",
    );
    let mut by_cause =
        Family::new("polylimit_denial_causes_total", FamilyKind::Counter, "Denials by what denied.");
    for Counted { name, totals, policy } in all {
        let counts = totals.denials_by_quota();
        let quotas = policy.as_ref().map_or(&[][..], Policy::quotas);
        for (quota, count) in quotas.iter().zip(counts) {
            by_quota.add([("policy", &**name), ("quota", &quota.to_string())], SampleValue::Count(count));
        }
        by_quota.add_seen([("policy", name), ("quota", OTHER)], counts[quotas.len()..].iter().sum());
        let causes = Cause::ALL.map(Cause::name).into_iter().chain(["outage"]);
        for (cause, count) in causes.zip(totals.denials_by_cause()) {
            by_cause.add_seen([("policy", name), ("cause", cause)], count);
        }
    }
    [by_quota, by_cause]
}

fn operations(all: &[Counted]) -> [Family; 3] {
    let counter = |name, help| Family::new(name, FamilyKind::Counter, help);
    let mut degraded =
        counter("polylimit_degraded_total", "Answers that may differ from those of a healthy store.");
    let mut operations = counter(
        "polylimit_operations_total",
        "Operations on keys, including those that the limiter makes itself.",
    );
    let mut units = counter(
        "polylimit_operation_units_total",
        "Units that operations other than checks have spent or given back.",
    );
    for Counted { name, totals, .. } in all {
        for (reason, count) in Degradation::ALL.into_iter().zip(totals.degraded) {
            degraded.add_seen([("policy", name), ("reason", reason.name())], count);
        }
        for (kind, counted) in totals.operations() {
            operations.add_seen([("policy", name), ("operation", kind)], counted.operations);
            units.add_seen([("policy", name), ("operation", kind)], counted.units);
        }
    }
    [degraded, operations, units]
}

/// The decisions about requests by the rules of a configuration.
fn requests(totals: &Totals) -> Family {
    let mut family = Family::new(
        "polylimit_requests_total",
        FamilyKind::Counter,
        "Requests that the rules and lists of the configuration have decided.",
    );
    for (allowed, result) in RESULTS {
        let causes = Cause::ALL.map(Cause::name).into_iter().chain([if allowed { "none" } else { "outage" }]);
        for (cause, count) in causes.zip(totals.requests[usize::from(allowed)]) {
            family.add_seen([("result", result), ("cause", cause)], count);
        }
    }
    family
}

/// How candidates compare with the effective quotas.
fn candidates(in_force: Option<&InForce>) -> Family {
    let mut family = Family::new(
        "polylimit_shadow_decisions_total",
        FamilyKind::Counter,
        "Checks by what the effective quotas decide, and what the candidate would have decided.",
    );
    for (name, counts) in in_force.into_iter().flat_map(InForce::candidate_counts) {
        for (live, candidate, count) in [
            ("allowed", "allowed", counts.both_allow),
            ("allowed", "denied", counts.only_candidate_denies),
            ("denied", "allowed", counts.only_live_denies),
            ("denied", "denied", counts.both_deny),
        ] {
            let labels = [("policy", name), ("live", live), ("candidate", candidate)];
            family.add(labels, SampleValue::Count(count));
        }
    }
    family
}

fn quotas(all: &[Counted]) -> [Family; 2] {
    let mut limits = Family::new(
        "polylimit_quota_limit_units",
        FamilyKind::Gauge,
        "The limit of a quota, in units a period.",
    );
    let mut periods =
        Family::new("polylimit_quota_period_seconds", FamilyKind::Gauge, "The period of a quota.");
    for Counted { name, policy, .. } in all {
        for quota in policy.iter().flat_map(Policy::quotas) {
            let text = quota.to_string();
            let labels = [("policy", &**name), ("quota", &*text)];
            limits.add(labels, number(quota.limit()));
            if quota.algorithm().is_rate() {
                periods.add(labels, SampleValue::Number(seconds(quota.period_us())));
            }
        }
    }
    [limits, periods]
}
