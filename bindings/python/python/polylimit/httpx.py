"""Transports for httpx that stay within a limit of your own and wait as servers demand.

>>> import httpx
>>> from polylimit import Limiter
>>> from polylimit.httpx import RateLimitTransport
>>> client = httpx.Client(transport=RateLimitTransport(Limiter(), "10/s token_bucket"))

The rules are those of every language: docs/clients.md.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Callable

import httpx

from polylimit._core import Attempts, Throttle

if TYPE_CHECKING:
    from polylimit import AsyncLimiter, Backoff, Limiter, Quota

__all__ = ["AsyncRateLimitTransport", "RateLimitTransport", "Throttled"]


class Throttled(httpx.PoolTimeout):
    """Raised when a request was not sent, because it would have to wait for too long."""

    #: Seconds after which the request would be sent; ``None`` if the limiter never admits it.
    retry_after: float | None

    def __init__(self, message: str, retry_after: float | None, request: httpx.Request) -> None:
        super().__init__(message, request=request)
        self.retry_after = retry_after


def host(request: httpx.Request) -> str:
    """Return the key of a request by default: the host, and the port unless it is the scheme's own."""
    return request.url.netloc.decode("ascii").lower()


def _start(throttle: Throttle, key: str | bytes, request: httpx.Request) -> Attempts:
    timeout = request.extensions.get("timeout", {}).get("pool")
    return throttle.start(key, request.method, isinstance(request.stream, httpx.ByteStream), timeout)


def _responded(attempts: Attempts, response: httpx.Response) -> bool:
    fields = response.headers
    return attempts.responded(response.status_code, fields.get("retry-after"), fields.get_list("ratelimit"))


def _throttled(attempts: Attempts, request: httpx.Request) -> Throttled:
    message, retry_after = attempts.refusal() or ("", None)
    return Throttled(message, retry_after, request)


class RateLimitTransport(httpx.BaseTransport):
    """A transport for ``httpx.Client``.

    Parameters
    ----------
    limiter
        The limiter that every attempt acquires from.
    policy
        Its policy, or quotas; not needed if the limiter has exactly one policy.
    transport
        The transport that sends; the default is ``httpx.HTTPTransport()``.
    key
        A function of the request that returns its key; the default is its host.
    cost
        The units of each attempt; 1 by default.
    backoff
        How often and how long a request may wait; ``max_wait`` bounds all of its waits.

    Raises
    ------
    Throttled
        By a request that would have to wait for more than ``max_wait`` or httpx's ``pool`` timeout.
    PolylimitError
        By a request for which the limiter could not decide.

    """

    def __init__(
        self,
        limiter: Limiter,
        policy: str | Quota | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        key: Callable[[httpx.Request], str | bytes] = host,
        cost: int = 1,
        backoff: Backoff | None = None,
    ) -> None:
        self._limiter, self._policy, self._key, self._cost = limiter, policy, key, cost
        self._transport = transport or httpx.HTTPTransport()
        self._throttle = Throttle(backoff)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request as soon as its limits allow it."""
        key = self._key(request)
        attempts = _start(self._throttle, key, request)
        while True:
            step, seconds = attempts.step()
            if step == "wait":
                time.sleep(seconds)
            elif step == "acquire":
                attempts.acquired(self._limiter.acquire(key, self._policy, cost=self._cost, timeout=seconds))
            elif step == "send":
                response = self._transport.handle_request(request)
                if not _responded(attempts, response):
                    return response
                response.close()
            else:
                raise _throttled(attempts, request)

    def close(self) -> None:
        """Close the transport that sends."""
        self._transport.close()


class AsyncRateLimitTransport(httpx.AsyncBaseTransport):
    """A transport for ``httpx.AsyncClient`` on asyncio; its parameters are those of ``RateLimitTransport``."""

    def __init__(
        self,
        limiter: AsyncLimiter,
        policy: str | Quota | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        key: Callable[[httpx.Request], str | bytes] = host,
        cost: int = 1,
        backoff: Backoff | None = None,
    ) -> None:
        self._limiter, self._policy, self._key, self._cost = limiter, policy, key, cost
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._throttle = Throttle(backoff)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request as soon as its limits allow it."""
        key = self._key(request)
        attempts = _start(self._throttle, key, request)
        while True:
            step, seconds = attempts.step()
            if step == "wait":
                await asyncio.sleep(seconds)
            elif step == "acquire":
                attempts.acquired(await self._limiter.acquire(key, self._policy, cost=self._cost, timeout=seconds))
            elif step == "send":
                response = await self._transport.handle_async_request(request)
                if not _responded(attempts, response):
                    return response
                await response.aclose()
            else:
                raise _throttled(attempts, request)

    async def aclose(self) -> None:
        """Close the transport that sends."""
        await self._transport.aclose()
