"""Limits for Quart: an extension for an application or a blueprint, and decorators for single views.

>>> from polylimit import AsyncLimiter
>>> from polylimit.quart import RateLimit, limit
>>> from quart import Quart
>>> app = Quart(__name__)
>>> limiter = AsyncLimiter(policies={"api": "100/minute", "login": "5/15m sliding_log"})
>>> limits = RateLimit(app, limiter, "api")
>>> @app.post("/login")
... @limit(limiter, "login", override=True)
... async def login() -> str:
...     return "welcome"

Quart 0.19 and newer.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from polylimit import asgi
from polylimit._decide import decide, drive_async
from polylimit._guard import Denial, Guard, Options, Outage, ScopedGuards, refuse_options_alone
from polylimit._versions import require
from polylimit._views import ViewLimit, blueprint_name, check_function, limits_of, rule_pattern, view_name
from polylimit.asgi import ResponseStart, ScopeInfo

require("Quart", "0.19", "quart")

import quart  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Unpack

    from polylimit import AsyncLimiter, Limiter
    from polylimit._charges import Policies
    from polylimit._core import RequestLimits

__all__ = ["Denial", "Options", "Outage", "RateLimit", "ResponseStart", "exempt", "limit", "request_limits"]

View = TypeVar("View", bound="Callable[..., Any]")


def request_limits(request: quart.Request | None = None) -> RequestLimits | None:
    """Return what the limits of the current request have decided so far; ``None`` for a request without limits."""
    scope: Any = (request or quart.request).scope
    return asgi.request_limits(scope)


class _Info(ScopeInfo):
    def __init__(self, request: quart.Request) -> None:
        scope: Any = request.scope
        super().__init__(scope, asgi.receive_nothing)
        self._request = request

    @property
    def request(self) -> quart.Request:
        return self._request

    def path(self, name: str) -> str | None:
        value = (self._request.view_args or {}).get(name)
        return None if value is None else str(value)

    def route(self) -> str | None:
        endpoint = self._request.endpoint
        return None if endpoint is None else view_name(quart.current_app, endpoint)

    def pattern(self) -> str | None:
        rule = self._request.url_rule
        return None if rule is None else rule_pattern(rule)

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> Any:
        response = quart.Response(body, status)
        response.headers.clear()
        response.headers.extend(fields)
        return response

    def with_cors(self, response: Any, fields: list[tuple[str, str]]) -> Any:
        if isinstance(response, quart.Response):
            if "access-control-allow-origin" not in response.headers:
                response.headers.extend(fields)
            return response
        raise TypeError("on_denied has to return a quart.Response where cors_origins are given")


class RateLimit:
    """Limits every request of an application or a blueprint, besides the limits of its views (:func:`limit`).

    Without a limiter it limits nothing, but lets the limits of views add their header fields and see when a response is
    done. The options are those of :class:`polylimit.asgi.RateLimitMiddleware`, without ``websockets``; functions of the
    request get the ``quart.Request``, and ``on_denied`` returns what a view may return. Quotas without a name have one
    budget for all requests of an application, and one for a blueprint under each name.
    """

    def __init__(
        self,
        app: quart.Quart | quart.Blueprint | None = None,
        limiter: AsyncLimiter | Limiter | None = None,
        policy: Policies = None,
        **options: Unpack[Options],
    ) -> None:
        if limiter is None:
            refuse_options_alone(policy, options)
        self._guards = None if limiter is None else ScopedGuards(limiter, policy, **options)
        if app is not None:
            self.init_app(app)

    def __repr__(self) -> str:
        return "RateLimit()" if self._guards is None else self._guards.outer.show(self)

    def init_app(self, app: quart.Quart | quart.Blueprint) -> None:
        """Limit the requests of an application or a blueprint."""
        blueprint = app if isinstance(app, quart.Blueprint) else None
        if isinstance(app, quart.Blueprint):
            app.record(lambda state: _install(state.app))
        else:
            _install(app)
        guards = self._guards
        if guards is None:
            return

        async def before() -> Any:
            limits = limits_of(quart.current_app.view_functions.get(quart.request.endpoint or ""))
            if limits.override(quart.request.method):
                return None
            name = "" if blueprint is None else blueprint_name(quart.current_app, quart.request, blueprint)
            return await _decide(guards.of(name), limits.guards)

        app.before_request(before)


def _install(app: Any) -> None:
    if not isinstance(app.asgi_app, asgi.RateLimitMiddleware):
        app.asgi_app = asgi.RateLimitMiddleware(app.asgi_app)


def limit(
    limiter: AsyncLimiter | Limiter, policy: Policies = None, *, override: bool = False, **options: Unpack[Options]
) -> Callable[[View], View]:
    """Limit one view, below ``@app.route``; the options are those of :class:`RateLimit`, which the application needs.

    With ``override`` the limits of the application and of its blueprints do not apply to the view's requests that this
    limit applies to.
    """
    guard = Guard(limiter, policy, per_route=True, is_attached=True, **options)
    return _decorator(ViewLimit(guard, override))


def exempt(view: View) -> View:
    """Exempt a view from the limits of the application and of its blueprints."""
    return _decorator(ViewLimit(None))(view)


def _decorator(limit: ViewLimit) -> Callable[[View], View]:
    def decorate(view: Any) -> Any:
        check_function("view", view, methods_of="a class of views")
        later = limits_of(view).guards

        @wraps(view)
        async def limited(*args: Any, **kwargs: Any) -> Any:
            denied = None if limit.guard is None else await _decide(limit.guard, later)
            return denied if denied is not None else await quart.current_app.ensure_async(view)(*args, **kwargs)

        limit.mark(limited)
        return limited

    return decorate


async def _decide(guard: Guard, later: Sequence[Guard] = ()) -> Any:
    """Decide about the current request; return the response if it is denied."""
    request: Any = quart.request._get_current_object()  # type: ignore[attr-defined] # noqa: SLF001
    limits = request_limits(request)
    if limits is None:
        raise RuntimeError("limits of views need polylimit.quart.RateLimit(app) on the application")
    denied = await drive_async(decide(guard, _Info(request), limits, later))
    return None if denied is None else denied[1]
