"""Limits for Sanic: a middleware for an application or a blueprint, and a decorator for single handlers.

>>> from polylimit import AsyncLimiter
>>> from polylimit.sanic import limit, setup
>>> from sanic import HTTPResponse, Request, Sanic, text
>>> app = Sanic("shop")
>>> limiter = AsyncLimiter(policies={"api": "100/minute", "login": "5/15m sliding_log"})
>>> setup(app, limiter, "api")
>>> @app.post("/login")
... @limit(limiter, "login")
... async def login(request: Request) -> HTTPResponse:
...     return text("welcome")

Sanic 22.12 and newer.
"""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from polylimit._core import RequestLimits
from polylimit._decide import AsyncResponse, decide, drive_async, resolve
from polylimit._guard import Denial, Guard, Options, Outage, ScopedGuards
from polylimit._proxy import Proxy
from polylimit._reader import MatchReader
from polylimit._versions import require
from polylimit._views import check_function

require("sanic", "22.12", "sanic")

from sanic import Blueprint, HTTPResponse, Request, Sanic  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from polylimit import AsyncLimiter, Limiter
    from polylimit._charges import Policies

__all__ = ["Denial", "Options", "Outage", "limit", "request_limits", "setup"]

Handler = TypeVar("Handler", bound="Callable[..., Any]")

_INTERNAL_SERVER_ERROR = 500
#: The tasks that end the reservations of clients that have gone; an event loop keeps none alive by itself.
_ending: set[asyncio.Task[None]] = set()


def request_limits(request: Request) -> RequestLimits | None:
    """Return what the limits of a request have decided so far; ``None`` for a request without limits."""
    return getattr(request.ctx, "polylimit_limits", None)


class _Info(MatchReader):
    request: Request

    def peer(self) -> str | None:
        return self.request.ip or None

    def target(self) -> str:
        return str(self.request.path)

    def lines(self) -> list[tuple[bytes, bytes]]:
        lines = self.request.headers.items()
        return [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in lines]

    def route(self) -> str | None:
        route = self.request.route
        if route is None:
            return None
        # One path may have a handler for each of several methods, or of several hosts.
        methods = ",".join(sorted(route.methods - {"HEAD"} or route.methods))
        return f"{methods} {route.requirements.get('host') or ''}{self.pattern()}"

    def pattern(self) -> str | None:
        route = self.request.route
        if route is None:
            return None
        parts = list(route.parts)
        for place, parameter in route.params.items():
            parts[place] = self.parameter(parameter.name, is_rest=parameter.label == "path")
        return "/" + "/".join(parts)

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> HTTPResponse:
        response = HTTPResponse(body, status)
        response.headers.extend(fields)
        return response


class _Stream(Proxy):
    """Stands for the stream of a request, and follows the response that Sanic sends there.

    A middleware of Sanic would not see the parts of a response, nor every response: one that returns a response of its
    own keeps it from the others.
    """

    __slots__ = ("_response", "_task")

    def __init__(self, stream: Any, limits: RequestLimits) -> None:
        super().__init__(stream)
        self._response = AsyncResponse(limits)
        # The server cancels it when the client has gone, and it ends early when a response fails that has begun.
        self._task = asyncio.current_task()
        if self._task is not None:
            self._task.add_done_callback(self._abandon)

    def respond(self, response: Any) -> Any:
        response = self._target.respond(response)
        response.stream = self
        return response

    @property
    def send(self) -> Callable[..., Any] | None:
        """Send a part of the response; ``None`` when it is complete."""
        return None if self._target.send is None else self._send

    async def _send(self, data: bytes, end_stream: bool) -> None:  # noqa: FBT001
        if self._response.has_started:
            self._response.read(data)
        else:
            response = self._target.response
            await self._response.start(response, ("content-type", response.content_type or ""))
            # Sanic sends it with the head.
            self._response.read(data or response.body)
        await self._target.send(data, end_stream)
        if end_stream or self._target.send is None:
            if self._task is not None:
                self._task.remove_done_callback(self._abandon)
            await self._response.end()

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        """End what the request holds: its response is not complete, and nothing will send the rest."""
        failed = HTTPResponse(status=_INTERNAL_SERVER_ERROR)
        ending = task.get_loop().create_task(self._response.abandon(failed))
        _ending.add(ending)
        ending.add_done_callback(_ending.discard)


def setup(
    app: Sanic | Blueprint,
    limiter: AsyncLimiter | Limiter,
    policy: Policies = None,
    **options: Unpack[Options],
) -> None:
    """Limit every request of an application or a blueprint, besides the limits of its handlers (:func:`limit`).

    It adds a request middleware behind those that the application has. The options are those of
    :class:`polylimit.asgi.RateLimitMiddleware`, without ``websockets``; functions of the request get the
    ``sanic.Request``, ``count`` and ``spent`` the response, and ``on_denied`` returns an ``HTTPResponse``. Sanic knows
    no user. Quotas without a name have one budget for an application, and one for a blueprint under each name; before
    Sanic 23.3 a copy of a blueprint has that of the original.
    """
    guards = ScopedGuards(limiter, policy, **options)

    async def decide_request(request: Request) -> Any:
        # Sanic passes what it could not read as a request without a connection, and then answers it itself.
        if request.conn_info is None or _is_websocket(request):
            return None
        if not isinstance(app, Blueprint):
            return await _decide(guards.outer, request)
        name = request.route.name.removeprefix(f"{request.app.name}.").rpartition(".")[0]
        return await _decide(guards.of(name), request)

    app.on_request(decide_request)


def limit(
    limiter: AsyncLimiter | Limiter, policy: Policies = None, **options: Unpack[Options]
) -> Callable[[Handler], Handler]:
    """Limit one handler, below ``@app.route``: a function, or a method of a class of views.

    Quotas without a name have a budget for each route, such as ``"GET /users/{id}"``, unless a ``scope`` is given. The
    other options are those of :func:`setup`.
    """
    guard = Guard(limiter, policy, per_route=True, is_attached=True, **options)

    def decorate(handler: Any) -> Any:
        check_function("handler", handler)

        @wraps(handler)
        async def limited(*args: Any, **kwargs: Any) -> Any:
            # A method has its object before the request.
            request = args[0] if isinstance(args[0], Request) else args[1]
            if _is_websocket(request):
                raise TypeError("the handler of a web socket is decorated: allowed is one of requests")
            denied = await _decide(guard, request)
            return denied if denied is not None else await resolve(handler(*args, **kwargs))

        return limited

    return decorate


def _is_websocket(request: Request) -> bool:
    # A field of the request would let clients choose.
    return request.route is not None and hasattr(request.route.handler, "is_websocket")


async def _decide(guard: Guard, request: Request) -> Any:
    """Decide about a request; return the response if it is denied."""
    limits = request_limits(request)
    if limits is None:
        limits = request.ctx.polylimit_limits = RequestLimits()
        request.stream = _Stream(request.stream, limits)
    denied = await drive_async(decide(guard, _Info(request), limits))
    return None if denied is None else denied[1]
