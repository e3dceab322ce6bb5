//! What a guard has for single policies: their costs, and what was spent under them. Programs name a policy by the text that the
//! guard's options have for it, and the core by its position.

use std::collections::HashMap;

use polylimit::http::guard::GuardBuilder;

use crate::error::{PolylimitError, Result};
use crate::number::unsigned;

/// What the options of a guard say of its policies.
pub(super) struct PolicyOptions<'a> {
    pub(super) policies: Option<&'a [String]>,
    pub(super) scope: Option<&'a str>,
    pub(super) per_request: bool,
    pub(super) is_by_configuration: bool,
    pub(super) reserved: bool,
    pub(super) costs: &'a HashMap<String, i64>,
    pub(super) costs_per_request: &'a [String],
    pub(super) reserved_policies: &'a [String],
    pub(super) spent_by: Option<&'a str>,
    pub(super) spent_by_policy: &'a HashMap<String, String>,
}

/// The policies of a guard that has something for one of them.
#[derive(Debug, Default)]
pub(crate) struct ByPolicy {
    /// The policies by position; none where nothing is for a single one.
    names: Vec<String>,
    /// The positions of the policies whose costs each request brings.
    brought: Vec<usize>,
}

impl ByPolicy {
    /// Reads the options, and gives the builder what is fixed.
    pub(super) fn of(
        limiter: &polylimit::Limiter,
        options: &PolicyOptions<'_>,
        mut builder: GuardBuilder,
    ) -> Result<(Self, GuardBuilder)> {
        let PolicyOptions { costs, costs_per_request, reserved_policies, spent_by, spent_by_policy, .. } =
            *options;
        let (has_costs, has_reserved) =
            (!costs.is_empty() || !costs_per_request.is_empty(), !reserved_policies.is_empty());
        let has_meters = !spent_by_policy.is_empty();
        if let Some(meter) = spent_by {
            builder = builder.spent_by(meter);
        }
        if options.is_by_configuration || options.per_request {
            // The core refuses them.
            if has_costs {
                builder = builder.costs([Some(0)]);
            }
            if has_meters {
                builder = builder.spent_by_each(spent_by_policy.values().cloned().map(Some));
            }
            return Ok((Self::default(), if has_reserved { builder.reserved_each([true]) } else { builder }));
        }
        let names = match options.policies {
            Some(policies) => policies.to_vec(),
            None if !(has_costs || has_reserved || has_meters) => Vec::new(),
            None => vec![limiter.policy_for(None, options.scope)?.name().to_owned()],
        };
        let mut by_policy = Self { names, brought: Vec::new() };
        let mut fixed = vec![None; by_policy.names.len()];
        for (name, units) in costs {
            fixed[by_policy.position("cost", name)?] = Some(units_of("cost", name, *units)?);
        }
        for name in costs_per_request {
            let at = by_policy.position("cost", name)?;
            by_policy.brought.push(at);
            // A cost that no request has is not compared with what the policy can admit.
            fixed[at] = Some(0);
        }
        let mut reserved = vec![options.reserved; by_policy.names.len()];
        for name in reserved_policies {
            reserved[by_policy.position("spent", name)?] = true;
        }
        if has_meters || (has_reserved && spent_by.is_some()) {
            let mut meters = vec![spent_by.map(str::to_owned); by_policy.names.len()];
            for name in reserved_policies {
                meters[by_policy.position("spent", name)?] = None;
            }
            for (name, meter) in spent_by_policy {
                meters[by_policy.position("spent", name)?] = Some(meter.clone());
            }
            builder = builder.spent_by_each(meters);
        }
        if has_costs {
            builder = builder.costs(fixed);
        }
        if has_reserved {
            builder = builder.reserved_each(reserved);
        }
        Ok((by_policy, builder))
    }

    /// The costs that a request brings, by position.
    pub(super) fn costs(&self, given: &[(&str, i64)]) -> Result<Vec<Option<u64>>> {
        if given.is_empty() && self.brought.is_empty() {
            return Ok(Vec::new());
        }
        let mut costs = vec![None; self.names.len()];
        for &(name, units) in given {
            costs[self.position("cost", name)?] = Some(units_of("cost", name, units)?);
        }
        match self.brought.iter().find(|at| costs[**at].is_none()) {
            None => Ok(costs),
            Some(at) => Err(PolylimitError::InvalidArgument(format!(
                "the request has no cost for policy {:?}: its guard expects one with each request",
                self.names[*at]
            ))),
        }
    }

