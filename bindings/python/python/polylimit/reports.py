"""The types of the reports for operators, which ``Admin`` and ``AsyncAdmin`` return.

A report says which keys a store has, why a request is denied, or which keys are denied most often. It is a dict with
the names and units of the core, the same in every language and in ``polylimit --json``: times end in ``_us`` and are
whole microseconds. The module has only types; ``import polylimit`` does not load it:

>>> from polylimit import Limiter
>>> from polylimit.reports import KeyExplanation
>>> limiter = Limiter(policies={"api": "100/minute; 2/hour"})
>>> for _ in range(3):
...     decision = limiter.check("user:42")
>>> explained: KeyExplanation = limiter.admin().explain("user:42")
>>> [quota["words"] for quota in explained["quotas"] if not quota["admits"]]
['2 of 2 in the last 1h, counted in 10 parts']
"""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = [
    "ConfigurationExplanation",
    "EntryExplanation",
    "KeyExplanation",
    "KeyPage",
    "ListedKey",
    "ListedQuota",
    "PenaltyExplanation",
    "QuotaExplanation",
    "RequestExplanation",
    "ResetPage",
    "TopKey",
    "TopKeys",
]


class _KeyName(TypedDict, total=False):
    """The name of a key: one of the three fields is there."""

    key: str
    """The key, where it is text in UTF-8."""
    key_base64: str
    """The key in base64, where it is other bytes."""
    key_digest: str
    """The digest of a long key in hexadecimal digits, where the store has no more of it."""


class ListedQuota(TypedDict):
    """What is used of one quota of a key."""

    quota: str
    """The quota as text, such as ``"100/minute"``."""
    limit: int
    """The limit, in units per period, or in reservations."""
    capacity: int
    """The most that can be used at once, without an excess."""
    used: int
    """Units that count now, also those beyond the capacity; for concurrency, reservations."""
    remaining: int
    """Whole units that the quota would still admit now."""
    reset_after_us: int
    """How long until nothing counts as used under this quota."""


class ListedKey(_KeyName):
    """A key with what is used of its quotas."""

    policy: str
    """The policy's name."""
    quotas: list[ListedQuota]
    """Each of the effective quotas of the key; none for a policy that the limiter does not know."""
    used_percent: int
    """How much of the most that can be used at once is used or set aside, in percent, the most over the quotas: above
    100 for units beyond it, and at least 100 for a blocked key.
    """
    reservations: int
    """How many reservations there are."""
    reserved_units: int
    """The units that they set aside."""
    blocked_for_us: int
    """How much longer the key is blocked; 0 when it is not."""
    expires_after_us: int | None
    """How long until the key is as if it had never been used; ``None`` when it stays, or is not reported."""


class KeyPage(TypedDict):
    """A part of a list of keys: the answer to ``list`` and ``scan_top``."""

    keys: list[ListedKey]
    """The keys, in no particular order; in that of use for ``scan_top``."""
    examined: int
    """How many keys the store went over, about; in Redis those of other programs, too."""
    cursor: str | None
    """Where the list goes on; ``None`` when this was the last page."""


class ResetPage(TypedDict):
    """What became of a page of keys that were to be reset: the answer to ``reset_listed``."""

    reset: int
    """How many keys were reset."""
    unknown: int
    """How many keys stay, because their policies are not known to the limiter."""
    examined: int
    """How many keys the store went over, about."""
    cursor: str | None
    """Where the list goes on; ``None`` when this was the last page."""


class QuotaExplanation(TypedDict):
    """What one quota says about a request."""

    quota: str
    """The quota as text, such as ``"100/minute token_bucket"``."""
    limit: int
    """The limit, in units per period, or in reservations."""
    capacity: int
    """The most that can be used at once, without an excess."""
    period_us: int
    """The period; 0 for concurrency."""
    used: int
    """Units that count now, also those beyond the capacity; for concurrency, reservations."""
    remaining: int
    """Whole units that the quota would still admit now."""
    over: int
    """Units of an excess that are in use."""
    admits: bool
    """Whether this quota alone admits the request."""
    retry_after_us: int | None
    """How long until this quota alone admits it; ``None`` is never."""
    reset_after_us: int
    """How long until nothing counts as used under this quota."""
    words: str
    """The same in the words of the algorithm, such as ``"debt 12.4 of 100, repays 1.67/s"``."""


class PenaltyExplanation(TypedDict):
    """What is counted against a key that is denied too often."""

    denials: int
    """How many denials count now."""
    blocks_at: int
    """This many of them block the key."""
    level: int
    """The blocks in a row until now: each is twice as long as the one before it."""
    next_block_us: int
    """How long the next block would last."""


