//! The local store on systems other than Linux and without the cargo feature `local`: its URL is refused.

use std::sync::Arc;

use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::{
    Charge, PolicyId, PolicyOptions, PreparedQuotas, StoreAnswer, StoreAnswers, Wait,
};
use polylimit_store::finding::Finding;
use polylimit_store::scan::{Look, LookRequest, ScanFilter, ScanStep};
use polylimit_store::stats::Stats;

#[derive(Clone, Copy, Debug)]
pub(crate) enum SharedFileOptions {}

#[derive(Debug)]
pub(crate) enum SharedFileStore {}

impl SharedFileOptions {
    pub(crate) fn is_local(url: &str) -> bool {
        url.starts_with("local:") || url.starts_with("file:")
    }

    pub(crate) fn parse(_url: &str) -> Result<Self, Error> {
        Err(Error::invalid_argument(
            "the local store needs Linux and polylimit's feature local: use memory: or Redis",
        ))
    }

    pub(crate) fn sized(self, _bytes: u64) -> Result<Self, Error> {
        match self {}
    }

    pub(crate) fn sized_by(self, _text: &str) -> Result<Self, Error> {
        match self {}
    }

    pub(crate) fn set(&mut self, _name: &str, _text: &str) -> Result<bool, Error> {
        match *self {}
    }
}

/// Functions of a type that has no values.
macro_rules! absent {
    ($([$($async:tt)?] $name:ident($($argument:ident: $kind:ty),*) -> $output:ty;)*) => {
        $(pub(crate) $($async)? fn $name(&self, $($argument: $kind),*) -> $output {
            $(let _ = $argument;)*
            match *self {}
        })*
    };
}

impl SharedFileStore {
    pub(crate) fn new(options: SharedFileOptions, _clock: Clock, _max_keys: usize) -> Self {
        match options {}
    }

    pub(crate) fn report_to(&self, _report: impl Fn(Finding) + Send + Sync + 'static) {
        match *self {}
    }

    absent! {
        [] after_fork(policies: &[(PolicyId, Policy)]) -> Self;
        [] prepare_quotas(id: PolicyId, policy: &Policy, others: &[Policy], options: PolicyOptions) -> PreparedQuotas;
        [] clock() -> &Clock;
        [] set_policy(id: PolicyId, policy: &Policy, options: PolicyOptions) -> ();
        [] forget_policy(id: PolicyId) -> ();
        [] place() -> Option<Arc<str>>;
        [] cause() -> Option<Arc<str>>;
        [async] ready() -> Result<(), Error>;
        [] close() -> ();
        [] keys() -> Option<usize>;
        [] keys_capacity() -> Option<usize>;
        [] stats() -> Stats;
        [async] start(charges: &[Charge<'_>], wait: Wait) -> Result<StoreAnswers, Error>;
        [] try_answer(charge: Charge<'_>) -> Option<Result<StoreAnswer, Error>>;
        [] identity() -> Result<u64, Error>;
        [async] scan(filter: ScanFilter<'_>, at: u64, buckets: usize) -> Result<ScanStep, Error>;
        [async] look(request: LookRequest<'_>) -> Result<Look, Error>;
        [async] forget_digest(id: PolicyId, effective: Option<&PreparedQuotas>, digest: &[u8]) -> Result<(), Error>;
    }
}
