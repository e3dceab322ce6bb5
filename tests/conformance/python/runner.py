"""Runs a file of conformance cases through the Python faces of polylimit, and prints how many cases agree.

Usage: ``runner.py FILE STORE``, where ``STORE`` is ``memory`` or the URL of one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import policies
import together
from polylimit import AsyncLimiter, Decision, Limiter, ManualClock, PolylimitError, Quota, Usage

Answer = dict[str, Any]
Ask = Callable[[dict[str, Any], str], Answer]
CaseRunner = Callable[[Any, int, str, asyncio.AbstractEventLoop | None], str | None]
SETTINGS = ("burst", "step", "buckets", "aligned", "count_denied", "excess")


class DifferenceError(Exception):
    """Where a case went wrong. The operations after it mean nothing: they build on it."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


def quotas(numbers: list[dict[str, Any]]) -> list[Quota]:
    """Give the quotas of a case."""
    return [
        # A quota by the calendar has its text.
        Quota(quota["text"])
        if "text" in quota
        else Quota.concurrent(quota["limit"])
        if quota["algorithm"] == "concurrency"
        else Quota(
            quota["limit"],
            timedelta(microseconds=quota["period_us"]),
            algorithm=quota["algorithm"],
            **{name: quota[name] for name in SETTINGS if name in quota},
        )
        for quota in numbers
    ]


def fields(op: str, answer: Decision | Usage) -> Answer:
    """Give what a case expects of an answer; nothing of one that an outage policy made."""
    if answer.source in ("fallback", "allow", "deny"):
        return {}
    names: tuple[str, ...]
    if isinstance(answer, Decision):
        names = ("allowed", "remaining", "retry_after_us", "reset_after_us", "delay_us", "over")
    elif op == "take":
        names = ("remaining", "reset_after_us", "taken")
    elif op in ("commit", "cancel", "renew"):
        names = ("remaining", "reset_after_us", "found", "repeated")
    else:
        names = ("remaining", "reset_after_us")
    return {name: getattr(answer, name) for name in names}


def blocking(limiter: Limiter, held: list[Any]) -> Ask:
    """Ask the face that waits."""

    def ask(operation: dict[str, Any], key: str) -> Answer:
        op, cost = operation["op"], operation.get("cost", 1)
        if op == "reset":
            return fields(op, limiter.reset(key))
        if op == "reserve":
            reservation = limiter.reserve(key, cost=cost, **terms(operation))
            held.append(reservation)
            return fields(op, reservation.decision)
        if op == "commit":
            return fields(op, limiter.commit(key, operation["id"], spent=cost))
        if op == "cancel":
            return fields(op, limiter.cancel(key, operation["id"]))
        if op == "renew":
            return fields(op, limiter.renew(key, operation["id"], ttl(operation)))
        return fields(op, getattr(limiter, op)(key, cost=cost))

    return ask


def asynchronous(limiter: AsyncLimiter, loop: asyncio.AbstractEventLoop, held: list[Any]) -> Ask:
    """Ask the face for event loops."""

    async def answer(operation: dict[str, Any], key: str) -> Answer:
        op, cost = operation["op"], operation.get("cost", 1)
        if op == "reset":
            return fields(op, await limiter.reset(key))
        if op == "reserve":
            reservation = await limiter.reserve(key, cost=cost, **terms(operation))
            held.append(reservation)
            return fields(op, reservation.decision)
        if op == "commit":
            return fields(op, await limiter.commit(key, operation["id"], spent=cost))
        if op == "cancel":
            return fields(op, await limiter.cancel(key, operation["id"]))
        if op == "renew":
            return fields(op, await limiter.renew(key, operation["id"], ttl(operation)))
        return fields(op, await getattr(limiter, op)(key, cost=cost))

    def ask(operation: dict[str, Any], key: str) -> Answer:
        return loop.run_until_complete(answer(operation, key))

    return ask


def terms(operation: dict[str, Any]) -> dict[str, Any]:
    """Give the settings of a reserve."""
    remember = timedelta(microseconds=operation.get("remember_us", 0))
    return {"id": operation["id"], "ttl": ttl(operation), "max_age": 0, "remember": remember}


def ttl(operation: dict[str, Any]) -> timedelta:
    """Give how long a reservation lasts."""
    return timedelta(microseconds=operation["ttl_us"])


