"""Callers in Python: caller.py URL CALLERS ATTEMPTS.

For each line of the input, a key and quotas with a tab between them, all callers ask at the same time, every other
one in an event loop; the answer is how many were admitted.
"""

from __future__ import annotations

import asyncio
import sys

from polylimit import Decision, Limiter


def counted(decision: Decision) -> bool:
    """Say whether it is admitted. What the store did not decide would say nothing about a shared budget."""
    if decision.degraded is not None:
        raise RuntimeError(f"a decision is degraded: {decision!r}")
    return decision.allowed


async def main(url: str, callers: int, attempts: int) -> None:
    limiter = Limiter(url)

    def in_thread(key: str, quotas: str) -> int:
        return sum(counted(limiter.check(key, quotas)) for _ in range(attempts))

    async def in_loop(key: str, quotas: str) -> int:
        return sum([counted(await limiter.asynchronous.check(key, quotas)) for _ in range(attempts)])

    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        key, quotas = line.rstrip("\n").split("\t")
        running = [
            in_loop(key, quotas) if caller % 2 else loop.run_in_executor(None, in_thread, key, quotas)
            for caller in range(callers)
        ]
        print(sum(await asyncio.gather(*running)), flush=True)
    limiter.close()


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
