"""The combined decision of all guards of one request: reserving units, merging decisions, and refunding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from polylimit._core import AsyncLimiter, Decision, GuardResult, Request, Usage, header_fields, problem, refunded
from polylimit.guard import Denial

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Self

    from polylimit.guard import Guard, Outcome

#: RFC 6585, section 4.
TOO_MANY_REQUESTS = 429


class GuardRequest:
    """A guard with the key, the cost and the policies of one request."""

    __slots__ = ("cost", "guard", "key", "policies")

    def __init__(self, guard: Guard, key: str | bytes | int, cost: int, policies: Sequence[str]) -> None:
        self.guard = guard
        self.key = key
        self.cost = cost
        self.policies = policies


class PolicyCharge:
    """The units that a request spends under one policy for one key.

    Several guards of the request may ask for the same policy and key: it is charged once, with the highest cost.
    """

    __slots__ = ("_key", "decision", "key", "limiter", "policy", "requests", "spent")

    def __init__(self, request: GuardRequest, policy: str) -> None:
        self.limiter = request.guard.limiter
        self.policy = policy
        self.key = request.key
        self._key = _normalize(request.key)
        self.requests = [request]
        self.decision: Decision | None = None
        #: The units that are reserved so far and may be refunded.
        self.spent = 0

    def matches(self, request: GuardRequest, policy: str) -> bool:
        """Return whether a guard asks for the same policy and key."""
        return self.policy == policy and self.limiter is request.guard.limiter and self._key == _normalize(request.key)

    @property
    def cost(self) -> int:
        """Return the highest cost of the guards."""
        return max(request.cost for request in self.requests) if len(self.requests) > 1 else self.requests[0].cost

    @property
    def style(self) -> str:
        """Return the style of its header fields."""
        return self.requests[0].guard.headers

    def outcomes(self) -> list[Outcome]:
        """Return the policy, with its current quotas, and the decision; an empty list before the decision."""
        return [] if self.decision is None else [(self.limiter.policy_for(self.policy), self.decision)]

    def add_refund(self, usage: Usage) -> None:
        """Update the decision with what is left after a refund, for the response."""
        if self.decision is not None:
            self.decision = refunded(self.decision, usage)


class Outcomes:
    """The decisions of all guards of one request."""

    __slots__ = ("charges", "denied_by", "has_count", "seen")

    def __init__(self) -> None:
        self.charges: list[PolicyCharge] = []
        self.denied_by: GuardRequest | None = None
        #: The guards that have decided, so that none decides twice.
        self.seen: list[Guard] = []
        #: Whether a guard has a ``count``, which is called with the response.
        self.has_count = False

    @classmethod
    def from_result(cls, result: GuardResult) -> Self:
        """Convert the result of the fast path, so that further guards can be added."""
        existing = result.outcomes
        if isinstance(existing, cls):
            return existing
        outcomes = cls()
        request = GuardRequest(result.guard, result.key, result.guard.cost, result.guard.policies)
        outcomes.seen.append(request.guard)
        outcomes.record(outcomes.add([request]), [result.decision])
        result.outcomes = outcomes
        return outcomes

    def add(self, requests: Iterable[GuardRequest]) -> list[PolicyCharge]:
        """Add the requests of guards; return the charges that are undecided or decided for less than their cost."""
        undecided: list[PolicyCharge] = []
        for one in requests:
            self.has_count = self.has_count or one.guard.count is not None
            for policy in one.policies:
                same = next((charge for charge in self.charges if charge.matches(one, policy)), None)
                if same is None:
                    same = PolicyCharge(one, policy)
                    self.charges.append(same)
                    undecided.append(same)
                    continue
                same.requests.append(one)
                if same not in undecided and same.cost > same.spent:
                    undecided.append(same)
        return undecided

    def record(self, group: Sequence[PolicyCharge], decisions: Sequence[Decision]) -> None:
        """Record the decisions of one limiter: if it denied one charge, it spent nothing for the others."""
        is_spent = all(decisions)
        for charge, decision in zip(group, decisions):
            charge.decision = decision
            if is_spent:
                charge.spent = charge.cost
            elif self.denied_by is None and not decision:
                self.denied_by = max(charge.requests, key=lambda request: request.cost)

    def all(self) -> list[Outcome]:
        """Return every policy with its decision."""
        return [outcome for charge in self.charges for outcome in charge.outcomes()]

    def denial(self) -> Denial | None:
        """Return the denial, if a guard denied."""
        if self.denied_by is None:
            return None
        outcomes = self.all()
        found = problem(outcomes, cost=self.denied_by.cost)
        return None if found is None else Denial(outcomes, found)

    def denial_handler(self, denial: Denial) -> Callable[[Any, Denial], Any] | None:
        """Return the user's function that makes the response to a denial, if there is one."""
        if self.denied_by is None:
            return None
        guard = self.denied_by.guard
        return guard.on_denied if denial.problem.status == TOO_MANY_REQUESTS else guard.on_outage

    def fields(self) -> list[tuple[str, str]]:
        """Return the header fields of the response, those of each guard in its style."""
        if not self.charges:
            return []
        styles = sorted({charge.style for charge in self.charges})
        if len(styles) == 1:
            return header_fields(self.all(), style=styles[0])
        # The response has one `retry-after`, for all guards and styles together.
        fields = header_fields(self.all(), style="none")
        common = [name for name, _ in fields]
        for style in styles:
            of_style = [one for charge in self.charges if charge.style == style for one in charge.outcomes()]
            fields.extend(pair for pair in header_fields(of_style, style=style) if pair[0] not in common)
        return fields

    def take_uncounted(self, response: Any) -> tuple[list[tuple[PolicyCharge, int]], BaseException | None]:
        """Take back the units of guards whose ``count`` is false for the response.

        Return them with the first exception that a ``count`` raised. A ``count`` that raises keeps its units.
        """
        counts: dict[int, bool] = {}
        raised: BaseException | None = None
        for request in {
            id(request): request for charge in self.charges if charge.spent for request in charge.requests
        }.values():
            try:
                counts[id(request)] = request.guard.count is None or bool(request.guard.count(response))
            except BaseException as error:  # noqa: BLE001, PERF203
                counts[id(request)] = True
                raised = raised or error
        uncounted = []
        for charge in self.charges:
            kept = max((request.cost for request in charge.requests if counts.get(id(request))), default=0)
            if charge.spent > kept:
                uncounted.append((charge, charge.spent - kept))
                charge.spent = kept
        return uncounted, raised

    def take_all(self) -> list[tuple[PolicyCharge, int]]:
        """Take back all reserved units, so that they are refunded once."""
        spent = [(charge, charge.spent) for charge in self.charges if charge.spent]
        for charge, _ in spent:
            charge.spent = 0
        return spent


