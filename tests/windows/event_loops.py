"""The event loops of Windows and uvicorn, under Wine: ``event_loops.py URL`` with the URL of a Redis that no other test uses."""

import asyncio
import sys
import threading
import urllib.error
import urllib.request

import uvicorn
from polylimit import AsyncLimiter
from polylimit.asgi import RateLimitMiddleware

LIMIT = 30
LOOPS = [asyncio.ProactorEventLoop, asyncio.SelectorEventLoop]


async def decide(store: str, key: str) -> None:
    """Answers of Redis resume their tasks, in batches and one by one, and a task that waits in line can be cancelled."""
    async with AsyncLimiter(store, {"api": f"{LIMIT}/day"}) as limiter:
        decisions = await asyncio.gather(*(limiter.check(key) for _ in range(2 * LIMIT)))
        assert sum(map(bool, decisions)) == LIMIT
        for _ in range(LIMIT):
            assert not await limiter.check(key)
        waiting = asyncio.create_task(limiter.acquire(key, timeout=100_000))
        await asyncio.sleep(0.1)
        waiting.cancel()
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)


def run_loops(store: str) -> None:
    """Two loops of each kind, one after the other, in a thread each."""
    ended = []

    def work(number: int) -> None:
        for turn in range(2):
            loop = LOOPS[number % len(LOOPS)]()
            loop.run_until_complete(asyncio.wait_for(decide(store, f"key {number} {turn}"), 60))
            loop.close()
            ended.append(number)

    threads = [threading.Thread(target=work, args=[number], daemon=True) for number in range(2 * len(LOOPS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 2 * len(threads), ended


async def application(_scope: object, _receive: object, send: object) -> None:
    """Say in which loop it runs."""
    name = type(asyncio.get_running_loop()).__name__.encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": name})


async def serve(store: str) -> list[str]:
    """Serve three requests, of which the limit admits two."""
    limiter = AsyncLimiter(store, {"web": "2/day"})
    limited = RateLimitMiddleware(application, limiter=limiter, policy="web")
    server = uvicorn.Server(uvicorn.Config(limited, port=0, lifespan="off", log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    def ask() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
                return f"{response.status} {response.read().decode()}"
        except urllib.error.HTTPError as error:
            return str(error.code)

    try:
        return [await asyncio.to_thread(ask) for _ in range(3)]
    finally:
        server.should_exit = True
        await serving


def main() -> None:
    """Run everything."""
    (store,) = sys.argv[1:]
    run_loops(store)
    # uvicorn lets asyncio choose the loop.
    served = asyncio.run(serve(store))
    assert served == ["200 ProactorEventLoop"] * 2 + ["429"], served
    sys.stdout.write("test result: ok. 2 passed; 0 failed;\n")


if __name__ == "__main__":
    main()
