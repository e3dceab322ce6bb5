//! Option names of other rate limiters and their equivalents in this library, for helpful error messages.

use std::fmt;

use strsim::osa_distance;

use crate::error::{Error, excerpt};

/// What an option belongs to. An option of another library may have a different counterpart in each place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionPlace {
    /// A limiter.
    Limiter,
    /// A middleware, or a client that throttles itself.
    Guard,
    /// A single request, such as a check.
    Request,
    /// A list of keys.
    List,
}

impl OptionPlace {
    fn phrase(self) -> &'static str {
        match self {
            Self::Limiter => "of the limiter",
            Self::Guard => "of a middleware",
            Self::Request => "of a check",
            Self::List => "of a list",
        }
    }
}

/// The option of this library that corresponds to an option of another library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Suggestion {
    /// What the option belongs to.
    pub place: OptionPlace,
    /// The option's name in `snake_case`; bindings convert it to their language's convention. Empty if the counterpart is not an option:
    /// then the hint is the whole recommendation.
    pub name: &'static str,
    /// How to express the same value; empty if the name is enough.
    pub hint: &'static str,
}

impl Suggestion {
    /// Finds the equivalent of an option of Flask-Limiter, slowapi, limits, express-rate-limit, `@fastify/rate-limit`, rate-limit-redis,
    /// rate-limiter-flexible, `@nestjs/throttler`, bottleneck, p-throttle, p-limit, p-queue, Upstash Ratelimit, django-ratelimit,
    /// aiolimiter, pyrate-limiter, `redis_rate`, bucket4j, resilience4j or rack-attack. Upper case, `_` and `-` make no difference. If the
    /// option has counterparts in several places, the most common one is found.
    ///
    /// ```
    /// use polylimit::raw::Suggestion;
    ///
    /// assert_eq!(Suggestion::for_option("keyGenerator").map(|ours| ours.to_string()), Some("use key".into()));
    /// assert_eq!(Suggestion::for_option("colour"), None);
    /// ```
    pub fn for_option(name: &str) -> Option<Self> {
        counterparts(name)?.first().copied()
    }

    /// The same for an option in this place. If it has no counterpart there, that of another place is returned.
    ///
    /// ```
    /// use polylimit::raw::{OptionPlace, Suggestion};
    ///
    /// let ours = |place| Suggestion::for_option_of("points", place).map(|ours| ours.name);
    /// assert_eq!((ours(OptionPlace::Limiter), ours(OptionPlace::Request)), (Some("policy"), Some("cost")));
    /// ```
    pub fn for_option_of(name: &str, place: OptionPlace) -> Option<Self> {
        let all = counterparts(name)?;
        all.iter().find(|one| one.place == place).or_else(|| all.first()).copied()
    }

    /// What the error for an unknown option recommends: our option for one of another library, the nearest known name, or all known
    /// names. `known` are the names in this place as the caller's language writes them.
    ///
    /// ```
    /// use polylimit::raw::{OptionPlace, Suggestion};
    ///
    /// let advice = |name| Suggestion::advice(name, OptionPlace::Request, &["policy", "cost", "timeoutMs"]);
    /// assert_eq!(advice("points"), "use cost");
    /// assert_eq!(advice("timeout"), "use timeoutMs");
    /// assert_eq!(advice("cots"), "did you mean cost?");
    /// assert_eq!(advice("skipOnError"), "use outage of the limiter, with allow, which admits while Redis is away");
    /// assert_eq!(advice("colour"), "allowed are policy, cost, timeoutMs");
    /// ```
    pub fn advice(name: &str, place: OptionPlace, known: &[&str]) -> String {
        if let Some(ours) = Self::for_option_of(name, place) {
            let spelled = known.iter().find(|known| is_spelling(known, ours.name));
            return match spelled {
                _ if ours.name.is_empty() => ours.to_string(),
                Some(spelled) => ours.with_name(spelled),
                None => ours.with_name(&format!("{} {}", ours.name, ours.place.phrase())),
            };
        }
        match Self::nearest(name, known.iter().copied()) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => format!("allowed are {}", known.join(", ")),
        }
    }

    fn with_name(&self, name: &str) -> String {
        match self.hint {
            "" => format!("use {name}"),
            hint => format!("use {name}, {hint}"),
        }
    }

    /// The known name that is nearest to a misspelled one, for `did you mean ...?`; `None` where none is near: at most a third of the
    /// letters may be wrong, missing, surplus or exchanged with their neighbours. Upper case, `_` and `-` make no difference. Of several
    /// names at the same distance, the first.
    ///
    /// ```
    /// use polylimit::raw::Suggestion;
    ///
    /// let known = ["max_keys", "deadline", "prefix"];
    /// assert_eq!(Suggestion::nearest("maxKyes", known), Some("max_keys"));
    /// assert_eq!(Suggestion::nearest("colour", known), None);
    /// ```
    pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let distance = distance_from(name);
        let near = known.into_iter().filter_map(|known| Some((distance(known)?, known)));
        near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
    }
}

