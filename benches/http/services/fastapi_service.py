"""A FastAPI application with the middleware that the environment selects: ``VARIANT``, ``STORE``."""

import os

from fastapi import FastAPI, Request

VARIANT, STORE = os.environ["VARIANT"], os.environ["STORE"]
QUOTA = "1000000000/day"

app = FastAPI()

if VARIANT == "round_trip":
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(STORE)

    @app.get("/")
    async def hello(request: Request) -> str:
        await client.get("missing")
        return "hello"

else:

    @app.get("/")
    async def hello(request: Request) -> str:
        return "hello"


if VARIANT == "fields":
    FIELDS = [
        (b"ratelimit-policy", b'"all";q=1000000000;w=86400'),
        (b"ratelimit", b'"all";r=999999999;t=86400'),
    ]

    class ConstantFields:
        """Adds two fields to every response."""

        def __init__(self, app) -> None:  # noqa: ANN001
            self.app = app

        async def __call__(self, scope, receive, send) -> None:  # noqa: ANN001, D102
            async def send_with_fields(message) -> None:  # noqa: ANN001
                if message["type"] == "http.response.start":
                    message["headers"].extend(FIELDS)
                await send(message)

            await self.app(scope, receive, send_with_fields)

    app.add_middleware(ConstantFields)
elif VARIANT == "polylimit":
    from polylimit import AsyncLimiter
    from polylimit.fastapi import RateLimitMiddleware

    app.add_middleware(RateLimitMiddleware, limiter=AsyncLimiter(STORE), policy=QUOTA)
elif VARIANT == "peer":
    from slowapi import Limiter
    from slowapi.middleware import SlowAPIASGIMiddleware
    from slowapi.util import get_remote_address

    app.state.limiter = Limiter(
        key_func=get_remote_address,
        default_limits=[QUOTA],
        storage_uri=STORE.replace("memory:", "memory://"),
        headers_enabled=True,
    )
    app.add_middleware(SlowAPIASGIMiddleware)
