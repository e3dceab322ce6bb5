//! A whole simulation: the demand, the active limits and each candidate, on as many threads as there are processors.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::attempt::Ends;
use crate::error::SimulationError;
use crate::judge::RulePolicy;
use crate::key::Key;
use crate::limits::{Limits, NamedPolicy};
use crate::results::{
    Agreement, Candidate, CauseCount, Changed, Counts, Course, Demand, GroupCourse, KeyCounts, Percentiles,
    PolicyCourse, QuotaCourse, Timeline, Waits,
};
use crate::scenario::{Course as ScenarioCourse, Scenario};
use crate::shares::Shares;
use crate::tally::{KeyTally, Tally, Timeline as Slots};
use crate::traffic::as_us;

/// How many keys are named as examples.
const EXAMPLES: usize = 10;

/// The demand, and what became of it under each of the limits, the active ones first.
pub(crate) fn simulate(
    scenario: &Scenario,
    limits: &[Limits],
) -> Result<(Demand, Course, Vec<Candidate>), SimulationError> {
    let runs = limits.len() as u64 + 1;
    scenario.progress.expect(runs.saturating_mul(scenario.duration_us));
    let results = in_parallel(limits.len() + 1, |at| match at.checked_sub(1) {
        None => scenario.demand().map(Box::new).map(Part::Demand),
        Some(at) => scenario.course(&limits[at]).map(Box::new).map(Part::Course),
    })?;
    let mut demand = None;
    let mut courses = Vec::new();
    for part in results {
        match part {
            Part::Demand(tally) => demand = Some(tally),
            Part::Course(course) => courses.push(*course),
        }
    }
    let (Some(demand), Some((live, candidates))) = (demand, courses.split_first()) else {
        return Err(SimulationError::Internal("a part of the simulation is missing".to_owned()));
    };
    let keys = &scenario.keys;
    let of = |limits, course| course_of(limits, course, keys);
    let candidates = limits.iter().skip(1).zip(candidates).map(|(limits, candidate)| {
        let pairs = live.outcomes.compare(&candidate.outcomes);
        let [[both_deny, only_live_denies], [only_candidate_denies, both_allow]] = pairs.both;
        let only_made_once = pairs.only_one;
        Ok(Candidate {
            course: of(limits, candidate)?,
            agreement: Agreement {
                both_allow,
                only_live_denies,
                only_candidate_denies,
                both_deny,
                only_made_once,
            },
            newly_denied: changed(&candidate.tally, &live.tally, keys),
            newly_admitted: changed(&live.tally, &candidate.tally, keys),
        })
    });
    let candidates = candidates.collect::<Result<Vec<_>, SimulationError>>()?;
    let live_limits = limits.first().ok_or_else(|| SimulationError::usage("there is no policy"))?;
    Ok((demand_of(&demand), of(live_limits, live)?, candidates))
}

enum Part {
    Demand(Box<Tally>),
    Course(Box<ScenarioCourse>),
}

