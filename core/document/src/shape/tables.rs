//! The fields of a document and of an entry, in the order of the documentation.

use super::{FieldShape, Shape, Table, Text};
use polylimit_rules::request::Request;
use polylimit_store::lease_size::Lease;

/// A document.
pub(crate) static DOCUMENT: Table = Table {
    name: "the document",
    fields: &[
        required("polylimit", "The version of the format: 1.", Shape::Integer { min: 1, max: 1 }),
        optional("enabled", "Whether anything is limited; default true.", Shape::Boolean),
        optional(
            "utc_offset",
            "The offset from UTC of the local time in which `during` is evaluated; default \"+00:00\". Not with `zone`.",
            UTC_OFFSET,
        ),
        optional(
            "zone",
            "The time zone in which `during` is evaluated, daylight saving time included: a name of the IANA database. Not with \
             `utc_offset`.",
            text("the name of a time zone such as \"Europe/Berlin\""),
        ),
        optional(
            "client",
            "Which proxies are trusted to report the client's address.",
            Shape::Table(&CLIENT),
        ),
        optional("paths", "How the router behind the limits reads paths.", Shape::Table(&PATHS)),
        optional("policies", "The policies by name.", Shape::Map(&Shape::Table(&POLICY))),
        optional(
            "rules",
            "Which policies apply to a request: the first rule that matches, at most 1,000 rules.",
            Shape::List(&Shape::Table(&RULE)),
        ),
        optional(
            "lists",
            "Clients, values and keys that are denied or admitted whatever the policies say.",
            Shape::Table(&LISTS),
        ),
    ],
    others: None,
};

static CLIENT: Table = Table {
    name: "client",
    fields: &[
        optional(
            "trust",
            "The networks of the proxies: addresses, networks in CIDR notation, loopback, link-local, private.",
            Shape::List(&text("a network such as \"10.0.0.0/8\"")),
        ),
        optional(
            "header",
            "The header that the proxies write; needed with `trust`.",
            Shape::Word(&[
                "x-forwarded-for",
                "forwarded",
                "cf-connecting-ip",
                "true-client-ip",
                "x-real-ip",
                "fly-client-ip",
            ]),
        ),
    ],
    others: None,
};

static PATHS: Table = Table {
    name: "paths",
    fields: &[
        optional(
            "ignore_case",
            "Whether the router ignores case; by default as the middleware declares, otherwise false.",
            Shape::Boolean,
        ),
        optional(
            "parameters",
            "Whether the router drops `;...` of each segment; by default as the middleware declares, otherwise \"keep\".",
            Shape::Word(&["keep", "drop"]),
        ),
        optional(
            "suffix",
            "Whether the router drops a suffix such as `.json`; by default as the middleware declares, otherwise \"keep\".",
            Shape::Word(&["keep", "drop"]),
        ),
    ],
    others: None,
};

static POLICY: Table = Table {
    name: "a policy",
    fields: &[
        required("quotas", "The quotas for keys without a plan or an override.", QUOTAS),
        optional("plans", "Alternative quotas, by plan name.", Shape::Map(&QUOTAS)),
        optional(
            "overrides",
            "Quotas for individual keys: a plan, quotas, or a table that also has an end.",
            Shape::Map(&Shape::Either(&NUMBERS, &Shape::Table(&OVERRIDE))),
        ),
        optional(
            "mode",
            "Whether the policy decides; default \"on\". In \"shadow\" it counts and reports denials, and admits everything.",
            Shape::Word(&["on", "off", "shadow"]),
        ),
        optional(
            "outage",
            "What decides while the store cannot; by default as set in the limiter.",
            Shape::Word(&["fallback", "allow", "deny"]),
        ),
        optional(
            "lease",
            "Units that a process takes from the store in advance: \"auto\", a number, or number and age such as \"100/500ms\".",
            Shape::Either(&Shape::Integer { min: 1, max: MAX_LEASE }, &LEASE),
        ),
        optional(
            "zone",
            "The attribute with the time zone of the key's windows by the calendar, in braces; without it that of the quotas.",
            CALENDAR_ATTRIBUTE,
        ),
        optional(
            "from",
            "The attribute with the start of the key's windows by the calendar, in braces; without it that of the quotas.",
            CALENDAR_ATTRIBUTE,
        ),
        optional(
            "group",
            "The attribute with the name of the request's group, in braces; without it the group follows the plan.",
            CALENDAR_ATTRIBUTE,
        ),
        optional(
            "groups",
            "The groups that share the quotas, by name; \"*\" is everyone else.",
            Shape::Map(&Shape::Table(&GROUP)),
        ),
        optional("candidate", "Quotas to try before they become the policy's.", Shape::Table(&CANDIDATE)),
        optional("elastic", "The policy that admits what this one denies.", Shape::Table(&ELASTIC)),
        optional("penalty", "Denials that block a key.", Shape::Table(&PENALTY)),
    ],
    others: None,
};

