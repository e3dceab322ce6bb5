"""Limits for Flask: an extension for an application or a blueprint, and decorators for single views.

>>> from flask import Flask
>>> from polylimit import Limiter
>>> from polylimit.flask import RateLimit
>>> app = Flask(__name__)
>>> limits = RateLimit(app, limiter=Limiter(policies={"api": "100/minute"}), policy="api")
"""

from __future__ import annotations

from functools import partial, wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Callable, TypeVar

import flask
from flask.globals import request_ctx

from polylimit import Limiter
from polylimit._core import RequestLimits
from polylimit.decide import conclude, decide, drive, finish, resolve
from polylimit.guard import Denial, Guard, Options, Outage, Policies

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Denial", "Outage", "RateLimit", "exempt", "limit", "request_limits"]

View = TypeVar("View", bound=Callable[..., Any])

#: The attribute of a view with the guards that are used in place of the application's; ``None`` among them is for none.
_OVERRIDES = "_polylimit_overrides"
#: The key in the WSGI environment under which a request keeps its limits.
_LIMITS = "polylimit.limits"
#: The attribute of the request context that holds the same until ``count`` has been called.
_UNCOUNTED = "_polylimit_uncounted"

_INTERNAL_SERVER_ERROR = 500


class _Info:
    def __init__(self, request: flask.Request) -> None:
        self._request = request

    def method(self) -> str:
        return self._request.method

    def peer(self) -> str | None:
        return self._request.environ.get("REMOTE_ADDR") or None

    def header(self, name: str) -> list[bytes]:
        return [line.encode("latin-1") for line in self._request.headers.getlist(name)]

    def cookie(self, name: str) -> str | None:
        return self._request.cookies.get(name)

    def path(self, name: str) -> str | None:
        value = (self._request.view_args or {}).get(name)
        return None if value is None else str(value)

    def user(self) -> str | None:
        if hasattr(flask.current_app, "login_manager"):
            from flask_login import current_user

            return str(current_user.get_id()) if current_user.is_authenticated else None
        return self._request.remote_user

    def route(self) -> str | None:
        return self._request.endpoint


class RateLimit:
    """Limits every request of an application or a blueprint, besides the limits of its views (:func:`limit`).

    Parameters
    ----------
    app
        The application or blueprint; or call :meth:`init_app` later.
    limiter
        The :class:`polylimit.Limiter`.
    policy
        A policy's name, quotas such as ``"100/minute"``, or a list of different policies: all admit a request, or it
        spends nothing under any. It may be left out where the limiter has one policy. A function of the request returns
        the same, or ``None`` for a request that is not limited.
    options
        See :class:`polylimit.guard.Options`. The user of ``keys.user()`` is that of Flask-Login, if the application has
        a login manager, and otherwise ``request.remote_user``. By default a view uses its endpoint as the ``scope``,
        a blueprint its name, and an application shares one budget among all requests.

    Raises
    ------
    InvalidArgumentError
        When a policy is not known, quotas cannot be read, or another option is not valid.
    TypeError
        When the limiter is not a :class:`polylimit.Limiter`, or an option is unknown or of another type.

    """

    def __init__(
        self,
        app: flask.Flask | flask.Blueprint | None = None,
        *,
        limiter: Limiter,
        policy: Policies = None,
        **options: Unpack[Options],
    ) -> None:
        self._make_guard = partial(Guard, limiter, policy, limiter_types=(Limiter,), **options)
        # Raises for invalid options now and not at the first request.
        self._guard = self._make_guard()
        self._has_scope = options.get("scope") is not None
        _connect_teardown(self._guard)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask | flask.Blueprint) -> None:
        """Limit the requests of an application or a blueprint."""
        known_app = app if isinstance(app, flask.Flask) else None
        guard = self._guard if known_app or self._has_scope else self._make_guard(scope=app.name)
        enter = guard.core.enter if guard.needs_only_peer else None

        # Flask recognizes a plain function as synchronous faster than any other callable.
        def before() -> Any:
            request = _request()
            if request.url_rule is not None:
                view = (known_app or flask.current_app).view_functions.get(request.url_rule.endpoint)
                overrides = getattr(view, _OVERRIDES, None)
                if overrides is not None and any(
                    one is None or one.core.applies_to(request.method) for one in overrides
                ):
                    return None
            if enter is None or _LIMITS in request.environ:
                return _decide(request, guard)
            limits, check = enter(request.environ.get("REMOTE_ADDR"))
            _attach(request, limits)
            if check is None:
                return None
            denial = drive(conclude(guard, request, limits, check, is_async=False), _wait)
            return None if denial is None else _denial_response(guard, request, denial)

        app.before_request(before)


