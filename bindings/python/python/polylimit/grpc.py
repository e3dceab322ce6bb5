"""Interceptors that limit the calls of a gRPC server, or the messages of its streams.

>>> from concurrent.futures import ThreadPoolExecutor
>>> import grpc
>>> from polylimit import Limiter
>>> from polylimit.grpc import RateLimitInterceptor
>>> limit = RateLimitInterceptor(Limiter(policies={"api": "100/minute"}), "api", key="header:x-tenant")
>>> server = grpc.server(ThreadPoolExecutor(), interceptors=[limit])

A denied call ends with ``RESOURCE_EXHAUSTED``, and with ``google.rpc.RetryInfo`` in its details. grpcio 1.60 and newer,
with googleapis-common-protos.
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

from polylimit._calls import Call, CallOptions, enter, leave, make_guard, refusal  # noqa: E402
from polylimit._decide import drive, drive_async  # noqa: E402
from polylimit._guard import Outage  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

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
        inner = _behavior(handler)

        def unary(request: Any, context: Any) -> Any:
            with self._call(handler, method, request, context) as requests:
                response = inner(requests, context)
                if self._charge == "responses":
                    self._charge_message(method, response, context)
                return response

        def stream(request: Any, context: Any) -> Iterator[Any]:
            with self._call(handler, method, request, context) as requests:
                for response in inner(requests, context):
                    if self._charge == "responses":
                        self._charge_message(method, response, context)
                    yield response

        return _handler(handler, stream if handler.response_streaming else unary)

    @contextmanager
    def _call(self, handler: Any, method: str, request: Any, context: Any) -> Iterator[Any]:
        if self._charge == "call":
            limits = self._enter(Call(method, None if handler.request_streaming else request, context))
            try:
                yield request
            finally:
                drive(leave(limits), _refuse_awaitable)
                _add_fields(context, limits)
        elif self._charge == "requests" and handler.request_streaming:
            yield self._requests(method, request, context)
        else:
            if self._charge == "requests":
                self._charge_message(method, request, context)
            yield request

    def _requests(self, method: str, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for request in requests:
            self._charge_message(method, request, context)
            yield request

    def _charge_message(self, method: str, message: Any, context: Any) -> None:
        drive(leave(self._enter(Call(method, message, context))), _refuse_awaitable)

    def _enter(self, call: Call) -> Any:
        limits, denial = drive(enter(self._guard, call), _refuse_awaitable)
        if denial is not None:
            code, text, trailing = refusal(denial, limits)
            call.context.set_trailing_metadata(trailing)
            call.context.abort(code, text)
        return limits


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
        method = handler_call_details.method
        inner = _behavior(handler)
        if isasyncgenfunction(inner):

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                async with self._call(handler, method, request, context) as (requests, inner_context):
                    async for response in inner(requests, inner_context):
                        if self._charge == "responses":
                            await self._charge_message(method, response, context)
                        yield response

            return _handler(handler, stream)
        if iscoroutinefunction(inner):

            async def unary(request: Any, context: Any) -> Any:
                async with self._call(handler, method, request, context) as (requests, inner_context):
                    response = await inner(requests, inner_context)
                    if self._charge == "responses" and not handler.response_streaming:
                        await self._charge_message(method, response, context)
                    return response

            return _handler(handler, unary)
        if self._blocking is None:
            self._blocking = self._make_blocking()
        return self._blocking.limited(handler, method)

    @asynccontextmanager
    async def _call(self, handler: Any, method: str, request: Any, context: Any) -> AsyncIterator[tuple[Any, Any]]:
        if self._charge == "call":
            limits = await self._enter(Call(method, None if handler.request_streaming else request, context))
            try:
                yield request, context
            finally:
                await drive_async(leave(limits))
                _add_fields(context, limits)
            return
        if self._charge == "requests" and handler.request_streaming:
            request = self._requests(method, request, context)
        elif self._charge == "requests":
            await self._charge_message(method, request, context)

        async def charge(message: Any) -> None:
            await self._charge_message(method, message, context)

        yield request, _MessageContext(context, charge, self._charge)

    async def _requests(self, method: str, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            await self._charge_message(method, request, context)
            yield request

    async def _charge_message(self, method: str, message: Any, context: Any) -> None:
        await drive_async(leave(await self._enter(Call(method, message, context))))

    async def _enter(self, call: Call) -> Any:
        limits, denial = await drive_async(enter(self._guard, call))
        if denial is not None:
            code, text, trailing = refusal(denial, limits)
            call.context.set_trailing_metadata(trailing)
            await call.context.abort(code, text)
        return limits


class _MessageContext:
    """The context of a handler that reads or writes its stream itself."""

    def __init__(self, context: Any, charge: Callable[[Any], Awaitable[None]], charged: str) -> None:
        self._context = context
        self._charge = charge
        self._charged = charged

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        """Read the next request."""
        message = await self._context.read()
        if self._charged == "requests" and message is not grpc.aio.EOF:
            await self._charge(message)
        return message

    async def write(self, message: Any) -> None:
        """Write the next response."""
        if self._charged == "responses":
            await self._charge(message)
        await self._context.write(message)


def _behavior(handler: Any) -> Any:
    return handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream


def _handler(handler: Any, behavior: Any) -> Any:
    kind = f"{'stream' if handler.request_streaming else 'unary'}_{'stream' if handler.response_streaming else 'unary'}"
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(behavior, handler.request_deserializer, handler.response_serializer)


def _add_fields(context: Any, limits: Any) -> None:
    """Add the fields to what the handler has set, which the context of a migrated synchronous handler does not show."""
    if hasattr(context, "trailing_metadata"):
        context.set_trailing_metadata((*(context.trailing_metadata() or ()), *limits.fields()))


def _refuse_awaitable(value: Any) -> Any:
    if hasattr(value, "close"):
        value.close()
    raise TypeError("a function among the options is asynchronous: allowed is one that is not, on a grpc.server")
