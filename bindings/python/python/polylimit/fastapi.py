"""Limits for FastAPI and Starlette: a middleware for an application, and a dependency for single routes.

>>> from fastapi import Depends, FastAPI
>>> from polylimit import AsyncLimiter
>>> from polylimit.fastapi import RateLimit, RateLimitMiddleware
>>> limiter = AsyncLimiter(policies={"api": "100/minute", "login": "5/15m sliding_log"})
>>> app = FastAPI()
>>> app.add_middleware(RateLimitMiddleware, limiter=limiter, policy="api")
>>> @app.post("/login", dependencies=[Depends(RateLimit(limiter, "login"))])
... async def login() -> str:
...     return "welcome"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from polylimit import asgi
from polylimit._core import RequestLimits
from polylimit.asgi import Receive, ResponseStart, Scope, ScopeInfo
from polylimit.decide import decide, drive_async
from polylimit.guard import Denial, Guard, Options, Outage, Policies

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from polylimit import AsyncLimiter, Limiter

__all__ = ["Denial", "DeniedError", "Outage", "RateLimit", "RateLimitMiddleware", "ResponseStart", "request_limits"]

#: The key in the ASGI scope of the limits of a request that passed no middleware.
_OWN_LIMITS = "polylimit.fastapi.limits"


def request_limits(request: HTTPConnection) -> RequestLimits | None:
    """Return what the limits of a request have decided so far; ``None`` for a request without limits."""
    return asgi.request_limits(request.scope) or request.scope.get(_OWN_LIMITS)


class RateLimitMiddleware(asgi.RateLimitMiddleware):
    """Limits every request of an application; see :class:`polylimit.asgi.RateLimitMiddleware` for the options.

    Functions of the request get a Starlette ``Request``; ``on_denied`` returns a ``Response``.
    """

    def request_of(self, scope: Scope, receive: Receive) -> Request:
        """Return the argument of functions of the request."""
        return Request(scope, receive)


class DeniedError(HTTPException):
    """Raised by :class:`RateLimit`. Its ``response`` is sent unless the application has a handler for it."""

    def __init__(self, denial: Denial, response: asgi.App, fields: dict[str, str]) -> None:
        super().__init__(denial.problem.status, denial.problem.detail, fields)
        self.denial = denial
        self.response = response


class RateLimit:
    """Limits the routes that depend on it: ``Depends(RateLimit(limiter, "login"))``.

    The options are those of :class:`RateLimitMiddleware` and are validated when the object is created. Quotas without a
    name have a budget for each route, such as ``"GET /users/{id}"``, unless a scope is given. ``count`` needs that
    middleware on the application, with or without a limiter; so do the header fields of responses that a route creates
    itself.
    """

    def __init__(self, limiter: AsyncLimiter | Limiter, policy: Policies = None, **options: Unpack[Options]) -> None:
        self._guard = Guard(limiter, policy, per_route=True, **options)

    async def __call__(self, request: HTTPConnection, response: Response) -> None:
        """Decide about a request; websockets pass through."""
        scope, guard = request.scope, self._guard
        if scope["type"] != "http":
            return
        limits = asgi.request_limits(scope)
        has_middleware = limits is not None
        if limits is None:
            if guard.count is not None:
                raise RuntimeError("count needs polylimit.fastapi.RateLimitMiddleware on the application")
            limits = scope.setdefault(_OWN_LIMITS, RequestLimits())
        denial = await drive_async(decide(guard, request, ScopeInfo(scope), limits, is_async=True))
        # The middleware adds the fields to responses of all kinds.
        fields = {} if has_middleware else dict(limits.fields())
        if denial is None:
            response.headers.update(fields)
            return
        handlers = scope.get("starlette.exception_handlers")
        if handlers is not None:
            handlers[0].setdefault(DeniedError, _respond)
        raise DeniedError(denial, await asgi.denial_response(guard, request, denial, scope), fields)


async def _respond(_request: Request, error: Exception) -> Response:
    return _Denied(error) if isinstance(error, DeniedError) else Response(status_code=500)


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
