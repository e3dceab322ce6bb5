"""Compares tasks with threads in a process that has one core, as in a container; the server has another core.

``bench`` runs it. It pins itself to one core, and the server that it starts to another one.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "tests")]

from polylimit import AsyncLimiter, Limiter
from redis_server import RedisServer

QUICK = "--quick" in sys.argv
ROUNDS = 1 if QUICK else 9
SECONDS = 0.02 if QUICK else 0.5
WIDTH = 64
KEYS = [f"user:{number}" for number in range(2_000 if QUICK else 100_000)]
POLICY = "1000000000/hour token_bucket"
SERVER_CORE, CLIENT_CORE = 0, 1


def thread_round(limiter):
    """Decides on WIDTH threads; returns the seconds that each decision took."""
    check, end, waits = limiter.check, time.perf_counter() + SECONDS, []

    def work(at):
        own = []
        begin = time.perf_counter()
        while begin < end:
            check(KEYS[at % len(KEYS)], POLICY)
            now = time.perf_counter()
            own.append(now - begin)
            at, begin = at + WIDTH, now
        waits.extend(own)

    workers = [threading.Thread(target=work, args=[at]) for at in range(WIDTH)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return waits


async def task_round(limiter):
    """Decides in WIDTH tasks of one event loop; returns the seconds that each decision took."""
    check, end, waits = limiter.check, time.perf_counter() + SECONDS, []

    async def work(at):
        begin = time.perf_counter()
        while begin < end:
            await check(KEYS[at % len(KEYS)], POLICY)
            now = time.perf_counter()
            waits.append(now - begin)
            at, begin = at + WIDTH, now

    await asyncio.gather(*(work(at) for at in range(WIDTH)))
    return waits


def p99(waits):
    """The 99th percentile; a short round on a busy machine may have too few waits for one."""
    return statistics.quantiles(waits, n=100)[-1] if len(waits) > 1 else max(waits, default=0.0)


async def main():
    os.sched_setaffinity(0, {SERVER_CORE})
    server = RedisServer()
    try:
        os.sched_setaffinity(0, {CLIENT_CORE})
        url = f"{server.url}?deadline=10s"
        # Limiters with the same settings share connections; different names keep these two apart.
        threads, tasks = Limiter(f"{url}&client_name=threads"), AsyncLimiter(f"{url}&client_name=tasks")
        rates, latest = {}, {}
        for number in range(ROUNDS + 1):
            for name, waits in [
                (f"{WIDTH} threads", thread_round(threads)),
                (f"{WIDTH} tasks of asyncio", await task_round(tasks)),
            ]:
                # The first round warms up.
                if number:
                    rates.setdefault(name, []).append(len(waits) / SECONDS)
                    latest.setdefault(name, []).append(p99(waits))
        print(f"\nRedis, {WIDTH} at once on one core, the server on another, {len(KEYS)} keys")
        base = statistics.median(next(iter(rates.values())))
        for name, rate in rates.items():
            middle, slow = statistics.median(rate), statistics.median(latest[name])
            ratio = middle / base if base else 0.0
            print(f"  {name:24} {middle:9.0f} /s {ratio:6.2f} x   p99 {slow * 1e6:7.0f} us")
        threads.close()
        await tasks.close()
    finally:
        server.close()


if os.cpu_count() == 1:
    print("skipped: one_core.py: it needs two cores, one for the process and one for the server")
else:
    asyncio.run(main())
