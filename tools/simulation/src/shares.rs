//! What the groups that share a policy got, over time.

use std::collections::BTreeMap;

use crate::attempt::Attempt;
use crate::tally::Timeline;

/// The group of requests that name none of the other groups.
const OTHERS: &str = "*";

/// The units of the groups of one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(BTreeMap<Box<str>, Units>);

/// The units of a group.
#[derive(Clone, Debug)]
pub(crate) struct Units {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    /// Admitted units over time.
    pub(crate) slots: Vec<u64>,
}

impl Shares {
    /// Counts an attempt of a group.
    pub(crate) fn count(&mut self, group: &str, attempt: &Attempt, allowed: bool, timeline: &Timeline) {
        if !self.0.contains_key(group) {
            let slots = vec![0; timeline.slots.len()];
            self.0.insert(group.into(), Units { admitted: 0, denied: 0, slots });
        }
        let Some(units) = self.0.get_mut(group) else { return };
        if !allowed {
            units.denied += attempt.cost;
            return;
        }
        units.admitted += attempt.cost;
        if let Some(slot) = units.slots.get_mut(timeline.slot_of(attempt.time_us)) {
            *slot += attempt.cost;
        }
    }

    /// The groups with requests, by name.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, &Units)> {
        self.0.iter().map(|(name, units)| (&**name, units))
    }
}

/// The group that a plan names for further operations, as in `gold group=search`.
pub(crate) fn group_of_plan(plan: Option<&str>) -> &str {
    let mut words = plan.unwrap_or_default().split(' ');
    words.find_map(|word| word.strip_prefix("group=")).unwrap_or(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_counted_by_group_and_time() {
        let timeline = Timeline::new(1_200);
        let mut shares = Shares::default();
        let attempt = |time_us, cost| Attempt {
            time_us,
            client: 0,
            cost,
            first_us: time_us,
            is_repeated: false,
            line: 0,
        };
        shares.count("b", &attempt(0, 2), true, &timeline);
        shares.count("a", &attempt(15, 3), true, &timeline);
        shares.count("a", &attempt(16, 4), false, &timeline);
        let found: Vec<_> = shares
            .groups()
            .map(|(name, units)| (name, units.admitted, units.denied, units.slots[1]))
            .collect();
        assert_eq!(found, [("a", 3, 4, 3), ("b", 2, 0, 0)]);
    }

    #[test]
    fn plan_names_a_group() {
        for (plan, group) in
            [(None, "*"), (Some("gold"), "*"), (Some("gold group=a"), "a"), (Some("group=b"), "b")]
        {
            assert_eq!(group_of_plan(plan), group);
        }
    }
}
