"""Interceptors that limit the calls of a gRPC server, or the messages of its streams.

>>> from concurrent.futures import ThreadPoolExecutor
>>> import grpc
>>> from polylimit import Limiter
>>> from polylimit.grpc import RateLimitInterceptor
>>> limit = RateLimitInterceptor(Limiter(policies={"api": "100/minute"}), "api", key="header:x-tenant")
>>> server = grpc.server(ThreadPoolExecutor(), interceptors=[limit])

A denied call ends with ``RESOURCE_EXHAUSTED``, and with ``google.rpc.RetryInfo`` in its details. grpcio 1.60 and newer.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import TYPE_CHECKING, Any

from polylimit import AsyncLimiter, Limiter
from polylimit._versions import require

require("grpcio", "1.60", "grpc")

import grpc  # noqa: E402

from polylimit._calls import Call, CallOptions, charge, enter, leave_call, make_guard  # noqa: E402
from polylimit._decide import drive, drive_async  # noqa: E402
from polylimit._guard import Outage  # noqa: E402
from polylimit._proxy import Proxy  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

    from typing_extensions import Unpack

    from polylimit._charges import Policies
    from polylimit._guard import Guard

__all__ = ["AsyncRateLimitInterceptor", "Call", "CallOptions", "Outage", "RateLimitInterceptor"]


class _Interceptor:
    _limiter_types: tuple[type, ...]

    def __init__(self, limiter: Any, policy: Policies = None, **options: Unpack[CallOptions]) -> None:
        self._guard: Guard = make_guard(limiter, policy, options, self._limiter_types)
        self._charge = options.get("charge", "call")

    def __repr__(self) -> str:
        return self._guard.show(self)


class RateLimitInterceptor(_Interceptor, grpc.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Limits the calls of a ``grpc.server``, unary and streaming.

    Quotas without a name have a budget for each method, unless a ``scope`` is given. A policy with a quota such as
    ``"20 concurrent"`` is reserved until the call ends. The rules of a document know a method as the ``path`` and the
    ``route``: ``/shop.Orders/List``.

    Parameters
    ----------
    limiter
        The :class:`polylimit.Limiter`.
    policy
        A policy's name, quotas such as ``"100/minute"``, or a list of different policies. It may be left out where the
        limiter has one policy. A function of the :class:`Call` returns the same, or ``None`` for no limit.
    options
        See :class:`CallOptions`.

    Raises
    ------
    InvalidArgumentError
        When a policy is not known, quotas cannot be read, or another option is not valid.
    TypeError
        When the limiter is of another type, or an option is unknown or of another type.

    """

    _limiter_types = (Limiter,)

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the handler of a call, which is limited."""
        return self.limited(continuation(handler_call_details), handler_call_details.method)

    def limited(self, handler: Any, method: str) -> Any:
        """Return a handler that is limited; ``None`` for a method that the server has not."""
        if handler is None:
            return None
        inner, is_stream = _behavior(handler), handler.request_streaming

        def respond(request: Any, context: Any) -> Any:
            requests = self._counted("requests", request if is_stream else [request], method, context)
            return inner(requests if is_stream else next(iter(requests)), context)

        def unary(request: Any, context: Any) -> Any:
            with self._held(Call(method, None if is_stream else request, context)):
                return next(iter(self._counted("responses", [respond(request, context)], method, context)))

        def stream(request: Any, context: Any) -> Iterator[Any]:
            with self._held(Call(method, None if is_stream else request, context)):
                yield from self._counted("responses", respond(request, context), method, context)

        return _handler(handler, stream if handler.response_streaming else unary)

    @contextmanager
    def _held(self, call: Call) -> Iterator[None]:
        if self._charge != "call":
            yield
            return
        limits = drive(enter(self._guard, call), _refuse_awaitable)
        try:
            yield
        finally:
            drive(leave_call(limits, call.context), _refuse_awaitable)

    def _counted(self, kind: str, messages: Iterable[Any], method: str, context: Any) -> Iterable[Any]:
        """Return messages, each charged as it passes, if they are what is charged."""
        if kind != self._charge:
            return messages
        return (drive(charge(self._guard, Call(method, one, context)), _refuse_awaitable) for one in messages)


class AsyncRateLimitInterceptor(_Interceptor, grpc.aio.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Limits the calls of a ``grpc.aio.server``; see :class:`RateLimitInterceptor`.

    The limiter is a :class:`polylimit.AsyncLimiter` or a :class:`polylimit.Limiter`. Functions among the options may be
    asynchronous, unless the server has handlers that are not: those are limited on their threads.
    """

    _limiter_types = (AsyncLimiter, Limiter)

    def __init__(self, limiter: Any, policy: Policies = None, **options: Unpack[CallOptions]) -> None:
        super().__init__(limiter, policy, **options)
        blocking = limiter.blocking if isinstance(limiter, AsyncLimiter) else limiter
        self._make_blocking = partial(RateLimitInterceptor, blocking, policy, **options)
        self._blocking: RateLimitInterceptor | None = None

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the handler of a call, which is limited."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method, inner = handler_call_details.method, _behavior(handler)
        is_stream = handler.request_streaming

        async def unary(request: Any, context: Any) -> Any:
            async with self._held(Call(method, None if is_stream else request, context)):
                messages = _Messages(self._guard, self._charge, method, context)
                response = await inner(await messages.received(request, is_stream), messages.context())
                return response if handler.response_streaming else await messages.count("responses", response)

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            async with self._held(Call(method, None if is_stream else request, context)):
                messages = _Messages(self._guard, self._charge, method, context)
                async for response in inner(await messages.received(request, is_stream), messages.context()):
                    yield await messages.count("responses", response)

        if isasyncgenfunction(inner) or iscoroutinefunction(inner):
            return _handler(handler, stream if isasyncgenfunction(inner) else unary)
        if self._blocking is None:
            self._blocking = self._make_blocking()
        return self._blocking.limited(handler, method)

    @asynccontextmanager
    async def _held(self, call: Call) -> AsyncIterator[None]:
        if self._charge != "call":
            yield
            return
        limits = await drive_async(enter(self._guard, call))
        try:
            yield
        finally:
            await drive_async(leave_call(limits, call.context))


