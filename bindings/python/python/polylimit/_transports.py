"""What the transports of httpx and of httpx2 do: the two libraries have one interface, but share no class."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import anyio

from polylimit import AsyncLimiter, Limiter

if TYPE_CHECKING:
    from polylimit._client import Client
    from polylimit._core import Attempts

L = TypeVar("L", Limiter, AsyncLimiter)


def host(request: Any) -> str:
    """Return the key of a request by default: the host, and the port unless it is the scheme's own."""
    name: str = request.url.netloc.decode("ascii").lower()
    return name


class Throttling(Generic[L]):
    """The options of a transport, and its steps that need no waiting."""

    #: The error of a request that was not sent.
    _throttled: ClassVar[Any]
    #: The stream of a body that can be sent again.
    _byte_stream: ClassVar[type]

    def _open(self, client: Client[L], transport: Any, method: str) -> None:
        if not callable(getattr(transport, method, None)):
            raise TypeError(f"transport is of type {type(transport).__name__}: allowed is an object with {method}")
        self._client: Client[L] = client
        self._transport = transport

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client!r})"

    def _start(self, key: str | bytes, request: Any) -> Attempts:
        timeout = request.extensions.get("timeout", {}).get("pool")
        is_repeatable = isinstance(request.stream, self._byte_stream)
        return self._client.throttle.start(key, request.method, is_repeatable, timeout)

    def _refusal(self, attempts: Attempts, request: Any) -> Exception:
        message, retry_after = attempts.refusal() or ("", None)
        refusal: Exception = self._throttled(message, retry_after, request)
        return refusal


class Transport(Throttling[Limiter]):
    """The steps of a transport whose thread waits."""

    def handle_request(self, request: Any) -> Any:
        """Send a request as soon as its limits allow it."""
        client = self._client
        key = client.key(request)
        attempts = self._start(key, request)
        while True:
            step, seconds = attempts.step()
            if step == "wait":
                time.sleep(seconds)
            elif step == "acquire":
                attempts.acquired(client.limiter.acquire(key, client.policy, cost=client.cost, timeout=seconds))
            elif step == "send":
                response = self._transport.handle_request(request)
                if not attempts.responded(response.status_code, response.headers.multi_items()):
                    return response
                response.close()
            else:
                raise self._refusal(attempts, request)

    def close(self) -> None:
        """Close the transport that sends."""
        self._transport.close()


class AsyncTransport(Throttling[AsyncLimiter]):
    """The steps of a transport whose task waits, on asyncio or trio."""

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request as soon as its limits allow it."""
        client = self._client
        key = client.key(request)
        attempts = self._start(key, request)
        while True:
            step, seconds = attempts.step()
            if step == "wait":
                await anyio.sleep(seconds)
            elif step == "acquire":
                attempts.acquired(await client.limiter.acquire(key, client.policy, cost=client.cost, timeout=seconds))
            elif step == "send":
                response = await self._transport.handle_async_request(request)
                if not attempts.responded(response.status_code, response.headers.multi_items()):
                    return response
                await response.aclose()
            else:
                raise self._refusal(attempts, request)

    async def aclose(self) -> None:
        """Close the transport that sends."""
        await self._transport.aclose()
