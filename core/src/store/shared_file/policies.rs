//! The policies of a store, and the encoding of their states as bytes.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::rules::algorithm::{Rules, State};
use crate::rules::codec::reader::Reader;
use crate::rules::codec::{PolicyCodec, States, Tag, log};
use crate::rules::decision::Decision;
use crate::rules::history::History;
use crate::rules::policy::Policy;
use crate::rules::transition::{Applied, PolicyRules};
use crate::store::request::PolicyId;
use crate::store::shared_file::key;
use crate::store::shared_file::shard::{Bytes, Lengths};

/// The policies, indexed by id.
pub(crate) type PolicyList = [Arc<SharedFilePolicy>];

/// The policies, ordered by id.
#[derive(Debug, Default)]
pub(crate) struct Policies(ArcSwap<Vec<Arc<SharedFilePolicy>>>);

#[derive(Debug)]
pub(crate) struct SharedFilePolicy {
    pub(crate) policy: Policy,
    pub(crate) rules: PolicyRules,
    codec: PolicyCodec,
    /// The tags of the quotas.
    tags: Box<[Tag]>,
    history: History,
}

impl Policies {
    /// The same policies, for a forked child.
    pub(crate) fn after_fork(&self) -> Self {
        Self(ArcSwap::new(self.0.load_full()))
    }

    /// Adds a policy or changes its numbers; the limiter's registry serializes the calls.
    pub(crate) fn set(&self, id: PolicyId, policy: &Policy, now_us: u64) {
        let mut policies = Vec::clone(&self.0.load());
        let known = policies.get(id.0 as usize);
        let history = known.map_or_else(History::default, |known| known.history.then(&known.policy, now_us));
        let changed = Arc::new(SharedFilePolicy {
            policy: policy.clone(),
            rules: PolicyRules::new(policy),
            codec: PolicyCodec::new(policy, &history),
            tags: policy.quotas().iter().map(Tag::of).collect(),
            history,
        });
        match policies.get_mut(id.0 as usize) {
            Some(known) => *known = changed,
            None => policies.push(changed),
        }
        self.0.store(Arc::new(policies));
    }

    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<Vec<Arc<SharedFilePolicy>>>> {
        self.0.load()
    }
}

/// When an entry expires by the numbers of these policies; 0 for a policy that is not known here.
pub(crate) fn spent_at_us(
    policies: &[Arc<SharedFilePolicy>],
    bytes: &[u8],
    lengths: Lengths,
    at_us: u64,
) -> u64 {
    let (key, value) = bytes.split_at(usize::from(lengths.key).min(bytes.len()));
    let name = key::policy_of(key);
    let policy = policies.iter().find(|policy| Some(policy.policy.name().as_bytes()) == name);
    policy.map_or(0, |policy| {
        let states = policy.read(value, lengths).unwrap_or_else(|| policy.used_up(at_us));
        policy.spent_at_us(&states, at_us)
    })
}

impl SharedFilePolicy {
    /// The states of a key that was never seen.
    #[inline]
    pub(crate) fn fresh(&self) -> States {
        self.policy.quotas().iter().map(State::fresh).collect()
    }

    /// The states of a key whose usage is unknown: all units count as used.
    pub(crate) fn used_up(&self, now_us: u64) -> States {
        let mut states = self.fresh();
        for (quota, state) in self.rules.quotas.iter().zip(&mut states) {
            quota.rules.spend(state, now_us, quota.capacity);
        }
        states
    }

    /// Decodes the states that follow a key; `None` when the bytes are malformed.
    pub(crate) fn read(&self, value: &[u8], lengths: Lengths) -> Option<States> {
        let (records, logs) = value.split_at_checked(usize::from(lengths.records))?;
        let mut states = self.codec.read(records)?;
        let mut logs = Reader(logs);
        while !logs.is_empty() {
            let tag = logs.bytes(4)?;
            let length = logs.length(4)?;
            let bytes = logs.bytes(length)?;
            for (state, of_quota) in states.iter_mut().zip(&self.tags) {
                if let State::SlidingLog(state) = state
                    && of_quota.0 == tag
                {
                    **state = log::read(bytes)?;
                }
            }
        }
        Some(states)
    }

    /// Appends the encoded states to the bytes of a key.
    pub(crate) fn write(&self, states: &[State], bytes: &mut Bytes) -> Lengths {
        let key = bytes.len();
        self.codec.write(states, bytes);
        let records = bytes.len() - key;
        for (state, tag) in states.iter().zip(&self.tags) {
            if let State::SlidingLog(state) = state {
                let start = bytes.len();
                bytes.extend_from_slice(&tag.0);
                bytes.extend_from_slice(&[0; 4]);
                log::write(state, bytes);
                let length = bytes.len() - start - 8;
                if length == 0 {
                    bytes.truncate(start);
                } else {
                    let length = u32::try_from(length).unwrap_or(u32::MAX);
                    bytes[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
                }
            }
        }
        let logs = bytes.len() - key - records;
        Lengths {
            key: u8::try_from(key).unwrap_or(u8::MAX),
            records: u16::try_from(records).unwrap_or(u16::MAX),
            logs: u32::try_from(logs).unwrap_or(u32::MAX),
        }
    }

    /// When these states expire. A state under a limit of 0 does not change, so a non-empty one never expires.
    pub(crate) fn spent_at_us(&self, states: &[State], now_us: u64) -> u64 {
        let mut quotas = self.rules.quotas.iter().zip(states);
        if quotas.any(|(quota, state)| quota.limit == 0 && !state.holds_nothing()) {
            return u64::MAX;
        }
        now_us.saturating_add(self.view(states, now_us).reset_after_us())
    }

    /// What these states leave.
    pub(crate) fn view(&self, states: &[State], now_us: u64) -> Decision {
        let nothing = Applied { allowed: true, spent: 0, written: false };
        self.rules.explain(states, now_us, 0, nothing, None).by_fields()
    }

    /// What a key that was never seen has left.
    pub(crate) fn unseen(&self, now_us: u64) -> Decision {
        self.view(&self.fresh(), now_us)
    }
}
