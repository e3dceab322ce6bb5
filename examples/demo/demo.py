"""Services in four languages share one budget, and follow one document of limits.

Together they admit exactly what a policy allows; and each change of the document becomes active in all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

sys.path.append(str(Path(__file__).resolve().parent.parent / "support"))

from callers import Tally, drive, warm_up
from followers import file_source, store_source
from limits import document, follow_limits
from own_redis import Redis
from picture import Picture
from polylimit import Limiter, PolylimitError
from services import Service
from stores import local, patient

SERVICES = {
    "fastapi": ("FastAPI, 2 workers", "F"),
    "express": ("Express", "E"),
    # Only Linux has epoll.
    **({"c-epoll": ("C, epoll", "C")} if sys.platform == "linux" else {"c-threaded": ("C, threads", "C")}),
    "go-nethttp": ("Go, net/http", "G"),
}
LIMIT = 1000
# A log has no window that could end while the demo runs.
QUOTA = f"{LIMIT}/hour sliding_log"
REQUESTS_EACH = 750
CONNECTIONS_EACH = 6
SECONDS = 90


async def drive_shown(tallies: list[Tally], user: str, picture: Picture) -> None:
    """Drive them, and show it."""
    await warm_up(tallies, f"warm-up-{user}")
    started = time.monotonic()
    driving = asyncio.create_task(drive(tallies, user, CONNECTIONS_EACH, started))
    async with asyncio.timeout(SECONDS):
        while not driving.done():
            picture.show(time.monotonic() - started)
            await asyncio.wait([driving], timeout=0.1)
        await driving
    picture.show(time.monotonic() - started, last=True)


def is_exact(tallies: list[Tally], limiter: Limiter, user: str) -> bool:
    """Say whether they admitted what the quota allows, and show it in three ways."""
    reported = sorted(remaining for tally in tallies for _at, remaining in tally.admitted)
    left = limiter.peek(user).remaining
    facts = {
        f"{len(reported)} requests were admitted where the quota allows {LIMIT}": len(reported) == LIMIT,
        f"of {LIMIT - 1} to 0 left, each was sent to one of them": reported == list(range(LIMIT)),
        f"a limiter that was opened just now sees {left} left": left == 0,
    }
    for fact, holds in facts.items():
        print(f"  {'yes' if holds else 'NO '}  {fact}")
    return all(facts.values())


def run(url: str, shown: str) -> bool:
    """Start the services, drive them and judge."""
    user = f"demo-{secrets.token_hex(4)}"
    print(f"\nOne policy, {QUOTA}, for one key, on {shown}")
    with contextlib.ExitStack() as stack:
        limiter = stack.enter_context(Limiter(url, {"demo": QUOTA}))
        limiter.ready(10)
        # Nothing of this run is left in the store.
        for key in (user, f"warm-up-{user}"):
            stack.callback(limiter.reset, key)
        services = [stack.enter_context(Service(name, url, QUOTA)) for name in SERVICES]
        tallies = []
        for service in services:
            title, letter = SERVICES[service.name]
            tallies.append(Tally(title, service.port(), letter, REQUESTS_EACH))
            print(f"  {title} serves http://127.0.0.1:{tallies[-1].port}/", flush=True)
        print(f"{REQUESTS_EACH} requests to each at the same time, {CONNECTIONS_EACH} connections each\n", flush=True)
        picture = Picture(tallies, LIMIT)
        asyncio.run(drive_shown(tallies, user, picture))
        picture.table()
        picture.plot()
        return is_exact(tallies, limiter, user)


def run_on_redis(url: str, shown: str) -> bool:
    """Share a budget in Redis, and follow a document there; a cluster's and a sentinel's document comes from a file."""
    exact = run(url, shown)
    source = store_source if urlsplit(url).scheme in ("redis", "rediss") else file_source
    with source(url, document()) as followed:
        return follow_limits(followed, shown) and exact


def run_on_this_host() -> bool:
    """Share a budget on this host, and follow a document in a file."""
    with local() as url:
        exact = run(url, "the local store")
    with local() as url, file_source(url, document()) as followed:
        return follow_limits(followed, "the local store") and exact


def without_password(url: str) -> str:
    """Give what may be shown of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def main() -> int:
    """Choose the store; 0 when all is as it should be, 1 when it is not, 2 when that could not be found out."""
    # Everything is ended and removed then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    redis_url = os.environ.get("REDIS_URL", "")
    try:
        if redis_url:
            right = run_on_redis(patient(redis_url), f"Redis, {without_password(redis_url)}")
        elif os.environ.get("REDIS", "") not in ("", "0"):
            with Redis() as redis:
                right = run_on_redis(patient(redis.url), f"a Redis of its own, {redis.url}")
        else:
            right = run_on_this_host()
    except KeyboardInterrupt:
        print("\nended early")
        return 130
    except (PolylimitError, RuntimeError, TimeoutError) as error:
        print(f"\nthe demo cannot run: {error}", file=sys.stderr)
        return 2
    print("\nexactly what the limits allow\n" if right else "\nNOT what the limits allow\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
