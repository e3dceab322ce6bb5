"""Transports for httpx2 that stay within a limit of your own and wait as servers demand.

>>> import httpx2
>>> from polylimit import Limiter
>>> from polylimit.httpx2 import RateLimitTransport
>>> client = httpx2.Client(transport=RateLimitTransport(Limiter(), "10/s token_bucket"))

The rules are those of every language: docs/clients.md. The clients of OpenAI and Anthropic are built on
httpx2.
"""

from __future__ import annotations

import httpx2

from polylimit._transports import AsyncTransport, ThrottledRequest, Transport, host  # noqa: F401

__all__ = ["AsyncRateLimitTransport", "RateLimitTransport", "Throttled"]


class Throttled(ThrottledRequest, httpx2.PoolTimeout):
    """Raised when a request was not sent, because it would have to wait for too long."""


class RateLimitTransport(Transport[httpx2.Request, httpx2.BaseTransport], httpx2.BaseTransport):
    """A transport for ``httpx2.Client``.

    Its parameters and errors are those of :class:`polylimit.httpx.RateLimitTransport`, with httpx2 in place of httpx.
    """

    _make_transport = httpx2.HTTPTransport
    _throttled = Throttled
    _byte_stream = httpx2.ByteStream


class AsyncRateLimitTransport(AsyncTransport[httpx2.Request, httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport):
    """A transport for ``httpx2.AsyncClient`` on asyncio or trio; its parameters are those of ``RateLimitTransport``."""

    _make_transport = httpx2.AsyncHTTPTransport
    _throttled = Throttled
    _byte_stream = httpx2.ByteStream