def run_case(case: dict[str, Any], key: str, store: str, loop: asyncio.AbstractEventLoop | None) -> None:
    """Run one case to its end, or to the first difference."""
    clock = ManualClock(0)
    url = "memory:" if store == "memory" else store
    try:
        policies = {"case": quotas(case["quotas"])}
        # What the store does not answer must not look as if it did.
        outage: dict[str, Literal["deny"]] = {"case": "deny"} if store.startswith("redis") else {}
        limiter = Limiter(url, policies, clock=clock, outage=outage)
    except PolylimitError as error:
        raise DifferenceError(0, f"refused: {error}") from error
    with limiter:
        # A handle that is freed would end its reservation, which stays as the case leaves it.
        held: list[Any] = []
        ask = blocking(limiter, held) if loop is None else asynchronous(limiter.asynchronous, loop, held)
        try:
            run_operations(case["ops"], key, clock, limiter, ask)
        finally:
            # A manual clock's keys do not expire.
            ask({"op": "reset"}, key)


def run_operations(ops: list[Any], key: str, clock: ManualClock, limiter: Limiter, ask: Ask) -> None:
    """Run the operations of a case."""
    for at, operation in enumerate(ops):
        op = operation["op"]
        try:
            clock.set(timedelta(microseconds=operation["at_us"]))
            if op == "change":
                limiter.set_policy("case", quotas(operation["quotas"]))
                continue
            got = ask(operation, key)
        except PolylimitError as error:
            raise DifferenceError(at, f"refused: {error}") from error
        expected = operation.get("expect", {})
        if "over" not in expected:
            # Only cases of format 2 expect the units of an excess.
            got.pop("over", None)
        if "repeated" not in expected:
            # Only cases of commits that are remembered expect whether they are repeated.
            got.pop("repeated", None)
        if got != expected:
            shown = f"{op} of {operation.get('cost')} at {operation['at_us']} us"
            raise DifferenceError(at, f"{shown}\n  expected {expected}\n  got      {got}")


def run_face(name: str, cases: list[Any], store: str, loop: asyncio.AbstractEventLoop | None) -> bool:
    """Run all cases through one face."""
    agreed = 0
    started = time.time_ns()
    for number, case in enumerate(cases):
        # A store that outlives this process has never seen such a key.
        key = f"{name} {started} {number}"
        try:
            run_case(case, key, store, loop)
            agreed += 1
        except DifferenceError as difference:
            sys.stdout.write(f"{name} {store}: case {case['name']!r}, operation {difference.at}: {difference}\n")
    sys.stdout.write(f"{name} {store}: {agreed} of {len(cases)} cases agree\n")
    return agreed == len(cases)


def run_with(
    case_difference: CaseRunner, name: str, cases: list[Any], store: str, loop: asyncio.AbstractEventLoop | None
) -> bool:
    """Run all cases of another format through one face."""
    agreed = 0
    for number, case in enumerate(cases):
        difference = case_difference(case, number, store, loop)
        if difference is None:
            agreed += 1
        else:
            sys.stdout.write(f"{name} {store}: case {case['name']!r}, {difference}\n")
    sys.stdout.write(f"{name} {store}: {agreed} of {len(cases)} cases agree\n")
    return agreed == len(cases)


def run_policies(name: str, cases: list[Any], store: str, loop: asyncio.AbstractEventLoop | None) -> bool:
    """Run all cases of format 3 through one face."""
    return run_with(policies.run_case, name, cases, store, loop)


def run_requests(name: str, cases: list[Any], store: str, loop: asyncio.AbstractEventLoop | None) -> bool:
    """Run all cases of format 5 through one face."""
    started = time.time_ns()

    def run(case: Any, number: int, store: str, loop: asyncio.AbstractEventLoop | None) -> str | None:
        return together.run_case(case, f"{name} {started} {number}", store, loop, quotas)

    return run_with(run, name, cases, store, loop)


def main(arguments: list[str]) -> int:
    """Run the program."""
    if len(arguments) != 2:
        sys.stderr.write("usage: runner.py FILE STORE\n")
        return 2
    path, store = arguments
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        cases = content["cases"]
        if content["format"] not in (1, 2, 3, 4, 5) or not cases or not all(case["ops"] for case in cases):
            raise ValueError("this runner reads formats 1 to 5, with cases that have operations")
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"runner.py: {path}: {error}\n")
        return 2
    run = {3: run_policies, 5: run_requests}.get(content["format"], run_face)
    loop = asyncio.new_event_loop()
    try:
        agree = [run("python", cases, store, None), run("python (async)", cases, store, loop)]
    finally:
        loop.close()
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
