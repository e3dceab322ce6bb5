"""What the transports of httpx and of httpx2 do: the two libraries have one interface, but share no class."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import anyio

from polylimit import AsyncLimiter, Limiter
from polylimit._client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from polylimit import Backoff, Policy, Quota
    from polylimit._core import Attempts

L = TypeVar("L", Limiter, AsyncLimiter)
#: The request of a library, and the class of its transports.
R = TypeVar("R")
T = TypeVar("T")


def host(request: Any) -> str:
    """Return the key of a request by default: the host, and the port unless it is the scheme's own."""
    name: str = request.url.netloc.decode("ascii").lower()
    return name


class ThrottledRequest(Exception):  # noqa: N818 - the error of a library is derived from it
    """What the error of a request that was not sent has in addition to that of its library."""

    #: Seconds after which the request would be sent; ``None`` if the limiter never admits it.
    retry_after: float | None

    def __init__(self, message: str, retry_after: float | None, request: Any) -> None:
        super().__init__(message, request=request)  # type: ignore[call-arg]
        self.retry_after = retry_after


class Throttling(Generic[L, R, T]):
    """The options of a transport, and its steps that need no waiting."""

    #: The class of its limiter.
    _kind: ClassVar[Any]
    #: The method by which the library sends a request.
    _method: ClassVar[str]
    #: Makes the transport that sends by default.
    _make_transport: ClassVar[Any]
    #: The error of a request that was not sent.
    _throttled: ClassVar[Any]
    #: The stream of a body that can be sent again.
    _byte_stream: ClassVar[type]

    def __init__(
        self,
        limiter: L,
        policy: str | Quota | Policy | None = None,
        *,
        transport: T | None = None,
        key: Callable[[R], str | bytes] = host,
        cost: int = 1,
        backoff: Backoff | None = None,
    ) -> None:
        self._transport: Any = self._make_transport() if transport is None else transport
        self._client: Client[L] = Client(limiter, policy, kind=self._kind, key=key, cost=cost, backoff=backoff)
        if not callable(getattr(self._transport, self._method, None)):
            shown = type(self._transport).__name__
            raise TypeError(f"transport is of type {shown}: allowed is an object with {self._method}")

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


class Transport(Throttling[Limiter, R, T]):
    """The steps of a transport whose thread waits."""

    _kind = Limiter
    _method = "handle_request"

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


class AsyncTransport(Throttling[AsyncLimiter, R, T]):
    """The steps of a transport whose task waits, on asyncio or trio."""

    _kind = AsyncLimiter
    _method = "handle_async_request"

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
