//! Chooses the effective quotas of a key of a policy: its override, the plan of the request, the candidate, or `quotas`.

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::configuration::Map;
use crate::configuration::lists::Listing;
use crate::configuration::model::{DocumentPolicy, OverrideQuotas};
use crate::rules::penalty::Penalty;
use crate::rules::policy::Policy;
use crate::rules::quota::Quota;

/// The effective quotas for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EffectiveQuotas {
    /// The index among the policy's sets of quotas; 0 is `quotas`.
    pub(crate) set: u32,
    /// Whether the candidate is checked too, without deciding.
    pub(crate) compare: bool,
}

/// Where the effective quotas of a key come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotasOrigin {
    /// The override of an entry.
    Entry,
    /// The override of the document.
    Document,
    /// The plan of the request.
    Plan,
    Candidate,
    /// The quotas of the policy.
    Quotas,
}

/// The sets of quotas of a policy, and which keys have which.
#[derive(Clone, Debug)]
pub(crate) struct QuotaSets {
    sets: Vec<Policy>,
    penalty: Option<Penalty>,
    indices: Map<Box<[Quota]>, u32>,
    plans: Map<Box<[u8]>, u32>,
    candidate: Option<CandidateSet>,
    keys: Map<StoredKey, KeySettings>,
    has_listings: bool,
}

/// Most keys are short enough to be stored inline, where a lookup finds them without another cache miss.
type StoredKey = SmallVec<[u8; 24]>;

#[derive(Clone, Copy, Debug)]
struct CandidateSet {
    set: u32,
    /// Thousandths of the keys.
    enforce: u16,
    compare: u16,
}

/// The settings of a single key.
#[derive(Clone, Copy, Debug, Default)]
struct KeySettings {
    by_entry: KeyOverride,
    by_document: KeyOverride,
    listing: Listing,
}

#[derive(Clone, Copy, Debug, Default)]
struct KeyOverride {
    set: u32,
    /// Exclusive: 0 means not at all, `u64::MAX` always.
    until_us: u64,
}

impl QuotaSets {
    /// The maximum number of different sets of quotas of a policy.
    pub(crate) const MAX_SETS: usize = 4096;

    /// The sets of quotas of a policy in its document. Sets beyond the maximum are left out.
    pub(crate) fn new(policy: &DocumentPolicy) -> Self {
        let mut sets = Self {
            sets: Vec::new(),
            penalty: policy.penalty,
            indices: Map::default(),
            plans: Map::default(),
            candidate: None,
            keys: Map::default(),
            has_listings: false,
        };
        sets.set(&policy.policy);
        for (name, plan) in &policy.plans {
            if let Some(set) = sets.set(plan) {
                sets.plans.insert(name.as_bytes().into(), set);
            }
        }
        if let Some(candidate) = &policy.candidate {
            sets.candidate = sets.set(&candidate.policy).map(|set| CandidateSet {
                set,
                enforce: candidate.enforce,
                compare: candidate.compare,
            });
        }
        for from in &policy.overrides {
            if let Some(set) = sets.set_of(&from.numbers) {
                let by_document = KeyOverride { set, until_us: from.until_us.unwrap_or(u64::MAX) };
                sets.key(&from.key).by_document = by_document;
            }
        }
        sets
    }

    /// Adds the override of an entry, unless it names an unknown plan or exceeds the maximum number of sets.
    pub(crate) fn add_entry(&mut self, key: &[u8], quotas: &OverrideQuotas, until_us: Option<u64>) {
        if let Some(set) = self.set_of(quotas) {
            self.key(key).by_entry = KeyOverride { set, until_us: until_us.unwrap_or(u64::MAX) };
        }
    }

    /// The listing of a key.
    pub(crate) fn listing(&mut self, key: &[u8]) -> &mut Listing {
        self.has_listings = true;
        &mut self.key(key).listing
    }

    fn key(&mut self, key: &[u8]) -> &mut KeySettings {
        self.keys.entry(key.into()).or_default()
    }

    fn set_of(&mut self, quotas: &OverrideQuotas) -> Option<u32> {
        match quotas {
            OverrideQuotas::Plan(plan) => self.plans.get(plan.as_bytes()).copied(),
            OverrideQuotas::Quotas(policy) => self.set(policy),
        }
    }

    /// The index of a set, which is added if it is new and the maximum is not reached.
    fn set(&mut self, policy: &Policy) -> Option<u32> {
        if let Some(set) = self.indices.get(policy.quotas()) {
            return Some(*set);
        }
        if self.sets.len() >= Self::MAX_SETS {
            return None;
        }
        let set = u32::try_from(self.sets.len()).ok()?;
        self.sets.push(policy.clone().with_penalty(self.penalty));
        self.indices.insert(policy.quotas().into(), set);
        Some(set)
    }

    /// The sets of quotas without duplicates, each with the policy's penalty; the first is `quotas`.
    pub(crate) fn sets(&self) -> &[Policy] {
        &self.sets
    }

    /// The listing of a key, if there is one.
    pub(crate) fn key_listing(&self, key: &[u8]) -> Option<Listing> {
        if !self.has_listings {
            return None;
        }
        self.keys.get(key).map(|settings| settings.listing)
    }

    /// The effective quotas of a key in a request with this plan.
    pub(crate) fn choose(
        &self,
        policy: &str,
        key: &[u8],
        plan: Option<&[u8]>,
        now_us: u64,
    ) -> EffectiveQuotas {
        self.decide(policy, key, plan, now_us).0
    }

