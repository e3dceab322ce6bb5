"""One document limits services in four languages: it changes while they run, and all of them follow."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import TYPE_CHECKING

from dashboard import dashboard
from followers import PATIENCE, Follower, start
from polylimit import Limiter

if TYPE_CHECKING:
    from followers import Source

GOLD = 20
DOCUMENT = """\
polylimit = 1

[policies.api]
quotas = "100/hour sliding_log"
plans = {{ gold = "{gold}/hour sliding_log" }}

[[rules]]
match = {{ path = "/" }}
apply = [{{ policy = "api", key = "{{user}}" }}]

[lists]
deny = [{denied}]
"""


def document(*, gold: int = GOLD, denied: str = "") -> str:
    """Give the document with this limit of the plan, and this user on the deny list."""
    return DOCUMENT.format(gold=gold, denied=denied and f'"user {denied}"')


class Show:
    """The changes, and what came of them."""

    def __init__(self, source: Source, followers: list[Follower], run: str) -> None:
        self._source = source
        self._followers = followers
        self._run = run
        self.holds = True

    def _tell(self, holds: bool, fact: str) -> None:  # noqa: FBT001
        print(f"  {'yes' if holds else 'NO '}  {fact}", flush=True)
        self.holds &= holds

    async def change(self, what: str, text: str) -> None:
        """Replace the document, and show when each service follows."""
        print(f"\n{what}", flush=True)
        started = time.monotonic()

        async def follow(follower: Follower) -> None:
            await follower.follow(follower.version + 1)
            print(f"       {follower.title:<8} has it after {1000 * (time.monotonic() - started):>4.0f} ms", flush=True)

        async with asyncio.timeout(PATIENCE):
            replaced = asyncio.to_thread(self._source.replace, text)
            await asyncio.gather(*(follow(follower) for follower in self._followers), replaced)
        digests = {follower.digest for follower in self._followers}
        self._tell(len(digests) == 1, f"all four have the document {min(digests)[:12]}")

    async def answers(self, user: str, wanted: int) -> None:
        """Ask each service for a user, and compare the statuses."""
        for follower in self._followers:
            status = await follower.status(f"{user}-{self._run}")
            self._tell(status == wanted, f"{follower.title:<8} answers {user} {status}")

    async def spend(self, wanted: int, fact: str) -> None:
        """Send each service requests of a gold user of its own until it denies one, and count the admitted ones."""
        for follower in self._followers:
            user = user_of(follower.title, self._run)
            admitted = 0
            while admitted <= 2 * GOLD and (status := await follower.status(user, "gold")) == 200:
                admitted += 1
            self._tell((status, admitted) == (429, wanted), f"{follower.title:<8} admits {admitted} {fact}")


def user_of(title: str, run: str) -> str:
    """Give the gold user of a service."""
    return f"{title.lower()}-{run}"


async def play(source: Source, ports: list[tuple[str, int]], run: str) -> bool:
    """Change the document while the services run."""
    followers = [await Follower.meet(title, port) for title, port in ports]
    show = Show(source, followers, run)
    print(f"\nThe plan gold admits {GOLD} requests an hour")
    await show.spend(GOLD, "requests of a gold user")
    await show.answers("mallory", 200)
    await show.change("mallory is put on the deny list", document(denied=f"mallory-{run}"))
    await show.answers("mallory", 403)
    doubled = f"The plan gold is doubled, from {GOLD} to {2 * GOLD}, and mallory is taken off the list"
    await show.change(doubled, document(gold=2 * GOLD))
    await show.spend(GOLD, f"more requests of the same user, {2 * GOLD} together")
    await show.answers("mallory", 200)
    for follower in followers:
        follower.connection.close()
    return show.holds


def follow_limits(source: Source, shown: str) -> bool:
    """Start the services on a source with the document, and judge whether all follow."""
    run = secrets.token_hex(4)
    print(f"\nOne document for services in four languages, {source.configuration}, on {shown}")
    with contextlib.ExitStack() as stack:
        ports = start(stack, source)
        limiter = stack.enter_context(Limiter(source.url, configuration=source.configuration))
        for title, port in ports:
            # Nothing of this run is left in the store.
            stack.callback(limiter.reset, user_of(title, run), "api")
            print(f"  {title} serves http://127.0.0.1:{port}/", flush=True)
        stack.callback(limiter.reset, f"mallory-{run}", "api")
        print(f"  the dashboard is at {stack.enter_context(dashboard(source))}/ while this runs", flush=True)
        return asyncio.run(play(source, ports, run))