class EntryExplanation(TypedDict):
    """An item of a list or an override: an entry, or a line of the document."""

    entry: str
    """As ``set_entry`` takes it, such as ``"deny client 192.0.2.0/24"``."""
    in_document: bool
    """Whether it is a line of the document."""
    until_us: int | None
    """From this time on it has no effect, since the Unix epoch; ``None`` is never."""
    by: str | None
    """The author, where that is known."""
    why: str | None
    """The reason, where that is known."""


class ConfigurationExplanation(TypedDict):
    """The configuration of an explanation."""

    source: str
    """Where it comes from."""
    version: int
    """Its version."""
    digest: str
    """SHA-256 of the canonical document, as hexadecimal digits."""


class KeyExplanation(_KeyName):
    """Why a request with this key would be admitted or denied now: the answer to ``explain``."""

    policy: str
    """The policy's name."""
    cost: int
    """The units that the request would spend."""
    headroom: int
    """Percent of the capacity that the request leaves for others."""
    allowed: bool
    """Whether a check, or a reserve where the policy counts concurrency, would be admitted now."""
    cause: Literal["off", "allow_list", "deny_list", "missing_key", "blocked", "quota", "concurrency"] | None
    """Why it would be denied, or admitted without the store."""
    retry_after_us: int | None
    """How long until it would be admitted; 0 when allowed, ``None`` is never."""
    elastic: bool
    """Whether the pool of an elastic policy would admit it."""
    shadowed: bool
    """Whether it would be denied if the policy were not in shadow."""
    mode: Literal["on", "off", "shadow"]
    """Whether the policy decides."""
    rule: int | None
    """The number of the rule that applies the policy, from 1 up; ``None`` for a request by its key."""
    quotas_source: Literal["quotas", "override", "plan", "candidate"]
    """Where the effective quotas of the key come from."""
    plan: str | None
    """The plan whose quotas these are."""
    override_entry: EntryExplanation | None
    """The override that gives the key these quotas."""
    list_entry: EntryExplanation | None
    """The item of a list that names the key."""
    quotas: list[QuotaExplanation]
    """What each quota says, in their order."""
    reservations: int
    """How many reservations there are."""
    reserved_units: int
    """The units that they set aside."""
    reservations_end_after_us: int
    """How long until the last of them ends."""
    blocked_for_us: int
    """How much longer the key is blocked; 0 when it is not."""
    penalty: PenaltyExplanation | None
    """What is counted against the key under the policy's penalty; ``None`` for a policy that has none."""
    expires_after_us: int | None
    """How long until the key is as if it had never been used; ``None`` when it stays."""
    degraded: str | None
    """Why the states may not be the key's own."""
    leased_units: int
    """Units that this process holds in a lease; the store counts them as used."""
    denial_cached: bool
    """Whether this process would deny the request without asking the store."""
    denials: int | None
    """How often this process has denied the key lately; ``None`` for a key without a counter. See ``top_keys``."""
    denials_error: int | None
    """By how much ``denials`` is too high at most."""
    pool: KeyExplanation | None
    """What the pool of an elastic policy says about a request that the policy denies."""
    configuration: ConfigurationExplanation | None
    """The active configuration; ``None`` for a limiter without one."""


class RequestExplanation(TypedDict):
    """Why a request would be admitted or denied by the configuration: the answer to ``explain_request``."""

    allowed: bool
    """Whether the request would be admitted."""
    cause: Literal["off", "allow_list", "deny_list", "missing_key", "blocked", "quota", "concurrency"] | None
    """Why it would be denied, or admitted without the store."""
    retry_after_us: int | None
    """How long until it would be admitted, the longest over the policies; 0 when allowed, ``None`` is never."""
    list_entry: EntryExplanation | None
    """The item of a list of attributes that decides; then no policy is asked."""
    policies: list[KeyExplanation]
    """The policies that the rules apply, in their order."""
    configuration: ConfigurationExplanation | None
    """The active configuration."""


class TopKey(_KeyName):
    """How often a key was denied or admitted."""

    policy: str
    """The policy's name."""
    count: int
    """How often, in requests: estimated from a sample of them."""
    error: int
    """By how much the count is too high at most, because another key has had its counter before."""


class TopKeys(TypedDict):
    """The keys that a limiter has denied and admitted most often in this process: the answer to ``top_keys``."""

    denied: list[TopKey]
    """The keys that were denied, the most often denied first."""
    admitted: list[TopKey]
    """The keys that were admitted, the most often admitted first."""
    half_life_us: int
    """The time in which every count is halved."""
    counters: int
    """How many keys have a counter at most; 0 when keys are not counted."""
