//! The builder of limiters. Options are kept as given and checked when the limiter is built.

mod place;
mod unused;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::place::{LOCAL_SIZE, Place, store_at};
use self::unused::Unused;
use crate::limiter::degradation_watch::DegradationWatch;
use crate::limiter::event::{DegradedEvent, Hook};
use crate::limiter::fleet::{REPORT, check_interval};
use crate::limiter::observed::{MAX_OBSERVED, OBSERVE_KEYS};
use crate::limiter::{Limiter, Shared};
use crate::store::custom::{self, ConfigurationStore};
use crate::store::local::SharedFileOptions;
use crate::store::redis::RedisOptions;
use polylimit_document::source::followed::SourceOptions;
use polylimit_document::source::place::{CONFIGURATION, COPY, ConfigurationPlace, is_path};
use polylimit_rules::error::{Error, excerpt};
use polylimit_rules::policy::Policy;
use polylimit_rules::quota::parse_duration;
use polylimit_rules::report::percent_decoded;
use polylimit_rules::suggestion::Suggestion;
use polylimit_runtime::clock::Clock;
use polylimit_store::charge::PolicyOptions;
use polylimit_store::credentials::{Credentials, CredentialsFunction};
use polylimit_store::lease_size::Lease;
use polylimit_store::option::{OptionKind, StoreOption};
use polylimit_store::outage::Outage;

/// The settings of a [`Limiter`] before they are checked; created by [`Limiter::builder`]. `Debug` shows no value that
/// was given as text, since it may be a secret.
#[derive(Clone, Default)]
#[must_use = "a builder makes a limiter only when `build` is called"]
pub struct LimiterBuilder {
    policies: Vec<Policy>,
    outages: Vec<(Box<str>, Outage)>,
    leases: Vec<(Box<str>, Lease)>,
    /// [`Place::Memory`] unless the caller names a store.
    store: Option<Result<Place, Error>>,
    local_size: Option<u64>,
    clock: Clock,
    max_keys: Option<usize>,
    observe_keys: Option<usize>,
    report: Option<Duration>,
    hook: Option<Hook>,
    credentials: Option<CredentialsFunction>,
    /// The text of a document that the program gives.
    document: Option<Box<str>>,
    configuration_store: Option<Arc<dyn ConfigurationStore>>,
    /// Names and values, as text.
    options: NamedTexts,
    /// The same, from the URL of a store without a server.
    url_options: NamedTexts,
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<&str> = self.options.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("LimiterBuilder")
            .field("policies", &self.policies)
            .field("store", &self.store)
            .field("options", &options)
            .finish_non_exhaustive()
    }
}

/// Options by name, whose texts are not checked.
type NamedTexts = Vec<(Box<str>, Box<str>)>;

/// The policy that a setting names.
fn policy_named<'a>(
    policies: &'a [Policy],
    name: &str,
    what: &str,
    given: &dyn fmt::Display,
) -> Result<&'a Policy, Error> {
    policies.iter().find(|policy| policy.name() == name).ok_or_else(|| {
        let known = policies.iter().map(Policy::name);
        let advice = match (Suggestion::nearest(name, known.clone()), policies.len()) {
            (Some(nearest), _) => format!("did you mean {nearest}?"),
            (None, 0) => "add that policy first".to_owned(),
            (None, 1..=10) => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
            (None, _) => "name one that was added".to_owned(),
        };
        Error::invalid_argument(format!(
            "{what} {given} is given for the unknown policy {}: {advice}",
            excerpt(name)
        ))
    })
}

/// The options in the query of a URL, whose values are not checked.
fn read_parameters(query: &str) -> Result<NamedTexts, Error> {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let read = parameters.map(|parameter| {
        let (name, value) = parameter.split_once('=').ok_or_else(|| {
            Error::invalid_argument(format!(
                "store URL: parameter {} has no value: allowed is name=value, with & between them",
                excerpt(parameter)
            ))
        })?;
        let value = percent_decoded(value).ok_or_else(|| {
            Error::invalid_argument(format!(
                "store URL: parameter {} is not UTF-8 when decoded",
                excerpt(name)
            ))
        })?;
        Ok((name.into(), value.into()))
    });
    read.collect()
}

