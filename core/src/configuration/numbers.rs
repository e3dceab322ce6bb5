//! Which numbers decide about a key of a policy: its override, the plan of the request, the candidate, or `quotas`.

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::configuration::Map;
use crate::configuration::lists::Listing;
use crate::configuration::model::{DocumentPolicy, Numbers};
use crate::rules::penalty::Penalty;
use crate::rules::policy::Policy;
use crate::rules::quota::Quota;

/// The numbers of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NumbersChoice {
    /// The index in the policy's sets; 0 is `quotas`.
    pub(crate) set: u32,
    /// Whether the candidate is asked too, without deciding.
    pub(crate) compare: bool,
}

/// What has decided which numbers a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumbersOrigin {
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

/// The sets of numbers of a policy, and which keys they are of.
#[derive(Clone, Debug)]
pub(crate) struct PolicyNumbers {
    sets: Vec<Policy>,
    penalty: Option<Penalty>,
    indices: Map<Box<[Quota]>, u32>,
    plans: Map<Box<[u8]>, u32>,
    candidate: Option<CandidateNumbers>,
    keys: Map<StoredKey, KeyNumbers>,
    has_listings: bool,
}

/// Most keys are short enough to stand in the table itself, where a look-up finds them without another miss of the cache.
type StoredKey = SmallVec<[u8; 24]>;

#[derive(Clone, Copy, Debug)]
struct CandidateNumbers {
    set: u32,
    /// Thousandths of the keys.
    enforce: u16,
    compare: u16,
}

/// What is said about one key by itself.
#[derive(Clone, Copy, Debug, Default)]
struct KeyNumbers {
    by_entry: KeyOverride,
    by_document: KeyOverride,
    listing: Listing,
}

#[derive(Clone, Copy, Debug, Default)]
struct KeyOverride {
    set: u32,
    /// Exclusive: 0 is not at all, `u64::MAX` always.
    until_us: u64,
}

impl PolicyNumbers {
    /// How many different sets of numbers a policy may have.
    pub(crate) const MAX_SETS: usize = 4096;

    /// The numbers of a policy as its document says them. What is one set too many is left out.
    pub(crate) fn new(policy: &DocumentPolicy) -> Self {
        let mut numbers = Self {
            sets: Vec::new(),
            penalty: policy.penalty,
            indices: Map::default(),
            plans: Map::default(),
            candidate: None,
            keys: Map::default(),
            has_listings: false,
        };
        numbers.set(&policy.policy);
        for (name, plan) in &policy.plans {
            if let Some(set) = numbers.set(plan) {
                numbers.plans.insert(name.as_bytes().into(), set);
            }
        }
        if let Some(candidate) = &policy.candidate {
            numbers.candidate = numbers.set(&candidate.policy).map(|set| CandidateNumbers {
                set,
                enforce: candidate.enforce,
                compare: candidate.compare,
            });
        }
        for from in &policy.overrides {
            if let Some(set) = numbers.set_of(&from.numbers) {
                let by_document = KeyOverride { set, until_us: from.until_us.unwrap_or(u64::MAX) };
                numbers.key(&from.key).by_document = by_document;
            }
        }
        numbers
    }

    /// Adds the override of an entry, unless it names a plan that does not exist or is one set of numbers too many.
    pub(crate) fn add_entry(&mut self, key: &[u8], numbers: &Numbers, until_us: Option<u64>) {
        if let Some(set) = self.set_of(numbers) {
            self.key(key).by_entry = KeyOverride { set, until_us: until_us.unwrap_or(u64::MAX) };
        }
    }

    /// What a list says about a key.
    pub(crate) fn listing(&mut self, key: &[u8]) -> &mut Listing {
        self.has_listings = true;
        &mut self.key(key).listing
    }

    fn key(&mut self, key: &[u8]) -> &mut KeyNumbers {
        self.keys.entry(key.into()).or_default()
    }

    fn set_of(&mut self, numbers: &Numbers) -> Option<u32> {
        match numbers {
            Numbers::Plan(plan) => self.plans.get(plan.as_bytes()).copied(),
            Numbers::Quotas(policy) => self.set(policy),
        }
    }

    /// The index of a set, which is added if it is new and there are not too many.
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

    /// The sets of numbers, each once and with the policy's penalty; the first is `quotas`.
    pub(crate) fn sets(&self) -> &[Policy] {
        &self.sets
    }

