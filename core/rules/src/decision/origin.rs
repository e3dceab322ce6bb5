//! Where a decision comes from, and why it is as it is.

use crate::names::named_enum;

named_enum! {
    /// Which part made a decision.
    Source {
        /// The store decided.
        Store = "store",
        /// The denial cache: the store has denied the key before and cannot admit it yet; see
        /// `denial_cache_max`.
        DenialCache = "denial_cache",
        /// Units that this process had leased; see `Lease`.
        Lease = "lease",
        /// The store could not decide: this process decided from the requests that it has seen for the key; see
        /// `Outage::Fallback`.
        Fallback = "fallback",
        /// The store could not decide, and the outage policy allows every request; see
        /// `Outage::Allow`.
        Allow = "allow",
        /// The store could not decide, and the outage policy denies every request; see
        /// `Outage::Deny`.
        Deny = "deny",
        /// The configuration decided, and no store was asked.
        Configuration = "configuration",
    }
}

impl Source {
    /// Whether the store or what is in front of it decided, and not the configuration alone.
    #[doc(hidden)]
    pub const fn asks_store(self) -> bool {
        !matches!(self, Self::Configuration)
    }

    /// Whether the store could not decide and the outage policy answered.
    pub const fn is_outage(self) -> bool {
        matches!(self, Self::Fallback | Self::Allow | Self::Deny)
    }
}

named_enum! {
    /// Why a request was denied, or why it was admitted without the store.
    Cause {
        /// The configuration or the policy is off: admitted without the store.
        Off = "off",
        /// An entry of an allow list: admitted without the store.
        AllowList = "allow_list",
        /// An entry of a deny list.
        DenyList = "deny_list",
        /// An attribute that the key is made of is missing.
        MissingKey = "missing_key",
        /// The key is blocked: by a penalty, or by hand.
        Blocked = "blocked",
        /// A quota of units denies it.
        Quota = "quota",
        /// A quota of concurrent reservations denies it.
        Concurrency = "concurrency",
    }
}

named_enum! {
    /// Why a decision may differ from what a healthy store would have answered for this key.
    Degradation {
        /// The memory store or the local store is full of states in use: this key shares one state with all other keys that
        /// found no room. With the outage policy as its source: nor is there room for that state.
        StoreFull = "store_full",
        /// There is no connection to the server: it refuses, its name is not found, or it does not answer. The directory of a
        /// local store does not exist, or cannot be written to.
        Unreachable = "unreachable",
        /// The operation was sent and no reply came within the deadline; it may have been applied.
        Timeout = "timeout",
        /// The deadline passed while the operation was queued, here or at the server, which then refused it.
        Late = "late",
        /// Too many operations are queued already.
        Shed = "shed",
        /// The server is loading its data.
        Loading = "loading",
        /// The server is busy with a slow script of another client, or a suspended process keeps a part of the local store locked.
        Busy = "busy",
        /// The server has no memory left and may not evict.
        OutOfMemory = "out_of_memory",
        /// The server cannot write its data to disk, and refuses writes.
        Misconfigured = "misconfigured",
        /// The server has fewer replicas than its settings require for a write.
        NoReplicas = "no_replicas",
        /// The server, or the file of the local store, has reached its maximum number of clients.
        MaxClients = "max_clients",
        /// The server is a replica, and its primary was not found.
        ReadOnly = "read_only",
        /// The cluster does not serve the key's slot.
        ClusterDown = "cluster_down",
        /// The server refuses the user, the password or the user's rights.
        Auth = "auth",
        /// The key of the state has a value of another type.
        WrongType = "wrong_type",
        /// The server's reply does not match the command.
        Protocol = "protocol",
        /// The server refused for another reason.
        Refused = "refused",
        /// The connection broke before the reply came: the server or the network closed or reset it. A command that was sent
        /// may have been applied.
        ConnectionLost = "connection_lost",
        /// The operating system refuses a descriptor, memory or a thread, which the connection to the server needs, or a
        /// descriptor, memory or space for the local store.
        NoResources = "no_resources",
        /// A newer version of polylimit has written the state of the key in a form that this version cannot read. The state stays as it
        /// is.
        NewerFormat = "newer_format",
    }
}