/// The local store of a URL without its parameters, with the sizes among these.
fn local_of(url: &str, sizes: NamedTexts) -> Result<Place, Error> {
    let mut options = SharedFileOptions::parse(url)?;
    for (_, size) in sizes {
        options = options.sized_by(&size)?;
    }
    Ok(Place::Local(options))
}

const MAX_KEYS: StoreOption = StoreOption {
    name: "max_keys",
    kind: OptionKind::Number,
    about: "The maximum number of keys in this process, over all policies.",
    allowed: "1 or more",
    default: Some("1000000"),
    secret: false,
};

/// The options that name the source of the configuration, as text.
#[derive(Default)]
struct SourceText {
    place: Option<Box<str>>,
    copy: Option<PathBuf>,
}

impl SourceText {
    fn options(self) -> Result<Option<SourceOptions>, Error> {
        let Some(text) = self.place else {
            return match self.copy {
                None => Ok(None),
                Some(_) => Err(Error::invalid_argument(
                    "copy is given without configuration: give both, or leave it out",
                )),
            };
        };
        let place = ConfigurationPlace::read(&text).ok_or_else(|| {
            Error::invalid_argument(format!(
                "configuration is {}: allowed is {}",
                excerpt(&text),
                CONFIGURATION.allowed
            ))
        })?;
        if self.copy.as_deref().is_some_and(|path| !is_path(path)) {
            return Err(Error::invalid_argument(format!("copy is not a path: allowed is {}", COPY.allowed)));
        }
        Ok(Some(SourceOptions { place, copy: self.copy }))
    }
}

fn last_of<T: Copy>(given: &[(Box<str>, T)], policy: &str) -> Option<T> {
    given.iter().rfind(|(name, _)| **name == *policy).map(|(_, value)| *value)
}

fn read_number(name: &str, text: &str, allowed: &str) -> Result<usize, Error> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| Error::invalid_argument(format!("{name} is {}: allowed is {allowed}", excerpt(text))))
}

fn check_numbers(max_keys: usize, observe_keys: usize) -> Result<(), Error> {
    if max_keys == 0 {
        return Err(Error::invalid_argument("max_keys is 0: allowed is 1 or more"));
    }
    if observe_keys > MAX_OBSERVED {
        return Err(Error::invalid_argument(format!(
            "observe_keys is {observe_keys}: allowed is {}",
            OBSERVE_KEYS.allowed
        )));
    }
    Ok(())
}

impl LimiterBuilder {
    /// The default of [`max_keys`](Self::max_keys): 1,000,000.
    pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

    /// Adds a policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Where the states are kept, as a URL: `memory:`, which is the default; `local:<name>` or `file:///path`, which all
    /// processes of a host share; or one that [`RedisOptions`] describes, such as `redis://localhost?deadline=20ms`.
    ///
    /// A local store (Linux only) is a file in shared memory, or the file that the URL names. The process that creates
    /// it chooses its size: 16 MiB, or the size in the URL (`?size=16MiB`) or in [`local_size`](Self::local_size). Only
    /// the user that owns the file can use it, and its contents do not survive a reboot. When it is full of keys in
    /// use, new keys share one state per policy, as in the memory store. While the file cannot be used, because the
    /// process has no descriptor or the file no space or another process keeps it locked, the outage policy decides:
    /// `?outage=` and `?fallback_share=`, as for Redis.
    /// Redis.
    ///
    /// [`build`](Self::build) reports a URL that cannot be used.
    pub fn store(mut self, url: &str) -> Self {
        self.url_options.clear();
        self.store = Some(match url.split_once('?').unwrap_or((url, "")) {
            ("memory:", query) => read_parameters(query).map(|parameters| {
                self.url_options = parameters;
                Place::Memory
            }),
            (local, query) if SharedFileOptions::is_local(local) => {
                read_parameters(query).and_then(|parameters| {
                    let (size, options) = parameters.into_iter().partition(|(name, _)| **name == *"size");
                    self.url_options = options;
                    local_of(local, size)
                })
            }
            _ => RedisOptions::parse(url).map(|options| Place::Redis(Box::new(options))),
        });
        self
    }

