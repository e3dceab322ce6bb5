//! Chooses the effective quotas of a key of a policy: its override, the plan of the request, the candidate, or `quotas`.

use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::Map;
use crate::key_calendar::{self, split_plan};
use crate::lists::Listing;
use crate::model::{DocumentPolicy, OverrideQuotas};
use polylimit_rules::error::Error;
use polylimit_rules::penalty::Penalty;
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Quota;
use polylimit_rules::quota::calendar::KeyOptions;

/// The effective quotas for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffectiveQuotas {
    /// The index among the policy's sets of quotas; 0 is `quotas`.
    pub set: u32,
    /// Whether the candidate is checked too, without deciding.
    pub compare: bool,
}

/// Where the effective quotas of a key come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotasOrigin {
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
#[derive(Debug)]
pub struct QuotaSets {
    sets: Vec<Policy>,
    of_keys: SetsOfKeys,
    penalty: Option<Penalty>,
    indices: Map<Box<[Quota]>, u32>,
    plans: Map<Box<[u8]>, u32>,
    candidate: Option<CandidateSet>,
    keys: Map<StoredKey, KeySettings>,
    has_listings: bool,
}

/// Most keys are short enough to be stored inline, where a lookup finds them without another cache miss.
type StoredKey = SmallVec<[u8; 24]>;

/// The sets of quotas with calendars of keys, in the order in which they are first used. Their indices follow those of the sets.
#[derive(Debug, Default)]
struct SetsOfKeys {
    indices: RwLock<Map<(u32, KeyOptions), u32>>,
    /// Allocated for the first one; a set stays where it is.
    sets: OnceLock<Box<[OnceLock<Box<Policy>>]>>,
}

#[derive(Clone, Copy, Debug)]
struct CandidateSet {
    set: u32,
    /// Thousandths of the keys.
    enforce: u16,
    compare: u16,
}

/// The settings of a single key.
#[derive(Clone, Debug, Default)]
struct KeySettings {
    by_entry: KeyOverride,
    by_document: KeyOverride,
    listing: Listing,
}

#[derive(Clone, Debug, Default)]
struct KeyOverride {
    set: u32,
    calendar: Option<Arc<KeyOptions>>,
    /// Exclusive: 0 means not at all, `u64::MAX` always.
    until_us: u64,
}

impl QuotaSets {
    /// The maximum number of different sets of quotas of a policy.
    pub(crate) const MAX_SETS: usize = 4096;
    /// The maximum number of sets with calendars of keys, of all sets together: 31 days of a month in 128 zones for 4 plans are 15,872.
    pub const MAX_SETS_OF_KEYS: usize = 16_384;

