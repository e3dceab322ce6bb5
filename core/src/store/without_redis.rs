//! The Redis store of a build without the cargo feature `redis`: its URL is refused.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use polylimit_document::source::origin::Origin;
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::Error;
use polylimit_rules::policy::Policy;
use polylimit_runtime::clock::Clock;
use polylimit_runtime::driver::Driver;
use polylimit_store::charge::{
    Charge, PolicyId, PolicyOptions, PreparedQuotas, StoreAnswer, StoreAnswers, Wait,
};
use polylimit_store::credentials::CredentialsFunction;
use polylimit_store::families::durations::DurationCounts;
use polylimit_store::finding::Finding;
use polylimit_store::option::StoreOption;
use polylimit_store::scan::{KnownHere, Look, LookRequest};
use polylimit_store::stats::Stats;

#[derive(Clone, Debug)]
pub(crate) enum RedisOptions {}

impl RedisOptions {
    pub(crate) const ALL: &[StoreOption] = &[];

    pub(crate) fn parse(_url: &str) -> Result<Self, Error> {
        Err(Error::invalid_argument(
            "this program is built without Redis: use memory: or local:<name>, or build polylimit with its feature redis",
        ))
    }

    pub(crate) fn source(&self) -> Result<(Option<Box<str>>, Option<std::path::PathBuf>), Error> {
        match *self {}
    }

    pub(crate) fn with_credentials(self, _function: CredentialsFunction) -> Self {
        match self {}
    }

    pub(crate) fn set(self, _name: &str, _text: &str) -> Result<Self, Error> {
        match self {}
    }
}

pub(crate) mod doctor {
    use polylimit_store::finding::Finding;

    #[derive(Debug)]
    pub(crate) enum DoctorForAll {}

    impl DoctorForAll {
        #[expect(clippy::unused_async, reason = "the Redis store's is awaited")]
        pub(crate) async fn examine(&mut self) -> Vec<Finding> {
            match *self {}
        }
    }
}

pub(crate) mod fleet {
    use std::time::Duration;

    use polylimit_rules::error::Error;

    pub(crate) enum FleetStore {}

    pub(crate) enum FleetConnection {}

    #[expect(clippy::unused_async, reason = "those of the Redis store are awaited")]
    impl FleetStore {
        pub(crate) async fn connect(&self) -> Result<FleetConnection, Error> {
            match *self {}
        }
    }

    #[expect(clippy::unused_async, reason = "those of the Redis store are awaited")]
    impl FleetConnection {
        pub(crate) async fn write(&mut self, _: &str, _: &str, _: u64, _: Duration) -> Result<(), Error> {
            match *self {}
        }

        pub(crate) async fn read(&mut self) -> Result<Vec<Vec<u8>>, Error> {
            match *self {}
        }
    }
}

pub(crate) mod listing {
    use polylimit_rules::error::Error;
    use polylimit_store::scan::{KeyName, ScanFilter, ScanStep};

    pub(crate) enum RedisScan {}

    #[expect(clippy::unused_async, reason = "those of the Redis store are awaited")]
    impl RedisScan {
        pub(crate) fn nodes(&self) -> Vec<u64> {
            match *self {}
        }

        pub(crate) async fn refresh(&mut self) -> Result<(), Error> {
            match *self {}
        }

        pub(crate) async fn step(
            &mut self,
            _: usize,
            _: ScanFilter<'_>,
            _: u64,
            _: usize,
        ) -> Result<ScanStep, Error> {
            match *self {}
        }

        pub(crate) async fn expiries(
            &mut self,
            _: usize,
            _: &[(&str, &KeyName)],
        ) -> Result<Vec<Option<u64>>, Error> {
            match *self {}
        }
    }
}

#[derive(Debug)]
pub(crate) enum RedisStore {}

/// Functions of a type that has no values.
macro_rules! unreachable {
    ($([$($async:tt)?] $name:ident($($argument:ident: $kind:ty),*) -> $output:ty;)*) => {
        $(pub(crate) $($async)? fn $name(&self, $($argument: $kind),*) -> $output {
            $(let _ = $argument;)*
            match *self {}
        })*
    };
}

impl RedisStore {
    pub(crate) fn new(options: &RedisOptions, _clock: Clock, _max_keys: usize) -> Result<Self, Error> {
        match *options {}
    }

    unreachable! {
        [] after_fork() -> Self;
        [] close() -> ();
        [] clock() -> &Clock;
        [] deadline() -> Duration;
        [] origin() -> Arc<dyn Origin>;
        [] fleet() -> fleet::FleetStore;
        [] stats() -> Stats;
        [] durations() -> DurationCounts;
        [] is_up() -> bool;
        [] set_policy(id: PolicyId, policy: &Policy, options: PolicyOptions) -> ();
        [] forget_policy(id: PolicyId) -> ();
        [] place() -> Arc<str>;
        [] warning() -> Option<Finding>;
        [] cause(reason: Degradation) -> Option<Arc<str>>;
        [] set_credentials(username: Option<&str>, password: &str) -> Result<(), Error>;
        [] doctor_after() -> Option<Duration>;
        [] doctor_for_all() -> Option<doctor::DoctorForAll>;
        [] driver() -> Result<Arc<Driver>, Error>;
        [] driver_to_wait_on() -> Result<Arc<Driver>, Error>;
        [] is_leased(id: PolicyId) -> bool;
        [] ask_caches(charge: Charge<'_>) -> Option<StoreAnswer>;
        [async] start(charges: &[Charge<'_>], wait: Wait) -> Result<StoreAnswers, Error>;
        [async] start_each(charges: &[Charge<'_>], wait: Wait) -> Result<Vec<StoreAnswer>, Error>;
        [async] ready(timeout: Duration) -> Result<(), Error>;
        [async] examine() -> Result<Vec<Finding>, Error>;
        [async] scan() -> Result<listing::RedisScan, Error>;
        [async] look_many(requests: &[LookRequest<'_>]) -> Result<Vec<Option<Look>>, Error>;
        [async] forget_digest(request: LookRequest<'_>) -> Result<(), Error>;
        [] known_here(charge: Charge<'_>) -> KnownHere;
    }

    pub(crate) fn prepare_quotas(
        &self,
        _id: PolicyId,
        _policy: &Policy,
        _others: &[Policy],
        _options: PolicyOptions,
    ) -> PreparedQuotas {
        match *self {}
    }

    pub(crate) fn block_on<F: Future>(&self, _future: F) -> Result<F::Output, Error> {
        match *self {}
    }
}
