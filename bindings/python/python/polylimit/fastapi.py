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

from typing import TYPE_CHECKING, Any, Callable

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from polylimit import asgi
from polylimit.asgi import Receive, ResponseStart, Scope, ScopeInfo
from polylimit.guard import Cost, Denial, Guard, Key, Policies

if TYPE_CHECKING:
    from typing_extensions import Never

    from polylimit import AsyncLimiter, Limiter

__all__ = ["Denial", "DeniedError", "RateLimit", "RateLimitMiddleware", "ResponseStart"]

_OWN_OUTCOMES = "polylimit.fastapi.outcomes"


class RateLimitMiddleware(asgi.RateLimitMiddleware):
    """Limits every request of an application; see :class:`polylimit.asgi.RateLimitMiddleware` for the options.

    Functions of the request get a Starlette ``Request``; ``on_denied`` and ``on_outage`` return a ``Response``.
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

    The options are those of :class:`RateLimitMiddleware` and are validated when the object is created. ``count`` needs
    that middleware on the application, with or without a limiter; so do the header fields of responses that a route
    creates itself.
    """

    def __init__(
        self,
        limiter: AsyncLimiter | Limiter,
        policy: Policies = None,
        *,
        key: Key | None = None,
        cost: Cost = 1,
        count: Callable[[Any], bool] | None = None,
        skip: Callable[[Any], Any] | None = None,
        on_denied: Callable[[Any, Denial], Any] | None = None,
        on_outage: Callable[[Any, Denial], Any] | None = None,
        headers: str = "ietf",
        scope: str | None = None,
        **unknown: Never,
    ) -> None:
        self._guard = Guard(
            limiter,
            policy,
            key=key,
            cost=cost,
            count=count,
            skip=skip,
            on_denied=on_denied,
            on_outage=on_outage,
            headers=headers,
            scope=scope,
            per_route=True,
            **unknown,
        )

    async def __call__(self, request: HTTPConnection, response: Response) -> None:
        """Decide about a request; websockets pass through."""
        scope = request.scope
        if scope["type"] != "http":
            return
        outcomes = asgi.outcomes_in(scope)
        has_middleware = outcomes is not None
        if outcomes is None:
            if self._guard.count is not None:
                raise RuntimeError("count needs polylimit.fastapi.RateLimitMiddleware on the application")
            outcomes = scope.setdefault(_OWN_OUTCOMES, asgi.Outcomes())
        await asgi.decide([self._guard], request, ScopeInfo(scope), outcomes)
        denial = outcomes.denial()
        # The middleware adds the fields to responses of all kinds.
        fields = {} if has_middleware else dict(outcomes.fields())
        if denial is None:
            response.headers.update(fields)
            return
        handlers = scope.get("starlette.exception_handlers")
        if handlers is not None:
            handlers[0].setdefault(DeniedError, _respond)
        raise DeniedError(denial, await asgi.denial_response(request, denial, outcomes, scope), fields)


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
