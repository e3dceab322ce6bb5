"""What every framework's integration asks for, and how it is applied to one request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Union

from polylimit import keys
from polylimit._core import Decision, Policy, Problem, Quota, Request, header_fields, problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polylimit._core import AsyncLimiter, Limiter

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


@dataclass(frozen=True, eq=False)
class Guard:
    """The options of a limit, the same for every framework."""

    limiter: Any
    policy: Policies = None
    key: Key = field(default_factory=keys.client_address)
    cost: Cost = 1
    count: Callable[[Any], Any] | None = None
    skip: Callable[[Any], Any] | None = None
    on_denied: Callable[[Any, Denial], Any] | None = None
    on_outage: Callable[[Any, Denial], Any] | None = None
    headers: str = "ietf"

    def __post_init__(self) -> None:
        """Refuse a header style that is not known, as soon as it is given."""
        header_fields([], style=self.headers)

    @property
    def policies(self) -> Sequence[PolicyName]:
        """Give the policies, in the order in which they were given."""
        return self.policy if isinstance(self.policy, (list, tuple)) else [self.policy]


@dataclass
class Asked:
    """One guard with the key and cost of one request."""

    guard: Guard
    key: str | bytes
    cost: int

    @property
    def requests(self) -> list[Request]:
        """Give what is asked of the limiter."""
        return [Request(self.key, policy, cost=self.cost) for policy in self.guard.policies]

    def outcomes(self, limiter: Limiter | AsyncLimiter, decisions: Sequence[Decision]) -> list[Outcome]:
        """Put each decision beside its policy."""
        outcomes = []
        for name, decision in zip(self.guard.policies, decisions):
            policy = limiter.policies()[0] if name is None else limiter.policy(name)
            if policy is not None:
                outcomes.append((policy, decision))
        return outcomes


class Outcomes:
    """What the guards of one request decided."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.all: list[Outcome] = []
        self.denied_by: Asked | None = None
        #: The guards that were looked at, so that none is asked twice.
        self.seen: list[Guard] = []
        self._by_asked: list[list[Outcome]] = []

    def add(self, asked: Asked, outcomes: list[Outcome]) -> None:
        """Note what a guard decided."""
        self.asked.append(asked)
        self.all.extend(outcomes)
        self._by_asked.append(outcomes)
        if self.denied_by is None and not all(decision for _, decision in outcomes):
            self.denied_by = asked

    def denial(self) -> Denial | None:
        """Give what to answer, if a guard denied."""
        if self.denied_by is None:
            return None
        found = problem(self.all, cost=self.denied_by.cost)
        return None if found is None else Denial(self.all, found)

    def answer_of(self, denial: Denial) -> Callable[[Any, Denial], Any] | None:
        """Give the function that makes the response to a denial, if there is one."""
        if self.denied_by is None:
            return None
        guard = self.denied_by.guard
        return guard.on_denied if denial.problem.status == TOO_MANY_REQUESTS else guard.on_outage

    def fields(self) -> list[tuple[str, str]]:
        """Give the fields of the response; each guard's in its style."""
        styles = sorted({asked.guard.headers for asked in self.asked})
        if len(styles) == 1:
            return header_fields(self.all, style=styles[0])
        # How long to wait is told once, over all guards and in any style.
        fields = header_fields(self.all, style="none")
        waits = [name for name, _ in fields]
        for style in styles:
            of_style = [
                outcome
                for asked, outcomes in zip(self.asked, self._by_asked)
                if asked.guard.headers == style
                for outcome in outcomes
            ]
            fields.extend(pair for pair in header_fields(of_style, style=style) if pair[0] not in waits)
        return fields

    def uncounted(self, response: Any) -> list[tuple[Asked, PolicyName]]:
        """Give what was reserved for a response that does not count."""
        given_back: list[tuple[Asked, PolicyName]] = []
        for asked, outcomes in zip(self.asked, self._by_asked):
            count = asked.guard.count
            if count is not None and not count(response):
                named = zip(asked.guard.policies, outcomes)
                given_back.extend((asked, name) for name, (_, decision) in named if decision)
        return given_back


def key_of(guard: Guard, request: Any, facts: keys.Facts) -> Any:
    """Give the key of a request, or what has to be awaited for it."""
    key = guard.key
    return key(request) if callable(key) else key.of(facts)


def cost_of(guard: Guard, request: Any) -> Any:
    """Give the cost of a request, or what has to be awaited for it."""
    return guard.cost(request) if callable(guard.cost) else guard.cost


def by_limiter(asked: Sequence[Asked]) -> list[tuple[Any, list[Asked]]]:
    """Group what is asked by whom: each limiter is asked once."""
    groups: list[tuple[Any, list[Asked]]] = []
    for one in asked:
        for limiter, group in groups:
            if limiter is one.guard.limiter:
                group.append(one)
                break
        else:
            groups.append((one.guard.limiter, [one]))
    return groups


def decide(asked: Sequence[Asked], outcomes: Outcomes) -> None:
    """Decide all that is asked, in one round trip for each limiter."""
    for limiter, group in by_limiter(asked):
        decisions = iter(limiter.check_many([request for one in group for request in one.requests]))
        for one in group:
            outcomes.add(one, one.outcomes(limiter, [next(decisions) for _ in one.guard.policies]))


async def decide_async(asked: Sequence[Asked], outcomes: Outcomes) -> None:
    """Decide all that is asked, in one round trip for each limiter."""
    for limiter, group in by_limiter(asked):
        requests = [request for one in group for request in one.requests]
        decisions = iter(await asynchronous(limiter).check_many(requests))
        for one in group:
            outcomes.add(one, one.outcomes(limiter, [next(decisions) for _ in one.guard.policies]))


def asynchronous(limiter: Any) -> Any:
    """Give the face for event loops of either face."""
    return getattr(limiter, "asynchronous", limiter)


def give_back(outcomes: Outcomes, response: Any) -> None:
    """Refund what was reserved for a response that does not count."""
    for asked, policy in outcomes.uncounted(response):
        asked.guard.limiter.refund(asked.key, policy, cost=asked.cost)


async def give_back_async(outcomes: Outcomes, response: Any) -> None:
    """Refund what was reserved for a response that does not count."""
    for asked, policy in outcomes.uncounted(response):
        await asynchronous(asked.guard.limiter).refund(asked.key, policy, cost=asked.cost)
