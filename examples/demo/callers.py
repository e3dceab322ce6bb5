"""Sends real HTTP requests to services at the same time, and keeps what they answer."""

from __future__ import annotations

import asyncio
import random
import re
import time
from dataclasses import dataclass, field

REMAINING = re.compile(rb'\r\nratelimit: "demo";r=(\d+)', re.IGNORECASE)
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
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
    #: When each request was admitted, in seconds after the start, and how much it was told to be left.
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


class Connection:
    """One connection that is kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to a service."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def get(self, path: str) -> tuple[int, bytes]:
        """Give the status and the head of the response."""
        self._writer.write(b"GET %s HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" % path.encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        if length is None:
            raise RuntimeError(f"a response does not say its length: {head!r}")
        await self._reader.readexactly(int(length[1]))
        return int(head.split(b" ", 2)[1]), head

    def close(self) -> None:
        """End it."""
        self._writer.close()


async def drive(tallies: list[Tally], user: str, connections: int, started: float) -> None:
    """Send every service its requests, all at the same time; 429 is a denial, and anything else but 200 an error."""

    async def call(tally: Tally, connection: Connection, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(random.uniform(0, REST_SECONDS))
            before = time.monotonic()
            status, head = await connection.get(f"/?user={user}")
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
            status, head = await connection.get(f"/?user={user}")
            connection.close()
            if status != 200:
                raise RuntimeError(f"{tally.title} answered {head!r}")