class _Messages(Proxy):
    """The messages of a call, and its context for a handler that reads or writes its stream itself."""

    __slots__ = ("_charge", "_guard", "_method")

    def __init__(self, guard: Guard, charge: str, method: str, context: Any) -> None:
        super().__init__(context)
        self._guard, self._charge, self._method = guard, charge, method

    def context(self) -> Any:
        """Return what the handler gets as the context."""
        return self._target if self._charge == "call" else self

    async def count(self, kind: str, message: Any) -> Any:
        """Charge for a message, if it is what is charged, and return it."""
        if kind != self._charge:
            return message
        return await drive_async(charge(self._guard, Call(self._method, message, self._target)))

    async def received(self, request: Any, is_stream: bool) -> Any:  # noqa: FBT001
        """Return what the handler gets as the request."""
        if is_stream and self._charge == "requests":
            return self._each(request)
        return request if is_stream else await self.count("requests", request)

    async def _each(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            yield await self.count("requests", request)

    async def read(self) -> Any:
        """Read the next request."""
        message = await self._target.read()
        return message if message is grpc.aio.EOF else await self.count("requests", message)

    async def write(self, message: Any) -> None:
        """Write the next response."""
        await self._target.write(await self.count("responses", message))


def _behavior(handler: Any) -> Any:
    return handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream


def _handler(handler: Any, behavior: Any) -> Any:
    kind = f"{'stream' if handler.request_streaming else 'unary'}_{'stream' if handler.response_streaming else 'unary'}"
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(behavior, handler.request_deserializer, handler.response_serializer)


def _refuse_awaitable(value: Any) -> Any:
    if hasattr(value, "close"):
        value.close()
    raise TypeError("a function among the options is asynchronous: allowed is one that is not, on a grpc.server")
