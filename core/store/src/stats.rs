//! Counters for the outcomes of a store's operations.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::outage::Outage;

/// A counter that many threads increment.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counters of the fields of [`Stats`] that are counted one by one.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: Counter,)+
        }

        /// The outcomes of a store's operations since it was created. Counts never decrease, except for
        /// `lease_units_held`.
        ///
        /// | store | what is counted |
        /// |---|---|
        /// | memory | `applied`: the operations of callers that the store answered, which are all of them but those that the configuration answers |
        /// | local | the same; `not_applied` and `answered_*` where the file could not be used and the outage policy decided; `permanent` where it is not a store of this user or is damaged, which is an error of the caller |
        /// | Redis | every field; also the operations that the limiter makes by itself, such as the several checks of one acquire |
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Checks that the denial cache denied, without a round trip to the store.
            pub denial_cache: u64,
            /// Checks that leased units paid for, without a round trip to the store.
            pub leased: u64,
            /// Units that are currently leased and not spent.
            pub lease_units_held: u64,
            /// Leased units that were not spent and were given back.
            pub lease_units_returned: u64,
            /// Leased units that were not spent and were not given back, or whose refund has an unknown outcome. Units
            /// that a bucket repaid while they were leased are not counted.
            pub lease_units_lost: u64,
        }

        impl Counters {
            /// Counts an answer of an outage policy.
            pub fn answered_by(&self, outage: Outage) {
                let counter = match outage {
                    Outage::Fallback => &self.answered_fallback,
                    Outage::Allow => &self.answered_allow,
                    Outage::Deny => &self.answered_deny,
                };
                counter.add(1);
            }

            /// The counts at this moment.
            pub fn read(&self) -> Stats {
                Stats { $($name: self.$name.get(),)+ ..Stats::default() }
            }
        }

        impl Stats {
            /// Every count with its name, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [
                    $((stringify!($name), self.$name),)+
                    ("denial_cache", self.denial_cache),
                    ("leased", self.leased),
                    ("lease_units_held", self.lease_units_held),
                    ("lease_units_returned", self.lease_units_returned),
                    ("lease_units_lost", self.lease_units_lost),
                ]
                .into_iter()
            }
        }
    };
}

counters! {
    /// Operations that the store answered.
    applied,
    /// Operations that certainly did not run, after the retries that their deadline allowed.
    not_applied,
    /// Operations that were sent and got no reply; they may have run.
    unknown,
    /// Operations that the store refuses until its configuration or data changes.
    permanent,
    /// Operations refused at once because too many were pending; also counted in `not_applied`.
    shed,
    /// Retries of operations that certainly did not run.
    retried,
    /// Answers by the outage policy `fallback`.
    answered_fallback,
    /// Answers by the outage policy `allow`.
    answered_allow,
    /// Answers by the outage policy `deny`.
    answered_deny,
    /// States in the store that could not be parsed and were replaced by those of a used-up quota.
    healed,
    /// Script calls sent; each decides one or more operations.
    calls,
    /// Script calls that sent the script's source because the server did not have it.
    scripts_sent,
    /// Calls that polylimit's module in the server decided in place of a script; also counted in `calls`.
    module_calls,
    /// Connections made.
    connections,
    /// Connections that broke, were suspect or led to the wrong server.
    connections_lost,
    /// How often a circuit breaker opened.
    breaker_opened,
    /// Redirections followed in a cluster.
    redirected,
    /// Messages received about refunds and resets of any process, including this one.
    invalidations,
}
