//! The policies that commands name by their text, prepared for decisions.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use polylimit_rules::algorithm::{Rules, State};
use polylimit_rules::codec::log::{log_period_us, suffix};
use polylimit_rules::codec::{PolicyCodec, States};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::Quota;
use polylimit_rules::transition::PolicyRules;
use polylimit_rules::wire::{MAX_LENGTH, WirePolicy, write_window};

use crate::refusal::Refusal;

/// The most policies that are kept; when there are more, all are prepared anew.
const MAX_POLICIES: usize = 1_024;

/// A policy, prepared.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) policy: Policy,
    pub(crate) rules: PolicyRules,
    pub(crate) codec: PolicyCodec,
    /// The places of the quotas whose states are logs.
    pub(crate) logs: Box<[usize]>,
    /// What the names of an entry's keys have after that of the main key: its logs, and those that are only deleted.
    suffixes: Box<[Box<[u8]>]>,
    /// The windows of its quotas by the calendar.
    windows_us: Box<[Range<u64>]>,
}

impl Prepared {
    fn read(text: &[u8]) -> Result<Self, Refusal> {
        if text.len() > MAX_LENGTH {
            let length = text.len();
            return Err(Refusal::of(format!(
                "the policy has {length} bytes: allowed are up to {MAX_LENGTH}"
            )));
        }
        let text = std::str::from_utf8(text).map_err(|_| Refusal::of("the policy is not UTF-8"))?;
        let read = WirePolicy::read(text).map_err(Refusal::of)?;
        let mut codec = PolicyCodec::new(&read.policy, read.change());
        codec.set_windows(&read.windows_us);
        let quotas = read.policy.quotas().iter().enumerate();
        let (logs, periods): (Vec<_>, Vec<_>) =
            quotas.filter_map(|(place, quota)| Some((place, log_period_us(quota)?))).unzip();
        let suffixes = periods.iter().chain(&read.dropped_logs).map(|period_us| suffix(*period_us)).collect();
        let mut rules = PolicyRules::new(&read.policy);
        rules.set_windows(&read.policy, &read.windows_us);
        let (logs, windows_us) = (logs.into(), read.windows_us.into());
        Ok(Self { rules, codec, logs, suffixes, windows_us, policy: read.policy })
    }

    /// Whether a quota counts by the calendar, and the text has no windows.
    pub fn lacks_windows(&self) -> bool {
        self.windows_us.is_empty() && self.policy.quotas().iter().any(|quota| quota.calendar().is_some())
    }

    /// Whether a time is in all windows by the calendar.
    pub fn is_in_windows(&self, now_us: u64) -> bool {
        self.windows_us.iter().all(|window_us| window_us.contains(&now_us))
    }

    /// The text of these quotas with the windows of a time.
    pub(crate) fn with_windows(&self, quotas: &[u8], now_us: u64) -> Vec<u8> {
        let mut windows = String::new();
        for calendar in self.policy.quotas().iter().filter_map(Quota::calendar) {
            write_window(&mut windows, &calendar.window_us(now_us));
        }
        [quotas, windows.as_bytes()].concat()
    }

    /// The number of keys of an entry: the main key, its logs, and those that other quotas used, which the next write deletes.
    pub fn keys_of_entry(&self) -> usize {
        1 + self.suffixes.len()
    }

    /// The number of entries that have these keys.
    ///
    /// # Errors
    /// When a key is missing, or has another name than that which belongs to its main key. So no entry has a key twice.
    pub fn entries<'a>(&self, keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<usize, Refusal> {
        let number = keys.len();
        if self.suffixes.is_empty() {
            return Ok(number);
        }
        let refused = || Refusal::of("the keys of an entry are its main key and its logs, in their order");
        if !number.is_multiple_of(self.keys_of_entry()) {
            return Err(refused());
        }
        let mut keys = keys;
        while let Some(main) = keys.next() {
            for suffix in &self.suffixes {
                let key = keys.next().unwrap_or_default();
                if key.strip_prefix(main) != Some(&**suffix) {
                    return Err(refused());
                }
            }
        }
        Ok(number / self.keys_of_entry())
    }

    /// The states of a key that was never seen.
    pub(crate) fn fresh(&self) -> States {
        self.policy.quotas().iter().map(State::fresh).collect()
    }

    /// The states of a key whose value is not one of ours: everything counts as used.
    pub(crate) fn used_up(&self, now_us: u64) -> States {
        let mut states = self.fresh();
        for (quota, state) in self.rules.quotas.iter().zip(&mut states) {
            quota.rules.spend(state, now_us, quota.capacity);
        }
        states
    }
}

/// The policies that commands have named.
#[derive(Debug, Default)]
pub struct Policies {
    known: HashMap<Box<[u8]>, Arc<Prepared>, RandomState>,
    /// The one that was named last, which most often is the next one, too.
    last: Option<(Box<[u8]>, Arc<Prepared>)>,
}

impl Policies {
    /// The policy of this text.
    ///
    /// # Errors
    /// When the text is not one of a policy that the module can decide.
    pub fn named(&mut self, text: &[u8]) -> Result<Arc<Prepared>, Refusal> {
        if let Some((last, prepared)) = &self.last
            && **last == *text
        {
            return Ok(Arc::clone(prepared));
        }
        let prepared = if let Some(known) = self.known.get(text) {
            Arc::clone(known)
        } else {
            let prepared = Arc::new(Prepared::read(text)?);
            if self.known.len() >= MAX_POLICIES {
                self.known.clear();
            }
            self.known.insert(text.into(), Arc::clone(&prepared));
            prepared
        };
        self.last = Some((text.into(), Arc::clone(&prepared)));
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_policies_is_bounded() {
        let mut policies = Policies::default();
        for limit in 1..3 * MAX_POLICIES {
            policies.named(format!("{limit}/s").as_bytes()).unwrap();
            assert!(policies.known.len() <= MAX_POLICIES);
        }
        for text in [&b"5/s\nwindow 1 2"[..], b"", b"\xFF", &vec![b'1'; MAX_LENGTH + 1]] {
            assert!(policies.named(text).is_err());
        }
        assert!(policies.named(b"5/s").is_ok());
    }

    #[test]
    fn entries_have_the_keys_of_their_logs() {
        let mut policies = Policies::default();
        let policy = policies.named(b"5/s sliding_log; 7/h; 9/m sliding_log\nlogs 1000").unwrap();
        let entries = |keys: &[&str]| policy.entries(keys.iter().map(|key| key.as_bytes()));
        let good = ["a", "a:log:1000000", "a:log:60000000", "a:log:1000"];
        assert_eq!(policy.keys_of_entry(), good.len());
        assert_eq!(entries(&good).unwrap(), 1);
        let two = [good, ["b", "b:log:1000000", "b:log:60000000", "b:log:1000"]].concat();
        assert_eq!(entries(&two).unwrap(), 2);
        for wrong in
            [&good[..3], &["a", "a", "a", "a"], &["a", "a:log:60000000", "a:log:1000000", "a:log:1000"]]
        {
            assert!(entries(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(policies.named(b"5/s").unwrap().entries([&b"a"[..], b"a"].into_iter()).unwrap(), 2);
    }
}
