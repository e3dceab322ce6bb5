//! Option names of other rate limiters and their equivalents in this library, for helpful error messages.

use std::fmt;

use strsim::osa_distance;

use crate::error::{Error, excerpt};

/// The option of this library that corresponds to an option of another library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Suggestion {
    /// The option's name in `snake_case`; bindings convert it to their language's convention.
    pub name: &'static str,
    /// How to express the same value; empty where the name is enough.
    pub hint: &'static str,
}

impl Suggestion {
    /// Finds the equivalent of an option of Flask-Limiter, slowapi, limits, express-rate-limit, `@fastify/rate-limit`,
    /// rate-limiter-flexible, `redis_rate`, bucket4j or rack-attack. Upper case, `_` and `-` make no difference.
    ///
    /// ```
    /// use polylimit::Suggestion;
    ///
    /// assert_eq!(Suggestion::for_option("keyGenerator").map(|ours| ours.to_string()), Some("use key".into()));
    /// assert_eq!(Suggestion::for_option("colour"), None);
    /// ```
    pub fn for_option(name: &str) -> Option<Self> {
        let plain = plain(name);
        let (_, name, hint) =
            TABLE.into_iter().find(|(theirs, ..)| theirs.split(' ').any(|theirs| theirs == plain))?;
        Some(Self { name, hint })
    }

    /// The known name that is nearest to a name with a slip in it, for `did you mean ...?`; `None` where none is near: at most a
    /// third of the letters may be wrong, missing, too many or exchanged with their neighbours. Upper case, `_` and `-` make no
    /// difference. Of several names as near, the first.
    ///
    /// ```
    /// use polylimit::Suggestion;
    ///
    /// let known = ["max_keys", "deadline", "prefix"];
    /// assert_eq!(Suggestion::nearest("maxKyes", known), Some("max_keys"));
    /// assert_eq!(Suggestion::nearest("colour", known), None);
    /// ```
    pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        // No name of ours is longer; the distance takes time by the product of the lengths.
        let name = plain(name.get(..MAX_COMPARED).unwrap_or(name));
        let distance = |known: &str| {
            let known = plain(known);
            let (distance, longer) = (osa_distance(&name, &known), name.len().max(known.len()));
            (distance * 3 <= longer).then_some(distance)
        };
        let near = known.into_iter().filter_map(|known| Some((distance(known)?, known)));
        near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
    }
}

/// How much of a name is compared, in bytes.
const MAX_COMPARED: usize = 64;

/// A name in lower case without `_` and `-`.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// The refusal of an option: with our name for an option of another limiter, the nearest known name, or all of them. `place` is
/// where it was read, such as `store URL: `.
pub(crate) fn unknown_option(
    place: &str,
    name: &str,
    known: impl Iterator<Item = &'static str> + Clone,
) -> Error {
    let read = excerpt(name);
    // Names such as `outage.<policy>`.
    let (family, rest) = name.split_once('.').map_or(("", ""), |(family, rest)| (family, rest));
    let advice = if let Some(ours) = Suggestion::for_option(name) {
        ours.to_string()
    } else if let Some(family) = Suggestion::nearest(family, ["outage", "lease"]) {
        format!("did you mean {family}.{rest}?")
    } else if let Some(nearest) = Suggestion::nearest(name, known.clone()) {
        format!("did you mean {nearest}?")
    } else {
        format!("allowed are {}", known.collect::<Vec<_>>().join(", "))
    };
    Error::invalid_argument(format!("{place}option {read} is not known: {advice}"))
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hint {
            "" => write!(f, "use {}", self.name),
            hint => write!(f, "use {}, {hint}", self.name),
        }
    }
}

/// Their names in lower case without `_` and `-`, our name, and a hint.
const TABLE: [(&str, &str, &str); 17] = [
    ("keyfunc keygenerator discriminator keyby", "key", ""),
    (
        "max limit limits limitvalue defaultlimits applicationlimits metalimits points maxrequests \
         rate ratelimit capacity bandwidth",
        "policy",
        "with quotas such as 100/minute",
    ),
    (
        "windowms window windowsize timewindow duration period expiry refill interval",
        "policy",
        "whose quotas name the period, such as 100/15m",
    ),
    ("strategy algorithm", "policy", "whose quotas name the algorithm, such as 100/minute fixed_window"),
    ("execevenly", "policy", "with the algorithm leaky_bucket, whose decisions tell the delay"),
    ("storageuri storage storeclient redis redisurl connection nodes", "store", "with its URL"),
    ("keyprefix rlprefix namespace", "prefix", ""),
    ("timeout sockettimeout commandtimeout requesttimeout", "deadline", ""),
    (
        "inmemoryfallback inmemoryfallbackenabled insurancelimiter",
        "outage",
        "which is fallback unless told otherwise: each process decides by itself while Redis is away",
    ),
    (
        "swallowerrors passonstoreerror skiponerror failopen",
        "outage",
        "with allow, which admits while Redis is away",
    ),
    ("inmemoryblockonconsumed inmemoryblockduration", "denial_cache_max", ""),
    (
        "exemptwhen requestfilter allowlist ipwhitelist safelist skipif methods \
         defaultlimitsexemptwhen",
        "skip",
        "",
    ),
    (
        "deductwhen skipsuccessfulrequests skipfailedrequests requestwassuccessful \
         defaultlimitsdeductwhen",
        "count",
        "",
    ),
    (
        "onbreach onlimitreached onexceeded onexceeding handler errorresponsebuilder errormessage \
         message statuscode throttledresponder",
        "on_denied",
        "which makes the response",
    ),
    (
        "headersenabled standardheaders legacyheaders addheaders enabledraftspec",
        "headers",
        "with ietf, legacy, both or none",
    ),
    ("costfunc pointstoconsume weight numtokens defaultlimitscost", "cost", ""),
    ("sharedlimit groupid identifier", "scope", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_all_languages_are_found() {
        for (theirs, ours) in [
            ("key_func", "key"),
            ("keyGenerator", "key"),
            ("windowMs", "policy"),
            ("max", "policy"),
            ("default_limits", "policy"),
            ("storage_uri", "store"),
            ("keyPrefix", "prefix"),
            ("skipOnError", "outage"),
            ("deduct_when", "count"),
            ("X-", ""),
        ] {
            let found = Suggestion::for_option(theirs);
            assert_eq!(found.map_or("", |found| found.name), ours, "{theirs}");
        }
    }

    #[test]
    fn each_name_stands_once_and_is_found() {
        let names: Vec<_> = TABLE.iter().flat_map(|(theirs, ..)| theirs.split(' ')).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name} stands twice");
            assert!(Suggestion::for_option(name).is_some(), "{name} is not in lower case");
        }
    }
}