    /// The units that a request has spent, by position; none is what was reserved.
    pub(crate) fn spent<'a>(
        &self,
        given: impl IntoIterator<Item = (&'a str, Option<i64>)>,
    ) -> Result<Vec<Option<u64>>> {
        let mut spent = vec![None; self.names.len()];
        for (name, units) in given {
            let at = self.position("spent", name)?;
            spent[at] = units.map(|units| units_of("spent", name, units)).transpose()?;
        }
        Ok(spent)
    }

    fn position(&self, what: &str, name: &str) -> Result<usize> {
        self.names.iter().position(|known| known == name).ok_or_else(|| {
            let known: Vec<_> = self.names.iter().map(|known| format!("{known:?}")).collect();
            let advice = match &*known {
                [] => "the limit has no list of policies: give one".to_owned(),
                [only] => format!("allowed is {only}"),
                all => format!("allowed are {}", all.join(", ")),
            };
            PolylimitError::InvalidArgument(format!(
                "{what} is given for policy {name:?}, which the limit does not have: {advice}"
            ))
        })
    }
}

fn units_of(what: &str, policy: &str, units: i64) -> Result<u64> {
    u64::try_from(units).or_else(|_| unsigned(&format!("{what} for policy {policy:?}"), units))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use crate::Limiter;
    use crate::guard::{GuardFacts, GuardOptions};
    use crate::request::Policy;
    use crate::settings::Settings;

    fn limiter() -> std::sync::Arc<Limiter> {
        let policy = |(name, quotas): (&str, &str)| Policy {
            name: name.to_owned(),
            quotas: quotas.to_owned(),
            outage: None,
            lease: None,
        };
        let policies = [("tokens", "10000/day fixed_window"), ("requests", "3/day fixed_window")];
        Limiter::new(Settings {
            store: Some("memory:".to_owned()),
            policies: policies.into_iter().map(policy).collect(),
            options: HashMap::new(),
            clock: None,
            document: None,
        })
        .unwrap()
    }

    fn options() -> GuardOptions {
        let names = ["tokens", "requests"].map(str::to_owned);
        GuardOptions {
            policies: Some(names.to_vec()),
            costs: HashMap::from([(names[1].clone(), 2)]),
            costs_per_request: vec![names[0].clone()],
            reserved_policies: vec![names[0].clone()],
            ..GuardOptions::default()
        }
    }

    fn facts(costs: &[(&str, i64)]) -> GuardFacts {
        GuardFacts {
            key: Some(b"k".to_vec()),
            parts: Vec::new(),
            peer: "192.0.2.1".to_owned(),
            forwarded: Vec::new(),
            cost: None,
            policies: None,
            accept: None,
            route: None,
            outer: None,
            attributes: None,
            costs: costs.iter().map(|(policy, units)| ((*policy).to_owned(), *units)).collect(),
        }
    }

    fn left(limiter: &Limiter) -> [u64; 2] {
        let peek = |policy| {
            let request = polylimit::Request::new("k").policy(policy);
            limiter.core().peek(request).unwrap().remaining()
        };
        ["tokens", "requests"].map(peek)
    }

    #[test]
    fn costs_and_spent_units_are_those_of_their_policies() {
        let limiter = limiter();
        let guard = limiter.guard(options()).unwrap();
        let check = guard.decide(facts(&[("tokens", 4000)])).unwrap().check;
        assert_eq!(left(&limiter), [6000, 1]);
        check.end_each(HashMap::from([("tokens".to_owned(), Some(7))])).unwrap();
        assert_eq!(left(&limiter), [9993, 1]);
        let check = guard.decide(facts(&[("tokens", 4000), ("requests", 1)])).unwrap().check;
        assert!(check.end_each(HashMap::from([("token".to_owned(), Some(7))])).is_err());
        check.end_each(HashMap::from([("tokens".to_owned(), None)])).unwrap();
        assert_eq!(left(&limiter), [5993, 0]);
    }

    #[test]
    fn requests_that_do_not_fit_the_options_are_refused() {
        let limiter = limiter();
        let guard = limiter.guard(options()).unwrap();
        let refusal = |facts| guard.decide(facts).unwrap_err().to_string();
        assert_eq!(
            refusal(facts(&[])),
            "the request has no cost for policy \"tokens\": its guard expects one with each request"
        );
        let policies = Some(vec!["requests".to_owned()]);
        assert_eq!(
            refusal(GuardFacts { policies: policies.clone(), ..facts(&[("tokens", 1)]) }),
            "policies is given with a request, next to costs of policies of the guard: leave out one of the two"
        );
        assert_eq!(
            refusal(GuardFacts { policies, ..facts(&[]) }),
            "policies is given with a request, next to cost of single policies of the guard: leave out one of the two"
        );
        assert_eq!(left(&limiter), [10_000, 3]);
    }
}
