"""Starts the four services, and shows each version of the document that they have."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "support"))

from followers import FileSource, Follower, start


async def show(title: str, port: int) -> None:
    """Ask one service for each version after the one that it has returned."""
    follower = await Follower.meet(title, port)
    while True:
        at = time.strftime("%H:%M:%S")
        print(
            f"{at}  {title:<8} http://127.0.0.1:{port}/  version {follower.version}, {follower.digest[:12]}", flush=True
        )
        version = follower.version
        while follower.version == version:
            await asyncio.sleep(0.05)
            await follower.follow(version)


async def show_all(ports: list[tuple[str, int]]) -> None:
    """Show all of them."""
    await asyncio.gather(*(show(title, port) for title, port in ports))


def main() -> None:
    """Start them, on the local store or on Redis."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    source = FileSource("local:demo", Path(__file__).resolve().parent / "polylimit.toml")
    if redis_url := os.environ.get("REDIS_URL"):
        source.url, source.configuration = redis_url, "store"
    with contextlib.ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(show_all(start(stack, source)))


if __name__ == "__main__":
    main()
