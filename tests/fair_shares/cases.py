#!/usr/bin/env python3
"""The cases of tests/conformance/groups.json, as the model decides them: cases.py [--check].

Without arguments it writes the file; with --check it compares, and ends with 1 where the file is not what the model says.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from model import MAX_RESERVATIONS, Group, Policy

FILE = Path(__file__).resolve().parent.parent / "conformance" / "groups.json"
START_US = 1_789_948_800_000_000
PERIODS = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
SECOND = 1_000_000

Json = dict[str, object]


class Case:
    """A case that is made step by step: each step asks the model what is expected."""

    def __init__(self, name: str, groups: dict[str, Group], bucket: tuple[int, str, int] | None, slots: int | None = None) -> None:
        self.names = list(groups)
        if "*" not in groups:
            self.names.append("*")
        table = [groups.get(name, Group()) for name in self.names]
        quotas = []
        self.numbers = None
        if bucket:
            limit, period, burst = bucket
            quotas.append(f"{limit}/{period} token_bucket" + (f" burst={burst}" if burst != limit else ""))
            self.numbers = (limit, PERIODS[period], burst)
        if slots is not None:
            quotas.append(f"{slots} concurrent")
        self.table, self.slots = table, slots
        self.policy = Policy(table, self.numbers, slots)
        document = {"weight": 1, "minimum": 0, "maximum": 100}
        lines = {
            name: {key: getattr(group, key) for key, otherwise in document.items() if getattr(group, key) != otherwise}
            for name, group in groups.items()
        }
        self.json: Json = {
            "name": name,
            "document": {"polylimit": 1, "policies": {"p": {"quotas": "; ".join(quotas), "groups": lines}}},
            "ops": [],
        }

    def op(self, t: int, op: str, group: str, **arguments: object) -> dict[str, object]:
        known = group if group in self.names else "*"
        at, now = self.names.index(known), START_US + t
        step: Json = {"t_us": t, "op": op}
        if group != "*":
            step["plan"] = f"group={group}"
        step |= {
            "ttl_us" if key == "ttl" else "id" if key == "name" else key: value for key, value in arguments.items() if value is not None
        }
        if op == "reset":
            self.policy = Policy(self.table, self.numbers, self.slots)
            expect: Json = {}
        elif op in ("check", "peek", "reserve"):
            expect = self.policy.decide(op, now, at, **arguments)  # type: ignore[arg-type]
        else:
            expect = self.policy.change(op, now, at, **arguments)  # type: ignore[arg-type]
        step["expect"] = expect
        ops = self.json["ops"]
        assert isinstance(ops, list)
        ops.append(step)
        return expect


def minimums() -> Case:
    case = Case(
        "groups: a minimum is there whatever the others do, and what it does not use is lent",
        {"a": Group(5, 50), "b": Group(3, 30)},
        (100, "second", 100),
    )
    for t in range(0, 3 * SECOND, 20_000):
        case.op(t, "check", "b", cost=4)
    for t in range(3 * SECOND, 3 * SECOND + 200_000, 20_000):
        case.op(t, "check", "a", cost=1)
        case.op(t, "check", "b", cost=4)
    case.op(3 * SECOND + 200_000, "peek", "a", cost=1)
    return case


def weights() -> Case:
    case = Case(
        "groups: what is lent is divided by the weights of those that want it",
        {"a": Group(3), "b": Group(1)},
        (10, "second", 10),
    )
    for t in range(0, 4 * SECOND, 50_000):
        case.op(t, "check", "a", cost=1)
        case.op(t, "check", "b", cost=1)
    return case


def maximum() -> Case:
    case = Case("groups: no more than a maximum, however idle the others are", {"a": Group(1, 0, 30)}, (100, "minute", 100))
    for t in range(40):
        case.op(t * 1_000, "check", "a", cost=1)
    case.op(40_000, "check", "a", cost=31)
    case.op(40_000, "peek", "*", cost=60)
    return case


def others() -> Case:
    case = Case(
        "groups: a group that the table does not name is in the group *",
        {"a": Group(1, 50), "*": Group(2)},
        (10, "minute", 10),
    )
    case.op(0, "check", "unnamed", cost=7)
    case.op(0, "check", "*", cost=1)
    case.op(0, "peek", "elsewhere", cost=1)
    case.op(0, "check", "a", cost=3)
    return case


def reservations() -> Case:
    case = Case(
        "groups: a reservation counts for the group that made it",
        {"a": Group(1, 50), "b": Group(1, 20)},
        (100, "minute", 100),
    )
    case.op(0, "reserve", "a", cost=60, name="x", ttl=10 * SECOND)
    case.op(0, "peek", "b", cost=10)
    case.op(1 * SECOND, "reserve", "b", cost=30, name="y", ttl=20 * SECOND)
    case.op(2 * SECOND, "renew", "b", name="x", ttl=10 * SECOND)
    case.op(3 * SECOND, "check", "a", cost=20)
    case.op(4 * SECOND, "commit", "*", cost=40, name="x")
    case.op(4 * SECOND, "commit", "a", cost=40, name="x")
    case.op(5 * SECOND, "cancel", "a", name="y")
    case.op(5 * SECOND, "peek", "a", cost=20)
    case.op(5 * SECOND, "refund", "a", cost=10)
    return case


def slots() -> Case:
    case = Case(
        "groups: slots by minimum, weight and maximum",
        {"a": Group(2, 40), "b": Group(1, 20), "c": Group(1, 0, 20)},
        None,
        10,
    )
    for number in range(8):
        case.op(number, "reserve", "a", name=f"a{number}", ttl=60 * SECOND)
    for number in range(4):
        case.op(10 + number, "reserve", "c", name=f"c{number}", ttl=60 * SECOND)
    for number in range(3):
        case.op(20 + number, "reserve", "b", name=f"b{number}", ttl=60 * SECOND)
    case.op(30, "commit", "a", name="a0")
    case.op(31, "reserve", "a", name="a9", ttl=60 * SECOND)
    case.op(32, "reserve", "b", name="b9", ttl=60 * SECOND)
    case.op(2 * SECOND, "peek", "a")
    case.op(2 * SECOND, "reserve", "c", name="c9", ttl=60 * SECOND)
    return case


def attributes() -> Case:
    case = Case("groups: the group of a request is an attribute", {"a": Group(1, 50), "b": Group(1, 20)}, (100, "minute", 100))
    case.json["document"] = {
        "polylimit": 1,
        "policies": {"p": {"quotas": "100/minute token_bucket", "group": "{team}", "groups": {"a": {"minimum": 50}, "b": {"minimum": 20}}}},
        "rules": [{"apply": [{"policy": "p", "key": "all", "cost": "{tokens}"}]}],
    }
    ops = case.json["ops"]
    assert isinstance(ops, list)
    for t, team, cost in [(0, "a", 60), (0, "b", 60), (SECOND, "b", 15), (SECOND, "c d", 1), (2 * SECOND, None, 1), (3 * SECOND, "a", 20)]:
        at = case.names.index(team) if team in case.names else case.names.index("*")
        expect = case.policy.decide("check", START_US + t, at, cost=cost)
        given = {"tokens": str(cost)} | ({"team": team} if team else {})
        decision = {"policy": "p", "key": "all", **expect}
        answer = {"allowed": expect["allowed"], "retry_after_us": expect["retry_after_us"], "decisions": [decision]}
        ops.append({"t_us": t, "op": "decide", "request": {"attributes": given}, "expect": answer})
    return case


def clock() -> Case:
    case = Case(
        "groups: a clock that goes back refills nothing and lengthens no claim",
        {"a": Group(1, 50), "b": Group(4)},
        (10, "second", 20),
    )
    case.op(10 * SECOND, "check", "a", cost=12)
    case.op(10 * SECOND, "check", "b", cost=9)
    case.op(4 * SECOND, "peek", "a", cost=1)
    case.op(4 * SECOND, "check", "b", cost=5)
    case.op(5 * SECOND, "check", "a", cost=5)
    case.op(6 * SECOND, "check", "b", cost=5)
    return case


def at_random(seed: int) -> Case:
    source = random.Random(seed)
    names = ["a", "b", "c", "d"][: source.randint(1, 4)]
    left, groups = 100, {}
    for name in [*names, *(["*"] if source.random() < 0.5 else [])]:
        minimum = source.choice([0, 0, 10, 20, 25, 40])
        minimum = min(minimum, left)
        left -= minimum
        groups[name] = Group(source.choice([1, 1, 2, 3, 5, 7]), minimum, source.choice([100, 100, 100, max(minimum, 50)]))
    limit = source.choice([10, 20, 50, 100, 1_000, 100_000])
    burst = source.choice([limit, 2 * limit, limit * 3 // 2])
    period = source.choice(["second", "minute", "hour", "day"])
    bucket = (limit, period, burst) if source.random() < 0.85 else None
    count = source.choice([3, 5, 10, 20]) if bucket is None or source.random() < 0.3 else None
    if count is not None and any(
        0 < count * group.minimum // 100 * 100 < 1 or (group.minimum and count * group.minimum < 100) for group in groups.values()
    ):
        count = 20
        groups = {name: Group(group.weight, group.minimum // 10 * 10, group.maximum) for name, group in groups.items()}
    case = Case(f"groups at random {seed}", groups, bucket, count)
    t, ids = 0, [f"r{number}" for number in range(6)]
    gap = PERIODS[period] // 20
    for _ in range(source.choice([20, 40, 80])):
        t += source.choice([0, 0, 1, source.randint(1, gap), source.randint(1, 4 * gap)])
        if source.random() < 0.03:
            t = max(0, t - source.randint(1, 4 * gap))
        group = source.choice([*names, "*", "unknown"])
        cost = source.choice([0, 1, 1, source.randint(1, max(1, limit // 5)), source.randint(1, burst)])
        headroom = source.choice([0, 0, 0, 10, 50])
        plain = ["peek", "refund", "charge"] if count is not None else ["check", "check", "check", "peek", "take", "refund", "charge"]
        op = source.choice(
            [
                *plain,
                *(["reserve", "reserve", "commit", "cancel", "renew"] if count is not None or source.random() < 0.4 else []),
            ]
        )
        if op in ("check", "peek"):
            case.op(t, op, group, cost=cost, headroom=headroom)
        elif op == "reserve":
            case.op(t, op, group, cost=cost, headroom=headroom, name=source.choice(ids), ttl=source.randint(1_000, 6 * gap))
        elif op in ("take", "charge", "refund"):
            if bucket:
                case.op(t, op, group, cost=cost)
        elif op == "commit":
            case.op(t, op, group, cost=cost, name=source.choice(ids))
        elif op == "cancel":
            case.op(t, op, group, name=source.choice(ids))
        else:
            case.op(t, op, group, name=source.choice(ids), ttl=source.randint(1_000, 6 * gap))
    return case


def main() -> int:
    assert MAX_RESERVATIONS == 1_000
    cases = [make() for make in (minimums, weights, maximum, others, reservations, slots, attributes, clock)]
    cases += [at_random(seed) for seed in range(20)]
    text = json.dumps({"format": 3, "cases": [case.json for case in cases]}, separators=(",", ":")) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(text, encoding="utf-8")
        print(f"{FILE.name}: {len(cases)} cases")
        return 0
    if FILE.read_text(encoding="utf-8") != text:
        print("tests/conformance/groups.json is not what the model says: run tests/fair_shares/cases.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
