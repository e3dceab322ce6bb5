"""What every framework's integration asks for, and how it is applied to one request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Callable, Union

from polylimit import keys
from polylimit._core import (
    AsyncLimiter,
    Decision,
    InvalidArgumentError,
    Passed,
    PlainGuard,
    Policy,
    PolylimitError,
    Problem,
    Quota,
    Request,
    Usage,
    header_fields,
    problem,
    refunded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

#: RFC 6585, section 4.
TOO_MANY_REQUESTS = 429

Outcome = tuple[Policy, Decision]
PolicyName = Union[str, Quota, None]
Policies = Union[PolicyName, list[PolicyName], tuple[PolicyName, ...]]
Key = Union[keys.ReadyKey, Callable[[Any], Any]]
Cost = Union[int, Callable[[Any], Any]]


@dataclass(frozen=True)
class Denial:
    """A denied request, for ``on_denied`` and ``on_outage``."""

    #: The policies that were applied, each with its decision.
    outcomes: Sequence[Outcome]
    #: What is answered unless told otherwise: ``problem.status`` is 429, or 503 when the store could not be asked.
    problem: Problem


class Guard:
    """The options of a limit, the same for every framework."""

    def __init__(
        self,
        limiter: Any,
        policy: Policies = None,
        *,
        key: Key | None = None,
        cost: Cost = 1,
        count: Callable[[Any], Any] | None = None,
        skip: Callable[[Any], Any] | None = None,
        on_denied: Callable[[Any, Denial], Any] | None = None,
        on_outage: Callable[[Any, Denial], Any] | None = None,
        headers: str = "ietf",
    ) -> None:
        # Refuses a style that is not known, as soon as it is given.
        header_fields([], style=headers)
        if count is not None:
            refuse_asynchronous("count", count)
        self.limiter = limiter
        #: In the order in which they were given.
        self.policies = several(policy)
        self.key = keys.client_address() if key is None else key
        self.cost = cost
        self.count = count
        self.skip = skip
        self.on_denied = on_denied
        self.on_outage = on_outage
        self.headers = headers
        #: Whether a function of the request is called before it is decided.
        self.asks_request = callable(self.key) or callable(cost) or skip is not None
        #: Whether the other end of the socket says whom a request counts for.
        self.is_by_peer = isinstance(self.key, keys.ClientAddress) and self.key.rules.header is None
        #: The same for every request, if it is: then all of it is done in one call.
        self.plain: PlainGuard | None = None
        if len(self.policies) == 1 and skip is None and count is None and not callable(cost):
            rules = self.key.rules if isinstance(self.key, keys.ClientAddress) else None
            self.plain = PlainGuard.of(self, limiter, self.policies[0], cost, rules, headers)


def refuse_asynchronous(name: str, given: Callable[..., Any]) -> None:
    """Refuse a function that nobody awaits: what it gives would be true for every response."""
    while isinstance(given, partial):
        given = given.func
    # The calls of an object are those of its class.
    if iscoroutinefunction(given) or (callable(given) and iscoroutinefunction(type(given).__call__)):
        called = getattr(given, "__qualname__", type(given).__qualname__)
        raise InvalidArgumentError(
            f"{name} is {called}, which is asynchronous: allowed is a function that gives true or false at once"
        )


def several(given: Policies) -> tuple[PolicyName, ...]:
    """Give the policies of a guard; refuse none, and one that a request would spend its cost on twice."""
    policies = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    allowed = 'allowed are a policy\'s name, quotas such as "100/minute", and a list of one or more different ones'
    if not policies:
        raise InvalidArgumentError(f"policy is {given!r}: {allowed}")
    if len(policies) > 1:
        meant = [_meaning(policy) for policy in policies]
        for at, one in enumerate(meant):
            if one in meant[:at]:
                raise InvalidArgumentError(f"policy is {given!r}, where {policies[at]!r} is there before: {allowed}")
    return policies


def _meaning(policy: PolicyName) -> object:
    """Give what is equal for all forms of the same quotas."""
    try:
        return policy if policy is None else Policy("any", policy).quotas
    except (PolylimitError, TypeError):
        # A name, or what is refused when it is asked for.
        return policy


class Asked:
    """One guard with the key and cost of one request, and what came of it."""

    __slots__ = ("cost", "decisions", "guard", "is_spent", "key")

    def __init__(self, guard: Guard, key: str | bytes, cost: int) -> None:
        self.guard = guard
        self.key = key
        self.cost = cost
        self.decisions: list[Decision] = []
        #: Whether its units are taken, so that they may have to be given back.
        self.is_spent = False

    @property
    def requests(self) -> list[Request]:
        """Give what is asked of the limiter."""
        return [Request(self.key, policy, cost=self.cost) for policy in self.guard.policies]

    def note_refund(self, at: int, usage: Usage) -> None:
        """Note what is left of a policy whose units were given back, for who is told of it."""
        self.decisions[at] = refunded(self.decisions[at], usage)

    def outcomes(self) -> list[Outcome]:
        """Put each decision beside its policy, with the numbers that it has by now."""
        policy_for = self.guard.limiter.policy_for
        return [(policy_for(name), decision) for name, decision in zip(self.guard.policies, self.decisions)]


class Outcomes:
    """What the guards of one request decided."""

    __slots__ = ("asked", "counts_later", "denied_by", "seen")

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.denied_by: Asked | None = None
        #: The guards that were looked at, so that none is asked twice.
        self.seen: list[Guard] = []
        #: Whether the response says what counts.
        self.counts_later = False

    @classmethod
    def of(cls, passed: Passed) -> Self:
        """Give what a plain guard decided, so that others can decide along with it."""
        known = passed.outcomes
        if isinstance(known, cls):
            return known
        outcomes = cls()
        asked = Asked(passed.guard, passed.key, passed.guard.cost)
        outcomes.seen.append(asked.guard)
        outcomes.note([asked], [passed.decision])
        passed.outcomes = outcomes
        return outcomes

    def all(self) -> list[Outcome]:
        """Give every policy with its decision."""
        return [outcome for asked in self.asked for outcome in asked.outcomes()]

    def denial(self) -> Denial | None:
        """Give what to answer, if a guard denied."""
        if self.denied_by is None:
            return None
        outcomes = self.all()
        found = problem(outcomes, cost=self.denied_by.cost)
        return None if found is None else Denial(outcomes, found)

    def answer_of(self, denial: Denial) -> Callable[[Any, Denial], Any] | None:
        """Give the function that makes the response to a denial, if there is one."""
        if self.denied_by is None:
            return None
        guard = self.denied_by.guard
        return guard.on_denied if denial.problem.status == TOO_MANY_REQUESTS else guard.on_outage

    def fields(self) -> list[tuple[str, str]]:
        """Give the fields of the response; each guard's in its style."""
        if not self.asked:
            return []
        if len(self.asked) == 1:
            return header_fields(self.asked[0].outcomes(), style=self.asked[0].guard.headers)
        styles = sorted({asked.guard.headers for asked in self.asked})
        if len(styles) == 1:
            return header_fields(self.all(), style=styles[0])
        # How long to wait is told once, over all guards and in any style.
        fields = header_fields(self.all(), style="none")
        waits = [name for name, _ in fields]
        for style in styles:
            of_style = [one for asked in self.asked if asked.guard.headers == style for one in asked.outcomes()]
            fields.extend(pair for pair in header_fields(of_style, style=style) if pair[0] not in waits)
        return fields

    def uncounted(self, response: Any) -> tuple[list[Asked], BaseException | None]:
        """Give what was reserved for a response that does not count, and what was raised first by who was asked."""
        uncounted = []
        raised: BaseException | None = None
        for asked in self.asked:
            if not asked.is_spent or asked.guard.count is None:
                continue
            try:
                if not asked.guard.count(response):
                    uncounted.append(asked)
            except BaseException as error:  # noqa: BLE001
                raised = raised or error
        return uncounted, raised

    def note(self, group: Sequence[Asked], decisions: Sequence[Decision]) -> None:
        """Note what a limiter decided; what is denied together is spent by none."""
        is_spent = all(decisions)
        at = 0
        for asked in group:
            end = at + len(asked.guard.policies)
            asked.decisions, asked.is_spent, at = list(decisions[at:end]), is_spent, end
            self.counts_later = self.counts_later or asked.guard.count is not None
            if self.denied_by is None and not all(asked.decisions):
                self.denied_by = asked
        self.asked.extend(group)