static GROUP: Table = Table {
    name: "a group",
    fields: &[
        optional(
            "weight",
            "The group's part of what is lent, relative to the weights of the other groups that want it; default 1.",
            Shape::Integer { min: 1, max: 100 },
        ),
        optional(
            "minimum",
            "Percent of the quotas that the group always gets; default 0.",
            Shape::Integer { min: 0, max: 100 },
        ),
        optional(
            "maximum",
            "Percent of the quotas that the group gets at most; default 100.",
            Shape::Integer { min: 1, max: 100 },
        ),
    ],
    others: None,
};

static OVERRIDE: Table = Table {
    name: "an override",
    fields: &[
        required("numbers", "The plan or the quotas.", NUMBERS),
        optional("zone", ZONE_ABOUT, ZONE),
        optional("from", FROM_ABOUT, FROM),
        optional("until", UNTIL_ABOUT, TIME),
    ],
    others: None,
};

static CANDIDATE: Table = Table {
    name: "candidate",
    fields: &[
        required("quotas", "The quotas to try.", QUOTAS),
        optional(
            "compare",
            "The share of the keys, in thousandths, whose checks the candidate also decides, to be counted; default 0.",
            THOUSANDTHS,
        ),
        optional(
            "enforce",
            "The share of the keys, in thousandths, for which the candidate decides; default 0.",
            THOUSANDTHS,
        ),
    ],
    others: None,
};

static ELASTIC: Table = Table {
    name: "elastic",
    fields: &[
        required("policy", "The policy that is the pool.", text("the name of a policy")),
        required("key", "The key under the pool, the same for all requests.", KEY),
        optional("headroom", "Percent of the pool to keep for others; default 0.", HEADROOM),
        optional(
            "counts",
            "Whether the pool is charged for everything that is admitted, or only for what it admits itself; default \"all\".",
            Shape::Word(&["all", "elastic"]),
        ),
    ],
    others: None,
};

static PENALTY: Table = Table {
    name: "penalty",
    fields: &[
        required("denials", "How many denials block a key.", Shape::Integer { min: 1, max: 65_535 }),
        required("within", "The time within which they occur.", DURATION),
        required("block", "The length of the first block; each consecutive one is twice as long.", DURATION),
        optional("max", "The length of the longest block; default as `block`.", DURATION),
        optional(
            "forget",
            "How long after the end of a block the next one is a first one again; default as `max`.",
            DURATION,
        ),
    ],
    others: None,
};

static RULE: Table = Table {
    name: "a rule",
    fields: &[
        optional("match", "Conditions that must all hold; default none.", Shape::Table(&CONDITIONS)),
        optional("unless", "Conditions that must not all hold; default none.", Shape::Table(&CONDITIONS)),
        required(
            "apply",
            "The policies; none exempts the request.",
            Shape::List(&Shape::Table(&APPLICATION)),
        ),
        optional("continue", "Whether later rules are also tried; default false.", Shape::Boolean),
    ],
    others: None,
};

static CONDITIONS: Table = Table {
    name: "conditions",
    fields: &[
        optional("method", "The request's method.", CONDITION),
        optional(
            "path",
            "The request's path: {name} is a segment, and {*name} at the end all remaining ones.",
            Shape::Several(&text("a path such as \"/v1/{id}\"")),
        ),
        optional(
            "client",
            "The client's address.",
            Shape::Several(&text("a network such as \"192.0.2.0/24\", * or !")),
        ),
        optional(
            "header",
            "Header fields of the request, by their names in lower case.",
            Shape::Map(&CONDITION),
        ),
        optional(
            "during",
            "When the rule holds, by the limiter's clock in the document's `zone` or by its `utc_offset`.",
            Shape::Several(&text("a span such as \"mon-fri 22:00-06:00\"")),
        ),
    ],
    others: Some((ATTRIBUTE, &CONDITION)),
};

