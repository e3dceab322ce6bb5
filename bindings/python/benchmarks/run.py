"""Measures decisions and requests of polylimit and its peers in interleaved rounds; prints medians and ratios."""

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
#: How many decisions are made between two readings of the clock.
PART = 20
MANY = 2_000 if QUICK else 100_000


def keys_of(what):
    return [f"user:{number}" for number in range(MANY)] if what == "100k keys" else ["user:1"]


def parts_of(keys):
    """Divides the keys into parts, so that the loop around the calls is cheap."""
    return [keys[start : start + PART] for start in range(0, len(keys), PART)] if len(keys) > 1 else [keys * PART]


def sync_round(contender, parts, threads):
    """Each thread starts at another part of the keys."""
    counts = []

    check = contender.check

    def work(offset):
        count, start = 0, time.perf_counter()
        # A busy machine may not come here before the time is over.
        while not count or time.perf_counter() - start < SECONDS:
            for key in parts[(offset + count // PART) % len(parts)]:
                check(key)
            count += PART
        counts.append(count)

    start = time.perf_counter()
    if threads == 1:
        work(0)
    else:
        workers = [threading.Thread(target=work, args=[97 * number]) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return (time.perf_counter() - start) / sum(counts) * 1e6


async def async_round(contender, parts, concurrent):
    end = time.perf_counter() + SECONDS
    counts = []

    check = contender.check

    async def work(offset):
        count = 0
        while not count or time.perf_counter() < end:
            for key in parts[(offset + count // PART) % len(parts)]:
                await check(key)
            count += PART
        counts.append(count)

    start = time.perf_counter()
    if concurrent == 1:
        await work(0)
    else:
        await asyncio.gather(*(work(97 * number) for number in range(concurrent)))
    return (time.perf_counter() - start) / sum(counts) * 1e6


def able_of(classes, url, what):
    return [make for make in classes if (make.has_keys or what != "100k keys") and (url or make.has_memory)]


def measure_sync(classes, url, what, threads):
    limit = contenders.DENIED if what == "denied" else contenders.ALLOWED
    keys = keys_of(what)
    parts = parts_of(keys)
    able = able_of(classes, url, what)
    made = [make(url, limit) for make in able if make.has_threads or threads == 1]
    times = {contender.name: [] for contender in made}
    for contender in made:
        contender.check(keys[0])
    for _ in range(ROUNDS):
        for contender in made:
            times[contender.name].append(sync_round(contender, parts, threads))
    return times


def measure_async(classes, url, what, concurrent):
    limit = contenders.DENIED if what == "denied" else contenders.ALLOWED
    keys = keys_of(what)
    parts = parts_of(keys)

    async def main():
        made = [make(url, limit) for make in able_of(classes, url, what)]
        times = {contender.name: [] for contender in made}
        for contender in made:
            await contender.start()
            await contender.check(keys[0])
        for _ in range(ROUNDS):
            for contender in made:
                times[contender.name].append(await async_round(contender, parts, concurrent))
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
    """The rows of the table: each title with the function that measures it."""
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
    packages = ("limits", "pyrate-limiter", "slowapi", "Flask-Limiter", "redis", "coredis")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    print(f"Python {platform.python_version()}; {versions}")
    print(f"Microseconds a decision, or a request: medians of {ROUNDS} interleaved rounds of {SECONDS} s.")
    print("In brackets, the ratio to polylimit's.\n")
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