def key_of(guard: Guard, request: Any, facts: keys.Facts) -> Any:
    """Give the key of a request, or what has to be awaited for it."""
    key = guard.key
    return key(request) if callable(key) else key.of(facts)


def cost_of(guard: Guard, request: Any) -> Any:
    """Give the cost of a request, or what has to be awaited for it."""
    return guard.cost(request) if callable(guard.cost) else guard.cost


def by_limiter(asked: Sequence[Asked]) -> list[list[Asked]]:
    """Group what is asked by whom: each limiter is asked once."""
    groups: list[list[Asked]] = []
    for one in asked:
        for group in groups:
            if group[0].guard.limiter is one.guard.limiter:
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


def decide(asked: Sequence[Asked], outcomes: Outcomes) -> None:
    """Decide all that is asked, in one round trip for each limiter; when one denies, nothing stays spent by any."""
    try:
        if len(asked) == 1 and len(asked[0].guard.policies) == 1:
            one = asked[0]
            outcomes.note(asked, [one.guard.limiter.check(one.key, one.guard.policies[0], cost=one.cost)])
        else:
            for group in by_limiter(asked):
                requests = [request for one in group for request in one.requests]
                outcomes.note(group, group[0].guard.limiter.check_together(requests))
    except BaseException:
        refund(outcomes.asked)
        raise
    if outcomes.denied_by is not None:
        refund(outcomes.asked)


