#!/usr/bin/env python3
"""Simulations of groups that share a bucket, by the model: what docs/internals/fair-shares.md says that they get."""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Callable, Sequence

from model import Group, Policy

SECOND = 1_000_000
LIMIT = 1_000


def simulate(groups: list[Group], asked: Sequence[int], cost: Callable[[random.Random], int] = lambda _: 1) -> list[int]:
    """Units a second that each group gets of 1,000, from the third to the tenth second, when each asks at random at these rates."""
    policy, source = Policy(groups, (LIMIT, SECOND, LIMIT), None), random.Random(1)
    bucket = policy.bucket
    assert bucket
    arrivals = [(int(source.expovariate(rate) * SECOND), at) for at, rate in enumerate(asked) if rate]
    heapq.heapify(arrivals)
    got, total = [0] * len(groups), 0
    while arrivals[0][0] < 10 * SECOND:
        now, at = heapq.heappop(arrivals)
        units = cost(source)
        bucket.bring(now)
        if units <= bucket.left(at, now):
            policy.spend(at, units, now)
            total += units
            got[at] += units if now >= 2 * SECOND else 0
        else:
            assert units > bucket.own_left(at) or groups[at].maximum < 100, "a group was denied what is its own"
            policy.wait(at, units, now)
        assert total <= LIMIT + LIMIT * now // SECOND, "more was admitted than the limit"
        heapq.heappush(arrivals, (now + int(source.expovariate(asked[at]) * SECOND) + 1, at))
    return [units // 8 for units in got]


def main() -> int:
    shared = [Group(5, 50), Group(3, 20), Group(2)]
    weights = [Group(5), Group(3), Group(2)]
    passed = failed = 0
    for name, groups, asked, cost, expected in [
        ("all are busy", shared, (2000, 2000, 2000), None, (650, 290, 60)),
        ("one asks far more often", shared, (5000, 900, 20000), None, (650, 290, 60)),
        ("one is idle", shared, (0, 2000, 2000), None, (0, 680, 320)),
        ("one wants less than its minimum", shared, (2000, 10, 2000), None, (848, 10, 142)),
        (
            "minimums of 100 percent",
            [Group(5, 50), Group(3, 30), Group(2, 20)],
            (100, 2000, 2000),
            None,
            (100, 540, 360),
        ),
        ("weights alone", weights, (2000, 2000, 2000), None, (500, 300, 200)),
        ("weights, and rates far apart", weights, (700, 20000, 2000), None, (500, 300, 200)),
        ("weights, and one wants little", weights, (2000, 2000, 50), None, (594, 356, 50)),
        (
            "requests of different sizes",
            weights,
            (200, 200, 200),
            lambda source: source.choice([1, 5, 50, 100]),
            (500, 300, 200),
        ),
        ("a maximum", [Group(5, 50, 60), Group(3)], (2000, 2000), None, (600, 400)),
    ]:
        got = simulate(groups, asked, *([cost] if cost else []))
        # One in twenty, and a few units for the chance of a rare group.
        good = all(abs(units - wanted) <= wanted / 20 + 8 for units, wanted in zip(got, expected, strict=True))
        everything = sum(got) if sum(asked) > LIMIT else LIMIT
        good = good and abs(everything - LIMIT) <= LIMIT // 100
        print(f"test {name} ... {'ok' if good else 'FAILED'}: {got}, expected {list(expected)}")
        passed, failed = passed + good, failed + (not good)
    print(f"test result: {'ok' if not failed else 'FAILED'}. {passed} passed; {failed} failed;")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
