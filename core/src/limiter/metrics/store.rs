//! The outcomes of the store's operations, and the state of the store.

use crate::limiter::metrics::number;
use crate::limiter::operations::Shared;
use crate::store::Store;
use polylimit_store::families::{Family, FamilyKind, SampleValue};
use polylimit_store::stats::Stats;

pub(super) fn families(shared: &Shared) -> Vec<Family> {
    let is_redis = matches!(shared.store, Store::Redis(_));
    let mut families = of_stats(&shared.stats(), is_redis);
    families.push(durations(&shared.store));
    families.extend(state(shared));
    families
}

/// The families of every field of `Stats`; without Redis most of them have no samples.
fn of_stats(stats: &Stats, is_redis: bool) -> Vec<Family> {
    let mut families = vec![outcomes(stats)];
    families.extend(redis_only(stats, is_redis));
    families
}

fn outcomes(stats: &Stats) -> Family {
    let Stats { applied, not_applied, unknown, permanent, .. } = *stats;
    let mut family = Family::new(
        "polylimit_store_operations_total",
        FamilyKind::Counter,
        "Operations of the store, by what became of them.",
    );
    for (outcome, count) in
        [("applied", applied), ("not_applied", not_applied), ("unknown", unknown), ("permanent", permanent)]
    {
        family.add([("outcome", outcome)], SampleValue::Count(count));
    }
    family
}

/// The name and the help of a family, and its only count.
type StoreCount = (&'static str, &'static str, fn(&Stats) -> u64);

/// The counts that only a store in Redis has.
const COUNTS: [StoreCount; 15] = [
    (
        "polylimit_store_shed_total",
        "Operations refused at once because too many were pending; also not applied.",
        |stats| stats.shed,
    ),
    ("polylimit_store_retries_total", "Retries of operations that certainly did not run.", |stats| {
        stats.retried
    }),
    ("polylimit_store_healed_total", "States that could not be read and were replaced.", |stats| {
        stats.healed
    }),
    ("polylimit_store_calls_total", "Script calls sent; each decides one or more operations.", |stats| {
        stats.calls
    }),
    ("polylimit_store_scripts_sent_total", "Script calls that sent the source of the script.", |stats| {
        stats.scripts_sent
    }),
    ("polylimit_store_module_calls_total", "Calls that the module in the server was to decide.", |stats| {
        stats.module_calls
    }),
    ("polylimit_store_connections_total", "Connections made.", |stats| stats.connections),
    (
        "polylimit_store_connections_lost_total",
        "Connections that broke, were suspect or led to the wrong server.",
        |stats| stats.connections_lost,
    ),
    ("polylimit_store_breaker_opened_total", "How often a circuit breaker opened.", |stats| {
        stats.breaker_opened
    }),
    ("polylimit_store_redirections_total", "Redirections followed in a cluster.", |stats| stats.redirected),
    ("polylimit_store_invalidations_total", "Messages received about refunds and resets.", |stats| {
        stats.invalidations
    }),
    (
        "polylimit_denial_cache_answers_total",
        "Checks that the denial cache denied, without the store.",
        |stats| stats.denial_cache,
    ),
    ("polylimit_lease_answers_total", "Checks that leased units paid for, without the store.", |stats| {
        stats.leased
    }),
    (
        "polylimit_lease_units_returned_total",
        "Leased units that were not spent and were given back.",
        |stats| stats.lease_units_returned,
    ),
    (
        "polylimit_lease_units_lost_total",
        "Leased units that were not spent and were not given back.",
        |stats| stats.lease_units_lost,
    ),
];