    /// What the lists of keys say about a key.
    pub(crate) fn key_listing(&self, key: &[u8]) -> Option<Listing> {
        if !self.has_listings {
            return None;
        }
        self.keys.get(key).map(|numbers| numbers.listing)
    }

    /// The numbers of a key in a request with this plan.
    pub(crate) fn choose(&self, policy: &str, key: &[u8], plan: Option<&[u8]>, now_us: u64) -> NumbersChoice {
        self.decide(policy, key, plan, now_us).0
    }

    /// The numbers of a key in a request with this plan, and what has decided which they are.
    #[inline]
    pub(crate) fn decide(
        &self,
        policy: &str,
        key: &[u8],
        plan: Option<&[u8]>,
        now_us: u64,
    ) -> (NumbersChoice, NumbersOrigin) {
        let decided = |set, origin| (NumbersChoice { set, compare: false }, origin);
        if !self.keys.is_empty()
            && let Some(KeyNumbers { by_entry, by_document, .. }) = self.keys.get(key)
        {
            for (found, origin) in [(by_entry, NumbersOrigin::Entry), (by_document, NumbersOrigin::Document)]
            {
                if now_us < found.until_us {
                    return decided(found.set, origin);
                }
            }
        }
        if let Some(set) = plan.and_then(|plan| self.plans.get(plan)) {
            return decided(*set, NumbersOrigin::Plan);
        }
        let Some(candidate) = self.candidate else { return decided(0, NumbersOrigin::Quotas) };
        match thousandth(policy, key) {
            thousandth if thousandth < candidate.enforce => decided(candidate.set, NumbersOrigin::Candidate),
            thousandth => {
                let compare = thousandth < candidate.enforce.saturating_add(candidate.compare);
                (NumbersChoice { set: 0, compare }, NumbersOrigin::Quotas)
            }
        }
    }
}

/// In which thousandth of the keys a key is, the same in every process: 0 to 999.
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

    fn with_override(key: &str, numbers: Numbers, until_us: Option<u64>) -> Override {
        Override { key: key.as_bytes().into(), numbers, until_us }
    }

    #[test]
    fn entry_then_document_then_plan_then_quotas() {
        let mut policy = document_policy();
        policy.overrides = vec![
            with_override("alice", Numbers::Plan("gold".into()), None),
            with_override("bob", Numbers::Quotas(quotas("3/minute")), Some(30)),
        ];
        let mut numbers = PolicyNumbers::new(&policy);
        numbers.add_entry(b"bob", &Numbers::Quotas(quotas("4/minute")), Some(20));
        numbers.add_entry(b"alice", &Numbers::Plan("silver".into()), None);
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
            let choice = numbers.choose("p", key.as_bytes(), plan.map(str::as_bytes), now_us);
            assert_eq!(numbers.sets()[choice.set as usize], quotas(expected), "{key} {plan:?} at {now_us}");
        }
        assert_eq!(numbers.sets().len(), 4);
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
        policy.overrides = vec![with_override("o", Numbers::Plan("free".into()), None)];
        let numbers = PolicyNumbers::new(&policy);
        for key in (0..200).map(|key| format!("key {key}")) {
            let choice = numbers.choose("p", key.as_bytes(), None, 0);
            let expected = match thousandth("p", key.as_bytes()) {
                0..400 => NumbersChoice { set: 2, compare: false },
                400..700 => NumbersChoice { set: 0, compare: true },
                _ => NumbersChoice { set: 0, compare: false },
            };
            assert_eq!(choice, expected, "{key}");
            assert!(!numbers.choose("p", key.as_bytes(), Some(b"free"), 0).compare);
        }
        assert_eq!(numbers.choose("p", b"o", None, 0), NumbersChoice { set: 0, compare: false });
    }

    #[test]
    fn sets_are_kept_once_and_up_to_a_limit() {
        let mut numbers = PolicyNumbers::new(&document_policy());
        for limit in 0..5_000_u64 {
            let set = Numbers::Quotas(quotas(&format!("{}/minute", limit + 1)));
            numbers.add_entry(format!("k{limit}").as_bytes(), &set, None);
        }
        assert_eq!(numbers.sets().len(), PolicyNumbers::MAX_SETS);
        assert_eq!(numbers.choose("p", b"k4999", None, 0).set, 0);
        assert_eq!(numbers.choose("p", b"k4", None, 0).set, 1);
    }
}