    /// The effective quotas of a key in a request with this plan, and where they come from.
    #[inline]
    pub(crate) fn decide(
        &self,
        policy: &str,
        key: &[u8],
        plan: Option<&[u8]>,
        now_us: u64,
    ) -> (EffectiveQuotas, QuotasOrigin) {
        let decided = |set, origin| (EffectiveQuotas { set, compare: false }, origin);
        if !self.keys.is_empty()
            && let Some(KeySettings { by_entry, by_document, .. }) = self.keys.get(key)
        {
            for (found, origin) in [(by_entry, QuotasOrigin::Entry), (by_document, QuotasOrigin::Document)] {
                if now_us < found.until_us {
                    return decided(found.set, origin);
                }
            }
        }
        if let Some(set) = plan.and_then(|plan| self.plans.get(plan)) {
            return decided(*set, QuotasOrigin::Plan);
        }
        let Some(candidate) = self.candidate else { return decided(0, QuotasOrigin::Quotas) };
        match thousandth(policy, key) {
            thousandth if thousandth < candidate.enforce => decided(candidate.set, QuotasOrigin::Candidate),
            thousandth => {
                let compare = thousandth < candidate.enforce.saturating_add(candidate.compare);
                (EffectiveQuotas { set: 0, compare }, QuotasOrigin::Quotas)
            }
        }
    }
}

/// The thousandth that a key belongs to, the same in every process: 0 to 999.
fn thousandth(policy: &str, key: &[u8]) -> u16 {
    let hash = Sha256::new().chain_update(policy).chain_update([0]).chain_update(key).finalize();
    let first = hash.iter().take(8).fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    u16::try_from(first % 1000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::model::{Candidate, Mode, Override};

    fn quotas(text: &str) -> Policy {
        Policy::parse("p", text).unwrap()
    }

    fn document_policy() -> DocumentPolicy {
        DocumentPolicy {
            policy: quotas("1/minute"),
            plans: vec![("gold".into(), quotas("5/minute")), ("free".into(), quotas("1/minute"))],
            overrides: Vec::new(),
            mode: Mode::On,
            outage: None,
            lease: None,
            candidate: None,
            elastic: None,
            penalty: None,
        }
    }

    fn with_override(key: &str, numbers: OverrideQuotas, until_us: Option<u64>) -> Override {
        Override { key: key.as_bytes().into(), numbers, until_us }
    }

    #[test]
    fn entry_then_document_then_plan_then_quotas() {
        let mut policy = document_policy();
        policy.overrides = vec![
            with_override("alice", OverrideQuotas::Plan("gold".into()), None),
            with_override("bob", OverrideQuotas::Quotas(quotas("3/minute")), Some(30)),
        ];
        let mut sets = QuotaSets::new(&policy);
        sets.add_entry(b"bob", &OverrideQuotas::Quotas(quotas("4/minute")), Some(20));
        sets.add_entry(b"alice", &OverrideQuotas::Plan("silver".into()), None);
        for (key, plan, now_us, expected) in [
            ("alice", None, 0, "5/minute"),
            ("bob", None, 0, "4/minute"),
            ("bob", Some("gold"), 19, "4/minute"),
            ("bob", Some("gold"), 20, "3/minute"),
            ("bob", Some("gold"), 30, "5/minute"),
            ("bob", None, 30, "1/minute"),
            ("k", Some("silver"), 0, "1/minute"),
            ("k", Some("free"), 0, "1/minute"),
        ] {
            let choice = sets.choose("p", key.as_bytes(), plan.map(str::as_bytes), now_us);
            assert_eq!(sets.sets()[choice.set as usize], quotas(expected), "{key} {plan:?} at {now_us}");
        }
        assert_eq!(sets.sets().len(), 4);
    }

    #[test]
    fn candidate_decides_for_the_first_thousandths_and_is_compared_in_the_next() {
        // The thousandths of these keys, computed with another implementation of SHA-256.
        for (key, expected) in [("carol", 138), ("b", 308), ("alice", 802), ("bob", 683)] {
            assert_eq!(thousandth("p", key.as_bytes()), expected, "{key}");
        }
        let mut policy = document_policy();
        let candidate = quotas("9/minute");
        let comparison = candidate.clone();
        policy.candidate = Some(Candidate { policy: candidate, comparison, compare: 300, enforce: 400 });
        policy.overrides = vec![with_override("o", OverrideQuotas::Plan("free".into()), None)];
        let sets = QuotaSets::new(&policy);
        for key in (0..200).map(|key| format!("key {key}")) {
            let choice = sets.choose("p", key.as_bytes(), None, 0);
            let expected = match thousandth("p", key.as_bytes()) {
                0..400 => EffectiveQuotas { set: 2, compare: false },
                400..700 => EffectiveQuotas { set: 0, compare: true },
                _ => EffectiveQuotas { set: 0, compare: false },
            };
            assert_eq!(choice, expected, "{key}");
            assert!(!sets.choose("p", key.as_bytes(), Some(b"free"), 0).compare);
        }
        assert_eq!(sets.choose("p", b"o", None, 0), EffectiveQuotas { set: 0, compare: false });
    }

    #[test]
    fn sets_are_kept_once_and_up_to_a_limit() {
        let mut sets = QuotaSets::new(&document_policy());
        for limit in 0..5_000_u64 {
            let set = OverrideQuotas::Quotas(quotas(&format!("{}/minute", limit + 1)));
            sets.add_entry(format!("k{limit}").as_bytes(), &set, None);
        }
        assert_eq!(sets.sets().len(), QuotaSets::MAX_SETS);
        assert_eq!(sets.choose("p", b"k4999", None, 0).set, 0);
        assert_eq!(sets.choose("p", b"k4", None, 0).set, 1);
    }
}