def _is_overridden(overrides: list[Guard | None], method: str) -> bool:
    return any(one is None or one.core.applies_to(method) for one in overrides)


def limit(
    limiter: Limiter, policy: Policies = None, *, override: bool = False, **options: Unpack[Options]
) -> Callable[[View], View]:
    """Limit one view; the options are those of :class:`RateLimit`. Place it below ``@app.route``.

    A policy that several limits of a request use is charged once for a key. With ``override`` the limits of the
    application and of its blueprints do not apply to the view's requests that this limit applies to.
    """
    guard = Guard(limiter, policy, limiter_types=(Limiter,), per_route=True, **options)
    _connect_teardown(guard)

    def decorate(view: View) -> View:
        @wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            denied = _decide(_request(), guard)
            if denied is not None:
                return denied
            return flask.current_app.ensure_sync(view)(*args, **kwargs)

        if override:
            setattr(limited, _OVERRIDES, [guard, *getattr(view, _OVERRIDES, [])])
        return limited  # type: ignore[return-value]

    return decorate


def exempt(view: View) -> View:
    """Exempt a view from the limits of the application and of its blueprints. Place it below ``@app.route``."""

    @wraps(view)
    def exempted(*args: Any, **kwargs: Any) -> Any:
        return flask.current_app.ensure_sync(view)(*args, **kwargs)

    setattr(exempted, _OVERRIDES, [None])
    return exempted  # type: ignore[return-value]


def request_limits(request: flask.Request | None = None) -> RequestLimits | None:
    """Return what the limits of the current request have decided so far; ``None`` for a request without limits."""
    limits: RequestLimits | None = (request or flask.request).environ.get(_LIMITS)
    return limits


#: Returns the request itself: the proxy looks it up at every use.
_request: Callable[[], flask.Request] = flask.request._get_current_object  # type: ignore[attr-defined] # noqa: SLF001
#: Returns the request context itself.
_context: Callable[[], object] = request_ctx._get_current_object  # type: ignore[attr-defined] # noqa: SLF001


def _attach(request: flask.Request, limits: RequestLimits) -> None:
    """Let the response have the fields of a request's limits."""
    request.environ[_LIMITS] = limits

    def finish_response(response: flask.Response) -> flask.Response:
        if limits.has_count:
            drive(finish(limits, response, is_async=False), _wait)
        limits.add_to(response.headers)
        return response

    flask.after_this_request(finish_response)


def _decide(request: flask.Request, guard: Guard) -> Any:
    """Decide about a request; return the response if it is denied."""
    limits: RequestLimits | None = request.environ.get(_LIMITS)
    if limits is None:
        limits = RequestLimits()
        _attach(request, limits)
    if guard.count is not None:
        # The context belongs to this request: a nested application and a copy for another thread have others.
        setattr(_context(), _UNCOUNTED, limits)
    denial = drive(decide(guard, request, _Info(request), limits, is_async=False), _wait)
    return None if denial is None else _denial_response(guard, request, denial)


def _wait(value: Any) -> Any:
    """Wait for the result of an asynchronous function, whose coroutine would be true for every request."""
    return flask.current_app.async_to_sync(resolve)(value)


def _denial_response(guard: Guard, request: flask.Request, denial: Denial) -> Any:
    if guard.on_denied is not None:
        response = guard.on_denied(request, denial)
        return flask.current_app.make_response(_wait(response) if isawaitable(response) else response)
    status, fields, body = denial.problem.response(request.headers.get("Accept"))
    return flask.Response(body, status, fields)


def _connect_teardown(guard: Guard) -> None:
    """Call :func:`_tear_down` at the end of requests, which ``count`` needs for those without a response."""
    if guard.count is not None:
        flask.request_tearing_down.connect(_tear_down)


def _tear_down(app: flask.Flask, **_details: Any) -> None:
    """Refund what does not count for a request that ended in an exception without a handler.

    Flask creates no response for an exception that it propagates, as with ``TESTING`` and ``PROPAGATE_EXCEPTIONS``.
    """
    context = _context()
    limits: RequestLimits | None = getattr(context, _UNCOUNTED, None)
    if limits is not None:
        setattr(context, _UNCOUNTED, None)
        drive(finish(limits, app.response_class(status=_INTERNAL_SERVER_ERROR), is_async=False), _wait)
