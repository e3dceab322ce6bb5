"""Cases of format 3: what documents, entries and rules make a limiter decide."""

from __future__ import annotations

import inspect
import json
import os
import re
import tempfile
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from polylimit import Decision, InvalidArgumentError, Limiter, ManualClock, PolylimitError, RequestAttributes, Usage

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

#: Monday 2026-09-21, from which the times of the cases count.
START_US = 1_789_948_800_000_000
#: What a decision of an outage policy would have been is not known.
OUTAGE = {"outage": True}
DECISION = (
    "allowed",
    "remaining",
    "retry_after_us",
    "reset_after_us",
    "delay_us",
    "over",
    "crossed",
    "elastic",
    "shadowed",
    "cause",
)
COUNTS = ("both_allow", "only_live_denies", "only_candidate_denies", "both_deny")
#: How long the store may take to count what is not waited for.
COUNTED_WITHIN = 10.0


class Case:
    """A limiter with a document, and one of its two faces."""

    def __init__(self, limiter: Limiter, loop: asyncio.AbstractEventLoop | None) -> None:
        self.limiter = limiter
        self.face: Any = limiter if loop is None else limiter.asynchronous
        self.loop = loop
        #: The policies and keys that have states.
        self.seen: set[tuple[str, str]] = set()
        # A handle that is freed would end its reservation, which stays as the case leaves it.
        self.held: list[Any] = []

    def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call an operation of the face, or of its operators."""
        owner = self.face.admin() if name in ("block", "set_entry", "delete_entry") else self.face
        answer = getattr(owner, name)(*arguments, **options)
        if not inspect.isawaitable(answer):
            return answer
        assert self.loop is not None  # noqa: S101
        return self.loop.run_until_complete(resolve(answer))

    def perform(self, operation: dict[str, Any]) -> Any:
        """Perform an operation; return what a case can expect of it."""
        try:
            return getattr(self, f"do_{operation['op']}", self.do_on_key)(operation)
        except PolylimitError as error:
            return {"error": error.code}

    def do_on_key(self, operation: dict[str, Any]) -> Any:
        """Perform an operation on a key."""
        op, key, policy = operation["op"], operation.get("key", "k"), operation.get("policy", "p")
        self.seen.add((policy, key))
        options: dict[str, Any] = {name: operation[name] for name in ("headroom", "plan") if name in operation}
        options["policy"] = policy
        if op in ("commit", "cancel", "renew"):
            arguments = [key, operation["id"]]
            if op == "renew":
                arguments.append(us(operation["ttl_us"]))
            elif op == "commit":
                options["spent"] = operation.get("cost")
            return shown(op, self.ask(op, *arguments, **options))
        if op == "block":
            options["time"] = us(operation["for_us"])
        elif op != "reset":
            options["cost"] = operation.get("cost")
        if op == "reserve":
            reservation = self.ask(op, key, id=operation["id"], ttl=us(operation["ttl_us"]), max_age=0, **options)
            self.held.append(reservation)
            return shown(op, reservation.decision)
        return shown(op, self.ask(op, key, **options))

    def do_configuration(self, operation: dict[str, Any]) -> Any:
        """Replace the document."""
        document = operation["document"] if "document" in operation else operation["text"]
        return outcome(lambda: self.limiter.admin().set_document(document))

    def do_entry(self, operation: dict[str, Any]) -> Any:
        """Set or delete an entry."""
        if "set" in operation:
            return outcome(lambda: self.ask("set_entry", operation["set"], operation["value"]))
        return outcome(lambda: self.ask("delete_entry", operation["delete"]))

    def do_match(self, operation: dict[str, Any]) -> Any:
        """Find the policies of a request."""
        return [
            {"policy": found.policy, "key": found.key.decode(), "cost": found.cost, "headroom": found.headroom}
            for found in self.limiter.admin().matching(attributes(operation["request"]))
        ]

    def do_decide(self, operation: dict[str, Any]) -> Any:
        """Decide about a request."""
        options = {"id": operation["id"], "ttl": us(operation["ttl_us"])} if "id" in operation else {}
        decided = self.ask("decide", attributes(operation["request"]), **options)
        names = [(made.policy, made.key.decode()) for made in decided.decisions]
        self.seen.update(names)
        decisions = [
            {**shown("check", made.decision), "policy": policy, "key": key}
            for made, (policy, key) in zip(decided.decisions, names, strict=True)
        ]
        given = {name: getattr(decided, name) for name in ("allowed", "cause", "status", "retry_after_us")}
        return {**given, "decisions": decisions}

    def do_candidate(self, operation: dict[str, Any]) -> Any:
        """Count what a candidate would have decided; the store may count later than it decides."""
        until = time.monotonic() + COUNTED_WITHIN
        while True:
            counts = self.limiter.admin().candidate_counts(operation.get("policy", "p"))
            got = {name: getattr(counts, name) for name in COUNTS}
            if got == operation["expect"] or time.monotonic() > until:
                return got
            time.sleep(0.01)


async def resolve(answer: Any) -> Any:
    """Await an operation in a coroutine, which an event loop can run."""
    return await answer


def us(given: int) -> timedelta:
    """Give microseconds as a time."""
    return timedelta(microseconds=given)


def attributes(request: dict[str, Any]) -> RequestAttributes:
    """Give the attributes of a request."""
    return RequestAttributes(**{**request, "headers": [tuple(line) for line in request.get("headers", ())]})


def shown(op: str, answer: Decision | Usage) -> dict[str, Any]:
    """Give what a case can expect of an answer."""
    if answer.source in ("fallback", "allow", "deny"):
        return OUTAGE
    if isinstance(answer, Decision):
        return {name: getattr(answer, name) for name in DECISION}
    names = {"take": ["taken"], "commit": ["found"], "cancel": ["found"], "renew": ["found"]}
    return {name: getattr(answer, name) for name in ["remaining", "reset_after_us", *names.get(op, ())]}


def outcome(change: Callable[[], object]) -> dict[str, Any]:
    """Change the configuration; give whether it was accepted, and why not."""
    try:
        change()
    except InvalidArgumentError as error:
        line = re.match(r"line (\d+), column \d+: ", str(error))
        return {"ok": False, "line": int(line[1]) if line else None, "about": str(error)}
    return {"ok": True}


def agrees(expected: Any, got: Any) -> bool:
    """Whether all that is expected is there and equal; `about` is a part of the message."""
    if isinstance(expected, dict) and isinstance(got, dict):
        return all(
            value in got.get(name, "") if name == "about" else name in got and agrees(value, got[name])
            for name, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(agrees, expected, got))
    return bool(expected == got)


@contextmanager
def place_of(store: str, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the URL and the options of a store in which no other case has states."""
    if store == "memory":
        yield "memory:", {}
    elif store.startswith("local:"):
        with tempfile.TemporaryDirectory() as folder:
            yield f"file://{folder}/store?size=1MiB", {}
    else:
        yield store, {"prefix": f"case-{os.getpid()}-{time.time_ns()}-{number}"}


def run_case(case: dict[str, Any], number: int, store: str, loop: asyncio.AbstractEventLoop | None) -> str | None:
    """Run one case; say what differs first, if anything does."""
    clock = ManualClock(us(START_US))
    with place_of(store, number) as (url, options):
        try:
            limiter = Limiter(url, clock=clock, document=case["document"], **options)
        except PolylimitError as error:
            return f"the document is refused: {error}"
        with limiter:
            running = Case(limiter, loop)
            try:
                for at, operation in enumerate(case["ops"]):
                    clock.set(us(START_US + operation["t_us"]))
                    got = running.perform(operation)
                    if not agrees(operation["expect"], got):
                        asked = {name: value for name, value in operation.items() if name != "expect"}
                        expected = json.dumps(operation["expect"])
                        return (
                            f"operation {at}: {json.dumps(asked)}\n  expected {expected}\n  got      {json.dumps(got)}"
                        )
            finally:
                # A manual clock's keys do not expire.
                for policy, key in running.seen if store.startswith("redis") else ():
                    running.perform({"op": "reset", "policy": policy, "key": key})
    return None
