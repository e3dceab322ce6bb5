"""Measures microseconds a decision or a request beside the peers, in interleaved rounds; prints medians and ratios."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import statistics
import sys
import threading
import time
from functools import partial
from pathlib import Path

import uvloop

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]

import contenders
import frameworks
from redis_server import RedisServer

QUICK = "--quick" in sys.argv
ROUNDS = 2 if QUICK else 5
SECONDS = 0.02 if QUICK else 0.1
MANY = 2_000 if QUICK else 100_000


def keys_of(what):
    return [f"user:{number}" for number in range(MANY)] if what == "100k keys" else ["user:1"]


def sync_round(contender, keys, threads):
    """Each thread takes its own way through the keys."""
    counts = []

    def work(offset):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            for _ in range(20):
                contender.check(keys[(offset + count) % len(keys)])
                count += 1
        counts.append(count)

    start = time.perf_counter()
    if threads == 1:
        work(0)
    else:
        workers = [threading.Thread(target=work, args=[7919 * number]) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return (time.perf_counter() - start) / sum(counts) * 1e6


async def async_round(contender, keys, concurrent):
    end = time.perf_counter() + SECONDS
    counts = []

    async def work(offset):
        count = 0
        while time.perf_counter() < end:
            for _ in range(10):
                await contender.check(keys[(offset + count) % len(keys)])
                count += 1
        counts.append(count)

    start = time.perf_counter()
    if concurrent == 1:
        await work(0)
    else:
        await asyncio.gather(*(work(7919 * number) for number in range(concurrent)))
    return (time.perf_counter() - start) / sum(counts) * 1e6


def measure_sync(classes, url, what, threads):
    limit = contenders.DENIED if what == "denied" else contenders.ALLOWED
    keys = keys_of(what)
    able = [make for make in classes if make.has_keys or what != "100k keys"]
    made = [make(url, limit) for make in able if make.has_threads or threads == 1]
    times = {contender.name: [] for contender in made}
    for contender in made:
        contender.check(keys[0])
    for _ in range(ROUNDS):
        for contender in made:
            times[contender.name].append(sync_round(contender, keys, threads))
    return times


def measure_async(classes, url, what, concurrent):
    limit = contenders.DENIED if what == "denied" else contenders.ALLOWED
    keys = keys_of(what)

    async def main():
        made = [make(url, limit) for make in classes if make.has_keys or what != "100k keys"]
        times = {contender.name: [] for contender in made}
        for contender in made:
            await contender.start()
            await contender.check(keys[0])
        for _ in range(ROUNDS):
            for contender in made:
                times[contender.name].append(await async_round(contender, keys, concurrent))
        return times

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if "--uvloop" in sys.argv else None) as runner:
        return runner.run(main())


def measure_apps(apps, one):
    times = {name: [] for name in apps}
    for _ in range(ROUNDS):
        for name, app in apps.items():
            times[name].append(one(app))
    return times


def show(title, times, beside="polylimit"):
    medians = {name: statistics.median(each) for name, each in times.items()}
    ours = medians[beside]
    cells = [f"{name} {median:.2f} ({median / ours:.2f}x)" for name, median in medians.items()]
    print(f"| {title} | " + " | ".join(cells) + " |", flush=True)


def rows(url):
    """Every row of the table: its title, and what measures it."""
    for what in ("allowed", "denied", "100k keys"):
        yield f"sync, memory, {what}", partial(measure_sync, contenders.SYNC, None, what, 1)
    for what in ("allowed", "denied", "100k keys"):
        for threads in (1, 8, 64):
            title = f"sync, Redis, {threads} threads, {what}"
            yield title, partial(measure_sync, contenders.SYNC, url, what, threads)
    for store, where in ((None, "memory"), (url, "Redis")):
        for what in ("allowed", "denied", "100k keys"):
            for concurrent in (1, 64):
                title = f"async, {where}, {concurrent} concurrent, {what}"
                yield title, partial(measure_async, contenders.ASYNC, store, what, concurrent)
    for store, where in ((None, "memory"), (url, "Redis")):
        apps = frameworks.flask_apps(store)
        yield f"Flask, {where}", partial(measure_apps, apps, partial(frameworks.wsgi_round, seconds=SECONDS))
        for concurrent in (1, 64):
            apps = frameworks.fastapi_apps(store)
            one = partial(frameworks.asgi_round, seconds=SECONDS, concurrent=concurrent)
            yield f"FastAPI, {where}, {concurrent} concurrent", partial(measure_apps, apps, one)


def main():
    packages = ("limits", "pyrate-limiter", "slowapi", "Flask-Limiter", "redis")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    print(f"Python {platform.python_version()}; {versions}")
    print(f"Microseconds a decision, or a request: medians of {ROUNDS} interleaved rounds of {SECONDS} s.")
    print("In brackets, times polylimit's.\n")
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    server = RedisServer()
    try:
        for title, measure in rows(server.url):
            if only in title:
                show(title, measure())
    finally:
        server.close()
    print("\nTo repeat it: bindings/python/bench [--uvloop] [--only TEXT OF A TITLE]")


if __name__ == "__main__":
    main()
