"""Transports for httpx that stay within a limit of your own and wait as servers demand.

>>> import httpx
>>> from polylimit import Limiter
>>> from polylimit.httpx import RateLimitTransport
>>> client = httpx.Client(transport=RateLimitTransport(Limiter(), "10/s token_bucket"))

The rules are those of every language: docs/clients.md.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import anyio
import httpx

from polylimit import AsyncLimiter, Limiter
from polylimit._client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from polylimit import Backoff, Policy, Quota
    from polylimit._core import Attempts, Throttle

T = TypeVar("T")

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
    return attempts.responded(response.status_code, response.headers.multi_items())


def _throttled(attempts: Attempts, request: httpx.Request) -> Throttled:
    message, retry_after = attempts.refusal() or ("", None)
    return Throttled(message, retry_after, request)


def _checked(transport: T, method: str) -> T:
    if transport is not None and not callable(getattr(transport, method, None)):
        raise TypeError(f"transport is of type {type(transport).__name__}: allowed is an object with {method}")
    return transport


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
    InvalidArgumentError
        When the limiter does not know the policy, or the policy has a quota of concurrency.
    Throttled
        By a request that would have to wait for more than ``max_wait`` or httpx's ``pool`` timeout.
    PolylimitError
        By a request for which the limiter could not decide.

    """

    def __init__(
        self,
        limiter: Limiter,
        policy: str | Quota | Policy | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        key: Callable[[httpx.Request], str | bytes] = host,
        cost: int = 1,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = Client(limiter, policy, kind=Limiter, key=key, cost=cost, backoff=backoff)
        self._transport = _checked(transport, "handle_request") or httpx.HTTPTransport()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client!r})"

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request as soon as its limits allow it."""
        client = self._client
        key = client.key(request)
        attempts = _start(client.throttle, key, request)
        while True:
            step, seconds = attempts.step()
            if step == "wait":
                time.sleep(seconds)
            elif step == "acquire":
                attempts.acquired(client.limiter.acquire(key, client.policy, cost=client.cost, timeout=seconds))
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
    """A transport for ``httpx.AsyncClient`` on asyncio or trio; its parameters are those of ``RateLimitTransport``."""

    def __init__(
        self,
        limiter: AsyncLimiter,
        policy: str | Quota | Policy | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        key: Callable[[httpx.Request], str | bytes] = host,
        cost: int = 1,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = Client(limiter, policy, kind=AsyncLimiter, key=key, cost=cost, backoff=backoff)
        self._transport = _checked(transport, "handle_async_request") or httpx.AsyncHTTPTransport()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client!r})"

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request as soon as its limits allow it."""
        client = self._client
        key = client.key(request)
        attempts = _start(client.throttle, key, request)
        while True:
            step, seconds = attempts.step()
            if step == "wait":
                await anyio.sleep(seconds)
            elif step == "acquire":
                attempts.acquired(await client.limiter.acquire(key, client.policy, cost=client.cost, timeout=seconds))
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
