"""Views that fail, are cancelled or have functions of an unexpected kind, in this process."""

import asyncio

import anyio
from polylimit import AsyncLimiter
from polylimit.asgi import RateLimitMiddleware

def test_who_is_cancelled_at_every_await_gives_all_of_it_back(redis, key):
    async def waits(_scope, _receive, _send):
        await anyio.sleep(60)

    async def main():
        async with AsyncLimiter(redis, dict.fromkeys("abc", "10/day")) as limiter:
            await limiter.ready(10)
            middleware = RateLimitMiddleware(
                waits,
                limiter=limiter,
                policy=["a", "b", "c"],
                key=lambda _scope: key,
                count=lambda response: response.status_code == 401,
            )
            async with anyio.create_task_group() as group:
                group.start_soon(middleware, {"type": "http", "headers": []}, None, None)
                while (await limiter.peek(key, "a")).remaining == 10:
                    await anyio.sleep(0.01)
                await anyio.sleep(0.1)
                group.cancel_scope.cancel()
            while [(await limiter.peek(key, name)).remaining for name in "abc"] != [10, 10, 10]:
                await anyio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 10))
