//! The policies of a store that keeps states as bytes, and the encoding of these states.

use std::sync::Arc;

use crate::charge::{PolicyId, PolicyOptions, PreparedQuotas};
use crate::outage::Outage;
use crate::policy_table::{OfPolicy, PolicyTable};
use polylimit_rules::algorithm::{Rules, State};
use polylimit_rules::codec::{
    Bytes, PolicyCodec, Reader, States, Tag, Unreadable, read_log, read_reservations, write_log,
    write_reservations,
};
use polylimit_rules::error::Error;
use polylimit_rules::history::{Change, History};
use polylimit_rules::policy::Policy;
use polylimit_rules::transition::PolicyRules;

#[derive(Debug)]
pub struct StoredPolicies {
    policies: PolicyTable<StoredPolicy>,
    /// The outage policy of policies without their own.
    pub outage: Outage,
}

#[derive(Debug)]
pub struct StoredPolicy {
    id: PolicyId,
    pub policy: Policy,
    pub rules: PolicyRules,
    codec: PolicyCodec,
    /// The tags of the quotas.
    tags: Box<[Tag]>,
    history: History,
    /// Whether these are the quotas of some keys only.
    pub is_of_keys: bool,
    pub outage: Outage,
}

/// The effective quotas of some keys of a policy.
#[derive(Debug)]
pub struct StoredQuotas {
    pub policy: StoredPolicy,
    /// The same quotas for the fallback's store.
    pub fallback: PreparedQuotas,
}

/// Selects the fallback's quotas from those of a store of bytes.
pub fn fallback_quotas(effective: &PreparedQuotas) -> Option<&PreparedQuotas> {
    effective.of::<StoredQuotas>().map(|effective| &effective.fallback)
}

/// The policy with the effective quotas of a request: the request's, or else the policy's own.
pub fn policy_of<'a>(
    registered: Option<&'a StoredPolicy>,
    effective: Option<&'a PreparedQuotas>,
) -> Result<&'a StoredPolicy, Error> {
    let effective = effective.and_then(PreparedQuotas::of::<StoredQuotas>).map(|effective| &effective.policy);
    effective.or(registered).ok_or_else(Error::unknown_to_store)
}

impl StoredPolicies {
    /// `outage` applies to policies without their own outage policy.
    pub fn new(outage: Outage) -> Self {
        Self { policies: PolicyTable::default(), outage }
    }

    /// The same policies, for a forked child.
    #[must_use]
    pub fn after_fork(&self) -> Self {
        Self { policies: self.policies.after_fork(), outage: self.outage }
    }

    /// Adds a policy or changes its quotas; the limiter's registry serializes the calls.
    pub fn set(&self, id: PolicyId, policy: &Policy, options: PolicyOptions, now_us: u64) {
        let known = self.policies.load(id);
        let history =
            known.as_ref().map_or_else(History::default, |known| known.history.then(&known.policy, now_us));
        let outage = options.outage.or(known.as_ref().map(|known| known.outage)).unwrap_or(self.outage);
        let changed = StoredPolicy::new(id, policy, Change::Past(&history), outage);
        let is_of_keys = options.has_quotas_of_keys;
        self.policies.set(Arc::new(StoredPolicy { history, is_of_keys, ..changed }));
    }

    pub fn forget(&self, id: PolicyId) {
        self.policies.forget(id);
    }

    /// The policy with this name.
    pub fn named(&self, name: &str) -> Option<Arc<StoredPolicy>> {
        self.policies.named(name)
    }

    pub fn get(&self, id: PolicyId) -> Option<Arc<StoredPolicy>> {
        self.policies.get(id)
    }

    #[inline]
    pub fn load(&self, id: PolicyId) -> arc_swap::Guard<Option<Arc<StoredPolicy>>> {
        self.policies.load(id)
    }
}

impl OfPolicy for StoredPolicy {
    fn id(&self) -> PolicyId {
        self.id
    }

    fn name(&self) -> &str {
        self.policy.name()
    }
}

