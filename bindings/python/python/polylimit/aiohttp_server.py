"""Limits for the server of aiohttp: a middleware for an application, and a decorator for single handlers.

>>> from aiohttp import web
>>> from polylimit import AsyncLimiter
>>> from polylimit.aiohttp_server import limit, setup
>>> limiter = AsyncLimiter(policies={"api": "100/minute", "login": "5/15m sliding_log"})
>>> app = web.Application()
>>> setup(app, limiter, "api")
>>> @limit(limiter, "login")
... async def login(request: web.Request) -> web.Response:
...     return web.Response(text="welcome")
>>> route = app.router.add_post("/login", login)

:mod:`polylimit.aiohttp` is for its client. aiohttp 3.9 and newer.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from polylimit._core import RequestLimits
from polylimit._decide import AsyncResponse, decide, drive_async
from polylimit._guard import Denial, Guard, Options, Outage, ScopedGuards, refuse_options_alone
from polylimit._reader import MatchReader
from polylimit._versions import require
from polylimit._views import check_function

require("aiohttp", "3.9", "aiohttp")

from aiohttp import web  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from typing_extensions import Unpack

    from polylimit import AsyncLimiter, Limiter
    from polylimit._charges import Policies

__all__ = ["Denial", "Options", "Outage", "limit", "request_limits", "setup"]

Handler = TypeVar("Handler", bound="Callable[..., Awaitable[web.StreamResponse]]")

#: The key of a request for its response, with its limits. From 3.14 on, aiohttp warns of texts.
_RESPONSE: Any = (
    web.RequestKey("polylimit.response", AsyncResponse) if hasattr(web, "RequestKey") else "polylimit.response"
)
_INSTALLED = web.AppKey("polylimit.installed", bool)
_INTERNAL_SERVER_ERROR = 500


def request_limits(request: web.BaseRequest) -> RequestLimits | None:
    """Return what the limits of a request have decided so far; ``None`` for a request without limits."""
    response: AsyncResponse | None = request.get(_RESPONSE)
    return None if response is None else response.limits


class _Info(MatchReader):
    request: web.Request

    def peer(self) -> str | None:
        return self.request.remote or None

    def target(self) -> str:
        return self.request.rel_url.raw_path

    def lines(self) -> list[tuple[bytes, bytes]]:
        return list(self.request.raw_headers)

    def route(self) -> str | None:
        pattern = self.pattern()
        if pattern is None:
            return None
        # `add_get` adds a route for HEAD, which runs the same handler.
        method = self.request.match_info.route.method.replace("HEAD", "GET")
        return f"{method} {pattern}"

    def pattern(self) -> str | None:
        resource = self.request.match_info.route.resource
        if resource is None:
            return None
        info = resource.get_info()
        if "directory" in info:
            return f"{resource.canonical}/{{*filename}}"
        pattern, expression = resource.canonical, info.get("pattern", re.compile(""))
        for name in expression.groupindex:
            is_rest = re.search(rf"\(\?P<{name}>\.[*+]\)", expression.pattern) is not None
            pattern = pattern.replace(f"{{{name}}}", self.parameter(name, is_rest=is_rest))
        return pattern

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> web.Response:
        return web.Response(status=status, headers=fields, body=body.encode())


def setup(
    app: web.Application,
    limiter: AsyncLimiter | Limiter | None = None,
    policy: Policies = None,
    **options: Unpack[Options],
) -> None:
    """Limit every request of an application, besides the limits of its handlers (:func:`limit`).

    Without a limiter it limits nothing, but lets the limits of handlers add their header fields and see when a response
    is done. It adds a middleware behind those that the application has. The options are those of
    :class:`polylimit.asgi.RateLimitMiddleware`, without ``websockets``; functions of the request get the
    ``web.Request``, and ``on_denied`` returns a ``web.Response``. aiohttp knows no user. Quotas without a name have one
    budget for an application, and one for each prefix under which it is a sub-application.
    """
    if limiter is None:
        refuse_options_alone(policy, options)
    guards = None if limiter is None else ScopedGuards(limiter, policy, **options)
    if _INSTALLED not in app:
        app[_INSTALLED] = True
        app.on_response_prepare.append(_begin_response)
    if guards is None:
        return

    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        mount = _mount(request, app) if guards.has_scopes else ""
        return await _limited(guards.of(mount), request, handler, request)

    app.middlewares.append(middleware)


def _mount(request: web.Request, app: web.Application) -> str:
    """Return the prefix, or the rule for hosts, under which an application is part of another one."""
    outer = None
    for one in request.match_info.apps:
        if one is app and outer is not None:
            known = [info for info in (resource.get_info() for resource in outer.router.resources()) if "app" in info]
            info = next((info for info in known if info["app"] is app), None)
            return "" if info is None else info.get("prefix") or info["rule"].canonical
        outer = one
    return ""


def limit(
    limiter: AsyncLimiter | Limiter, policy: Policies = None, **options: Unpack[Options]
) -> Callable[[Handler], Handler]:
    """Limit one handler: a function, or a method of a class; the application needs :func:`setup`.

    Quotas without a name have a budget for each route, such as ``"GET /users/{id}"``, unless a ``scope`` is given. The
    other options are those of :func:`setup`.
    """
    guard = Guard(limiter, policy, per_route=True, is_attached=True, **options)

    def decorate(handler: Any) -> Any:
        check_function("handler", handler)

        @wraps(handler)
        async def limited(*args: Any) -> web.StreamResponse:
            request = args[-1].request if isinstance(args[-1], web.View) else args[-1]
            return await _limited(guard, request, handler, *args)

        return limited

    return decorate


async def _limited(guard: Guard, request: web.Request, handler: Any, *args: Any) -> web.StreamResponse:
    if not request.config_dict.get(_INSTALLED):
        raise RuntimeError("limits of handlers need polylimit.aiohttp_server.setup(app) on the application")
    response: AsyncResponse | None = request.get(_RESPONSE)
    is_outermost = response is None
    if response is None:
        response = request[_RESPONSE] = AsyncResponse(RequestLimits())
    denied = await drive_async(decide(guard, _Info(request), response.limits))
    if denied is not None:
        refusal: web.StreamResponse = denied[1]
        return refusal
    try:
        answer: web.StreamResponse = await handler(*args)
    except web.HTTPException:
        # It is a response.
        raise
    except BaseException:
        if is_outermost:
            await response.abandon(web.Response(status=_INTERNAL_SERVER_ERROR))
        raise
    return answer


async def _begin_response(request: web.Request, answer: web.StreamResponse) -> None:
    """Refund what does not count, add the header fields, and note when the response is done."""
    response: AsyncResponse | None = request.get(_RESPONSE)
    # An application and a sub-application both report a response.
    if response is None or response.has_started:
        return
    await response.start(answer)
    if not response.limits.holds:
        return
    body = getattr(answer, "body", None)
    if isinstance(body, (bytes, bytearray)):
        response.read(body)
    write, write_eof = answer.write, answer.write_eof

    async def reading(data: Any) -> None:
        response.read(data)
        await write(data)

    async def ending(data: bytes = b"") -> None:
        try:
            await write_eof(data)
        finally:
            await response.end()

    answer.write, answer.write_eof = reading, ending  # type: ignore[method-assign]
