//! The states of a policy's quotas, read and written together.

use smallvec::SmallVec;

use crate::rules::algorithm::State;
use crate::rules::codec::reader::Reader;
use crate::rules::codec::{Bytes, Form, Tag, bucket, fixed_window, sliding_window, stepped_bucket};
use crate::rules::history::{PastNumbers, Superseded, past_of};
use crate::rules::policy::Policy;
use crate::rules::quota::{Algorithm, Quota};

/// The states of one key, in the order of its policy's quotas.
pub(crate) type States = SmallVec<[State; 1]>;

/// Reads and writes the states of a policy's quotas.
#[derive(Clone, Debug)]
pub(crate) struct PolicyCodec {
    policy: Policy,
    quotas: Box<[QuotaCodec]>,
}

#[derive(Clone, Debug)]
struct QuotaCodec {
    tag: Tag,
    past: Box<[PastNumbers]>,
}

/// A record: its form, its tag, and the bytes after them.
type Record<'a> = (Form, Tag, Reader<'a>);

impl PolicyCodec {
    /// A codec for a policy, with the past numbers of it that this process knows, oldest first.
    pub(crate) fn new(policy: &Policy, superseded: &[Superseded]) -> Self {
        let quotas = policy.quotas().iter();
        let quotas = quotas.map(|quota| QuotaCodec { tag: Tag::of(quota), past: past_of(quota, superseded) });
        Self { policy: policy.clone(), quotas: quotas.collect() }
    }

    /// Reads the states; `None` when the bytes are malformed. No bytes mean a key that was never seen. Logs are fresh
    /// here, since they have their own bytes.
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<States> {
        let mut records = SmallVec::<[Record<'_>; 4]>::new();
        let mut rest = Reader(bytes);
        while !rest.is_empty() {
            records.push(next_record(&mut rest)?);
        }
        let each = self.policy.quotas().iter().zip(&self.quotas).map(|(quota, codec)| {
            match records.iter().find(|(_, tag, _)| *tag == codec.tag && !is_log(quota)) {
                Some((form, _, record)) => codec.read(*form, *record, quota),
                None => Some(State::fresh(quota)),
            }
        });
        each.collect()
    }

    /// Reads the states at the beginning of bytes that hold one record per quota, in their order, with more bytes after
    /// them; `None` when the bytes do not.
    pub(crate) fn read_in_order(&self, bytes: &mut Reader<'_>) -> Option<States> {
        let each = self.policy.quotas().iter().zip(&self.quotas).map(|(quota, codec)| {
            let (form, tag, record) = next_record(bytes)?;
            if tag == codec.tag { codec.read(form, record, quota) } else { None }
        });
        each.collect()
    }

    /// Appends the bytes of the states; none when nothing is used. Logs are left out.
    pub(crate) fn write(&self, states: &[State], out: &mut Bytes) {
        for ((quota, codec), state) in self.policy.quotas().iter().zip(&self.quotas).zip(states) {
            match state {
                State::TokenBucket(state) => bucket::write(out, *state, quota, codec.tag),
                State::SteppedBucket(state) => stepped_bucket::write(out, *state, quota, codec.tag),
                State::FixedWindow(state) => fixed_window::write(out, *state, codec.tag),
                State::SlidingWindow(state) => sliding_window::write(out, state, codec.tag),
                State::SlidingLog(_) => {}
            }
        }
    }
}

fn is_log(quota: &Quota) -> bool {
    quota.algorithm() == Algorithm::SlidingLog
}

fn next_record<'a>(rest: &mut Reader<'a>) -> Option<Record<'a>> {
    let form = Form::of(rest.byte()?)?;
    let tag = rest.bytes(4)?;
    let length = match form {
        Form::ShortBucket => 12,
        Form::Bucket => 20,
        Form::SteppedBucket => 18,
        Form::FixedWindow => 13,
        Form::SlidingWindow => {
            let mut head = *rest;
            let (bytes, counts) = (head.byte()?, head.byte()?);
            if !(1..=sliding_window::MAX_COUNT_BYTES).contains(&bytes) {
                return None;
            }
            15 + usize::from(bytes) * usize::from(counts)
        }
    };
    Some((form, Tag(tag.try_into().ok()?), Reader(rest.bytes(length)?)))
}

impl QuotaCodec {
    fn read(&self, form: Form, record: Reader<'_>, quota: &Quota) -> Option<State> {
        match quota.algorithm() {
            Algorithm::TokenBucket if quota.step().is_some() => {
                stepped_bucket::read(form, record, quota, &self.past)
            }
            Algorithm::TokenBucket | Algorithm::LeakyBucket => bucket::read(form, record, quota, &self.past),
            Algorithm::FixedWindow => fixed_window::read(form, record),
            Algorithm::SlidingWindow => sliding_window::read(form, record, quota),
            Algorithm::SlidingLog => None,
        }
    }
}