impl StoredPolicy {
    pub fn new(id: PolicyId, policy: &Policy, change: Change<'_>, outage: Outage) -> Self {
        Self {
            id,
            policy: policy.clone(),
            rules: PolicyRules::new(policy),
            codec: PolicyCodec::new(policy, change),
            tags: policy.quotas().iter().map(Tag::of).collect(),
            history: History::default(),
            is_of_keys: matches!(change, Change::Now(_)),
            outage,
        }
    }

    /// The states of a key that was never seen.
    #[inline]
    pub fn fresh(&self) -> States {
        self.policy.quotas().iter().map(State::fresh).collect()
    }

    /// The states of a key whose usage is unknown: all units count as used.
    pub fn used_up(&self, now_us: u64) -> States {
        let mut states = self.fresh();
        for (quota, state) in self.rules.quotas.iter().zip(&mut states) {
            quota.rules.spend(state, now_us, quota.capacity);
        }
        states
    }

    /// Decodes states, as of some time, and appends the records that are not known here to `unknown`.
    ///
    /// # Errors
    /// When the bytes are malformed, or a later version has written the state of a quota.
    pub fn read(
        &self,
        records: &[u8],
        logs: &[u8],
        now_us: u64,
        unknown: &mut Vec<u8>,
    ) -> Result<States, Unreadable> {
        let mut states = self.codec.read_and_keep(records, now_us, unknown)?;
        self.read_logs(logs, &mut states).ok_or(Unreadable::Malformed)?;
        Ok(states)
    }

    /// Decodes the logs, and what follows them; `None` when the bytes are malformed.
    fn read_logs(&self, logs: &[u8], states: &mut States) -> Option<()> {
        let mut logs = Reader(logs);
        while !logs.is_empty() {
            let tag = logs.bytes(4)?;
            let length = logs.length(4)?;
            let bytes = logs.bytes(length)?;
            if tag == Tag::OF_COMMITS.0 {
                let commits = read_reservations(Reader(bytes))?;
                states.push(State::Commits(Box::new(commits)));
                continue;
            }
            if tag == Tag::OF_KEY.0 {
                let reservations = read_reservations(Reader(bytes))?;
                states.push(State::Reservations(Box::new(reservations)));
                continue;
            }
            for (state, of_quota) in states.iter_mut().zip(&self.tags) {
                if let State::SlidingLog(state) = state
                    && of_quota.0 == tag
                {
                    **state = read_log(bytes)?;
                }
            }
        }
        Some(())
    }

    /// Appends the encoded states, and the records that are not known here. Returns the lengths of the records, and of the logs and the
    /// reservations that follow them.
    pub fn write(&self, states: &[State], unknown: &[u8], bytes: &mut Bytes) -> (usize, usize) {
        let start = bytes.len();
        self.codec.write(states, bytes);
        bytes.extend_from_slice(unknown);
        let records = bytes.len() - start;
        for (state, tag) in states.iter().zip(&self.tags) {
            if let State::SlidingLog(state) = state {
                put_tagged(bytes, *tag, |bytes| write_log(state, bytes));
            }
        }
        for state in states.iter().skip(self.tags.len()) {
            let (tag, list) = match state {
                State::Reservations(reservations) => (Tag::OF_KEY, reservations),
                State::Commits(commits) => (Tag::OF_COMMITS, commits),
                _ => continue,
            };
            put_tagged(bytes, tag, |bytes| write_reservations(list, bytes));
        }
        (records, bytes.len() - start - records)
    }
}

/// Appends a tag, a length, and what `put` appends; nothing if that is empty.
fn put_tagged(bytes: &mut Bytes, tag: Tag, put: impl FnOnce(&mut Bytes)) {
    let start = bytes.len();
    bytes.extend_from_slice(&tag.0);
    bytes.extend_from_slice(&[0; 4]);
    put(bytes);
    let length = bytes.len() - start - 8;
    if length == 0 {
        return bytes.truncate(start);
    }
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    bytes[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
}