def _normalize(key: Any) -> Any:
    """Return a value that is equal for equal keys."""
    if isinstance(key, str):
        return key.encode("utf-8", "surrogatepass")
    return key if isinstance(key, bytes) else str(key).encode()


def _by_limiter(charges: Sequence[PolicyCharge]) -> list[list[PolicyCharge]]:
    """Group the charges by limiter, so that each limiter is called once."""
    groups: list[list[PolicyCharge]] = []
    for one in charges:
        for group in groups:
            if group[0].limiter is one.limiter:
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


def _requests(group: Sequence[PolicyCharge]) -> list[Request]:
    return [Request(charge.key, charge.policy, cost=charge.cost - charge.spent) for charge in group]


def decide(requests: Sequence[GuardRequest], outcomes: Outcomes) -> None:
    """Decide with one round trip for each limiter; if one of them denies, the units of all are refunded."""
    try:
        for group in _by_limiter(outcomes.add(requests)):
            limiter = group[0].limiter
            if len(group) == 1:
                one = group[0]
                outcomes.record(group, [limiter.check(one.key, one.policy, cost=one.cost - one.spent)])
            else:
                outcomes.record(group, limiter.check_together(_requests(group)))
    except BaseException:
        refund(outcomes.take_all())
        raise
    if outcomes.denied_by is not None:
        refund(outcomes.take_all())


async def decide_async(requests: Sequence[GuardRequest], outcomes: Outcomes) -> None:
    """Decide with one round trip for each limiter; if one of them denies, the units of all are refunded."""
    try:
        for group in _by_limiter(outcomes.add(requests)):
            limiter = asynchronous(group[0].limiter)
            if len(group) == 1:
                one = group[0]
                outcomes.record(group, [await limiter.check(one.key, one.policy, cost=one.cost - one.spent)])
            else:
                outcomes.record(group, await limiter.check_together(_requests(group)))
    except BaseException:
        await refund_async(outcomes.take_all())
        raise
    if outcomes.denied_by is not None:
        await refund_async(outcomes.take_all())


def asynchronous(limiter: Any) -> Any:
    """Return the ``AsyncLimiter`` of a limiter of either class."""
    return limiter if type(limiter) is AsyncLimiter else getattr(limiter, "asynchronous", limiter)


def refund(taken: Sequence[tuple[PolicyCharge, int]], raised: BaseException | None = None) -> None:
    """Refund all charges, even if one refund fails, and then raise the first exception."""
    for charge, units in taken:
        try:
            charge.add_refund(charge.limiter.refund(charge.key, charge.policy, cost=units))
        except BaseException as error:  # noqa: BLE001, PERF203
            raised = raised or error
    if raised is not None:
        raise raised


async def refund_async(taken: Sequence[tuple[PolicyCharge, int]], raised: BaseException | None = None) -> None:
    """Refund all charges, even if one refund fails, and then raise the first exception.

    Under anyio a cancelled task is cancelled again at every await: each refund is sent before its await yields.
    """
    for charge, units in taken:
        try:
            limiter = asynchronous(charge.limiter)
            charge.add_refund(await limiter.refund(charge.key, charge.policy, cost=units))
        except BaseException as error:  # noqa: BLE001, PERF203
            raised = raised or error
    if raised is not None:
        raise raised


def refund_uncounted(outcomes: Outcomes, response: Any) -> None:
    """Refund the units of guards whose ``count`` is false for the response."""
    if outcomes.has_count:
        refund(*outcomes.take_uncounted(response))


async def refund_uncounted_async(outcomes: Outcomes, response: Any) -> None:
    """Refund the units of guards whose ``count`` is false for the response."""
    if outcomes.has_count:
        await refund_async(*outcomes.take_uncounted(response))
