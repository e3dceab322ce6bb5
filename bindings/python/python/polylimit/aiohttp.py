"""A middleware for the client of aiohttp that stays within a limit of your own and waits as servers demand.

>>> import aiohttp
>>> from polylimit import AsyncLimiter
>>> from polylimit.aiohttp import RateLimitMiddleware
>>> limit = RateLimitMiddleware(AsyncLimiter(), "10/s token_bucket")
>>> async def main() -> int:
...     async with aiohttp.ClientSession(middlewares=[limit]) as session:
...         async with session.get("https://api.example/") as response:
...             return response.status

The rules are those of every language: docs/clients.md. aiohttp 3.12 and newer.
"""
# ruff: noqa: E402 - an older aiohttp is refused before anything is imported that it does not have

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from polylimit import AsyncLimiter
from polylimit._client import Client
from polylimit._versions import require

require("aiohttp", "3.12", "aiohttp")

import aiohttp
from aiohttp.payload import BytesPayload

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from polylimit import Backoff, Policy, Quota

__all__ = ["RateLimitMiddleware", "Throttled"]


class Throttled(aiohttp.ClientError, asyncio.TimeoutError):
    """Raised when a request was not sent, because it would have to wait for too long."""

    #: Seconds after which the request would be sent; ``None`` if the limiter never admits it.
    retry_after: float | None

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def host(request: ClientRequest) -> str:
    """Return the key of a request by default: the host, and the port unless it is the scheme's own."""
    return (request.url.host_port_subcomponent or "").lower()


class RateLimitMiddleware:
    """A middleware for ``aiohttp.ClientSession``.

    It acquires for every request that is sent, also for those of redirects. The ``total`` timeout of the session bounds
    all waits.

    Parameters
    ----------
    limiter
        The :class:`polylimit.AsyncLimiter` that every attempt acquires from.
    policy
        Its policy, or quotas; not needed if the limiter has exactly one policy.
    key
        A function of the ``aiohttp.ClientRequest`` that returns its key; the default is its host.
    cost
        The units of each attempt; 1 by default.
    backoff
        How often and how long a request may wait; ``max_wait`` bounds all of its waits.

    Raises
    ------
    InvalidArgumentError
        When the limiter does not know the policy, or the policy has a quota of concurrency.
    Throttled
        By a request that would have to wait for more than ``max_wait``.
    PolylimitError
        By a request for which the limiter could not decide.

    """

    def __init__(
        self,
        limiter: AsyncLimiter,
        policy: str | Quota | Policy | None = None,
        *,
        key: Callable[[ClientRequest], str | bytes] = host,
        cost: int = 1,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = Client(limiter, policy, kind=AsyncLimiter, key=key, cost=cost, backoff=backoff)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client!r})"

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send a request as soon as its limits allow it."""
        client = self._client
        key = client.key(request)
        replayable = isinstance(request.body, (bytes, BytesPayload))
        attempts = client.throttle.start(key, request.method, replayable, None)
        while True:
            step, seconds = attempts.step()
            if step == "wait":
                await asyncio.sleep(seconds)
            elif step == "acquire":
                decision = await client.limiter.acquire(key, client.policy, cost=client.cost, timeout=seconds)
                attempts.acquired(decision)
            elif step == "send":
                response = await handler(request)
                if not attempts.responded(response.status, response.headers):
                    return response
                response.release()
            else:
                message, retry_after = attempts.refusal() or ("", None)
                raise Throttled(message, retry_after)