static APPLICATION: Table = Table {
    name: "an element of apply",
    fields: &[
        required("policy", "The policy.", text("the name of a policy")),
        required("key", "The key: text, and attributes in braces such as {user,client}.", KEY),
        optional(
            "cost",
            "The units that the request spends: a number, or an attribute in braces; default 1.",
            Shape::Either(
                &Shape::Integer { min: 0, max: MAX_COST },
                &text("a number or an attribute such as \"{tokens}\""),
            ),
        ),
        optional("headroom", "Percent of each quota to keep for others; default 0.", HEADROOM),
        optional(
            "spend",
            "When the cost is spent: if it is admitted, or always, because it has happened already; default \"if_admitted\".",
            Shape::Word(&["if_admitted", "always"]),
        ),
        optional(
            "spent",
            "What the request has spent, as its response reports it: the cost is reserved until then. For middlewares.",
            text("a meter such as \"usage:total\", \"header:x-tokens\" or \"json:usage.total_tokens\""),
        ),
        optional(
            "missing",
            "What happens to requests without an attribute of the key: one budget for all of them, or a denial; default \"share\".",
            Shape::Word(&["share", "deny"]),
        ),
    ],
    others: None,
};

static LISTS: Table = Table {
    name: "lists",
    fields: &[
        optional("deny", "What is denied.", Shape::List(&LIST_ITEM)),
        optional("allow", "What is admitted.", Shape::List(&LIST_ITEM)),
    ],
    others: None,
};

/// The value of an entry `deny ITEM` or `allow ITEM`.
pub(crate) static LIST_ENTRY: Table = Table {
    name: "a list item's entry",
    fields: &[
        optional("until", UNTIL_ABOUT, TIME),
        optional("by", BY_ABOUT, NOTE),
        optional("why", WHY_ABOUT, NOTE),
    ],
    others: None,
};

/// The value of an entry `override POLICY KEY`.
pub(crate) static OVERRIDE_ENTRY: Table = Table {
    name: "an override's entry",
    fields: &[
        required("numbers", "The plan or the quotas.", NUMBERS),
        optional("zone", ZONE_ABOUT, ZONE),
        optional("from", FROM_ABOUT, FROM),
        optional("until", UNTIL_ABOUT, TIME),
        optional("by", BY_ABOUT, NOTE),
        optional("why", WHY_ABOUT, NOTE),
    ],
    others: None,
};

const ZONE_ABOUT: &str =
    "The time zone of the key's windows by the calendar; default that of the request or the quotas.";
const FROM_ABOUT: &str =
    "The start of the key's windows by the calendar; default that of the request or the quotas.";
const UNTIL_ABOUT: &str = "The time from which it has no effect; default never.";
const BY_ABOUT: &str = "The author's name.";
const WHY_ABOUT: &str = "The reason.";

#[allow(clippy::cast_possible_wrap, reason = "10^12")]
const MAX_COST: i64 = Request::MAX_COST as i64;
#[allow(clippy::cast_possible_wrap, reason = "10^6")]
const MAX_LEASE: i64 = Lease::MAX_UNITS as i64;
/// The names of attributes that the application provides.
const ATTRIBUTE: &str = "^[a-z][a-z0-9_]*$";

const QUOTAS: Shape = Shape::Several(&text("quotas such as \"100/minute; 5000/day\""));
const NUMBERS: Shape =
    Shape::Several(&text("the name of a plan, or quotas such as \"100/minute; 5000/day\""));
const HEADROOM: Shape = Shape::Integer { min: 0, max: 99 };
const THOUSANDTHS: Shape = Shape::Integer { min: 0, max: 1000 };
const KEY: Shape = text("a text");
const NOTE: Shape = text("a text");
const DURATION: Shape = text("a duration such as \"15m\"");
const TIME: Shape = text("a time such as \"2027-01-01T00:00:00Z\"");
const ZONE: Shape = text("a time zone such as \"Europe/Berlin\" or \"+05:30\"");
const FROM: Shape = text("a start such as \"15\", \"04-01\" or \"monday\"");
const CALENDAR_ATTRIBUTE: Shape = text("an attribute such as \"{zone}\"");
const LEASE: Shape = text("\"auto\", or units and an age such as \"100/500ms\"");
const CONDITION: Shape =
    Shape::Several(&text("a text, one that ends with * for a prefix, * for present, or ! for absent"));
const LIST_ITEM: Shape =
    text("\"client NETWORK\", \"ATTRIBUTE VALUE\" or \"key POLICY KEY\", perhaps with \"until TIME\"");
const UTC_OFFSET: Shape = Shape::Text(Text {
    allowed: "an offset from \"-14:00\" to \"+14:00\"",
    pattern: Some(r"^[+-](0[0-9]|1[0-4]):[0-5][0-9]$"),
});

const fn text(allowed: &'static str) -> Shape {
    Shape::Text(Text { allowed, pattern: None })
}

const fn required(name: &'static str, about: &'static str, shape: Shape) -> FieldShape {
    FieldShape { name, is_required: true, about, shape }
}

const fn optional(name: &'static str, about: &'static str, shape: Shape) -> FieldShape {
    FieldShape { name, is_required: false, about, shape }
}
