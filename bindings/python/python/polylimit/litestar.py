"""Limits for Litestar: a middleware for an application, a router, a controller or a single handler.

>>> from litestar import Litestar, get, post
>>> from litestar.middleware import DefineMiddleware
>>> from polylimit import AsyncLimiter
>>> from polylimit.litestar import Limit, RateLimitMiddleware
>>> limiter = AsyncLimiter(policies={"api": "100/minute", "login": "5/15m sliding_log"})
>>> @post("/login", middleware=[DefineMiddleware(RateLimitMiddleware, limit=Limit(limiter, "login"))])
... async def login() -> str:
...     return "welcome"
>>> app = Litestar([login], middleware=[DefineMiddleware(RateLimitMiddleware, limit=Limit(limiter, "api"))])

Litestar 2.11 and newer.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from polylimit import asgi
from polylimit._guard import Denial, Options, Outage
from polylimit._versions import require
from polylimit.asgi import Limit, ResponseStart, ScopeInfo

require("litestar", "2.11", "litestar")

from litestar import Request  # noqa: E402
from litestar.connection import ASGIConnection  # noqa: E402

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from polylimit import AsyncLimiter, Limiter
    from polylimit._charges import Policies
    from polylimit._core import RequestLimits

__all__ = ["Denial", "Limit", "Options", "Outage", "RateLimitMiddleware", "ResponseStart", "request_limits"]


def request_limits(request: ASGIConnection[Any, Any, Any, Any]) -> RequestLimits | None:
    """Return what the limits of a request have decided so far; ``None`` for a request without limits."""
    scope: Any = request.scope
    return asgi.request_limits(scope)


class _Info(ScopeInfo):
    @cached_property
    def request(self) -> Any:
        scope: Any = self._scope
        if scope["type"] == "websocket":
            return ASGIConnection(scope)
        return Request(scope, self._receive)  # type: ignore[arg-type]

    def user(self) -> str | None:
        """Return the user that an authentication middleware has set: text, a number, or what has an ``id``."""
        user = self._scope.get("user")
        if user is None or isinstance(user, (str, int)):
            return None if user is None else str(user)
        found = getattr(user, "id", None)
        if found is None:
            raise TypeError(f"the user is of type {type(user).__name__} without an id: give a function as key")
        return str(found)

    def target(self) -> str | bytes:
        """Return the path as Litestar's router sees it, with the path of a mounted application."""
        path, raw = self._scope["path"], self._scope.get("raw_path")
        if not getattr(self._scope.get("route_handler"), "is_mount", False) or not raw:
            return quote(path)
        # The router has left out the path of the mount.
        whole: str = raw.decode("latin-1").removeprefix(self._scope.get("root_path", "").rstrip("/"))
        return whole

    def pattern(self) -> str | None:
        """Return the pattern of the route, with those of the routers and controllers around the handler."""
        handler = self._scope.get("route_handler")
        if handler is None or getattr(handler, "is_mount", False):
            return None
        # A route without parameters is its path; Litestar before 2.13 has no template of it.
        pattern: str = self._scope.get("path_template") or self._scope["path"]
        for path in handler.paths:
            for part in path.split("/"):
                # The template has the name of a parameter alone.
                if part.startswith("{") and part.endswith(":path}"):
                    name = part[1:].partition(":")[0]
                    pattern = pattern.replace(f"{{{name}}}", f"{{*{name}}}")
        return pattern

    def route(self) -> str | None:
        """Return the methods of the handler and its pattern: that of the first of its paths."""
        pattern, handler = self.pattern(), self._scope.get("route_handler")
        if handler is None:
            return None
        methods = ",".join(sorted(getattr(handler, "http_methods", ()))) or "GET"
        if pattern is None:
            # A mounted application.
            return f"{methods} {min(handler.paths)}"
        own = sorted(f"/{path.strip('/')}" for path in handler.paths)
        prefix = next((pattern.removesuffix(_plain(path)) for path in own if pattern.endswith(_plain(path))), pattern)
        return f"{methods} {prefix.rstrip('/')}{_plain(own[0])}"


def _plain(path: str) -> str:
    """Return the path of a handler as patterns have it: ``/{id:int}`` is ``/{id}``."""
    parts = []
    for part in path.split("/"):
        name, _, kind = part.strip("{}").partition(":")
        is_parameter = part.startswith("{") and kind
        parts.append((f"{{*{name}}}" if kind == "path" else f"{{{name}}}") if is_parameter else part)
    return "/".join(parts)


class RateLimitMiddleware(asgi.RateLimitMiddleware):
    """Limits the requests of handlers: ``DefineMiddleware(RateLimitMiddleware, limit=Limit(limiter, "api"))``.

    The options are those of :class:`polylimit.asgi.RateLimitMiddleware`, in the ``limit`` or by their names. Litestar
    runs its middleware behind the routing: quotas without a name have a budget for each handler, also those of an
    application, unless a ``scope`` is given, and requests for unknown paths are not limited. Functions of the request
    get a ``litestar.Request``; ``on_denied`` returns an ASGI application, such as an ``ASGIResponse`` of Litestar.
    """

    _info = _Info

    def __init__(
        self,
        app: Any,
        *,
        limit: Limit | None = None,
        limiter: AsyncLimiter | Limiter | None = None,
        policy: Policies = None,
        websockets: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(app, limit=limit, limiter=limiter, policy=policy, websockets=websockets, **options)
        # Preflights are answered by a handler of Litestar, and not by the one that is limited.
        self._guard = self._guard_of_route = self._guard_of_mount
        self._enter = None
