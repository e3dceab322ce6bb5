"""A connection to a service over which one request follows another."""

from __future__ import annotations

import asyncio
import re

LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class Connection:
    """One connection that is kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to a service."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def get(self, path: str) -> tuple[int, bytes, bytes]:
        """Give the status, the head and the body of the response."""
        self._writer.write(b"GET %s HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" % path.encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        if length is None:
            raise RuntimeError(f"a response does not say its length: {head!r}")
        body = await self._reader.readexactly(int(length[1]))
        return int(head.split(b" ", 2)[1]), head, body

    def close(self) -> None:
        """End it."""
        self._writer.close()