/// How far known names are from this one, as [`Suggestion::nearest`] compares them; `None` for names that are not near.
pub(crate) fn distance_from(name: &str) -> impl Fn(&str) -> Option<usize> {
    // No name of ours is longer. Comparing takes time proportional to the product of the lengths.
    let name = plain(&name[..name.floor_char_boundary(MAX_COMPARED)]);
    move |known| {
        let known = plain(known);
        let (distance, longer) = (osa_distance(&name, &known), name.len().max(known.len()));
        (distance * 3 <= longer).then_some(distance)
    }
}

/// How much of a name is compared, in bytes.
const MAX_COMPARED: usize = 64;

/// A name in lower case without `_` and `-`.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// The error for an unknown option: with our name for an option of another limiter, the nearest known name, or all of them. `place` is
/// where it was read, such as `store URL: `.
pub fn unknown_option(place: &str, name: &str, known: impl Iterator<Item = &'static str> + Clone) -> Error {
    let read = excerpt(name);
    // Names such as `outage.<policy>`.
    let (family, rest) = name.split_once('.').map_or(("", ""), |(family, rest)| (family, rest));
    let advice = if let Some(ours) = Suggestion::for_option_of(name, OptionPlace::Limiter) {
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

/// Whether a language's option is a spelling of our name: in its convention, with its unit, as a list, or as the limiter that has a store.
fn is_spelling(known: &str, ours: &str) -> bool {
    let (known, ours) = (plain(known), plain(ours));
    match known.strip_prefix(&*ours) {
        Some(rest) => matches!(rest, "" | "ms" | "us" | "s"),
        None => matches!((&*ours, &*known), ("policy", "policies") | ("store", "limiter" | "url")),
    }
}

fn counterparts(name: &str) -> Option<&'static [Suggestion]> {
    let plain = plain(name);
    TABLE.iter().find(|(theirs, _)| theirs.split(' ').any(|theirs| theirs == plain)).map(|(_, ours)| *ours)
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            "" => f.write_str(self.hint),
            name => f.write_str(&self.with_name(name)),
        }
    }
}

const fn ours(place: OptionPlace, name: &'static str, hint: &'static str) -> Suggestion {
    Suggestion { place, name, hint }
}

const fn guard(name: &'static str, hint: &'static str) -> Suggestion {
    ours(OptionPlace::Guard, name, hint)
}

const fn limiter(name: &'static str, hint: &'static str) -> Suggestion {
    ours(OptionPlace::Limiter, name, hint)
}

const fn request(name: &'static str, hint: &'static str) -> Suggestion {
    ours(OptionPlace::Request, name, hint)
}

/// Quotas are options of all three.
const fn policy(hint: &'static str) -> [Suggestion; 3] {
    [guard("policy", hint), limiter("policy", hint), request("policy", hint)]
}

const QUOTAS: &str = "with quotas such as 100/minute";
const PERIOD: &str = "whose quotas name the period, such as 100/15m";

