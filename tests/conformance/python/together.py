"""Cases of format 5: requests over several policies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from polylimit import Decision, Limiter, ManualClock, PolylimitError, Quota, Request, Usage

if TYPE_CHECKING:
    import asyncio

Answer = dict[str, Any]
Quotas = Callable[[list[dict[str, Any]]], list[Quota]]


def run_case(
    case: dict[str, Any], prefix: str, store: str, loop: asyncio.AbstractEventLoop | None, quotas: Quotas
) -> str | None:
    """Run one case; what differs, if anything."""
    clock = ManualClock(0)
    try:
        policies = {name: quotas(numbers) for name, numbers in case["policies"].items()}
        # What the store does not answer must not look as if it did.
        outage: Any = dict.fromkeys(policies, "deny") if store.startswith("redis") else {}
        limiter = Limiter("memory:" if store == "memory" else store, policies, clock=clock, outage=outage)
    except PolylimitError as error:
        return f"refused: {error}"
    with limiter:
        try:
            return difference(case, prefix, limiter, clock, loop)
        finally:
            # A manual clock's keys do not expire.
            for policy, key in {pair for operation in case["ops"] for pair in keys_of(operation)}:
                limiter.reset(f"{prefix} {key}", policy)


def keys_of(operation: dict[str, Any]) -> list[tuple[str, str]]:
    """Give the policies and keys that an operation touches."""
    return [(charge["policy"], charge["key"]) for charge in operation.get("charges", [operation])]


def difference(
    case: dict[str, Any], prefix: str, limiter: Limiter, clock: ManualClock, loop: asyncio.AbstractEventLoop | None
) -> str | None:
    """Run the operations of a case up to the first difference."""
    for at, operation in enumerate(case["ops"]):
        try:
            clock.set(timedelta(microseconds=operation["at_us"]))
            got = answer(operation, prefix, limiter, loop)
        except PolylimitError as error:
            return f"operation {at}, refused: {error}"
        expected = operation["expect"]
        if "retry_after_us" not in expected:
            got.pop("retry_after_us", None)
        if got != expected:
            shown = f"operation {at}, {operation['op']} at {operation['at_us']} us"
            return f"{shown}\n  expected {expected}\n  got      {got}"
    return None


def answer(operation: dict[str, Any], prefix: str, limiter: Limiter, loop: asyncio.AbstractEventLoop | None) -> Answer:
    """Make an operation through one face."""
    face: Any = limiter if loop is None else limiter.asynchronous
    requests = [
        Request(f"{prefix} {charge['key']}", charge["policy"], cost=charge["cost"])
        for charge in operation.get("charges", [])
    ]
    op = operation["op"]
    if op == "check_all":
        made = face.check_together(requests)
    elif op == "peek_all":
        made = face.peek_together(requests)
    elif op == "reserve_all":
        ttl = timedelta(microseconds=operation["ttl_us"])
        made = face.reserve_together(requests, id=operation["id"], ttl=ttl)
    elif op == "reset":
        made = face.reset(f"{prefix} {operation['key']}", operation["policy"])
    else:
        cost = operation.get("cost", 1)
        made = getattr(face, op)(f"{prefix} {operation['key']}", operation["policy"], cost=cost)
    if inspect.isawaitable(made):
        assert loop is not None  # noqa: S101
        made = loop.run_until_complete(resolve(made))
    if op == "reserve_all":
        made = made.decisions if made.id == operation["id"] else []
    return of_request(made) if "charges" in operation else of_one(made)


async def resolve(awaited: Any) -> Any:
    """Wait for an operation, which is no coroutine."""
    return await awaited


def of_one(made: Decision | Usage) -> Answer:
    """Give what a case expects of an answer about one key; nothing of one that an outage policy made."""
    if made.source in ("fallback", "allow", "deny"):
        return {}
    names = ["remaining", "reset_after_us"]
    if isinstance(made, Decision):
        names += ["allowed", "retry_after_us"]
    return {name: getattr(made, name) for name in names}


def of_request(decisions: list[Decision]) -> Answer:
    """Give what a case expects of a request."""
    waits = [decision.retry_after_us for decision in decisions]
    longest = None if None in waits else max(wait for wait in waits if wait is not None)
    allowed = all(decisions)
    return {"allowed": allowed, "retry_after_us": longest, "decisions": [of_one(decision) for decision in decisions]}
