"""Sends real HTTP requests to services at the same time, and keeps what they answer."""

from __future__ import annotations

import asyncio
import random
import re
import time
from dataclasses import dataclass, field

from connection import Connection

REMAINING = re.compile(rb'\r\nratelimit: "demo";r=(\d+)', re.IGNORECASE)
#: How long each connection rests before its next request at most, so that the services take turns.
REST_SECONDS = 0.08


@dataclass
class Tally:
    """What one service has answered so far."""

    title: str
    port: int
    letter: str
    requests: int
    denied: int = 0
    #: When each request was admitted, in seconds after the start, and how much was left according to its response.
    admitted: list[tuple[float, int]] = field(default_factory=list)
    #: Of each request, in seconds.
    latencies: list[float] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """How many requests have been answered."""
        return len(self.latencies)

    def latency_ms(self, part: float) -> float:
        """Give the latency that such a part of the requests stays within."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(int(part * len(ordered)), len(ordered) - 1)]


async def drive(tallies: list[Tally], user: str, connections: int, started: float) -> None:
    """Send every service its requests, all at the same time; 429 is a denial, and anything else but 200 an error."""

    async def call(tally: Tally, connection: Connection, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(random.uniform(0, REST_SECONDS))
            before = time.monotonic()
            status, head, _body = await connection.get(f"/?user={user}")
            now = time.monotonic()
            tally.latencies.append(now - before)
            remaining = REMAINING.search(head)
            if status == 200 and remaining is not None:
                tally.admitted.append((now - started, int(remaining[1])))
            elif status == 429:
                tally.denied += 1
            else:
                raise RuntimeError(f"{tally.title} answered {head!r}")

    opened = [(tally, await Connection.open(tally.port)) for tally in tallies for _ in range(connections)]
    try:
        async with asyncio.TaskGroup() as group:
            for number, (tally, connection) in enumerate(opened):
                times = tally.requests // connections + (number % connections < tally.requests % connections)
                group.create_task(call(tally, connection, times))
    finally:
        for _tally, connection in opened:
            connection.close()


async def warm_up(tallies: list[Tally], user: str) -> None:
    """Have every service answer, so that what is measured is no start-up."""
    for tally in tallies:
        for _ in range(10):
            connection = await Connection.open(tally.port)
            status, head, _body = await connection.get(f"/?user={user}")
            connection.close()
            if status != 200:
                raise RuntimeError(f"{tally.title} answered {head!r}")
