"""An AsyncLimiter under trio, by itself and by anyio."""

import anyio
import httpx
import pytest
import trio
from polylimit import AsyncLimiter, ClosedError
from polylimit.asgi import Limit, RateLimitMiddleware
from polylimit.httpx import AsyncRateLimitTransport


def test_operations_of_each_store(store, key):
    async def main():
        async with AsyncLimiter(store, {"a": "2/minute fixed_window"}) as limiter:
            await limiter.ready(20)
            decisions = [await limiter.check(key) for _ in range(3)]
            usage = await limiter.refund(key)
            many = await limiter.check_many([key, key])
            return [*map(bool, decisions), usage.remaining, *map(bool, many)]

    assert trio.run(main) == [True, True, False, 1, True, False]


def test_tasks_wait_in_line(store, key):
    async def hold(limiter, log):
        async with limiter.reserve(key, timeout=20) as held:
            log.append(bool(held))
            await trio.sleep(0.01)

    async def main():
        log = []
        async with AsyncLimiter(store, {"a": "1 concurrent"}) as limiter, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(hold, limiter, log)
        return log

    assert trio.run(main) == [True, True, True]


def test_cancelled_task_leaves_the_queue(store, key):
    async def main():
        async with AsyncLimiter(store, {"a": "1 concurrent"}) as limiter:
            held = await limiter.reserve(key)
            with trio.move_on_after(0.01) as scope:
                await limiter.reserve(key, timeout=20)
            assert scope.cancelled_caught
            await held.cancel()
            return bool(await limiter.reserve(key, timeout=20))

    assert trio.run(main)


def test_close_ends_waiting_tasks(key):
    async def main():
        limiter = AsyncLimiter(policies={"a": "1 concurrent"})
        held = await limiter.reserve(key)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def wait():
                with pytest.raises(ClosedError):
                    await limiter.reserve(key, timeout=20)

            await trio.sleep(0.01)
            await limiter.close()
        del held

    trio.run(main)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_acquire_and_clients_of_anyio(backend, key):
    async def main():
        limiter = AsyncLimiter(policies={"a": "1/20ms token_bucket"})
        waits = [(await limiter.acquire(key, timeout=20)).allowed for _ in range(3)]
        transport = AsyncRateLimitTransport(
            limiter, transport=httpx.ASGITransport(RateLimitMiddleware(respond, limit=Limit(AsyncLimiter(), "1/hour")))
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return waits, [(await client.get("/")).status_code for _ in range(1)]

    async def respond(scope, receive, send):
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    assert anyio.run(main, backend=backend) == ([True, True, True], [204])