async def decide_async(asked: Sequence[Asked], outcomes: Outcomes) -> None:
    """Decide all that is asked, in one round trip for each limiter; when one denies, nothing stays spent by any."""
    try:
        if len(asked) == 1 and len(asked[0].guard.policies) == 1:
            one = asked[0]
            limiter = asynchronous(one.guard.limiter)
            outcomes.note(asked, [await limiter.check(one.key, one.guard.policies[0], cost=one.cost)])
        else:
            for group in by_limiter(asked):
                requests = [request for one in group for request in one.requests]
                outcomes.note(group, await asynchronous(group[0].guard.limiter).check_together(requests))
    except BaseException:
        await refund_async(outcomes.asked)
        raise
    if outcomes.denied_by is not None:
        await refund_async(outcomes.asked)


def asynchronous(limiter: Any) -> Any:
    """Give the face for event loops of either face."""
    return limiter if type(limiter) is AsyncLimiter else getattr(limiter, "asynchronous", limiter)


def refund(asked: Sequence[Asked], raised: BaseException | None = None) -> None:
    """Give back what is spent; all of it, even when one of the refunds fails, and then raise what was raised first."""
    for one, at, policy in _spent(asked):
        try:
            one.note_refund(at, one.guard.limiter.refund(one.key, policy, cost=one.cost))
        except BaseException as error:  # noqa: BLE001, PERF203
            raised = raised or error
    if raised is not None:
        raise raised


async def refund_async(asked: Sequence[Asked], raised: BaseException | None = None) -> None:
    """Give back what is spent; all of it, even when one of the refunds fails, and then raise what was raised first.

    Whoever is cancelled may be so at every await, as under anyio: each refund is sent before it waits.
    """
    for one, at, policy in _spent(asked):
        try:
            one.note_refund(at, await asynchronous(one.guard.limiter).refund(one.key, policy, cost=one.cost))
        except BaseException as error:  # noqa: BLE001, PERF203
            raised = raised or error
    if raised is not None:
        raise raised


def _spent(asked: Sequence[Asked]) -> list[tuple[Asked, int, PolicyName]]:
    """Take what is to be given back, so that nobody gives it back again."""
    spent = [one for one in asked if one.is_spent]
    for one in spent:
        one.is_spent = False
    return [(one, at, policy) for one in spent for at, policy in enumerate(one.guard.policies)]


def give_back(outcomes: Outcomes, response: Any) -> None:
    """Refund what was reserved for a response that does not count."""
    if outcomes.counts_later:
        refund(*outcomes.uncounted(response))


async def give_back_async(outcomes: Outcomes, response: Any) -> None:
    """Refund what was reserved for a response that does not count."""
    if outcomes.counts_later:
        await refund_async(*outcomes.uncounted(response))
