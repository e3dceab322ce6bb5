"""A FastAPI service whose limits come from a document that changes while the service runs."""

import os

from fastapi import FastAPI, Request
from polylimit import AsyncLimiter
from polylimit.fastapi import RateLimitMiddleware

limiter = AsyncLimiter(
    os.environ.get("POLYLIMIT_URL", "local:demo"),
    configuration=os.environ.get("POLYLIMIT_CONFIGURATION", "file:polylimit.toml"),
)


def attributes(request: Request) -> dict[str, str | None]:
    """Return what the rules may ask for besides. An application takes both from the session of its user."""
    return {name: request.query_params.get(name) for name in ("user", "plan")}


app = FastAPI()
# Decides about each request by the document's lists and rules.
app.add_middleware(RateLimitMiddleware, limiter=limiter, attributes=attributes)


@app.get("/")
async def hello() -> dict[str, str]:
    return {"hello": "world"}


@app.get("/configuration")
async def configuration(version: int = 0) -> dict[str, int | str]:
    """Wait for a version of the configuration, and return the active one."""
    status = await limiter.admin().wait_for_version(version, 30)
    return {"version": status.version, "digest": status.digest}
