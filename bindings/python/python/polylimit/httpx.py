"""Transports for httpx that stay within a limit of your own and wait as servers demand.

>>> import httpx
>>> from polylimit import Limiter
>>> from polylimit.httpx import RateLimitTransport
>>> client = httpx.Client(transport=RateLimitTransport(Limiter(), "10/s token_bucket"))

The rules are those of every language: docs/clients.md.
"""

from __future__ import annotations

import httpx

from polylimit._transports import AsyncTransport, ThrottledRequest, Transport, host  # noqa: F401

__all__ = ["AsyncRateLimitTransport", "RateLimitTransport", "Throttled"]


class Throttled(ThrottledRequest, httpx.PoolTimeout):
    """Raised when a request was not sent, because it would have to wait for too long."""


class RateLimitTransport(Transport[httpx.Request, httpx.BaseTransport], httpx.BaseTransport):
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

    _make_transport = httpx.HTTPTransport
    _throttled = Throttled
    _byte_stream = httpx.ByteStream


class AsyncRateLimitTransport(AsyncTransport[httpx.Request, httpx.AsyncBaseTransport], httpx.AsyncBaseTransport):
    """A transport for ``httpx.AsyncClient`` on asyncio or trio; its parameters are those of ``RateLimitTransport``."""

    _make_transport = httpx.AsyncHTTPTransport
    _throttled = Throttled
    _byte_stream = httpx.ByteStream