/// The families that have samples for a store in Redis only.
fn redis_only(stats: &Stats, is_redis: bool) -> Vec<Family> {
    let counters = COUNTS.iter().map(|(name, help, count)| {
        let mut family = Family::new(name, FamilyKind::Counter, help);
        if is_redis {
            family.add([], SampleValue::Count(count(stats)));
        }
        family
    });
    let mut families: Vec<_> = counters.collect();
    let mut outage = Family::new(
        "polylimit_store_outage_answers_total",
        FamilyKind::Counter,
        "Answers in place of the store, by outage policy.",
    );
    let mut held =
        Family::new("polylimit_lease_units", FamilyKind::Gauge, "Units that are leased and not spent.");
    if is_redis {
        for (answer, count) in [
            ("fallback", stats.answered_fallback),
            ("allow", stats.answered_allow),
            ("deny", stats.answered_deny),
        ] {
            outage.add([("outage", answer)], SampleValue::Count(count));
        }
        held.add([], number(stats.lease_units_held));
    }
    families.extend([outage, held]);
    families
}

fn durations(store: &Store) -> Family {
    let mut durations = Family::new(
        "polylimit_store_duration_seconds",
        FamilyKind::Histogram,
        "From the sending of a script call to its reply, or until it was given up.",
    );
    if let Some((buckets, sum, count)) = store.durations() {
        durations.add([], SampleValue::Histogram { buckets, sum, count });
    }
    durations
}

fn state(shared: &Shared) -> [Family; 4] {
    let gauge = |name, help| Family::new(name, FamilyKind::Gauge, help);
    let mut up =
        gauge("polylimit_store_up", "Whether the store answers, as far as this process knows: 1 or 0.");
    let mut keys = gauge("polylimit_keys", "Keys with a state in a store of this process or host.");
    let mut capacity = gauge("polylimit_keys_capacity", "The most keys that such a store has room for.");
    let mut deadline = gauge(
        "polylimit_store_deadline_seconds",
        "How long a decision may take before the outage policy answers.",
    );
    if shared.registry.check_open().is_ok() {
        let (here, most) = (shared.keys(), shared.store.keys_capacity());
        let is_up = match &shared.store {
            Store::Memory(_) => true,
            Store::Local(_) => here.is_some(),
            Store::Custom(store) => store.cause().is_none(),
            Store::Redis(store) => {
                deadline.add([], SampleValue::Number(store.deadline().as_secs_f64()));
                store.is_up()
            }
        };
        up.add([], number(u64::from(is_up)));
        for (family, keys) in [(&mut keys, here), (&mut capacity, most)] {
            if let Some(keys) = keys {
                family.add([], number(keys as u64));
            }
        }
    }
    [up, keys, capacity, deadline]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_of_the_store_is_in_one_sample() {
        let mut stats = Stats::default();
        let counts = [
            &mut stats.applied,
            &mut stats.not_applied,
            &mut stats.unknown,
            &mut stats.permanent,
            &mut stats.shed,
            &mut stats.retried,
            &mut stats.answered_fallback,
            &mut stats.answered_allow,
            &mut stats.answered_deny,
            &mut stats.healed,
            &mut stats.calls,
            &mut stats.scripts_sent,
            &mut stats.module_calls,
            &mut stats.connections,
            &mut stats.connections_lost,
            &mut stats.breaker_opened,
            &mut stats.redirected,
            &mut stats.invalidations,
            &mut stats.denial_cache,
            &mut stats.leased,
            &mut stats.lease_units_held,
            &mut stats.lease_units_returned,
            &mut stats.lease_units_lost,
        ];
        let length = counts.len();
        for (place, count) in (0..).zip(counts) {
            *count = 1009 + 7 * place;
        }
        assert_eq!(length, stats.iter().count(), "a count is missing in this test");
        let families = of_stats(&stats, true);
        let samples = families.iter().flat_map(|family| &family.samples);
        let values: Vec<_> = samples.map(|sample| sample.value.clone()).collect();
        for (name, count) in stats.iter() {
            let is_it =
                |value: &&SampleValue| **value == SampleValue::Count(count) || **value == number(count);
            assert_eq!(values.iter().filter(is_it).count(), 1, "{name}");
        }
        assert_eq!(values.len(), stats.iter().count());
        let in_process: Vec<_> =
            of_stats(&stats, false).into_iter().filter(|family| !family.samples.is_empty()).collect();
        assert_eq!(in_process.len(), 1, "{in_process:?}");
    }
}
