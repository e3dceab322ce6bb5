"""The recorder of Python: recorder.py URL POLICY=QUOTAS... docs/linearizability.md has the lines that it reads and writes."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from polylimit import Decision, Limiter, PolylimitError, Request, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    Answers = list[Decision] | list[Usage]

DAY = 24 * 3600
AS_RESERVED = -1
ALLOWED, UNUSED, NEVER, FOUND, REPEATED = (1 << bit for bit in range(5))
OUTAGES = ("fallback", "allow", "deny")
# How long a client waits after an answer of an outage policy, which comes at once.
PAUSE = 0.002


def described(answer: Decision | Usage) -> str:
    """Give what of an answer does not depend on time."""
    flags = 0 if answer.reset_after_us else UNUSED
    taken = 0
    if isinstance(answer, Decision):
        flags |= (ALLOWED if answer.allowed else 0) | (NEVER if answer.retry_after_us is None else 0)
    else:
        flags |= ALLOWED | (FOUND if answer.found else 0) | (REPEATED if answer.repeated else 0)
        taken = answer.taken
    return f"{flags},{answer.remaining},{answer.over},{taken},{answer.source},{answer.degraded or ''}"


class Recorder:
    """A process that does what programs say."""

    def __init__(self, url: str, policies: dict[str, str]) -> None:
        self.limiter = Limiter(url, policies)
        self.limiter.ready(timeout=30)
        self.slots = {name for name, quotas in policies.items() if "concurrent" in quotas}
        self.objects: list[tuple[str, str]] = []

    def read(self, line: str) -> Callable[[], Answers]:
        """Make the call of an operation."""
        limiter = self.limiter
        kind, id_, *words = line.split(" ")
        parts = [(*self.objects[int(at)], int(cost)) for at, cost in (word.split(":") for word in words)]
        policy, key, cost = parts[0]
        if kind in ("check", "peek", "take", "charge", "refund"):
            method = getattr(limiter, kind)
            return lambda: [method(key, policy, cost=cost)]
        if kind == "reset":
            return lambda: [limiter.reset(key, policy)]
        if kind in ("together", "reserve", "remember", "hold"):
            requests = [Request(key, policy, cost=cost) for policy, key, cost in parts]
            if not any(policy in self.slots for policy, _, _ in parts):
                return lambda: limiter.check_together(requests)
            keep = DAY if kind == "remember" else None
            return lambda: list(limiter.reserve_together(requests, id=id_, ttl=DAY, remember=keep).decisions)
        if kind == "commit":
            spent = None if cost == AS_RESERVED else cost
            return lambda: [limiter.commit(key, id_, spent=spent, policy=policy)]
        if kind == "cancel":
            return lambda: [limiter.cancel(key, id_, policy=policy)]
        if kind == "renew":
            return lambda: [limiter.renew(key, id_, DAY, policy=policy)]
        raise ValueError(line)

    @staticmethod
    def run(client: int, calls: list[Callable[[], Answers]]) -> list[str]:
        """Do the operations of a client."""
        lines = []
        for at, do in enumerate(calls):
            call = time.monotonic_ns()
            try:
                answers = do()
            except PolylimitError as error:
                lines.append(f"{client} {at} {call} {time.monotonic_ns()} !{error}".replace("\n", " "))
                continue
            end = time.monotonic_ns()
            lines.append(f"{client} {at} {call} {end} {' '.join(map(described, answers))}")
            if answers[0].source in OUTAGES:
                time.sleep(PAUSE)
        return lines

    def round(self, header: str) -> None:
        """Read the programs of the clients, wait, run them at the same time, and write what happened."""
        read = sys.stdin.readline
        objects, clients = (int(word) for word in header.split(" ")[1:3])
        self.objects = []
        for _ in range(objects):
            policy, key = read().rstrip("\n").split(" ")
            self.objects.append((policy, key))
        programs = [[self.read(read().rstrip("\n")) for _ in range(int(read()))] for _ in range(clients)]
        print("ready", flush=True)
        read()
        with ThreadPoolExecutor(clients) as threads:
            for lines in threads.map(self.run, range(clients), programs):
                sys.stdout.write("".join(line + "\n" for line in lines))
        print("done", flush=True)


def main(url: str, *policies: str) -> None:
    names_and_quotas = (policy.split("=", 1) for policy in policies)
    recorder = Recorder(url, dict(names_and_quotas))
    # A thread of a client lets the others run often, so that their operations overlap.
    sys.setswitchinterval(0.0001)
    while header := sys.stdin.readline():
        recorder.round(header.rstrip("\n"))


main(*sys.argv[1:])
