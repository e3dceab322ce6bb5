//! The arguments of each command.

#[cfg(feature = "serve")]
pub(crate) mod serve;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use polylimit::raw::parse_duration;

const EXIT_STATUS: &str = "Exit status:
  0   allowed, fine or equal
  1   denied, a problem or a difference
  2   undecided, also when an outage policy has answered
  3   the user of the store lacks a right
  64  arguments or files that cannot be used

POLICY is a name in the document of --policies, otherwise in the one that is published in the store, or quotas such as
\"100/minute\".";

/// Queries and manages rate limits.
#[derive(Debug, Parser)]
#[command(name = "polylimit", version, after_help = EXIT_STATUS, disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) options: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Debug)]
pub(crate) struct GlobalOptions {
    /// The store, such as `redis://localhost` or `local:web`; `@FILE` reads the URL from a file
    #[arg(long, global = true, value_name = "URL", env = "POLYLIMIT_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// The file with the policy document, TOML or JSON
    #[arg(long, global = true, value_name = "FILE", env = "POLYLIMIT_POLICIES", hide_env_values = true)]
    pub(crate) policies: Option<PathBuf>,
    /// Prints JSON: one object, or one per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The file to which `reset` and `block` append a line per changed key, with the user and the reason
    #[arg(long, global = true, value_name = "FILE", env = "POLYLIMIT_AUDIT_LOG", hide_env_values = true)]
    pub(crate) audit_log: Option<PathBuf>,
    /// Prints only errors: the exit status is the answer
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Decides, and spends the cost if allowed
    Check(RequestArguments),
    /// The decision that a check would make, without spending
    Peek(RequestArguments),
    /// Spends as much of the cost as is allowed
    Take(RequestArguments),
    /// Spends the cost unconditionally
    Charge(RequestArguments),
    /// Returns units, up to what is used
    Refund(RequestArguments),
    /// Forgets keys
    Reset(ResetArguments),
    /// Why a key would be allowed or denied, quota by quota, without spending
    Explain(RequestArguments),
    /// Lists the keys of the store, with their usage
    List(ListArguments),
    /// The most used keys
    Top(TopArguments),
    /// Denies clients, attributes or keys, whatever their quotas say
    #[command(subcommand)]
    Deny(ListCommand),
    /// Admits clients, attributes or keys, whatever their quotas say
    #[command(subcommand)]
    Allow(ListCommand),
    /// Denies keys of a policy for a time
    #[command(subcommand)]
    Block(BlockCommand),
    /// Reads and changes the policy document
    #[command(subcommand)]
    Policies(PoliciesCommand),
    /// Counters of this process with the store, and the active policy document
    Stats {
        /// What the processes that share the store have reported instead
        #[arg(long)]
        fleet: bool,
    },
    /// Examines the store for settings that make limits unreliable
    Doctor,
    /// Measures how fast a store decides
    Bench(BenchArguments),
    /// Simulates limits with generated or logged requests, without a store
    #[cfg(feature = "simulate")]
    Simulate(Box<polylimit_simulation::SimulateArguments>),
    /// Serves limits over HTTP and RESP
    #[cfg(feature = "serve")]
    Serve(Box<serve::ServeArguments>),
    /// Checks whether a server is ready, for health checks of containers
    #[cfg(feature = "serve")]
    Probe(serve::ProbeArguments),
    /// Prints the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints a manual page
    Man {
        /// The command, such as check or policies put; by default the page of polylimit itself
        #[arg(conflicts_with = "into")]
        command: Vec<String>,
        /// Writes the pages of all commands into this folder, as files
        #[arg(long, value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct RequestArguments {
    /// A policy's name, or quotas such as "100/minute"
    pub(crate) policy: String,
    /// The key, such as user=alice
    pub(crate) key: OsString,
    /// Units, up to 10^12
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    pub(crate) cost: u64,
}

#[derive(Args, Debug)]
pub(crate) struct ResetArguments {
    /// A policy's name, or quotas such as "100/minute"
    pub(crate) policy: String,
    /// The keys
    #[arg(required_unless_present = "prefix", value_name = "KEY")]
    pub(crate) keys: Vec<OsString>,
    /// All keys that begin with this; they are counted, and a terminal asks for confirmation
    #[arg(long, conflicts_with = "keys")]
    pub(crate) prefix: Option<OsString>,
    /// Does not ask for confirmation
    #[arg(long, requires = "prefix")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) author: Author,
}

#[derive(Args, Debug)]
pub(crate) struct ListArguments {
    /// A policy's name, or quotas such as "100/minute"; by default the keys of all
    pub(crate) policy: Option<String>,
    /// The prefix of the keys
    #[arg(long)]
    pub(crate) prefix: Option<OsString>,
    /// Keys of which at least this much is used, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub(crate) used: u8,
    /// Only blocked keys
    #[arg(long)]
    pub(crate) blocked: bool,
    /// How many keys, 1 or more
    #[arg(long, value_name = "KEYS", default_value = "1000", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) most: u64,
    #[command(flatten)]
    pub(crate) scan: ScanOptions,
}

impl ListArguments {
    /// All blocked keys.
    pub(crate) fn blocked(policy: Option<String>, scan: ScanOptions) -> Self {
        // Of a blocked key everything counts as used.
        Self { policy, prefix: None, used: 100, blocked: true, most: u64::MAX, scan }
    }
}

#[derive(Args, Debug)]
pub(crate) struct TopArguments {
    /// A policy's name, or quotas such as "100/minute"; by default the keys of all
    pub(crate) policy: Option<String>,
    /// The prefix of the keys
    #[arg(long)]
    pub(crate) prefix: Option<OsString>,
    /// How many keys
    #[arg(long, value_name = "KEYS", default_value_t = 10)]
    pub(crate) most: usize,
    /// The keys that the processes deny most often, from their reports, without reading the store's keys
    #[arg(long, conflicts_with_all = ["policy", "prefix"])]
    pub(crate) denied: bool,
    #[command(flatten)]
    pub(crate) scan: ScanOptions,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ScanOptions {
    /// How many keys the store examines at most, 1 or more
    #[arg(long, value_name = "KEYS", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) examine: u64,
    /// The share of a server's time that this may take, 1 to 100
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) pace: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ListCommand {
    /// Adds an item
    Add {
        /// `client NETWORK`, `ATTRIBUTE VALUE` or `key POLICY KEY`, with %20 for a space in a value
        #[arg(required = true)]
        item: Vec<String>,
        /// For how long, such as 15m, 1h or 30d; by default until it is removed
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        time: Option<Duration>,
        #[command(flatten)]
        author: Author,
    },
    /// Removes an item
    Remove {
        /// The item, as it was added
        #[arg(required = true)]
        item: Vec<String>,
        #[command(flatten)]
        author: Author,
    },
    /// Lists the items in the document and those that were added
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BlockCommand {
    /// Blocks a key
    Add {
        /// A policy's name, or quotas such as "100/minute"
        policy: String,
        /// The key
        key: OsString,
        /// For how long, 1 ms to 366 days, such as 15m, 1h or 30d
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        time: Duration,
        #[command(flatten)]
        author: Author,
    },
    /// Ends the block of a key, and forgets what a penalty has counted
    Remove {
        /// A policy's name, or quotas such as "100/minute"
        policy: String,
        /// The key
        key: OsString,
        #[command(flatten)]
        author: Author,
    },
    /// Lists the blocked keys, as `list --blocked` does
    List {
        /// A policy's name, or quotas such as "100/minute"; by default the keys of all
        policy: Option<String>,
        #[command(flatten)]
        scan: ScanOptions,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoliciesCommand {
    /// Prints the document that is published in the store
    Get {
        /// One of the last 32 documents; by default the newest
        #[arg(long, value_name = "VERSION")]
        version: Option<u64>,
    },
    /// Publishes a document in the store
    Put {
        /// The document, TOML or JSON
        file: PathBuf,
        /// The version of the document that this one replaces; 0 for the first
        #[arg(long, value_name = "VERSION")]
        expect: u64,
        #[command(flatten)]
        author: RequiredAuthor,
    },
    /// Compares a document with the published one, or with another file
    Diff {
        /// The document; by default that of --policies
        file: Option<PathBuf>,
        /// Another document
        other: Option<PathBuf>,
        /// One of the last 32 published documents; by default the newest
        #[arg(long, value_name = "VERSION", conflicts_with = "other")]
        version: Option<u64>,
    },
    /// Validates documents
    Validate {
        /// The documents, TOML or JSON
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Lists the changes of documents and items in the store, newest first
    History {
        /// How many changes
        #[arg(long, value_name = "CHANGES", default_value_t = 20)]
        most: usize,
    },
    /// Publishes an earlier document again
    Rollback {
        /// Its version, as in the history
        version: u64,
        #[command(flatten)]
        author: RequiredAuthor,
    },
    /// Creates a document from the limits of another program
    Import {
        /// The format of the files
        #[arg(long, value_name = "PROGRAM")]
        from: ImportSource,
        /// When the hits of a request are spent; the other program spends them always, whether they fit or not
        #[arg(long, value_name = "WHEN", default_value = "if_admitted")]
        spend: Spend,
        /// The files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ImportSource {
    /// YAML of envoyproxy/ratelimit
    EnvoyRatelimit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Spend {
    /// If the request is admitted
    #[default]
    IfAdmitted,
    /// Always: for limits on usage that is reported when a request has ended, such as tokens
    Always,
}

#[derive(Args, Debug)]
pub(crate) struct Author {
    /// The reason, for the log
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) why: String,
    /// The author's name, for the log
    #[arg(long, value_name = "NAME", default_value_t = user_name(), hide_default_value = true)]
    pub(crate) by: String,
}

#[derive(Args, Debug)]
pub(crate) struct RequiredAuthor {
    /// The reason, for the log
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,
    /// The author's name, for the log
    #[arg(long, value_name = "NAME", default_value_t = user_name(), hide_default_value = true)]
    pub(crate) by: String,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArguments {
    /// A policy's name, or quotas such as "100/minute"
    pub(crate) policy: String,
    /// How many keys, 1 to 10 million
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) keys: u32,
    /// How unequally keys are used: 0 for equally, 1 for Zipf's law, up to 5
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.0)]
    pub(crate) zipf: f64,
    /// How many checks wait for their decision at a time, 1 to 10,000
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) callers: u32,
    /// Checks per second, at even intervals; by default each caller checks again immediately
    #[arg(long, value_name = "CHECKS", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) rate: Option<u32>,
    /// How long to measure, 1 to 3,600
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub(crate) seconds: u16,
}

/// The user of the shell. Containers and timers have no environment that names it: then the user of this process, as known to the system.
fn user_name() -> String {
    if let Some(name) = std::env::var("USER").ok().filter(|name| !name.is_empty()) {
        return name;
    }
    system_user()
}

/// The user of this process, as the system knows it.
pub(crate) fn system_user() -> String {
    #[cfg(unix)]
    {
        use nix::unistd::{User, geteuid};
        let uid = geteuid();
        User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid:{uid}"), |user| user.name)
    }
    #[cfg(not(unix))]
    {
        std::env::var("USERNAME").unwrap_or_default()
    }
}
