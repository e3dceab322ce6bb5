"""Limits for FastAPI and Starlette: a middleware for an application, and a dependency for routers and single routes.

>>> from fastapi import Depends, FastAPI
>>> from polylimit import AsyncLimiter
>>> from polylimit.fastapi import RateLimit, RateLimitMiddleware, exempt
>>> limiter = AsyncLimiter(policies={"api": "100/minute", "login": "5/15m sliding_log"})
>>> app = FastAPI(dependencies=[Depends(RateLimit(limiter, "api"))])
>>> app.add_middleware(RateLimitMiddleware)
>>> @app.post("/login", dependencies=[Depends(RateLimit(limiter, "login", override=True))])
... async def login() -> str:
...     return "welcome"
>>> @app.get("/health", dependencies=[Depends(exempt)])
... async def health() -> str:
...     return "well"

The middleware with a limiter limits every request of an application, also for unknown paths. It runs before the
routing, so no route overrides it. The limits that routes override are dependencies of the application or of a router.

FastAPI 0.100 and newer, and Starlette 0.27 and newer.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from polylimit import asgi
from polylimit._core import RequestLimits
from polylimit._decide import decide, drive_async, fail
from polylimit._guard import Denial, Guard, Options, Outage
from polylimit._routes import matched_route
from polylimit._versions import is_older, require
from polylimit._views import NO_LIMITS, ViewLimit, ViewLimits
from polylimit.asgi import Limit, Receive, ResponseStart, Scope, ScopeInfo

# A handler of the application may be for either. Starlette may be there without a FastAPI that fits.
_HTTPException = HTTPException
if not TYPE_CHECKING:
    with suppress(ImportError):
        from fastapi import HTTPException as _HTTPException

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from typing_extensions import Unpack

    from polylimit import AsyncLimiter, Limiter
    from polylimit._charges import Policies

require("fastapi", "0.100", "fastapi")
require("starlette", "0.27", "starlette")

__all__ = [
    "Denial",
    "DeniedError",
    "Options",
    "Outage",
    "RateLimit",
    "RateLimitMiddleware",
    "ResponseStart",
    "exempt",
    "request_limits",
]

#: The key in the ASGI scope of the limits of a request that passed no middleware.
_OWN_LIMITS = "polylimit.fastapi.limits"


def request_limits(request: HTTPConnection) -> RequestLimits | None:
    """Return what the limits of a request have decided so far; ``None`` for a request without limits."""
    return asgi.request_limits(request.scope) or request.scope.get(_OWN_LIMITS)


class _Info(ScopeInfo):
    _strips_root = not is_older(starlette.__version__, "0.33")

    @cached_property
    def request(self) -> Any:
        if self._scope["type"] == "websocket":
            return HTTPConnection(self._scope)
        return Request(self._scope, self._receive)


class RateLimitMiddleware(asgi.RateLimitMiddleware):
    """Limits every request of an application; see :class:`polylimit.asgi.RateLimitMiddleware` for the options.

    Functions of the request get a Starlette ``Request``, and an ``HTTPConnection`` for the handshake of a web socket;
    ``on_denied`` returns a ``Response``. ``limit`` may be a :class:`RateLimit`:
    ``app.add_middleware(RateLimitMiddleware, limit=RateLimit(limiter, "api"))`` raises for a mistake in an option where
    it stands; ``app.add_middleware(RateLimitMiddleware, limiter=limiter, policy="api")`` does so when the application
    starts.
    """

    _info = _Info


class DeniedError(_HTTPException):
    """Raised by :class:`RateLimit`.

    A handler that the application has for it, for the ``HTTPException`` of FastAPI or Starlette, or for the status
    makes the response, which then needs the ``headers`` of the error. Otherwise, and where the limit has an
    ``on_denied``, it is ``response``.
    """

    def __init__(self, denial: Denial, response: asgi.App, fields: dict[str, str]) -> None:
        super().__init__(denial.problem.status, denial.problem.detail, fields)
        self.denial = denial
        self.response = response


class _AnsweredError(DeniedError):
    """A denial to which the limit makes the response itself."""


class RateLimit(Limit):
    """Limits the routes that depend on it: ``Depends(RateLimit(limiter, "login"))``.

    The options are those of :class:`RateLimitMiddleware` and are validated when the object is created. Quotas without a
    name have a budget for each route, such as ``"GET /users/{id}"`` with the prefixes of all routers and mounts, unless
    a scope is given. ``count``, ``spent`` and policies with a concurrent quota need that middleware on the application,
    with or without a limiter; so do the header fields of responses that a route creates itself.

    A route of a web socket is limited by its handshakes: one that is denied is refused with the status of the denial,
    or 403 where the server has no other. A reservation lasts until the socket is closed.

    With ``override`` it takes the place of the limits before it, for the requests that it applies to: those of the
    application and of its routers, and those before it in the route's own list. :func:`exempt` does so without a limit.
    """

    _is_of_route = True

    def __init__(
        self,
        limiter: AsyncLimiter | Limiter,
        policy: Policies = None,
        *,
        override: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(limiter, policy, **options)
        self.limit = ViewLimit(self._guard, is_override=override)

    def guards(self) -> tuple[Guard, Guard, Guard]:
        """Return the guards of a middleware: that of an application, of a mount, and of a route."""
        if self.limit.is_override:
            raise TypeError(
                "limit has override, and a middleware takes the place of no limit: allowed is one without it"
            )
        return super().guards()

    async def __call__(self, request: HTTPConnection, response: Response) -> None:
        """Decide about a request or the handshake of a web socket."""
        scope, guard = request.scope, self._guard
        info = _Info(scope, getattr(request, "receive", asgi.receive_nothing))
        info.request = request
        after = _limits_after(self, matched_route(scope))
        if after.override(info.method()):
            return
        limits = asgi.request_limits(scope)
        if limits is not None:
            # The middleware refunds what the store admits ahead for limits that the request never meets.
            denied = await drive_async(decide(guard, info, limits, after.guards))
            fields = {}
        else:
            if guard.count is not None or guard.has_spent:
                name = "spent" if guard.count is None else "count"
                raise RuntimeError(f"{name} needs polylimit.fastapi.RateLimitMiddleware on the application")
            limits = scope.setdefault(_OWN_LIMITS, RequestLimits())
            denied = await drive_async(decide(guard, info, limits))
            if limits.must_finish:
                await drive_async(fail(limits, None))
                raise RuntimeError(
                    "a policy that is reserved needs polylimit.fastapi.RateLimitMiddleware on the application, "
                    "which sees when the response is done"
                )
            # The middleware would add the fields to responses of all kinds.
            fields = dict(limits.fields())
        if denied is None:
            response.headers.update(fields)
            return
        handlers, of_statuses = _exception_handlers(scope)
        is_handled = _is_handled(handlers)
        if not is_handled:
            handlers[DeniedError] = _respond
        elif guard.on_denied is not None and DeniedError not in handlers:
            handlers[_AnsweredError] = _respond
            raise _AnsweredError(*denied, fields)
        if guard.has_cors_origins and (is_handled or denied[0].problem.status in of_statuses):
            # The response of the limit has them.
            fields |= guard.core.cors_fields(request.headers.get("origin"))
        raise DeniedError(*denied, fields)

    @property
    def responses(self) -> dict[int | str, dict[str, Any]]:
        """What a schema of OpenAPI says about denials.

        ``FastAPI(dependencies=[Depends(limit)], responses=limit.responses)``; a router and a route take the same.
        """
        return {self._guard.status: _DENIED}


# FastAPI looks the names of annotations up in the globals of a function, which the object has not: before 0.124 it took
# both arguments for query parameters.
RateLimit.__call__.__annotations__.update(request=HTTPConnection, response=Response)


#: The response to a denial in a schema of OpenAPI.
_DENIED: dict[str, Any] = {
    "description": "The request is over a limit. Retry-After has the seconds until it would be admitted.",
    "headers": {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}},
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("type", "title", "detail")},
            }
        }
    },
}


def _is_handled(handlers: dict[Any, Any]) -> bool:
    """Whether the application itself handles denials, or all exceptions of HTTP."""
    own = handlers.get(DeniedError)
    if own is not None:
        return own is not _respond
    for kind in (_HTTPException, HTTPException):
        handler = handlers.get(kind)
        # Those that FastAPI and Starlette set are theirs.
        if handler is not None and getattr(handler, "__module__", "").partition(".")[0] not in {"fastapi", "starlette"}:
            return True
    return False


async def exempt() -> None:
    """Exempt a route from the limits before it: ``dependencies=[Depends(exempt)]``."""


def _exception_handlers(scope: Scope) -> tuple[dict[Any, Any], Container[int]]:
    """Return the handlers of exceptions around a route, by their classes, and by their statuses."""
    handlers: tuple[dict[Any, Any], Container[int]] | None = scope.get("starlette.exception_handlers")
    if handlers is not None:
        return handlers
    # Starlette before 0.28 has them in a layer of its application alone.
    layer = scope["app"].middleware_stack
    while layer is not None and not hasattr(layer, "_exception_handlers"):
        layer = getattr(layer, "app", None)
    if layer is None:
        return {}, ()
    return layer._exception_handlers, layer._status_handlers  # noqa: SLF001


def _limits_after(limit: RateLimit, route: Any) -> ViewLimits:
    """Return the limits that a route has after this one, or all of them if this one is not the route's."""
    if not hasattr(route, "dependant"):
        return NO_LIMITS
    known: dict[RateLimit, ViewLimits] = vars(route).setdefault("_polylimit_limits", {})
    after = known.get(limit)
    if after is None:
        own = [one for one in _calls(route.dependant) if one is exempt or isinstance(one, RateLimit)]
        later = own[own.index(limit) + 1 :] if limit in own else own
        limits = [one.limit if isinstance(one, RateLimit) else ViewLimit(None) for one in later]
        after = known[limit] = ViewLimits(limits)
    return after


def _calls(dependant: Any) -> Iterator[Any]:
    """Return the dependencies in the order in which FastAPI calls them."""
    for one in dependant.dependencies:
        yield from _calls(one)
        yield one.call


async def _respond(connection: HTTPConnection, error: Exception) -> Response | None:
    response = _Denied(error) if isinstance(error, DeniedError) else Response(status_code=500)
    if not isinstance(connection, WebSocket):
        return response
    # Starlette before 0.37 has no responses to the handshake of a web socket.
    await asgi.refuse_handshake(response, connection.scope, connection._receive, connection._send)  # noqa: SLF001
    return None


class _Denied(Response):
    """The response to a denial, with the header fields that no middleware adds."""

    def __init__(self, error: DeniedError) -> None:
        super().__init__()
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: asgi.Send) -> None:
        fields = asgi.encoded(list((self._error.headers or {}).items()))

        async def sender(message: asgi.Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *fields]}
            await send(message)

        await self._error.response(scope, receive, sender)
