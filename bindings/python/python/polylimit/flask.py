"""Limits for Flask: an extension for an application or a blueprint, and decorators for single views.

>>> from flask import Flask
>>> from polylimit import Limiter
>>> from polylimit.flask import RateLimit
>>> app = Flask(__name__)
>>> limits = RateLimit(app, limiter=Limiter(policies={"api": "100/minute"}), policy="api")
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Callable, TypeVar

import flask
from flask.globals import request_ctx

from polylimit import Limiter
from polylimit._core import RequestLimits
from polylimit.decide import decide, drive, end, fail, finish, resolve
from polylimit.guard import Denial, Guard, Options, Outage, Policies
from polylimit.views import NO_LIMITS, ViewLimit, limits_of, set_limits, wsgi_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack


__all__ = ["Denial", "Outage", "RateLimit", "exempt", "limit", "request_limits"]

View = TypeVar("View", bound=Callable[..., Any])

#: The key in the WSGI environment under which a request keeps its limits.
_LIMITS = "polylimit.limits"
#: The attribute of the request context that holds the same until the response is finished.
_UNFINISHED = "_polylimit_unfinished"

_INTERNAL_SERVER_ERROR = 500


class _Info:
    def __init__(self, request: flask.Request) -> None:
        self.request = request

    def method(self) -> str:
        return self.request.method

    def peer(self) -> str | None:
        return self.request.environ.get("REMOTE_ADDR") or None

    def header(self, name: str) -> list[bytes]:
        return [line.encode("latin-1") for line in self.request.headers.getlist(name)]

    def cookie(self, name: str) -> str | None:
        return self.request.cookies.get(name)

    def path(self, name: str) -> str | None:
        value = (self.request.view_args or {}).get(name)
        return None if value is None else str(value)

    def user(self) -> str | None:
        if hasattr(flask.current_app, "login_manager"):
            from flask_login import current_user

            return str(current_user.get_id()) if current_user.is_authenticated else None
        return self.request.remote_user

    def target(self) -> str | bytes:
        return wsgi_target(self.request.environ)

    def lines(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.request.headers.items()]

    def route(self) -> str | None:
        return self.request.endpoint

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> flask.Response:
        return flask.Response(body, status, fields)


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
        if self._guard.count is not None:
            flask.request_tearing_down.connect(_tear_down)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask | flask.Blueprint) -> None:
        """Limit the requests of an application or a blueprint."""
        known_app = app if isinstance(app, flask.Flask) else None
        guard = self._guard if known_app or self._has_scope else self._make_guard(scope=app.name)

        # Flask recognizes a plain function as synchronous faster than any other callable.
        def before() -> Any:
            request = _request()
            rule = request.url_rule
            views = (known_app or flask.current_app).view_functions
            limits = NO_LIMITS if rule is None else limits_of(views.get(rule.endpoint))
            return None if limits.override(request.method) else _decide(request, guard, limits.guards)

        app.before_request(before)


def limit(
    limiter: Limiter, policy: Policies = None, *, override: bool = False, **options: Unpack[Options]
) -> Callable[[View], View]:
    """Limit one view; the options are those of :class:`RateLimit`. Place it below ``@app.route``.

    A policy that several limits of a request use is charged once for a key. With ``override`` the limits of the
    application and of its blueprints do not apply to the view's requests that this limit applies to.
    """
    guard = Guard(limiter, policy, limiter_types=(Limiter,), per_route=True, **options)
    flask.request_tearing_down.connect(_tear_down)

    def decorate(view: View) -> View:
        later = limits_of(view).guards

        @wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            denied = _decide(_request(), guard, later)
            if denied is not None:
                return denied
            return flask.current_app.ensure_sync(view)(*args, **kwargs)

        set_limits(limited, view, ViewLimit(guard, override))
        return limited  # type: ignore[return-value]

    return decorate


def exempt(view: View) -> View:
    """Exempt a view from the limits of the application and of its blueprints. Place it below ``@app.route``."""

    @wraps(view)
    def exempted(*args: Any, **kwargs: Any) -> Any:
        return flask.current_app.ensure_sync(view)(*args, **kwargs)

    set_limits(exempted, view, ViewLimit(None))
    return exempted  # type: ignore[return-value]


def request_limits(request: flask.Request | None = None) -> RequestLimits | None:
    """Return what the limits of the current request have decided so far; ``None`` for a request without limits."""
    limits: RequestLimits | None = (request or flask.request).environ.get(_LIMITS)
    return limits


#: Returns the request itself: the proxy looks it up at every use.
_request: Callable[[], flask.Request] = flask.request._get_current_object  # type: ignore[attr-defined] # noqa: SLF001
#: Returns the request context itself.
_context: Callable[[], object] = request_ctx._get_current_object  # type: ignore[attr-defined] # noqa: SLF001


def _decide(request: flask.Request, guard: Guard, later: Sequence[Guard]) -> Any:
    """Decide about a request; return the response if it is denied."""
    limits: RequestLimits | None = request.environ.get(_LIMITS)
    check, is_admitted = None, False
    if limits is None:
        if guard.needs_only_peer:
            limits, check = guard.core.enter(request.environ.get("REMOTE_ADDR"))
            is_admitted = check is None
        else:
            limits = RequestLimits()
        _attach(request, limits)
    if guard.count is not None or later:
        # The context belongs to this request: a nested application and a copy for another thread have others.
        setattr(_context(), _UNFINISHED, limits)
    denied = None if is_admitted else drive(decide(guard, _Info(request), limits, later, check), _wait)
    if limits.must_finish:
        setattr(_context(), _UNFINISHED, limits)
        # A guard that reserves knows it by the policies of a request.
        flask.request_tearing_down.connect(_tear_down)
    return None if denied is None else flask.current_app.make_response(denied[1])


def _attach(request: flask.Request, limits: RequestLimits) -> None:
    """Let the response have the fields of a request's limits."""
    request.environ[_LIMITS] = limits

    def finish_response(response: flask.Response) -> flask.Response:
        if limits.must_finish:
            drive(finish(limits, response), _wait)
        if limits.holds:
            # Servers close a response when it is sent, and when its client has gone.
            response.call_on_close(partial(_end, limits))
        limits.add_to(response.headers)
        return response

    flask.after_this_request(finish_response)


def _end(limits: RequestLimits) -> None:
    """End the reservations of a request: nothing has to be waited for but the store."""
    drive(end(limits), _wait)


def _wait(value: Any) -> Any:
    """Wait for the result of an asynchronous function, whose coroutine would be true for every request."""
    return flask.current_app.async_to_sync(resolve)(value)


def _tear_down(app: flask.Flask, **_details: Any) -> None:
    """Refund what does not count for a request that ended in an exception without a handler.

    Flask creates no response for an exception that it propagates, as with ``TESTING`` and ``PROPAGATE_EXCEPTIONS``.
    """
    context = _context()
    limits: RequestLimits | None = getattr(context, _UNFINISHED, None)
    if limits is not None and limits.must_finish:
        setattr(context, _UNFINISHED, None)
        drive(fail(limits, app.response_class(status=_INTERNAL_SERVER_ERROR)), _wait)
