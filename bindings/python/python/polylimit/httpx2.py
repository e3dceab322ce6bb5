"""Transports for httpx2 that stay within a limit of your own and wait as servers demand.

>>> import httpx2
>>> from polylimit import Limiter
>>> from polylimit.httpx2 import RateLimitTransport
>>> client = httpx2.Client(transport=RateLimitTransport(Limiter(), "10/s token_bucket"))

The rules are those of every language: docs/clients.md. The clients of OpenAI and Anthropic are built on
httpx2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from polylimit import AsyncLimiter, Limiter
from polylimit._client import Client
from polylimit._transports import AsyncTransport, Transport, host

if TYPE_CHECKING:
    from collections.abc import Callable

    from polylimit import Backoff, Policy, Quota

__all__ = ["AsyncRateLimitTransport", "RateLimitTransport", "Throttled"]


class Throttled(httpx2.PoolTimeout):
    """Raised when a request was not sent, because it would have to wait for too long."""

    #: Seconds after which the request would be sent; ``None`` if the limiter never admits it.
    retry_after: float | None

    def __init__(self, message: str, retry_after: float | None, request: httpx2.Request) -> None:
        super().__init__(message, request=request)
        self.retry_after = retry_after


class RateLimitTransport(Transport, httpx2.BaseTransport):
    """A transport for ``httpx2.Client``.

    Parameters
    ----------
    limiter
        The limiter that every attempt acquires from.
    policy
        Its policy, or quotas; not needed if the limiter has exactly one policy.
    transport
        The transport that sends; the default is ``httpx2.HTTPTransport()``.
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
        By a request that would have to wait for more than ``max_wait`` or httpx2's ``pool`` timeout.
    PolylimitError
        By a request for which the limiter could not decide.

    """

    _throttled = Throttled
    _byte_stream = httpx2.ByteStream

    def __init__(
        self,
        limiter: Limiter,
        policy: str | Quota | Policy | None = None,
        *,
        transport: httpx2.BaseTransport | None = None,
        key: Callable[[httpx2.Request], str | bytes] = host,
        cost: int = 1,
        backoff: Backoff | None = None,
    ) -> None:
        transport = httpx2.HTTPTransport() if transport is None else transport
        client = Client(limiter, policy, kind=Limiter, key=key, cost=cost, backoff=backoff)
        self._open(client, transport, "handle_request")


class AsyncRateLimitTransport(AsyncTransport, httpx2.AsyncBaseTransport):
    """A transport for ``httpx2.AsyncClient`` on asyncio or trio; its parameters are those of ``RateLimitTransport``."""

    _throttled = Throttled
    _byte_stream = httpx2.ByteStream

    def __init__(
        self,
        limiter: AsyncLimiter,
        policy: str | Quota | Policy | None = None,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        key: Callable[[httpx2.Request], str | bytes] = host,
        cost: int = 1,
        backoff: Backoff | None = None,
    ) -> None:
        transport = httpx2.AsyncHTTPTransport() if transport is None else transport
        client = Client(limiter, policy, kind=AsyncLimiter, key=key, cost=cost, backoff=backoff)
        self._open(client, transport, "handle_async_request")