/// The results of independent pieces of work, in their order.
fn in_parallel<T: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<T, SimulationError> + Sync,
) -> Result<Vec<T>, SimulationError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count);
    let next = AtomicUsize::new(0);
    let one = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return done;
            }
            done.push((at, work(at)));
        }
    };
    let mut results = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let mut results = one();
        for other in others {
            match other.join() {
                Ok(done) => results.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

fn demand_of(tally: &Tally) -> Demand {
    let most: Vec<Vec<u64>> = tally.seen().map(|(_, key)| key.busiest.most().collect()).collect();
    let busiest =
        |at: usize| Percentiles::of(most.iter().map(|spans| spans.get(at).copied().unwrap_or(0)).collect());
    Demand {
        clients: tally.seen().count() as u64,
        requests: tally.counts.requests,
        units: tally.counts.admitted_units,
        busiest_second: busiest(0),
        busiest_minute: busiest(1),
        busiest_hour: busiest(2),
        timeline: timeline(&tally.timeline),
    }
}

pub(crate) fn course_of(
    limits: &Limits,
    course: &ScenarioCourse,
    keys: &[Box<[u8]>],
) -> Result<Course, SimulationError> {
    let tally = &course.tally;
    let total = counts(tally, course.ends);
    let policies = if let Some((policies, _)) = &course.rules {
        policies.iter().map(rule_policy).collect()
    } else {
        let named = limits.policies()?;
        named.iter().map(|named| policy_course(named, tally, total, keys, &course.shares)).collect()
    };
    let causes = course.rules.as_ref().map(|(_, causes)| cause_counts(causes)).unwrap_or_default();
    Ok(Course {
        label: limits.label.clone(),
        total,
        waits: waits(tally),
        most_denied: most_denied(tally.seen().filter(|(_, key)| key.denied > 0), keys),
        timeline: timeline(&tally.timeline),
        causes,
        policies,
    })
}

fn rule_policy(rule: &RulePolicy) -> PolicyCourse {
    policy_course(&rule.policy, &rule.tally, counts(&rule.tally, Ends::default()), &rule.keys, &rule.shares)
}

fn policy_course(
    named: &NamedPolicy,
    tally: &Tally,
    counts: Counts,
    keys: &[Box<[u8]>],
    shares: &Shares,
) -> PolicyCourse {
    let quotas = named.policy.quotas().iter().zip(tally.most_admitted());
    let quotas = quotas.map(|(quota, most)| QuotaCourse {
        quota: quota.to_string(),
        period_us: as_us(quota.period()),
        most_admitted: most.map_or(0, |(units, _)| units),
        key: most.and_then(|(_, key)| keys.get(key)).map(|key| Key::from(&**key)),
        bound: named.is_bound.then(|| quota.most_admitted(quota.period())),
    });
    let groups = shares.groups().map(|(group, units)| GroupCourse {
        group: group.to_owned(),
        admitted_units: units.admitted,
        denied_units: units.denied,
        timeline: units.slots.clone(),
    });
    PolicyCourse {
        policy: named.policy.name().to_owned(),
        quotas: quotas.collect(),
        counts,
        groups: groups.collect(),
    }
}

fn counts(tally: &Tally, ends: Ends) -> Counts {
    let of = tally.counts;
    let seen =
        |is_wanted: fn(&KeyTally) -> bool| tally.seen().filter(|(_, key)| is_wanted(key)).count() as u64;
    Counts {
        requests: of.requests,
        admitted: of.admitted,
        denied: of.denied,
        admitted_units: of.admitted_units,
        denied_units: of.denied_units,
        shadowed: of.shadowed,
        keys: seen(|_| true),
        keys_denied: seen(|key| key.denied > 0),
        keys_never_admitted: seen(|key| key.admitted == 0),
        longest_block_us: tally.keys.iter().map(|key| key.longest_block_us).max().unwrap_or(0),
        left: ends.left,
        given_up: ends.given_up,
        unfinished: ends.unfinished,
    }
}

fn waits(tally: &Tally) -> Waits {
    let (waits, longest) = (&tally.waits, tally.longest_wait_us);
    // Rounding does not exceed the longest.
    let at = |quantile| waits.value_at_quantile(quantile).min(longest);
    Waits {
        waited: waits.len(),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: longest,
    }
}

pub(crate) fn timeline(slots: &Slots) -> Timeline {
    let (admitted, denied) = slots.slots.iter().copied().unzip();
    Timeline { slot_us: slots.slot_us, admitted, denied }
}

/// The keys with the most denials.
fn most_denied<'a>(of: impl Iterator<Item = (usize, &'a KeyTally)>, keys: &[Box<[u8]>]) -> Vec<KeyCounts> {
    let mut found: Vec<_> = of.collect();
    found.sort_by_key(|(number, key)| (Reverse(key.denied), *number));
    let examples = found.into_iter().take(EXAMPLES).filter_map(|(number, key)| {
        Some(KeyCounts {
            key: Key::from(&**keys.get(number)?),
            admitted: key.admitted,
            denied: key.denied,
            longest_block_us: key.longest_block_us,
        })
    });
    examples.collect()
}

/// The clients that one side denies and the other never does.
fn changed(denies: &Tally, admits: &Tally, keys: &[Box<[u8]>]) -> Changed {
    let found: Vec<_> = denies
        .seen()
        .filter(|(number, key)| key.denied > 0 && admits.keys.get(*number).is_none_or(|key| key.denied == 0))
        .collect();
    Changed { clients: found.len() as u64, examples: most_denied(found.into_iter(), keys) }
}

fn cause_counts(causes: &HashMap<&'static str, u64>) -> Vec<CauseCount> {
    let mut counts: Vec<_> =
        causes.iter().map(|(cause, denied)| CauseCount { cause, denied: *denied }).collect();
    counts.sort_by_key(|count| (Reverse(count.denied), count.cause));
    counts
}
