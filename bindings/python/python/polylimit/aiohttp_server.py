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
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from polylimit._core import RequestLimits
from polylimit._decide import decide, drive_async, end, fail, finish
from polylimit._guard import Denial, Guard, Options, Outage, refuse_unknown_options
from polylimit._versions import require

require("aiohttp", "3.9", "aiohttp")

from aiohttp import web  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from typing_extensions import Unpack

    from polylimit import AsyncLimiter, Limiter
    from polylimit._charges import Policies

__all__ = ["Denial", "Options", "Outage", "limit", "request_limits", "setup"]

Handler = TypeVar("Handler", bound="Callable[..., Awaitable[web.StreamResponse]]")

#: The keys of a request: its limits, and whether they have been finished with the head of its response.
_LIMITS: Any = "polylimit.limits"
_FINISHED: Any = "polylimit.finished"
if hasattr(web, "RequestKey"):
    # From 3.14 on; aiohttp warns of texts then.
    _LIMITS, _FINISHED = web.RequestKey(_LIMITS, RequestLimits), web.RequestKey(_FINISHED, bool)
_INSTALLED = web.AppKey("polylimit.installed", bool)
_INTERNAL_SERVER_ERROR = 500


def request_limits(request: web.BaseRequest) -> RequestLimits | None:
    """Return what the limits of a request have decided so far; ``None`` for a request without limits."""
    limits: RequestLimits | None = request.get(_LIMITS)
    return limits


class _Info:
    def __init__(self, request: web.Request) -> None:
        self.request = request

    def method(self) -> str:
        return self.request.method

    def peer(self) -> str | None:
        return self.request.remote or None

    def header(self, name: str) -> list[bytes]:
        return [value.encode("utf-8", "surrogateescape") for value in self.request.headers.getall(name, [])]

    def cookie(self, name: str) -> str | None:
        return self.request.cookies.get(name)

    def path(self, name: str) -> str | None:
        return self.request.match_info.get(name)

    def user(self) -> str | None:
        return None

    def target(self) -> str:
        return self.request.rel_url.raw_path

    def router_paths(self) -> int:
        return 0

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
            # One that may hold slashes is the rest of the path.
            value = self.request.match_info.get(name, "")
            if "/" in value or re.search(rf"\(\?P<{name}>\.[*+]\)", expression.pattern):
                pattern = pattern.replace(f"{{{name}}}", f"{{*{name}}}")
        return pattern

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> web.Response:
        return web.Response(status=status, headers=fields, body=body.encode())

    def with_cors(self, response: web.StreamResponse, fields: list[tuple[str, str]]) -> web.StreamResponse:
        if "access-control-allow-origin" not in response.headers:
            response.headers.extend(fields)
        return response


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
    if limiter is None and (policy is not None or options):
        refuse_unknown_options({name: None for name in options if name not in Options.__annotations__})
        raise TypeError("options need a limiter: without one nothing would be limited")
    make_guard = partial(Guard, limiter, policy, **options)
    guard = None if limiter is None else make_guard()
    if _INSTALLED not in app:
        app[_INSTALLED] = True
        app.on_response_prepare.append(_begin_response)
    if guard is None:
        return
    of_application, has_mounts = guard, make_guard(per_route=True).core.is_per_route
    mounts: dict[str, Guard] = {}

    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        mount = _mount(request, app) if has_mounts else ""
        if mount and mount not in mounts:
            mounts[mount] = make_guard(scope=mount)
        return await _limited(mounts.get(mount, of_application), request, handler, request)

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
        if isinstance(handler, type) or not callable(handler):
            raise TypeError(f"the decorated handler is {handler!r}: allowed is a function, or a method of a class")

        @wraps(handler)
        async def limited(*args: Any) -> web.StreamResponse:
            request = args[-1].request if isinstance(args[-1], web.View) else args[-1]
            return await _limited(guard, request, handler, *args)

        return limited

    return decorate


async def _limited(guard: Guard, request: web.Request, handler: Any, *args: Any) -> web.StreamResponse:
    if not request.config_dict.get(_INSTALLED):
        raise RuntimeError("limits of handlers need polylimit.aiohttp_server.setup(app) on the application")
    outer = request_limits(request)
    limits = RequestLimits() if outer is None else outer
    request[_LIMITS] = limits
    denied = await drive_async(decide(guard, _Info(request), limits))
    if denied is not None:
        refusal: web.StreamResponse = denied[1]
        return refusal
    try:
        response: web.StreamResponse = await handler(*args)
    except web.HTTPException:
        # It is a response.
        raise
    except BaseException:
        if outer is None and not request.get(_FINISHED):
            await drive_async(fail(limits, web.Response(status=_INTERNAL_SERVER_ERROR)))
        elif outer is None and limits.holds:
            # The response has begun: its client has gone, or the handler has failed.
            await drive_async(end(limits))
        raise
    return response


async def _begin_response(request: web.Request, response: web.StreamResponse) -> None:
    """Refund what does not count, add the header fields, and note when the response is done."""
    limits = request_limits(request)
    # An application and a sub-application both report a response.
    if limits is None or request.get(_FINISHED):
        return
    request[_FINISHED] = True
    await drive_async(finish(limits, response))
    reads = False
    if limits.reads_response:
        reads = limits.read_head([*response.headers.items()])
    response.headers.extend(limits.fields())
    if not limits.holds:
        return
    if reads:
        body = getattr(response, "body", None)
        if isinstance(body, (bytes, bytearray)):
            limits.read_body(bytes(body))
        write = response.write

        async def reading(data: Any) -> None:
            limits.read_body(bytes(data))
            await write(data)

        response.write = reading  # type: ignore[method-assign]
    write_eof = response.write_eof

    async def ending(data: bytes = b"") -> None:
        try:
            await write_eof(data)
        finally:
            await drive_async(end(limits))

    response.write_eof = ending  # type: ignore[method-assign]
