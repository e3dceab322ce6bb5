//! What became of the operations of a store, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters themselves.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)+
        }

        /// What became of the operations of a store since it was made. Every count only grows.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Checks that were known to be denied, for which the store was not asked.
            pub denial_cache: u64,
            /// Checks that leased units paid for, for which the store was not asked.
            pub leased: u64,
            /// Units that are leased and not spent, at the moment.
            pub lease_units_held: u64,
            /// Units that were leased, not spent, and given back.
            pub lease_units_returned: u64,
            /// Units that were leased, not spent, and could not be given back; or may have been. What a bucket has been repaid
            /// while they were leased is not among them.
            pub lease_units_lost: u64,
        }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
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
    /// Operations that provably did not run, after the attempts that their deadline allowed.
    not_applied,
    /// Operations that were sent and got no reply: they may have run.
    unknown,
    /// Operations that the store refuses until somebody changes something.
    permanent,
    /// Operations refused at once because too many were waiting; part of `not_applied`.
    shed,
    /// Times that an operation which provably did not run was tried again.
    retried,
    /// Answers by the outage policy `fallback`.
    answered_fallback,
    /// Answers by the outage policy `allow`.
    answered_allow,
    /// Answers by the outage policy `deny`.
    answered_deny,
    /// States in the store that did not parse and were replaced by those of a used-up quota.
    healed,
    /// Script calls sent; each decides one or more operations.
    calls,
    /// Script calls that had to bring the script's source, because the server did not know it.
    scripts_sent,
    /// Connections made.
    connections,
    /// Connections that broke, were suspect or led to the wrong server.
    connections_lost,
    /// Times that a circuit breaker opened.
    breaker_opened,
    /// Redirections followed in a cluster.
    redirected,
    /// Messages heard of what some process, this one included, has given back or reset.
    given_back_heard,
}
