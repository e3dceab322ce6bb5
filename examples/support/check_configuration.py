"""Eight services in four languages see every change of one document, and no change costs a decision.

The document is in a file, and in Redis. While all services are busy, each change raises a limit by 10 units and puts a
user on the deny list or removes the user. Exactly 10 more units are admitted, whichever processes know of the change.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connection import Connection
from followers import Follower, file_source, start, store_source
from own_redis import Redis
from stores import local, patient

if TYPE_CHECKING:
    from followers import Source

CHANGES = 100
EACH = 2
STEP = 10
#: A change is meant to be seen within a second. A machine that is busy with other tests may take longer, in seconds.
SLOWEST = 5
#: How long the units of a change may take to be admitted, in seconds: a process may keep a denial for a second.
ADMITTED_WITHIN = 30
#: How long a caller rests at most, in seconds.
REST_SECONDS = 0.03


def document(number: int) -> str:
    """Give the document after this number of changes."""
    denied = '"user mallory"' if number % 2 else ""
    return f"""
polylimit = 1
[policies.api]
quotas = "{STEP * (number + 1)}/day fixed_window"
plans = {{ gold = "1000000/day fixed_window" }}
[[rules]]
match = {{ path = "/" }}
apply = [{{ policy = "api", key = "{{user}}" }}]
[lists]
deny = [{denied}]
"""


@dataclass
class Load:
    """What the busy callers have seen."""

    limit: int
    admitted: int = 0
    decisions: int = 0
    wrong: list[str] = field(default_factory=list)
    ended: bool = False

    async def shared(self, title: str, connection: Connection) -> None:
        """Ask for one key in all processes, whose limit is raised."""
        while not self.ended:
            status, head, _body = await connection.get("/?user=shared")
            self.decisions += 1
            self.admitted += status == 200
            if status not in (200, 429) or self.admitted > self.limit:
                self.wrong.append(f"{title}: {self.admitted} of {self.limit} are admitted, after {head[:60]!r}")
            await asyncio.sleep(random.uniform(0, REST_SECONDS))

    async def free(self, title: str, connection: Connection) -> None:
        """Ask for a key that is never at its limit, so that every denial and every error is wrong."""
        while not self.ended:
            status, head, _body = await connection.get("/?user=free&plan=gold")
            self.decisions += 1
            if status != 200:
                self.wrong.append(f"{title}: a request within the limit gets {head[:60]!r}")
            await asyncio.sleep(random.uniform(0, REST_SECONDS))

    async def settle(self) -> None:
        """Wait until all units of the limit are admitted."""
        end = time.monotonic() + ADMITTED_WITHIN
        while self.admitted < self.limit and not self.wrong:
            if time.monotonic() > end:
                raise AssertionError(f"only {self.admitted} of {self.limit} are admitted after {ADMITTED_WITHIN} s")
            await asyncio.sleep(0.005)


async def change(source: Source, followers: list[Follower], load: Load, number: int) -> list[tuple[float, str]]:
    """Make one change, and return the seconds after which each process has reported it."""
    started = 0.0

    async def follow(follower: Follower) -> tuple[float, str]:
        await follower.follow(follower.version + 1)
        return time.monotonic() - started, follower.title

    waiting = [asyncio.create_task(follow(follower)) for follower in followers]
    await asyncio.sleep(0)
    load.limit = STEP * (number + 1)
    started = time.monotonic()
    await asyncio.to_thread(source.replace, document(number))
    seconds = await asyncio.gather(*waiting)
    if len({follower.digest for follower in followers}) != 1:
        load.wrong.append(f"change {number}: the processes have different documents")
    wanted = 403 if number % 2 else 200
    for follower, status in zip(
        followers, await asyncio.gather(*(each.status("mallory") for each in followers)), strict=True
    ):
        if status != wanted:
            load.wrong.append(f"change {number}: {follower.title} answers mallory {status}, and not {wanted}")
    await load.settle()
    return seconds


async def play(source: Source, ports: list[tuple[str, int]]) -> None:
    """Make all changes under load, and show how long they took."""
    followers = [await Follower.meet(title, port) for title, port in ports]
    load = Load(STEP)
    callers = []
    for title, port in ports:
        callers.append(asyncio.create_task(load.shared(title, await Connection.open(port))))
        callers.append(asyncio.create_task(load.free(title, await Connection.open(port))))
    seen: list[tuple[float, str]] = []
    await load.settle()
    for number in range(1, CHANGES + 1):
        seen += await change(source, followers, load, number)
        # A change does not always come at the same time of a process's looks at the file.
        await asyncio.sleep(random.uniform(0, REST_SECONDS))
        for caller in callers:
            if caller.done():
                caller.result()
        if load.wrong:
            break
    load.ended = True
    await asyncio.gather(*callers)
    show(source, load, seen)
    if load.wrong:
        raise AssertionError("\n".join(load.wrong[:10]))
    if load.admitted != STEP * (CHANGES + 1):
        raise AssertionError(f"{load.admitted} are admitted, and not {STEP * (CHANGES + 1)}")
    if max(seen)[0] > SLOWEST:
        raise AssertionError(f"a change was seen after {max(seen)[0]:.3f} s, and not within {SLOWEST} s")


def show(source: Source, load: Load, seen: list[tuple[float, str]]) -> None:
    """Show how long the processes took, and what they decided meanwhile."""
    place = source.configuration.partition(":")[0]
    times = sorted(seconds for seconds, _title in seen)
    slowest: dict[str, float] = {}
    for seconds, title in seen:
        slowest[title] = max(seconds, slowest.get(title, 0))
    each = ", ".join(f"{title} {1000 * seconds:.0f} ms" for title, seconds in slowest.items())
    print(f"configuration={place}: {CHANGES} changes, {EACH} processes of each language")
    print(f"  a change is seen after {1000 * sum(times) / len(times):.0f} ms on average")
    print(f"  the slowest is seen after {1000 * times[-1]:.0f} ms ({each})")
    print(f"  {sum(seconds > 1 for seconds in times)} of {len(times)} are seen after more than a second")
    print(f"  {load.decisions} decisions meanwhile: {len(load.wrong)} wrong")
    print(f"  {load.admitted} units admitted where the limit ends at {load.limit}")


def check(source: Source) -> None:
    """Start the services, and play."""
    with contextlib.ExitStack() as stack:
        ports = start(stack, source, EACH)
        asyncio.run(asyncio.wait_for(play(source, ports), 600))


def check_file() -> None:
    """Follow a file, on the local store."""
    with local() as url, file_source(url, document(0)) as source:
        check(source)


def check_store() -> None:
    """Follow the keys in Redis."""
    with Redis() as server, store_source(patient(server.url), document(0)) as source:
        check(source)


def main() -> int:
    """Check both sources, and count the results."""
    passed = failed = 0
    for name, run in (("a file", check_file), ("Redis", check_store)):
        try:
            run()
        except (AssertionError, OSError, RuntimeError, TimeoutError, asyncio.IncompleteReadError):
            failed += 1
            traceback.print_exc()
            print(f"test services in four languages follow {name} ... FAILED", flush=True)
        else:
            passed += 1
            print(f"test services in four languages follow {name} ... ok", flush=True)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed;")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
