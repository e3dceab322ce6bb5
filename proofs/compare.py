"""Compares the models with the code: the models compute cases with integers, and a program of the core answers the
same cases.

A case is a state, a time and a cost; both answer what a check, a peek, a take, a charge and a refund of it return and
leave.
"""

from __future__ import annotations

import math
import random
import subprocess
from dataclasses import dataclass, fields
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

import fixed_window
import sliding_log
import sliding_window
import stepped_bucket
import token_bucket
from prover import EXACT, MAX_UNITS, MAX_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

LONGEST_US = 366 * 86_400 * 10**6
SHORTEST_US = 1_000
BUCKETS = ("token_bucket", "leaky_bucket")
# A bucket whose state was written under other numbers.
CHANGED = "changed_bucket"
# How many cases one run of the program answers.
BATCH = 25_000


class Quota(NamedTuple):
    """The numbers of a quota, as the builder gets them."""

    algorithm: str
    limit: int
    period_us: int
    burst: int = 0
    step: int = 0
    buckets: int = 0
    aligned: bool = False
    excess: int = 0

    @property
    def capacity(self) -> int:
        """`Quota::capacity`."""
        return (self.burst or self.limit) + self.excess

    @property
    def width_us(self) -> int:
        """The width of a sub-window."""
        return self.period_us // self.buckets

    def text(self) -> str:
        """As the parser reads it."""
        settings = {"burst": self.burst, "step": self.step, "buckets": self.buckets, "excess": self.excess}
        given = [f"{name}={number}" for name, number in settings.items() if number]
        return " ".join([f"{self.limit}/{self.period_us}us", self.algorithm, *given, *["aligned"] * self.aligned])


class Case(NamedTuple):
    """A state as numbers, a time and a cost."""

    now_us: int
    cost: int
    numbers: Sequence[int]

    def line(self) -> str:
        """As the program reads it."""
        return f"{self.now_us} {self.cost} {listed(self.numbers)}"


def listed(numbers: Sequence[int]) -> str:
    """The numbers of a state, or that there are none."""
    return ",".join(map(str, numbers)) or "-"


