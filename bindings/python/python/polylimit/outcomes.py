"""What the guards of one request decide together, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from polylimit._core import AsyncLimiter, Decision, Passed, Request, Usage, header_fields, problem, refunded
from polylimit.guard import Denial

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Self

    from polylimit.guard import Guard, Outcome

#: RFC 6585, section 4.
TOO_MANY_REQUESTS = 429


class Asked:
    """One guard with the key and cost of one request."""

    __slots__ = ("cost", "guard", "key", "policies")

    def __init__(self, guard: Guard, key: str | bytes | int, cost: int, policies: Sequence[str]) -> None:
        self.guard = guard
        self.key = key
        self.cost = cost
        self.policies = policies


class Charge:
    """What a request spends of one policy for one key, however many guards ask for it: the highest of their costs."""

    __slots__ = ("_key", "asked_by", "decision", "key", "limiter", "policy", "spent")

    def __init__(self, asked: Asked, policy: str) -> None:
        self.limiter = asked.guard.limiter
        self.policy = policy
        self.key = asked.key
        self._key = _bytes_of(asked.key)
        self.asked_by = [asked]
        self.decision: Decision | None = None
        #: The units that are taken, and may have to be given back.
        self.spent = 0

    def is_of(self, asked: Asked, policy: str) -> bool:
        """Tell whether a guard asks for the same."""
        return self.policy == policy and self.limiter is asked.guard.limiter and self._key == _bytes_of(asked.key)

    @property
    def cost(self) -> int:
        """Give the units that the request costs."""
        return max(asked.cost for asked in self.asked_by) if len(self.asked_by) > 1 else self.asked_by[0].cost

    @property
    def style(self) -> str:
        """Give the style of the fields that tell of it."""
        return self.asked_by[0].guard.headers

    def outcomes(self) -> list[Outcome]:
        """Put the decision beside its policy, with the numbers that it has by now."""
        return [] if self.decision is None else [(self.limiter.policy_for(self.policy), self.decision)]

    def note_refund(self, usage: Usage) -> None:
        """Note what is left of a policy whose units were given back, for the response."""
        if self.decision is not None:
            self.decision = refunded(self.decision, usage)


class Outcomes:
    """What the guards of one request decided."""

    __slots__ = ("charges", "counts_later", "denied_by", "seen")

    def __init__(self) -> None:
        self.charges: list[Charge] = []
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
        asked = Asked(passed.guard, passed.key, passed.guard.cost, passed.guard.policies)
        outcomes.seen.append(asked.guard)
        outcomes.note(outcomes.add([asked]), [passed.decision])
        passed.outcomes = outcomes
        return outcomes

    def add(self, asked: Iterable[Asked]) -> list[Charge]:
        """Give the charges that guards ask for and that are not decided, or not for all of their cost."""
        undecided: list[Charge] = []
        for one in asked:
            self.counts_later = self.counts_later or one.guard.count is not None
            for policy in one.policies:
                same = next((charge for charge in self.charges if charge.is_of(one, policy)), None)
                if same is None:
                    same = Charge(one, policy)
                    self.charges.append(same)
                    undecided.append(same)
                    continue
                same.asked_by.append(one)
                if same not in undecided and same.cost > same.spent:
                    undecided.append(same)
        return undecided

    def note(self, group: Sequence[Charge], decisions: Sequence[Decision]) -> None:
        """Note what a limiter decided; what is denied together is spent by none."""
        is_spent = all(decisions)
        for charge, decision in zip(group, decisions):
            charge.decision = decision
            if is_spent:
                charge.spent = charge.cost
            elif self.denied_by is None and not decision:
                self.denied_by = max(charge.asked_by, key=lambda asked: asked.cost)

    def all(self) -> list[Outcome]:
        """Give every policy with its decision."""
        return [outcome for charge in self.charges for outcome in charge.outcomes()]

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
        if not self.charges:
            return []
        styles = sorted({charge.style for charge in self.charges})
        if len(styles) == 1:
            return header_fields(self.all(), style=styles[0])
        # How long to wait is told once, over all guards and in any style.
        fields = header_fields(self.all(), style="none")
        waits = [name for name, _ in fields]
        for style in styles:
            of_style = [one for charge in self.charges if charge.style == style for one in charge.outcomes()]
            fields.extend(pair for pair in header_fields(of_style, style=style) if pair[0] not in waits)
        return fields

    def uncounted(self, response: Any) -> tuple[list[tuple[Charge, int]], BaseException | None]:
        """Take what was reserved for a response that does not count, and give what was raised first by a ``count``."""
        counts: dict[int, bool] = {}
        raised: BaseException | None = None
        for asked in {
            id(asked): asked for charge in self.charges if charge.spent for asked in charge.asked_by
        }.values():
            try:
                counts[id(asked)] = asked.guard.count is None or bool(asked.guard.count(response))
            except BaseException as error:  # noqa: BLE001, PERF203
                counts[id(asked)] = True
                raised = raised or error
        uncounted = []
        for charge in self.charges:
            kept = max((asked.cost for asked in charge.asked_by if counts.get(id(asked))), default=0)
            if charge.spent > kept:
                uncounted.append((charge, charge.spent - kept))
                charge.spent = kept
        return uncounted, raised

    def take_all(self) -> list[tuple[Charge, int]]:
        """Take all that is spent, so that it is given back once."""
        spent = [(charge, charge.spent) for charge in self.charges if charge.spent]
        for charge, _ in spent:
            charge.spent = 0
        return spent


def _bytes_of(key: Any) -> Any:
    """Give what is equal for equal keys."""
    if isinstance(key, str):
        return key.encode("utf-8", "surrogatepass")
    return key if isinstance(key, bytes) else str(key).encode()


def _by_limiter(charges: Sequence[Charge]) -> list[list[Charge]]:
    """Group what is asked by the limiter: each is asked once."""
    groups: list[list[Charge]] = []
    for one in charges:
        for group in groups:
            if group[0].limiter is one.limiter:
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


def _requests(group: Sequence[Charge]) -> list[Request]:
    return [Request(charge.key, charge.policy, cost=charge.cost - charge.spent) for charge in group]


def decide(asked: Sequence[Asked], outcomes: Outcomes) -> None:
    """Decide all that is asked, in one round trip for each limiter; when one denies, nothing stays spent by any."""
    try:
        for group in _by_limiter(outcomes.add(asked)):
            limiter = group[0].limiter
            if len(group) == 1:
                one = group[0]
                outcomes.note(group, [limiter.check(one.key, one.policy, cost=one.cost - one.spent)])
            else:
                outcomes.note(group, limiter.check_together(_requests(group)))
    except BaseException:
        refund(outcomes.take_all())
        raise
    if outcomes.denied_by is not None:
        refund(outcomes.take_all())


async def decide_async(asked: Sequence[Asked], outcomes: Outcomes) -> None:
    """Decide all that is asked, in one round trip for each limiter; when one denies, nothing stays spent by any."""
    try:
        for group in _by_limiter(outcomes.add(asked)):
            limiter = asynchronous(group[0].limiter)
            if len(group) == 1:
                one = group[0]
                outcomes.note(group, [await limiter.check(one.key, one.policy, cost=one.cost - one.spent)])
            else:
                outcomes.note(group, await limiter.check_together(_requests(group)))
    except BaseException:
        await refund_async(outcomes.take_all())
        raise
    if outcomes.denied_by is not None:
        await refund_async(outcomes.take_all())


def asynchronous(limiter: Any) -> Any:
    """Give the face for event loops of either face."""
    return limiter if type(limiter) is AsyncLimiter else getattr(limiter, "asynchronous", limiter)


def refund(taken: Sequence[tuple[Charge, int]], raised: BaseException | None = None) -> None:
    """Give back what was taken; all of it, even when one of the refunds fails, and then raise what was raised first."""
    for charge, units in taken:
        try:
            charge.note_refund(charge.limiter.refund(charge.key, charge.policy, cost=units))
        except BaseException as error:  # noqa: BLE001, PERF203
            raised = raised or error
    if raised is not None:
        raise raised


async def refund_async(taken: Sequence[tuple[Charge, int]], raised: BaseException | None = None) -> None:
    """Give back what was taken; all of it, even when one of the refunds fails, and then raise what was raised first.

    A cancelled task may be so at every await, as under anyio: each refund is sent before it waits.
    """
    for charge, units in taken:
        try:
            limiter = asynchronous(charge.limiter)
            charge.note_refund(await limiter.refund(charge.key, charge.policy, cost=units))
        except BaseException as error:  # noqa: BLE001, PERF203
            raised = raised or error
    if raised is not None:
        raise raised


def give_back(outcomes: Outcomes, response: Any) -> None:
    """Refund what was reserved for a response that does not count."""
    if outcomes.counts_later:
        refund(*outcomes.uncounted(response))


async def give_back_async(outcomes: Outcomes, response: Any) -> None:
    """Refund what was reserved for a response that does not count."""
    if outcomes.counts_later:
        await refund_async(*outcomes.uncounted(response))
