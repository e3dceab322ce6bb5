"""A FastAPI service whose requests are limited by the middleware of polylimit."""

import os

from fastapi import FastAPI, Request
from polylimit import AsyncLimiter
from polylimit.fastapi import RateLimitMiddleware

limiter = AsyncLimiter(
    os.environ.get("POLYLIMIT_URL", "local:demo"),
    {"demo": os.environ.get("POLYLIMIT_QUOTA", "100/minute")},
)


def user(request: Request) -> str:
    """Return the key: the query parameter "user", or "demo"."""
    return request.query_params.get("user", "demo")


app = FastAPI()
app.add_middleware(RateLimitMiddleware, limiter=limiter, key=user)


@app.get("/")
async def hello() -> dict[str, str]:
    return {"hello": "world"}