/// Their names in lower case without `_` and `-`, and our options by place, the most common one first.
const TABLE: &[(&str, &[Suggestion])] = &[
    ("keyfunc keygenerator discriminator keyby gettracker generatekey", &[guard("key", "")]),
    (
        "limit limits",
        &[
            guard("policy", QUOTAS),
            limiter("policy", QUOTAS),
            request("policy", QUOTAS),
            ours(OptionPlace::List, "entries", ""),
        ],
    ),
    (
        "max limitvalue defaultlimits applicationlimits metalimits maxrequests rate rates maxrate ratelimit capacity bandwidth \
         intervalcap throttlers limitforperiod",
        &policy(QUOTAS),
    ),
    ("limiter", &[limiter("policy", QUOTAS)]),
    ("points", &[guard("policy", QUOTAS), limiter("policy", QUOTAS), request("cost", "")]),
    (
        "burstlimiter tokensperinterval reservoir reservoirrefreshamount reservoirrefreshinterval reservoirincreaseamount \
         reservoirincreaseinterval reservoirincreasemaximum maxtokens refillrate",
        &policy("with quotas such as 10/second token_bucket burst=50"),
    ),
    (
        "windowms window windowsize timewindow timeperiod duration period expiry refill interval limitrefreshperiod",
        &policy(PERIOD),
    ),
    ("ttl", &[guard("policy", PERIOD), limiter("policy", PERIOD), request("ttl", "")]),
    ("strategy algorithm", &policy("whose quotas name the algorithm, such as 100/minute fixed_window")),
    (
        "execevenly execevenlymindelayms delayafter delayms maxdelayms",
        &policy("with the algorithm leaky_bucket, whose decisions have the delay"),
    ),
    ("maxconcurrent concurrency", &policy("with a quota such as 5 concurrent")),
    ("mintime", &policy("with a quota such as 1/200ms token_bucket")),
    ("continueexceeding", &policy("whose quotas say count_denied, such as 100/minute count_denied")),
    (
        "resetexpiryonchange",
        &policy(
            "whose quotas count each request for a whole period, such as 100/15m sliding_log count_denied",
        ),
    ),
    ("strict", &policy("with the algorithm sliding_log, such as 10/second sliding_log")),
    ("name", &[guard("policy", "which is the name of one"), limiter("policy", "each by its name")]),
    (
        "ban exponentialbackoff blockduration onbanreach penalty",
        &[limiter("", "use a penalty in a document of policies, or block")],
    ),
    (
        "storageuri storage storeclient redis redisurl connection nodes clusternodes datastore clientoptions sendcommand \
         sendcommandcluster store storetype cache",
        &[guard("store", "with its URL"), limiter("", "use the URL of the limiter")],
    ),
    (
        "dbname tablename tablecreated schema schemaname indexkeyprefix disableindexescreation clearexpiredbytimeout dynamotableopts \
         readcapacityunits writecapacityunits ttlset",
        &[limiter(
            "",
            "leave it out: states are in memory, in a local file or in Redis, where expired ones are dropped",
        )],
    ),
    (
        "useredispackage useredis3andlowerpackage customfunction customfunctionlibname customincrttlluascript",
        &[limiter("", "leave it out: the limiter has connections and scripts of its own")],
    ),
    (
        "sslcertreqs sslverify sslverifymode sslcheckhostname tlsverify verifypeer verify insecure insecureskipverify skipverify \
         tlsinsecureskipverify rejectunauthorized ssl tls usetls usessl",
        &[limiter(
            "tls_ca",
            "or tls_fingerprint to pin a certificate, or tls_insecure=true, which verifies nothing and is for development only; TLS \
             itself is the scheme rediss://",
        )],
    ),
    (
        "sslcacerts sslcapath sslcadata sslcafile sslcertificateauthorities cacert cafile",
        &[limiter("tls_ca", "")],
    ),
    ("sslcertfile sslcert certfile", &[limiter("tls_cert", "")]),
    ("sslkeyfile sslkey keyfile", &[limiter("tls_key", "")]),
    ("servername sslservername sni", &[limiter("tls_server_name", "")]),
    (
        "family addressfamily ipversion",
        &[limiter("", "leave it out: all addresses of a name are tried, of IPv4 and IPv6")],
    ),
    (
        "maxconnections poolsize poolmaxsize minidle maxidle maxidleconns minidleconns maxactiveconns connectionpool poolclass \
         blockingtimeout pooltimeout",
        &[limiter("", "leave it out: one connection carries the decisions of all callers")],
    ),
    (
        "socketconnecttimeout connecttimeout connectiontimeout dialtimeout",
        &[limiter("first_connect_max", "which bounds the wait for the first connection")],
    ),
    (
        "retryontimeout retryonerror maxretries maxretriesperrequest retrystrategy maxattempts reconnectattempts",
        &[limiter(
            "",
            "leave it out: what certainly did not run is repeated within the deadline, and nothing else",
        )],
    ),
    ("healthcheckinterval socketkeepalive keepaliveinterval pinginterval", &[limiter("keepalive", "")]),
    ("database dbindex", &[limiter("db", "")]),
    (
        "mastername mymaster servicename sentinelmasterid sentinelmaster",
        &[limiter("", "use redis-sentinel://host,host/service")],
    ),
    (
        "protocol respversion decoderesponses encoding libname libversion",
        &[limiter("", "leave it out: the limiter speaks to the server by itself")],
    ),
    ("cleardatastore", &[limiter("", "use reset, or another prefix")]),
    ("keyprefix rlprefix namespace", &[limiter("prefix", "")]),
    ("id", &[limiter("prefix", ""), request("", "leave it out: only a reservation has an id")]),
    ("timeout", &[limiter("deadline", ""), request("timeout", "")]),
    ("sockettimeout commandtimeout requesttimeout", &[limiter("deadline", "")]),
    (
        "highwater maxqueuesize maxdelay timeoutduration",
        &[request("timeout", "which bounds the wait in line")],
    ),
    ("signal", &[request("", "use the signal of acquire or reserve: no other operation waits in line")]),
    ("priority", &[request("headroom", "which leaves the last units for requests of more importance")]),
    ("expiration", &[request("", "use the ttl of a reservation")]),
    ("ondelay", &[request("", "use the delay of the decision")]),
    (
        "rejectondrop dropwaitingjobs droperrormessage enqueueerrormessage rejectonclear throwontimeout",
        &[request("", "use the decision: what is not admitted in time is a denial, and no error")],
    ),
    (
        "trackdonestatus autostart queueclass promise carryoverintervalcount carryoverconcurrencycount",
        &[limiter("", "leave it out: a limiter decides when work may begin, and has no queue of jobs")],
    ),
    ("raisewhenfail", &[request("", "use the decision: check returns a denial and raises nothing")]),
    (
        "inmemoryfallback inmemoryfallbackenabled insurancelimiter",
        &[limiter(
            "outage",
            "which is fallback by default: each process decides by itself while Redis is away",
        )],
    ),
    (
        "swallowerrors passonstoreerror skiponerror failopen",
        &[limiter("outage", "with allow, which admits while Redis is away")],
    ),
    (
        "rejectifredisnotready rejectifvalkeynotready",
        &[limiter("outage", "which decides at once while Redis is away, and is fallback by default")],
    ),
    (
        "inmemoryblockonconsumed blockonconsumed inmemoryblockduration ephemeralcache",
        &[limiter("denial_cache_max", "")],
    ),
    ("analytics", &[limiter("observe_keys", "which counts the keys that are denied most often")]),
    (
        "blacklist isblacklisted enableprotection denylistthreshold",
        &[limiter("", "use a deny list in a document of policies, or block")],
    ),
    (
        "runactionanyway",
        &[guard("", "leave it out: requests that are skipped or on a deny list are not counted")],
    ),
    ("dynamiclimits", &[limiter("", "use plans and overrides in a document of policies")]),
    ("logger", &[limiter("on_degraded", "which is called with outages and findings")]),
    ("validate", &[guard("", "leave it out: options are always checked when the middleware is made")]),
    ("retryafter", &[guard("", "leave it out: the response says when the request would be admitted")]),
    (
        "exemptwhen requestfilter allowlist ipwhitelist whitelist iswhitelisted safelist skipif ignoreuseragents defaultlimitsexemptwhen",
        &[guard("skip", "")],
    ),
    (
        "deductwhen skipsuccessfulrequests skipfailedrequests requestwassuccessful defaultlimitsdeductwhen",
        &[guard("count", "")],
    ),
    (
        "onbreach onlimitreached onexceeded handler errorresponsebuilder throttledresponder",
        &[guard("on_denied", "which makes the response")],
    ),
    ("onexceeding", &[guard("", "use the decision that the request carries, in a handler after the limit")]),
    ("requestpropertyname", &[guard("", "use the decision that the request carries at its usual place")]),
    ("errormessage message", &[guard("message", "")]),
    ("statuscode", &[guard("status", "")]),
    ("ipv6subnet ipv6subnetprefix", &[guard("client_address", "with the length of the prefix for IPv6")]),
    ("global", &[guard("", "use limits of single routes in place of one for all")]),
    (
        "headersenabled standardheaders legacyheaders addheaders addheadersonexceeding enabledraftspec setheaders",
        &[guard("headers", "with text such as \"legacy epoch\"")],
    ),
    (
        "costfunc pointstoconsume weight numtokens defaultlimitscost",
        &[guard("cost", ""), request("cost", "")],
    ),
    ("sharedlimit group groupid identifier", &[guard("scope", "")]),
    (
        "block",
        &[guard("on_denied", "which makes the response: a request over the limit never reaches the handler")],
    ),
    ("method", &[guard("methods", "")]),
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
            ("tokensPerInterval", "policy"),
            ("max_rate", "policy"),
            ("limitForPeriod", "policy"),
            ("group", "scope"),
            ("block", "on_denied"),
            ("X-", ""),
        ] {
            let found = Suggestion::for_option(theirs);
            assert_eq!(found.map_or("", |found| found.name), ours, "{theirs}");
        }
    }

    #[test]
    fn counterpart_depends_on_the_place() {
        use OptionPlace::{Guard, Limiter, List, Request};
        for (theirs, place, ours) in [
            ("limit", List, "use entries"),
            ("limit", Request, "use policy, with quotas such as 100/minute"),
            ("limiter", Limiter, "use policies, with quotas such as 100/minute"),
            ("ttl", Request, "use ttlMs"),
            ("ttl", Guard, "use policy, whose quotas name the period, such as 100/15m"),
            ("redis", Guard, "use limiter, with its URL"),
            ("redis", Limiter, "use the URL of the limiter"),
            ("statusCode", Guard, "use status of a middleware"),
            ("keyGenerator", Limiter, "use key of a middleware"),
            ("blockDuration", Guard, "use a penalty in a document of policies, or block"),
        ] {
            let known: &[&str] = match place {
                Limiter => &["policies", "deadline"],
                Guard => &["limiter", "policy", "ttlMs"],
                Request => &["policy", "cost", "ttlMs"],
                List => &["entries", "cursor"],
            };
            assert_eq!(Suggestion::advice(theirs, place, known), ours, "{theirs} of {place:?}");
        }
    }

    /// All options in the declarations of each package, except those with the same name here.
    #[test]
    fn every_option_of_other_packages_of_node_is_answered() {
        let packages = [
            (
                "express-rate-limit 8.7",
                "windowMs limit max message statusCode legacyHeaders standardHeaders identifier retryAfter requestPropertyName \
                 skipFailedRequests skipSuccessfulRequests keyGenerator ipv6Subnet handler requestWasSuccessful validate store \
                 passOnStoreError logger",
            ),
            ("rate-limit-redis 6.0", "sendCommand sendCommandCluster resetExpiryOnChange"),
            (
                "rate-limiter-flexible 11.4",
                "keyPrefix points duration execEvenly execEvenlyMinDelayMs blockDuration customFunction customFunctionLibName storeClient \
                 storeType inMemoryBlockOnConsumed inMemoryBlockDuration insuranceLimiter rejectIfRedisNotReady \
                 rejectIfValkeyNotReady useRedisPackage useRedis3AndLowerPackage customIncrTtlLuaScript dbName tableName tableCreated \
                 clearExpiredByTimeout indexKeyPrefix disableIndexesCreation dynamoTableOpts schemaName schema \
                 readCapacityUnits writeCapacityUnits ttlSet limiter whiteList blackList isWhiteListed isBlackListed runActionAnyway \
                 burstLimiter maxQueueSize",
            ),
            (
                "@nestjs/throttler 6.7",
                "name limit ttl blockDuration ignoreUserAgents skipIf getTracker generateKey setHeaders errorMessage storage \
                 ipv6SubnetPrefix throttlers",
            ),
            (
                "bottleneck 2.19",
                "maxConcurrent minTime highWater strategy penalty reservoir reservoirRefreshInterval reservoirRefreshAmount \
                 reservoirIncreaseAmount reservoirIncreaseInterval reservoirIncreaseMaximum id rejectOnDrop trackDoneStatus \
                 datastore Promise clientOptions clusterNodes Redis connection clearDatastore timeout priority weight expiration \
                 dropWaitingJobs dropErrorMessage enqueueErrorMessage",
            ),
            ("p-limit 7.3", "concurrency rejectOnClear"),
            ("p-throttle 8.1", "limit interval strict signal onDelay weight"),
            (
                "p-queue 9.3",
                "concurrency autoStart queueClass intervalCap interval carryoverIntervalCount carryoverConcurrencyCount timeout \
                 throwOnTimeout strict priority signal",
            ),
        ];
        for (package, options) in packages {
            for option in options.split(' ') {
                assert!(Suggestion::for_option(option).is_some(), "{package}: {option}");
            }
        }
        let store = |option| Suggestion::advice(option, OptionPlace::Guard, &["limiter", "prefix"]);
        assert_eq!(store("sendCommand"), "use limiter, with its URL");
        assert_eq!(
            store("resetExpiryOnChange"),
            "use policy of a middleware, whose quotas count each request for a whole period, such as 100/15m sliding_log count_denied"
        );
        assert_eq!(store("validate"), "leave it out: options are always checked when the middleware is made");
    }

    #[test]
    fn each_name_stands_once_and_is_found() {
        let names: Vec<_> = TABLE.iter().flat_map(|(theirs, _)| theirs.split(' ')).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name} stands twice");
            assert!(Suggestion::for_option(name).is_some(), "{name} is not in lower case");
        }
    }
}