    /// The sets of quotas of a policy in its document. Sets beyond the maximum are left out.
    pub(crate) fn new(policy: &DocumentPolicy) -> Self {
        let mut sets = Self {
            sets: Vec::new(),
            of_keys: SetsOfKeys::default(),
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
                sets.key(&from.key).by_document = KeyOverride::new(set, &from.calendar, from.until_us);
            }
        }
        sets
    }

    /// Adds the override of an entry, unless it names an unknown plan or exceeds the maximum number of sets.
    pub(crate) fn add_entry(
        &mut self,
        key: &[u8],
        quotas: &OverrideQuotas,
        calendar: &KeyOptions,
        until_us: Option<u64>,
    ) {
        if let Some(set) = self.set_of(quotas) {
            self.key(key).by_entry = KeyOverride::new(set, calendar, until_us);
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

    /// A set by its index.
    pub(crate) fn set_at(&self, index: u32) -> &Policy {
        let index = index as usize;
        let of_key = || index.checked_sub(self.sets.len()).and_then(|at| self.of_keys.get(at));
        self.sets.get(index).or_else(of_key).unwrap_or(&self.sets[0])
    }

    /// The effective quotas of a key in a request with this plan and calendar. What the key's override says of its calendar goes first,
    /// then that of the request, then what follows the plan.
    ///
    /// # Errors
    /// Invalid argument: what follows the plan is no calendar, or keys have too many different ones.
    pub(crate) fn choose(
        &self,
        policy: &str,
        key: &[u8],
        plan: Option<&[u8]>,
        calendar: Option<&KeyOptions>,
        now_us: u64,
    ) -> Result<EffectiveQuotas, Error> {
        let (plan, settings) = plan.map(split_plan).unzip();
        let (choice, _, own) = self.decide(policy, key, plan, now_us);
        let settings = settings.flatten().map(key_calendar::parse).transpose()?;
        let set = match (own, calendar, settings) {
            (None, None, None) => return Ok(choice),
            (Some(own), None, None) | (None, Some(own), None) => self.set_of_key(choice.set, own)?,
            (own, calendar, settings) => {
                let all = [own, calendar, settings.as_ref()].into_iter().flatten();
                let all = all.fold(KeyOptions::default(), |first, next| first.or(next));
                self.set_of_key(choice.set, &all)?
            }
        };
        Ok(EffectiveQuotas { set, ..choice })
    }

    /// The index of a set with the calendar of a key, for requests of a group.
    fn set_of_key(&self, set: u32, own: &KeyOptions) -> Result<u32, Error> {
        // Requests may name any group, and those that the policy does not have are in the same one.
        let groups = self.set_at(set).groups();
        let group =
            own.group.clone().filter(|name| groups.is_some_and(|groups| groups.table.named(name).is_some()));
        let own = &KeyOptions { group, ..own.clone() };
        if own.is_empty() {
            return Ok(set);
        }
        let named = (set, own.clone());
        if let Some(found) = self.of_keys.indices.read().get(&named) {
            return Ok(*found);
        }
        let base = self.set_at(set);
        let of_key = base.of_key(own)?;
        let mut indices = self.of_keys.indices.write();
        let at = indices.len();
        if at >= Self::MAX_SETS_OF_KEYS && !indices.contains_key(&named) {
            return Err(Error::invalid_argument(format!(
                "policy {} has keys with {} different zones and starts, of all its sets of quotas: allowed are up to that many; do zone and \
                 from come from the application?",
                base.name(),
                Self::MAX_SETS_OF_KEYS
            )));
        }
        let index = *indices.entry(named).or_insert_with(|| {
            let index = if of_key == *base { set as usize } else { self.sets.len() + at };
            u32::try_from(index).unwrap_or(0)
        });
        if index as usize == self.sets.len() + at {
            self.of_keys.put(at, of_key);
        }
        Ok(index)
    }

    /// The effective quotas of a key in a request with this plan, where they come from, and the calendar of the key's override.
    #[inline]
    pub(crate) fn decide(
        &self,
        policy: &str,
        key: &[u8],
        plan: Option<&[u8]>,
        now_us: u64,
    ) -> (EffectiveQuotas, QuotasOrigin, Option<&KeyOptions>) {
        let decided = |set, origin| (EffectiveQuotas { set, compare: false }, origin, None);
        if !self.keys.is_empty()
            && let Some(KeySettings { by_entry, by_document, .. }) = self.keys.get(key)
        {
            for (found, origin) in [(by_entry, QuotasOrigin::Entry), (by_document, QuotasOrigin::Document)] {
                if now_us < found.until_us {
                    let choice = EffectiveQuotas { set: found.set, compare: false };
                    return (choice, origin, found.calendar.as_deref());
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
                (EffectiveQuotas { set: 0, compare }, QuotasOrigin::Quotas, None)
            }
        }
    }
}

impl KeyOverride {
    fn new(set: u32, calendar: &KeyOptions, until_us: Option<u64>) -> Self {
        let calendar = Some(calendar).filter(|calendar| !calendar.is_empty());
        Self {
            set,
            calendar: calendar.map(|calendar| Arc::new(calendar.clone())),
            until_us: until_us.unwrap_or(u64::MAX),
        }
    }
}

impl SetsOfKeys {
    fn get(&self, at: usize) -> Option<&Policy> {
        self.sets.get()?.get(at)?.get().map(|set| &**set)
    }

    fn put(&self, at: usize, set: Policy) {
        let sets =
            self.sets.get_or_init(|| (0..QuotaSets::MAX_SETS_OF_KEYS).map(|_| OnceLock::new()).collect());
        if let Some(place) = sets.get(at) {
            let _ = place.set(Box::new(set));
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
    use crate::model::{CalendarAttributes, Candidate, Mode, Override};
    use polylimit_rules::groups::{Group, GroupTable};

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
            calendar: CalendarAttributes { zone: None, from: None, group: None },
            candidate: None,
            elastic: None,
            penalty: None,
        }
    }

    fn with_override(key: &str, numbers: OverrideQuotas, until_us: Option<u64>) -> Override {
        Override { key: key.as_bytes().into(), numbers, calendar: KeyOptions::default(), until_us }
    }

    #[test]
    fn entry_then_document_then_plan_then_quotas() {
        let mut policy = document_policy();
        policy.overrides = vec![
            with_override("alice", OverrideQuotas::Plan("gold".into()), None),
            with_override("bob", OverrideQuotas::Quotas(quotas("3/minute")), Some(30)),
        ];
        let mut sets = QuotaSets::new(&policy);
        sets.add_entry(b"bob", &OverrideQuotas::Quotas(quotas("4/minute")), &KeyOptions::default(), Some(20));
        sets.add_entry(b"alice", &OverrideQuotas::Plan("silver".into()), &KeyOptions::default(), None);
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
            let choice = sets.choose("p", key.as_bytes(), plan.map(str::as_bytes), None, now_us).unwrap();
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
            let choice = sets.choose("p", key.as_bytes(), None, None, 0).unwrap();
            let expected = match thousandth("p", key.as_bytes()) {
                0..400 => EffectiveQuotas { set: 2, compare: false },
                400..700 => EffectiveQuotas { set: 0, compare: true },
                _ => EffectiveQuotas { set: 0, compare: false },
            };
            assert_eq!(choice, expected, "{key}");
            assert!(!sets.choose("p", key.as_bytes(), Some(b"free"), None, 0).unwrap().compare);
        }
        assert_eq!(
            sets.choose("p", b"o", None, None, 0).unwrap(),
            EffectiveQuotas { set: 0, compare: false }
        );
    }

    #[test]
    fn override_goes_before_request_and_request_before_plan() {
        let mut policy = document_policy();
        policy.policy = quotas("1/month");
        policy.plans = vec![("gold".into(), quotas("5/month from=7; 2/day zone=UTC"))];
        let own = |settings: &str| key_calendar::parse(settings.as_bytes()).unwrap();
        policy.overrides = vec![
            Override {
                calendar: own("from=20"),
                ..with_override("alice", OverrideQuotas::Plan("gold".into()), None)
            },
            with_override("bob", OverrideQuotas::Quotas(quotas("3/month")), None),
        ];
        let sets = QuotaSets::new(&policy);
        for (key, plan, request, expected) in [
            ("k", None, None, "1/month"),
            ("k", None, Some("from=15"), "1/month from=15"),
            ("k", Some("from=3 zone=Asia/Tokyo"), Some("from=15"), "1/month from=15 zone=Asia/Tokyo"),
            ("k", Some("gold"), None, "5/month from=7; 2/day zone=UTC"),
            ("k", Some("gold zone=+09:00"), None, "5/month from=7 zone=+09:00; 2/day zone=+09:00"),
            ("k", Some("silver zone=+09:00"), None, "1/month zone=+09:00"),
            // A start of another kind concerns other units.
            ("k", None, Some("from=monday"), "1/month"),
            ("alice", None, None, "5/month from=20; 2/day zone=UTC"),
            (
                "alice",
                Some("from=3"),
                Some("from=15 zone=Asia/Tokyo"),
                "5/month from=20 zone=Asia/Tokyo; 2/day zone=Asia/Tokyo",
            ),
            ("bob", None, Some("zone=Asia/Tokyo"), "3/month zone=Asia/Tokyo"),
        ] {
            let request = request.map(own);
            let choose =
                || sets.choose("p", key.as_bytes(), plan.map(str::as_bytes), request.as_ref(), 0).unwrap();
            assert_eq!(*sets.set_at(choose().set), quotas(expected), "{key} {plan:?} {request:?}");
            assert_eq!(choose(), choose());
        }
        for plan in [
            "gold from=32",
            "zone=Europe/Berln",
            "gold zone=UTC zone=UTC",
            "gold from=1  zone=UTC",
            "gold from=1 x",
        ] {
            assert!(sets.choose("p", b"k", Some(plan.as_bytes()), None, 0).is_err(), "{plan}");
        }
    }

    #[test]
    fn requests_are_in_the_group_that_they_name() {
        let group = |name: &str, minimum| Group { name: name.into(), weight: 1, minimum, maximum: 100 };
        let table = Arc::new(GroupTable::new([group("a", 50), group("b", 0)]).unwrap());
        let policy = quotas("10/second token_bucket").with_groups(Some(&table)).unwrap();
        let sets = QuotaSets::new(&DocumentPolicy { policy, plans: Vec::new(), ..document_policy() });
        let own = |name: &str| KeyOptions { group: Some(name.into()), ..KeyOptions::default() };
        for (plan, request, expected) in [
            (None, None, "*"),
            (Some("group=a"), None, "a"),
            (None, Some("b"), "b"),
            (Some("group=a"), Some("b"), "b"),
            (Some("gold group=a"), None, "a"),
            (Some("group=c"), None, "*"),
            (None, Some("c"), "*"),
        ] {
            let request = request.map(own);
            let choose = || sets.choose("p", b"k", plan.map(str::as_bytes), request.as_ref(), 0).unwrap();
            assert_eq!(sets.set_at(choose().set).groups().unwrap().name(), expected, "{plan:?} {request:?}");
            assert_eq!(choose(), choose());
        }
        // Whatever requests name, there is a set for each group.
        for number in 0..2 * QuotaSets::MAX_SETS_OF_KEYS {
            sets.choose("p", b"k", None, Some(&own(&number.to_string())), 0).unwrap();
        }
        assert!(sets.choose("p", b"k", Some(b"group="), None, 0).is_err());
    }

    #[test]
    fn calendars_of_keys_are_kept_once_and_up_to_a_limit() {
        let sets = QuotaSets::new(&DocumentPolicy { policy: quotas("1/month"), ..document_policy() });
        let own = |number: usize| {
            let (day, minutes) = (number % 31 + 1, number / 31);
            key_calendar::parse(
                format!("from={day} zone=+{:02}:{:02}", minutes / 60, minutes % 60).as_bytes(),
            )
            .unwrap()
        };
        let choose = |number| sets.choose("p", b"k", None, Some(&own(number)), 0);
        for number in 0..QuotaSets::MAX_SETS_OF_KEYS {
            choose(number).unwrap();
        }
        let error = choose(QuotaSets::MAX_SETS_OF_KEYS).unwrap_err();
        assert!(error.message().contains("16384 different zones and starts"), "{error}");
        assert_eq!(*sets.set_at(choose(33).unwrap().set), quotas("1/month from=3 zone=+00:01"));
    }

    #[test]
    fn sets_are_kept_once_and_up_to_a_limit() {
        let mut sets = QuotaSets::new(&document_policy());
        for limit in 0..5_000_u64 {
            let set = OverrideQuotas::Quotas(quotas(&format!("{}/minute", limit + 1)));
            sets.add_entry(format!("k{limit}").as_bytes(), &set, &KeyOptions::default(), None);
        }
        assert_eq!(sets.sets().len(), QuotaSets::MAX_SETS);
        assert_eq!(sets.choose("p", b"k4999", None, None, 0).unwrap().set, 0);
        assert_eq!(sets.choose("p", b"k4", None, None, 0).unwrap().set, 1);
    }
}