    /// The size of a new local store in bytes: 1 MiB to 64 GiB. An existing one must have this size.
    pub fn local_size(mut self, bytes: u64) -> Self {
        self.local_size = Some(bytes);
        self
    }

    /// Keeps the states in Redis.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, options: RedisOptions) -> Self {
        self.store = Some(Ok(Place::Redis(Box::new(options))));
        self
    }

    /// Keeps the states in a store that this crate does not have.
    pub fn custom_store(mut self, store: impl custom::Store) -> Self {
        self.store = Some(Ok(Place::Custom(Arc::new(store))));
        self
    }

    /// The outage policy of the policy with this name, instead of the one in the store's options. It has no effect in
    /// memory, where there are no outages.
    pub fn outage(mut self, policy: &str, outage: Outage) -> Self {
        self.outages.push((policy.into(), outage));
        self
    }

    /// Leases busy keys of the policy with this name: the process takes units from the store ahead of time and spends
    /// them itself. It has an effect on Redis only: the other stores need no network round trip.
    pub fn lease(mut self, policy: &str, lease: Lease) -> Self {
        self.leases.push((policy.into(), lease));
        self
    }

    /// A function that returns user and password for each new connection to Redis, in place of those in the URL and the
    /// options: for passwords that expire, such as cloud tokens. It is called again when the server refuses its
    /// credentials; after a refusal or an error, it is not called for 0.25 to 10 seconds, longer with each failure in a
    /// row. It runs on a thread of its own, one call at a time, and may block: decisions keep their deadline meanwhile.
    /// An error that it returns is the cause that [`ready`](crate::Limiter::ready), the events and the doctor report.
    /// [`set_credentials`](crate::admin::Admin::set_credentials) replaces the function.
    ///
    /// ```
    /// use polylimit::redis::Credentials;
    /// use polylimit::Limiter;
    ///
    /// fn token() -> Result<String, std::io::Error> {
    ///     std::fs::read_to_string("/run/secrets/token")
    /// }
    ///
    /// let limiter = Limiter::builder()
    ///     .store("rediss://cache.example:6379")
    ///     .credentials(|| Ok::<_, std::io::Error>(Credentials::new(Some("limits"), &token()?)));
    /// ```
    pub fn credentials<E: fmt::Display>(
        mut self,
        give: impl Fn() -> Result<Credentials, E> + Send + Sync + 'static,
    ) -> Self {
        let give = move || give().map_err(|error| error.to_string());
        self.credentials = Some(CredentialsFunction::new(give));
        self
    }

    /// The clock by which the limiter decides; the default is the server's clock for Redis and the system's otherwise. A
    /// [`ManualClock`](crate::clock::ManualClock) decides with every store.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// The maximum number of keys that this process keeps, over all policies; at least 1. The memory store keeps all
    /// its states in this process: expired states make room for new keys, states in use do not. When it is full of
    /// states in use, new keys share one state per policy, and their decisions are
    /// [degraded](crate::decision::Degradation::StoreFull). With Redis and a local store, this bounds the keys of
    /// [`Outage::Fallback`].
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = Some(max_keys);
        self
    }

    /// Counts the keys that are denied and admitted most often in this process, for [`top_keys`](crate::admin::Admin::top_keys):
    /// for this many keys, at most 65,536, which take about 200 bytes each. A sample is counted: one of 16 denials, one
    /// of 64 admissions. 0, the default, counts none.
    pub fn observe_keys(mut self, keys: usize) -> Self {
        self.observe_keys = Some(keys);
        self
    }

    /// Reports the counts to the other processes that share this limiter's Redis at this interval, 1 second to 1 hour, for
    /// [`fleet`](crate::admin::Admin::fleet): its policies, its store, its configuration and, with
    /// [`observe_keys`](Self::observe_keys), the keys that it denies most often. A thread of the limiter writes a report of at most
    /// 16 KiB over a connection of its own, with three commands. Without it, the default, nothing is reported. A process that is
    /// forked from this one does not report.
    pub fn report(mut self, every: Duration) -> Self {
        self.report = Some(every);
        self
    }

    /// Sets a callback for events: the limiter starts to decide without its store, the store decides again, and the
    /// doctor's findings; see [`DegradedEvent`]. With the feature `tracing` they are also emitted as events of that
    /// crate.
    ///
    /// The limiter calls it on the thread that detects the event, which may be one of its own, and the decision on that
    /// thread waits for it: it must not block. A panic has no effect beyond what the panic hook prints.
    ///
    /// ```
    /// use polylimit::Limiter;
    ///
    /// let limiter = Limiter::builder().on_degraded(|event| eprintln!("polylimit: {event}")).build()?;
    /// # Ok::<(), polylimit::Error>(())
    /// ```
    pub fn on_degraded(mut self, hook: impl Fn(&DegradedEvent) + Send + Sync + 'static) -> Self {
        self.hook = Some(Hook::new(hook));
        self
    }

    /// Sets an option by its name from a text, for example from a configuration file: any of
    /// [`options`](Self::options), or `outage.<policy>` and `lease.<policy>`, which are [`outage`](Self::outage) and
    /// [`lease`](Self::lease). [`build`](Self::build) reports mistakes. An option of a different store than the
    /// limiter's is checked and has no effect, so that the same settings serve a test in memory and production; a
    /// [finding](DegradedEvent::Finding) named `options` lists such options, once for each limiter.
    pub fn option(mut self, name: &str, text: &str) -> Self {
        self.options.push((name.into(), text.into()));
        self
    }

    /// Takes the limits from a document, in TOML or JSON, that the program gives and may replace with
    /// [`set_document`](crate::admin::Admin::set_document). [`build`](Self::build) reports mistakes in it.
    pub fn document(mut self, text: &str) -> Self {
        self.document = Some(text.into());
        self
    }

    /// Takes the limits from a configuration and follows its changes: `file:PATH` is a document in TOML or JSON,
    /// `store` a document and entries in the store of the states, which is Redis or a [`custom_store`](Self::custom_store),
    /// `store+file:PATH` a document in a file with entries in the store.
    /// Each change is active within a second. If a new document is invalid, the previous one stays active, and
    /// [`configuration`](crate::admin::Admin::configuration) has the error.
    pub fn configuration(self, place: &str) -> Self {
        self.option(CONFIGURATION.name, place)
    }

    /// Takes document and entries from a store that this crate does not have, and publishes them there: what `store` means for
    /// [`configuration`](Self::configuration), which it is without that option. The states may be in any store.
    pub fn configuration_store(mut self, store: impl ConfigurationStore) -> Self {
        self.configuration_store = Some(Arc::new(store));
        self
    }

    /// A file to which the configuration is written after each change, and from which it is read when the limiter is
    /// built, so that the limiter can start while Redis is unavailable. Only with
    /// [`configuration`](Self::configuration).
    pub fn copy(self, path: &str) -> Self {
        self.option(COPY.name, path)
    }

    /// Every option that [`option`](Self::option) accepts: those of this builder, and those of a Redis store. For
    /// `memory:` and local stores they may also be parameters of the URL, such as `memory:?max_keys=1000`.
    pub fn options() -> Vec<StoreOption> {
        [MAX_KEYS, OBSERVE_KEYS, REPORT, LOCAL_SIZE, CONFIGURATION, COPY]
            .into_iter()
            .chain(RedisOptions::ALL.iter().copied())
            .collect()
    }

    /// Checks the settings and builds the limiter. It does not connect: an unreachable store is not an error here,
    /// since it may become reachable later.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when two policies have the same name, an outage policy or a
    /// lease is given for an unknown policy, a policy cannot be leased, `max_keys` is 0, or the store's URL or options are not
    /// valid.
    pub fn build(self) -> Result<Limiter, Error> {
        let Self { policies, mut outages, mut leases, store, local_size, clock, max_keys, hook, .. } = self;
        let (mut observe_keys, mut report) = (self.observe_keys.unwrap_or(0), self.report);
        let (document, options) = (self.document, self.url_options.into_iter().chain(self.options));
        let mut unused = Unused::default();
        let mut place = store.unwrap_or(Ok(Place::Memory))?;
        let mut max_keys = max_keys.unwrap_or(Self::DEFAULT_MAX_KEYS);
        let mut source = SourceText::default();
        for (name, text) in options {
            let (name, text) = (&*name, &*text);
            match name.split_once('.') {
                Some(("outage", policy)) => outages.push((policy.into(), text.parse()?)),
                Some(("lease", policy)) => leases.push((policy.into(), text.parse()?)),
                _ if name == MAX_KEYS.name => {
                    max_keys = read_number(name, text, "a whole number from 1 up")?;
                }
                _ if name == OBSERVE_KEYS.name => {
                    observe_keys = read_number(name, text, OBSERVE_KEYS.allowed)?;
                }
                _ if name == REPORT.name => report = Some(parse_duration(text)?),
                // The URL of a Redis store may have these options, too.
                _ if matches!(place, Place::Redis(_)) || ![CONFIGURATION.name, COPY.name].contains(&name) => {
                    let is_used;
                    (place, is_used) = place.set(name, text, Self::options)?;
                    if !is_used {
                        unused.add(name);
                    }
                }
                _ if name == CONFIGURATION.name => source.place = Some(text.into()),
                _ => source.copy = Some(PathBuf::from(text)),
            }
        }
        if let Place::Redis(options) = &place {
            (source.place, source.copy) = options.source()?;
        }
        if self.configuration_store.is_some() {
            source.place.get_or_insert_with(|| ConfigurationPlace::Store.to_string().into());
        }
        place = place.with_credentials(self.credentials, &mut unused);
        check_numbers(max_keys, observe_keys)?;
        let mut report = report.map(check_interval).transpose()?;
        for (name, outage) in &outages {
            policy_named(&policies, name, "outage", outage)?;
        }
        for (name, lease) in &leases {
            Lease::check(policy_named(&policies, name, "lease", lease)?)?;
        }
        if matches!(place, Place::Memory) {
            outages.drain(..).for_each(|(policy, _)| unused.add(format!("outage.{policy}")));
        }
        if !matches!(place, Place::Redis(_)) {
            leases.drain(..).for_each(|(policy, _)| unused.add(format!("lease.{policy}")));
            if report.take().is_some() {
                unused.add(REPORT.name);
            }
        }
        if let Some(bytes) = local_size
            && !matches!(place, Place::Local(_))
        {
            (place, _) = place.set(LOCAL_SIZE.name, &bytes.to_string(), Self::options)?;
            unused.add(LOCAL_SIZE.name);
        }
        let unused = unused.finding(place.name());
        let store = store_at(place, local_size, clock, max_keys)?;
        let watch = DegradationWatch::new(store.doctor_after(), hook, store.place());
        for finding in unused.into_iter().chain(store.warning()) {
            watch.publish(DegradedEvent::Finding(finding));
        }
        let shared = Shared::new(store, watch, observe_keys);
        for policy in policies {
            if shared.registry.policy(policy.name()).is_some() {
                return Err(Error::invalid_argument(format!(
                    "two policies are named {}: give one another name, or put their quotas into one policy",
                    policy.name()
                )));
            }
            let options = PolicyOptions {
                outage: last_of(&outages, policy.name()),
                lease: last_of(&leases, policy.name()),
                has_quotas_of_keys: false,
            };
            shared.set_policy(&policy, options)?;
        }
        let shared = Arc::new(shared);
        let source = source.options()?;
        if let Some(store) = self.configuration_store {
            if let Some(SourceOptions { place: place @ ConfigurationPlace::File(_), .. }) = &source {
                return Err(Error::invalid_argument(format!(
                    "configuration is {place}, and a configuration_store is given, which it does not use: allowed with it is store or \
                     store+file:PATH"
                )));
            }
            // Only this call sets it.
            let _ = shared.configured.store.set(store);
        }
        shared.start_configuration(document.as_deref(), source.as_ref())?;
        if let Some(every) = report {
            shared.start_reporting(every)?;
        }
        Ok(Limiter { shared })
    }
}
