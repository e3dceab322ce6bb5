//! The reasons why an operation got no answer, and whether it may have run.

use redis::RedisError;

use polylimit_rules::decision::Degradation;
use polylimit_store::stats::Counters;

/// Whether an operation without an answer ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It certainly did not run: it may be retried within its deadline.
    NotApplied,
    /// It was sent and may have run: it is never sent again.
    Unknown,
    /// It did not run, and a retry would not help until the configuration or the data changes.
    Permanent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) reason: Degradation,
}

/// No connection to the server could be made.
pub(crate) const UNREACHABLE: Failure = Failure::not_applied(Degradation::Unreachable);

/// The meaning of an error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server does not know the script and needs its source.
    NoScript,
    /// The server does not know the first line of scripts.
    NoFirstLine,
    /// The slot is owned by the node at that address, permanently.
    Moved {
        slot: u16,
        address: String,
    },
    /// The slot is moving to the node at that address, and this key is already there.
    Ask {
        address: String,
    },
    /// The server is a replica: the connection leads to the wrong server.
    ReadOnly,
    /// The slot is moving to another node, and some of the keys are already there.
    TryAgain,
    Failed(Failure),
}

impl Failure {
    pub(crate) const fn not_applied(reason: Degradation) -> Self {
        Self { class: Class::NotApplied, reason }
    }

    pub(crate) const fn unknown(reason: Degradation) -> Self {
        Self { class: Class::Unknown, reason }
    }

    pub(crate) const fn permanent(reason: Degradation) -> Self {
        Self { class: Class::Permanent, reason }
    }
}

impl Class {
    /// Counts an operation that the store did not answer.
    pub(crate) fn count(self, counters: &Counters) {
        let counter = match self {
            Self::NotApplied => &counters.not_applied,
            Self::Unknown => &counters.unknown,
            Self::Permanent => &counters.permanent,
        };
        counter.add(1);
    }
}

impl Refusal {
    /// Parses an error reply by its code.
    pub(crate) fn read(error: &RedisError) -> Self {
        let (code, detail) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
        let failure = match code {
            "NOSCRIPT" => return Self::NoScript,
            "READONLY" => return Self::ReadOnly,
            "TRYAGAIN" => return Self::TryAgain,
            "MOVED" | "ASK" => match error.redirect_node() {
                Some((address, slot)) if code == "MOVED" => {
                    return Self::Moved { slot, address: address.to_owned() };
                }
                Some((address, _)) => return Self::Ask { address: address.to_owned() },
                None => Failure::permanent(Degradation::Protocol),
            },
            "LOADING" => Failure::not_applied(Degradation::Loading),
            "BUSY" => Failure::not_applied(Degradation::Busy),
            "OOM" => Failure::not_applied(Degradation::OutOfMemory),
            "MISCONF" => Failure::not_applied(Degradation::Misconfigured),
            "NOREPLICAS" => Failure::not_applied(Degradation::NoReplicas),
            "MASTERDOWN" => Failure::not_applied(Degradation::ReadOnly),
            "CLUSTERDOWN" => Failure::not_applied(Degradation::ClusterDown),
            "NOAUTH" | "NOPERM" | "WRONGPASS" => Failure::permanent(Degradation::Auth),
            "WRONGTYPE" => Failure::permanent(Degradation::WrongType),
            // Without the first line no syntax of a script is wrong.
            _ if detail.contains("near '#'") => return Self::NoFirstLine,
            // Errors of commands inside a script lack their own code.
            _ if detail.contains("user executing the script") => Failure::permanent(Degradation::Auth),
            _ if detail.contains("max number of clients") => Failure::not_applied(Degradation::MaxClients),
            _ => Failure::permanent(Degradation::Refused),
        };
        Self::Failed(failure)
    }
}

impl Refusal {
    /// Whether a call of the module was refused because the server does not have it any more, the user may not call it, or it is of another
    /// version and cannot read the call.
    pub(crate) fn lacks_module(&self, error: &RedisError) -> bool {
        match self {
            Self::Failed(Failure { reason: Degradation::Auth, .. }) => error.code() == Some("NOPERM"),
            Self::Failed(Failure { reason: Degradation::Refused, .. }) => {
                let detail = error.detail().unwrap_or_default();
                ["unknown command", "polylimit: "].iter().any(|words| detail.starts_with(words))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_read_from_the_error_code() {
        let failed = |class, reason| Refusal::Failed(Failure { class, reason });
        let table = [
            ("NOSCRIPT No matching script. Please use EVAL.", Refusal::NoScript),
            ("READONLY You can't write against a read only replica. script: 1", Refusal::ReadOnly),
            ("MOVED 3999 127.0.0.1:6381", Refusal::Moved { slot: 3999, address: "127.0.0.1:6381".into() }),
            ("ASK 3999 [::1]:6381", Refusal::Ask { address: "[::1]:6381".into() }),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Refusal::TryAgain),
            (
                "ERR The user executing the script can't run this command or subcommand script: 1",
                failed(Class::Permanent, Degradation::Auth),
            ),
            ("OOM command not allowed", failed(Class::NotApplied, Degradation::OutOfMemory)),
            (
                "ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'",
                Refusal::NoFirstLine,
            ),
            ("ERR max number of clients reached", failed(Class::NotApplied, Degradation::MaxClients)),
            ("WRONGTYPE Operation against a key", failed(Class::Permanent, Degradation::WrongType)),
            ("NOPERM this user", failed(Class::Permanent, Degradation::Auth)),
            ("ERR unknown command", failed(Class::Permanent, Degradation::Refused)),
            ("MOVED x", failed(Class::Permanent, Degradation::Protocol)),
            ("", failed(Class::Permanent, Degradation::Refused)),
        ];
        for (line, expected) in table {
            let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            assert_eq!(Refusal::read(&reply.extract_error().unwrap_err()), expected, "{line}");
        }
    }
}