def finest(span_us: int, largest_product: Callable[[int], int]) -> int | None:
    """`tick::finest`."""
    tick_us = 1
    while span_us % tick_us == 0:
        if largest_product(span_us // tick_us) <= EXACT:
            return tick_us
        tick_us *= 10
    return None


def tick_of(quota: Quota) -> int | None:
    """`builder::checked_tick_us`; nothing when the builder refuses the quota."""
    saturated = 8 * quota.capacity
    if quota.step:
        span = quota.step * quota.period_us
        fits = span % quota.limit == 0 and -(-saturated // quota.step) * (span // quota.limit) <= EXACT
        return 1 if fits else None
    if quota.algorithm in BUCKETS:
        tick = finest(quota.period_us, lambda period: saturated * (period // math.gcd(quota.limit, period)))
        if tick is None:
            return None
        ticks = -(-saturated * quota.period_us // (quota.limit * tick))
        return tick if ticks * tick < 2**63 else None
    if quota.algorithm == "sliding_window":
        return finest(quota.width_us, lambda width: saturated * width)
    return 1


class OldState(NamedTuple):
    """The state of a bucket that was written under other numbers."""

    debt: int
    at: int
    limit: int
    exponent: int


@dataclass
class ChangedBucket(token_bucket.TokenBucket):
    """A bucket whose states may have been written under other numbers."""

    limit: int
    period_us: int

    def known(self, state: Any) -> Any:  # noqa: ANN401
        """`as_of`: a state of the same numbers is not converted, whatever the burst was."""
        is_same = isinstance(state, OldState) and (state.limit, 10**state.exponent) == (self.limit, self.tick_us)
        return token_bucket.State(state.debt, state.at) if is_same else state

    def as_of(self, state: Any, now_us: Any) -> token_bucket.State:  # noqa: ANN401
        """`as_of`: converts such a state first."""
        state = self.known(state)
        if isinstance(state, OldState):
            old_tick_us = 10**state.exponent
            # `converted`: the rate under the old numbers.
            old_rate = state.limit // math.gcd(state.limit, self.period_us // old_tick_us)
            conversion = token_bucket.Conversion(old_rate, old_tick_us, self.rate, self.tick_us)
            state = conversion.converted(state.debt, state.at)
        return super().as_of(state, now_us)

    def rewind(self, state: Any, now_us: Any) -> Any:  # noqa: ANN401
        """`rewind`: such a state is ahead when its time is."""
        state = self.known(state)
        if isinstance(state, OldState):
            return self.as_of(state, now_us) if state.at * 10**state.exponent > now_us else state
        return super().rewind(state, now_us)


class Model:
    """The rules of one quota by its model, which has the methods of the trait `Rules`."""

    def __init__(self, quota: Quota, tick_us: int) -> None:
        self.capacity = quota.capacity
        self.kind = quota.algorithm
        self.tick_us = tick_us
        self.buckets = quota.buckets
        # The models have no common type: each has the states of its algorithm.
        self.rules: Any = rules_of(quota, tick_us)

    def state(self, numbers: Sequence[int]) -> Any:  # noqa: ANN401
        """The state with these numbers."""
        if isinstance(self.rules, sliding_log.SlidingLog):
            entries = zip(numbers[::2], numbers[1::2], strict=True)
            return sliding_log.State(tuple(sliding_log.Entry(at_us, total) for at_us, total in entries), 0)
        if isinstance(self.rules, sliding_window.SlidingWindow):
            return sliding_window.State(numbers[0], numbers[1:]) if numbers else sliding_window.State(0, ())
        if isinstance(self.rules, fixed_window.FixedWindow):
            return fixed_window.State(*(numbers or (0, 0)))
        if isinstance(self.rules, stepped_bucket.SteppedBucket):
            return stepped_bucket.State(*(numbers or (0, 0)))
        if len(numbers) == len(OldState._fields):
            return OldState(*numbers)
        return token_bucket.State(*(numbers or (0, 0)))

    def numbers(self, state: Any) -> Sequence[int]:  # noqa: ANN401
        """The numbers of a state; none when nothing is used."""
        if isinstance(state, sliding_log.State):
            return [number for at_us, total in state.entries for number in (at_us, total - state.before)]
        if isinstance(state, sliding_window.State):
            return [state.newest, *state.counts] if any(state.counts) else []
        return state[:2] if state[0] else ()

    def answer(self, case: Case) -> str:
        """What `PolicyRules::apply` and `PolicyRules::explain` give for each operation."""
        now_us, cost, _ = case
        before, rules = self.state(case.numbers), self.rules
        remaining = rules.remaining(before, now_us)
        rewound = rules.rewind(before, now_us)
        admits = cost <= remaining
        taken = min(cost, remaining)
        checked = rules.spend(before, now_us, cost) if admits and cost else rewound
        took = rules.spend(before, now_us, taken) if taken else rewound
        charged = rules.spend(before, now_us, min(cost, rules.room(before, now_us))) if cost else rewound
        refunded = rules.refund(before, now_us, cost) if cost else rewound
        return "".join(
            (
                self.shown(case, checked, cost if admits else 0, allowed=admits),
                self.shown(case, before, 0, allowed=admits),
                self.shown(case, took, taken, allowed=True),
                self.shown(case, charged, 0, allowed=True),
                self.shown(case, refunded, 0, allowed=True),
            )
        )

    def shown(self, case: Case, after: Any, spent: int, *, allowed: bool) -> str:  # noqa: ANN401
        """`Rules::explain`, and the state."""
        now_us, cost, _ = case
        retry, delay = "0", 0
        if not allowed:
            retry = "never" if cost > self.capacity else str(self.retry_after_us(after, now_us, cost))
        elif cost and self.kind == "leaky_bucket":
            delay = self.rules.turn_after_us(after, now_us, spent)
        left, reset_us = self.rules.remaining(after, now_us), self.rules.reset_after_us(after, now_us)
        return f"{int(allowed)} {spent} {left} {retry} {reset_us} {delay} {listed(self.numbers(after))};"

    def retry_after_us(self, state: Any, now_us: int, cost: int) -> int:  # noqa: ANN401
        """`retry_after_us`; a fixed window needs no cost."""
        if isinstance(self.rules, fixed_window.FixedWindow):
            return int(self.rules.retry_after_us(state, now_us))
        return int(self.rules.retry_after_us(state, now_us, cost))


def rules_of(quota: Quota, tick_us: int) -> object:
    """`QuotaRules::new`."""
    if quota.step:
        return stepped_bucket.SteppedBucket(quota.step, quota.step * quota.period_us // quota.limit, quota.capacity)
    if quota.algorithm in BUCKETS:
        period = quota.period_us // tick_us
        divisor = math.gcd(quota.limit, period)
        token, rate = period // divisor, quota.limit // divisor
        return ChangedBucket(token, rate, quota.capacity, tick_us, quota.limit, quota.period_us)
    if quota.algorithm == "fixed_window":
        kind = fixed_window.AlignedWindow if quota.aligned else fixed_window.FixedWindow
        return kind(quota.capacity, quota.period_us)
    if quota.algorithm == "sliding_window":
        return sliding_window.SlidingWindow(quota.capacity, quota.buckets, quota.width_us // tick_us, tick_us)
    return sliding_log.SlidingLog(quota.capacity, quota.period_us)


# Small numbers, all of them.


def small_buckets() -> Iterator[tuple[Quota, Iterator[Case]]]:
    """Tokens worth 1 to 5 and rates of 1 to 3 in buckets of 1 to 3: every debt up to beyond saturation, two times of
    the state, every time up to when an empty bucket is full, every cost up to beyond the capacity.
    """
    for algorithm, limit, burst in product(BUCKETS, (200, 250, 400, 500, 750, 1_000, 1_500, 3_000), (1, 2, 3)):
        divisor = math.gcd(limit, 1_000)
        empty = burst * (1_000 // divisor)
        wait = -(-empty // (limit // divisor))
        states = ((debt, at) for debt in range(8 * empty + 2) for at in (0, 3))
        cases = (
            Case(now, cost, (debt, at)) for (debt, at) in states for now in range(wait + 5) for cost in range(burst + 2)
        )
        yield Quota(algorithm, limit, SHORTEST_US, burst=burst), cases


def small_stepped() -> Iterator[tuple[Quota, Iterator[Case]]]:
    """Intervals of 1 to 6 microseconds, steps of 1 to 3, buckets of 1 to 4: every use up to beyond saturation, every
    time until an empty bucket is full and some later ones, every cost up to beyond the capacity.
    """
    for limit, step, burst in product((500, 1_000), (1, 2, 3), (1, 2, 3, 4)):
        interval = step * 1_000 // limit
        span = -(-burst // step) * interval + 4
        states = product(range(8 * burst + 2), (0, 2))
        cases = (
            Case(now, cost, state if state[0] else ())
            for state in states
            for now in range(span)
            for cost in range(burst + 2)
        )
        yield Quota("token_bucket", limit, SHORTEST_US, burst=burst, step=step), cases


def small_windows() -> Iterator[tuple[Quota, Iterator[Case]]]:
    """Windows of a millisecond and a capacity of 2: every time of three windows, and counts below, at and above the
    capacity.
    """
    for aligned in (False, True):
        states = [(), *product((1, 2, 3, 16), (0, 999, 1_000, 1_500))]
        cases = (Case(now, cost, state) for state in states for now in range(3_001) for cost in (1, 2))
        yield Quota("fixed_window", 2, SHORTEST_US, aligned=aligned), cases


def small_sliding() -> Iterator[tuple[Quota, Iterator[Case]]]:
    """One to three sub-windows and a capacity of 1 to 3: every count up to one more than the capacity, every
    sub-window from two before the newest to two after the last one that counts, several times in each, every cost up
    to beyond the capacity.
    """
    for buckets, limit in product((1, 2, 3), (1, 2, 3)):
        width = 1_002 // buckets
        counts = product(range(limit + 2), repeat=buckets + 1)
        places = list(product(range(1, buckets + 5), (0, 1, width // 3, width // 2, width - 1)))
        cases = (
            Case(number * width + elapsed, cost, (3, *each))
            for each in counts
            for number, elapsed in places
            for cost in range(limit + 2)
        )
        yield Quota("sliding_window", limit, width * buckets, buckets=buckets), cases


def small_logs() -> Iterator[tuple[Quota, Iterator[Case]]]:
    """Logs of up to three entries of 1 or 2 units, at times around a period, for a capacity of 3."""
    moments = (0, 1, 2, 500, 999, 1_000, 1_001, 1_002)
    clock = (0, 1, 2, 3, 500, 999, 1_000, 1_001, 1_002, 1_003, 1_500, 1_999, 2_000, 2_001, 2_002, 2_003)
    for length in range(4):
        times = [each for each in product(moments, repeat=length) if all(a < b for a, b in pairwise(each))]
        states = [log_of(each, units) for each in times for units in product((1, 2), repeat=length)]
        cases = (Case(now, cost, state) for state in states for now in clock for cost in range(5))
        yield Quota("sliding_log", 3, SHORTEST_US), cases


def log_of(times: Sequence[int], units: Sequence[int]) -> list[int]:
    """A log of these entries."""
    total, numbers = 0, []
    for at_us, spent in zip(times, units, strict=True):
        total += spent
        numbers += [at_us, total]
    return numbers


# Random numbers over the whole ranges.


def some_units(source: random.Random) -> int:
    """Of every size up to the largest."""
    return min(
        MAX_UNITS,
        source.choice(
            (
                source.randint(1, 9),
                source.randint(1, 1_000),
                int(10 ** source.uniform(0, 12)),
                MAX_UNITS - source.randint(0, 9),
            )
        ),
    )


def some_period(source: random.Random) -> int:
    """Of every length, round and not."""
    unit = source.choice((1, 1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000))
    most, least = LONGEST_US // unit, -(-SHORTEST_US // unit)
    return unit * min(most, max(least, int(least * (most / least) ** source.random())))


def some_quota(source: random.Random, algorithm: str) -> Quota:
    """Mostly one that the builder admits."""
    limit, period_us = some_units(source), some_period(source)
    excess = source.choice((0, 0, 0, source.randint(0, limit)))
    if algorithm == "stepped_bucket":
        # The interval is chosen first, so that it is whole.
        step, times = some_units(source) % 10**6 + 1, source.randint(1, 50)
        interval_us = max(20, period_us // 50) if source.random() < 0.9 else period_us
        interval_us = min(LONGEST_US // times, max(interval_us, -(-SHORTEST_US // times)))
        burst = source.choice((0, some_units(source)))
        return Quota("token_bucket", step * times, interval_us * times, burst=burst, step=step)
    if algorithm in {*BUCKETS, CHANGED}:
        algorithm = source.choice(BUCKETS) if algorithm == CHANGED else algorithm
        return Quota(algorithm, limit, period_us, burst=source.choice((0, some_units(source))), excess=excess)
    if algorithm == "sliding_window":
        buckets = source.choice((1, 2, 3, 10, source.randint(1, 60)))
        return Quota(algorithm, limit, max(period_us // buckets, 1_000) * buckets, buckets=buckets, excess=excess)
    return Quota(
        algorithm, limit, period_us, aligned=algorithm == "fixed_window" and source.random() < 0.5, excess=excess
    )


def near(source: random.Random, *numbers: int) -> int:
    """One of the numbers, or one next to it."""
    return source.choice(numbers) + source.choice((0, 0, -1, 1))


def within(number: int, least: int, most: int) -> int:
    """The nearest number in a range."""
    return max(least, min(most, number))


def some_time(source: random.Random, last_us: int, *waits_us: int) -> int:
    """A time around one at which something changes, at times before the state's, or any."""
    kind = source.random()
    if kind < 0.1:
        return source.randint(0, MAX_US)
    if kind < 0.2:
        return within(last_us - source.randint(0, max(waits_us)), 0, MAX_US)
    if kind < 0.6:
        return within(last_us + near(source, *waits_us), 0, MAX_US)
    return within(last_us + source.randint(0, max(waits_us)), 0, MAX_US)


def some_use(source: random.Random, capacity: int) -> int:
    """Units in use, up to saturation."""
    return within(
        source.choice((source.randint(0, capacity), near(source, capacity), source.randint(0, 8 * capacity))),
        0,
        8 * capacity,
    )


def some_case(source: random.Random, quota: Quota, model: Model) -> Case:
    """A case of a quota."""
    capacity, rules = quota.capacity, model.rules
    cost = within(
        source.choice((0, 1, near(source, capacity), source.randint(1, capacity), source.randint(1, capacity))),
        0,
        MAX_UNITS,
    )
    last_us = source.randint(0, MAX_US) if source.random() < 0.7 else source.randint(0, 3 * quota.period_us)
    if isinstance(rules, token_bucket.TokenBucket):
        debt = within(some_use(source, capacity) * rules.token + source.randint(0, rules.token), 1, rules.saturated)
        over = debt + cost * rules.token - rules.empty
        waits_us = [max(1, -(-units // rules.rate) * model.tick_us) for units in (debt, over)]
        return Case(some_time(source, last_us, *waits_us), cost, (debt, last_us // model.tick_us))
    if isinstance(rules, stepped_bucket.SteppedBucket):
        used = max(1, some_use(source, capacity))
        waits_us = [-(-units // rules.step) * rules.interval_us for units in (used, max(1, used + cost - capacity))]
        return Case(some_time(source, last_us, *waits_us), cost, (used, last_us))
    if isinstance(rules, fixed_window.FixedWindow):
        start_us = last_us - last_us % quota.period_us if quota.aligned else last_us
        return Case(
            some_time(source, last_us, quota.period_us, 2 * quota.period_us),
            cost,
            (max(1, some_use(source, capacity)), start_us),
        )
    if isinstance(rules, sliding_window.SlidingWindow):
        newest = last_us // quota.width_us
        left, counts = 8 * capacity, []
        for age in range(quota.buckets + 1):
            count = (
                0
                if age > newest or source.random() < 0.3
                else source.randint(0, source.choice((left, min(left, 2 * capacity // quota.buckets))))
            )
            counts.append(count)
            left -= count
        now_us = some_time(
            source, newest * quota.width_us, quota.width_us, quota.period_us, quota.period_us + quota.width_us
        )
        return Case(now_us, cost, (newest, *counts) if any(counts) else ())
    ages = sorted({source.randint(0, 2 * quota.period_us) for _ in range(source.randint(0, 12))}, reverse=True)
    times = [last_us - age for age in ages if age <= last_us]
    most = max(1, 2 * capacity // max(1, len(times)))
    log = log_of(times, [source.randint(1, most) for _ in times])
    changes = [at_us + quota.period_us - last_us for at_us in times if at_us + quota.period_us > last_us]
    return Case(some_time(source, last_us, *(changes or [quota.period_us])), cost, log)


def changed_case(source: random.Random, quota: Quota, model: Model) -> Case:
    """A case of a bucket whose state was written under another limit and burst, or one of the same numbers."""
    old = quota
    while old == quota or tick_of(old) is None:
        limit = source.choice((some_units(source), near(source, quota.limit), 2 * quota.limit))
        old = quota._replace(limit=within(limit, 1, MAX_UNITS), burst=source.choice((0, some_units(source))), excess=0)
    tick_us = tick_of(old) or 1
    before = Model(old, tick_us)
    now_us, cost, (debt, at) = some_case(source, old, before)
    # Also around the time at which it is repaid.
    full_us = (at + -(-debt // before.rules.rate)) * tick_us
    if source.random() < 0.3:
        now_us = within(near(source, full_us, full_us - model.tick_us), 0, MAX_US)
    exponent = len(str(tick_us)) - 1
    return Case(now_us, cost if source.random() < 0.5 else min(cost, quota.capacity), (debt, at, old.limit, exponent))


RANDOM = ("token_bucket", "leaky_bucket", CHANGED, "stepped_bucket", "fixed_window", "sliding_window", "sliding_log")
SMALL: dict[str, Callable[[], Iterator[tuple[Quota, Iterator[Case]]]]] = {
    "small buckets": small_buckets,
    "small stepped buckets": small_stepped,
    "small fixed windows": small_windows,
    "small sliding windows": small_sliding,
    "small logs": small_logs,
}


def random_cases(algorithm: str, seed: int, count: int) -> Iterator[tuple[Quota, Iterator[Case]]]:
    """Random quotas of an algorithm, each with 50 cases."""
    source = random.Random(f"{algorithm} {seed}")
    for _ in range(-(-count // 50)):
        quota = some_quota(source, algorithm)
        while (tick_us := tick_of(quota)) is None:
            # Both must refuse it.
            yield quota, iter(())
            quota = some_quota(source, algorithm)
        model = Model(quota, tick_us)
        some = changed_case if algorithm == CHANGED else some_case
        yield quota, iter([some(source, quota, model) for _ in range(50)])


class Counts(NamedTuple):
    """What was compared, and the first differences."""

    cases: int
    quotas: int
    refused: int
    differences: list[str]


def compare(program: Path, quotas: Iterator[tuple[Quota, Iterator[Case]]], mutant: type | None = None) -> Counts:
    """Runs the program on the cases, a batch at a time. With a mutant, its answers are those of the model."""
    cases = number = refused = 0
    differences: list[str] = []
    asked: list[str] = []
    expected: list[str] = []

    def flush() -> None:
        if not asked:
            return
        text = subprocess.run([program], input="\n".join(asked) + "\n", capture_output=True, text=True, check=False)
        answers = text.stdout.split("\n")[:-1]
        if len(answers) != len(asked):
            differences.append(f"the program ended after {len(answers)} of {len(asked)} answers: {text.stderr.strip()}")
        pairs = zip(asked, expected, answers, strict=False)
        differences.extend(
            f"{line}: the model has {mine}, the code {theirs}" for line, mine, theirs in pairs if mine != theirs
        )
        asked.clear()
        expected.clear()

    for quota, each in quotas:
        tick_us = tick_of(quota)
        asked.append(f"quota {quota.text()}")
        expected.append("refused" if tick_us is None else str(tick_us))
        if tick_us is None:
            refused += 1
            continue
        number += 1
        model = Model(quota, tick_us)
        if mutant:
            numbers = {field.name: getattr(model.rules, field.name) for field in fields(mutant)}
            model.rules = mutant(**numbers)
        for case in each:
            asked.append(case.line())
            expected.append(model.answer(case))
            cases += 1
            if len(asked) >= BATCH:
                flush()
                asked.append(f"quota {quota.text()}")
                expected.append(str(tick_us))
        if len(differences) > 10:
            break
    flush()
    return Counts(cases, number, refused, differences)
