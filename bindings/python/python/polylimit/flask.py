"""Limits for Flask: an extension for an application or a blueprint, and decorators for single views.

>>> from flask import Flask
>>> from polylimit import Limiter
>>> from polylimit.flask import RateLimit
>>> app = Flask(__name__)
>>> limits = RateLimit(app, limiter=Limiter(policies={"api": "100/minute"}), policy="api")
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from polylimit import Limiter
from polylimit._core import RequestLimits
from polylimit._decide import BodyReader, decide, drive, end, fail, finish, resolve
from polylimit._guard import Denial, Guard, Options, Outage, ScopedGuards
from polylimit._reader import RequestReader
from polylimit._versions import require
from polylimit._views import (
    NO_LIMITS,
    ClassView,
    ViewLimit,
    ViewLimits,
    blueprint_name,
    limited_version,
    limits_of,
    note_limited,
    rule_pattern,
    view_name,
    wsgi_target,
)

# Before an import that an older version does not have.
require("Flask", "2.3", "flask")

import flask  # noqa: E402
from flask.globals import request_ctx  # noqa: E402
from flask.views import MethodView  # noqa: E402
from flask.views import View as ClassBasedView  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from polylimit._charges import Policies


__all__ = ["Denial", "Options", "Outage", "RateLimit", "exempt", "limit", "request_limits"]

View = TypeVar("View", bound=Callable[..., Any])

#: The key in the WSGI environment under which a request keeps its limits.
_LIMITS = "polylimit.limits"
#: The attribute of the request context that holds the same until the response is finished.
_UNFINISHED = "_polylimit_unfinished"
#: The key in an application's ``extensions`` of the names of its routes.
_NAMES = "polylimit.names"

_INTERNAL_SERVER_ERROR = 500


class _Info(RequestReader):
    request: flask.Request

    def __init__(self, request: flask.Request, method: str = "") -> None:
        super().__init__(request)
        #: The method of a class whose limit this is.
        self._method = method

    def peer(self) -> str | None:
        return self.request.environ.get("REMOTE_ADDR") or None

    def header(self, name: str) -> list[bytes]:
        return [line.encode("latin-1") for line in self.request.headers.getlist(name)]

    def path(self, name: str) -> str | None:
        value = (self.request.view_args or {}).get(name)
        return None if value is None else str(value)

    def user(self) -> str | None:
        if hasattr(flask.current_app, "login_manager"):
            from flask_login import current_user

            user = current_user.get_id() if current_user.is_authenticated else None
            return None if user is None else str(user)
        return self.request.remote_user

    def target(self) -> str | bytes:
        return wsgi_target(self.request.environ)

    def lines(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.request.headers.items()]

    def route(self) -> str | None:
        endpoint = self.request.endpoint
        if endpoint is None:
            return None
        names: dict[str, str] = flask.current_app.extensions.setdefault(_NAMES, {})
        name = names.get(endpoint)
        if name is None:
            name = names[endpoint] = view_name(flask.current_app, endpoint)
        return _mounted(self.request, f"{name}.{self._method}" if self._method else name)

    def pattern(self) -> str | None:
        rule = self.request.url_rule
        return None if rule is None else self.request.script_root + rule_pattern(rule)

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> flask.Response:
        return flask.Response(body, status, fields)

    def with_cors(self, response: Any, fields: list[tuple[str, str]]) -> flask.Response:
        made: flask.Response = super().with_cors(flask.current_app.make_response(response), fields)
        return made


def _mounted(request: flask.Request, name: str) -> str:
    """Return a name in an application that may be mounted in another one."""
    return f"{request.script_root} {name}".rstrip() if request.script_root else name


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
    views_only
        Whether only requests of views are limited, and neither static files nor paths that the application does not
        have.
    options
        See :class:`Options`. The user of ``keys.user()`` is that of Flask-Login, if the application has
        a login manager, and otherwise ``request.remote_user``. By default a view uses its endpoint as the ``scope``,
        a blueprint the name under which it is registered, and an application shares one budget among all requests. An
        application that is mounted in another one (``SCRIPT_NAME``) has budgets of its own.

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
        limiter: Limiter | None = None,
        policy: Policies = None,
        *,
        views_only: bool = False,
        **options: Unpack[Options],
    ) -> None:
        # Raises for invalid options now and not at the first request.
        self._guards = ScopedGuards(limiter, policy, limiter_types=(Limiter,), **options)
        self._views_only = views_only
        if self._guards.outer.count is not None:
            flask.request_tearing_down.connect(_tear_down)
        if app is not None:
            self.init_app(app)

    def __repr__(self) -> str:
        return self._guards.outer.show(self)

    def init_app(self, app: flask.Flask | flask.Blueprint) -> None:
        """Limit the requests of an application or a blueprint."""
        known_app = app if isinstance(app, flask.Flask) else None
        blueprint = None if isinstance(app, flask.Flask) else app
        flask.request_started.connect(_place_limits)

        # Flask recognizes a plain function as synchronous faster than any other callable.
        def before() -> Any:
            request = _request()
            rule = request.url_rule
            limits = NO_LIMITS
            if rule is not None:
                view = (known_app or flask.current_app).view_functions.get(rule.endpoint)
                limits = _limits_of(view, request.method)
            if limits.override(request.method) or (self._views_only and not _has_view(request)):
                return None
            return _decide(request, self._guard_of(request, blueprint), limits.guards)

        app.before_request(before)

    def _guard_of(self, request: flask.Request, blueprint: flask.Blueprint | None) -> Guard:
        """Return the guard that has the budgets of a blueprint, and of where the application is mounted."""
        if not self._guards.has_scopes or (blueprint is None and not request.environ.get("SCRIPT_NAME")):
            return self._guards.outer
        name = "" if blueprint is None else blueprint_name(flask.current_app, request, blueprint)
        return self._guards.of(_mounted(request, name))


def _has_view(request: flask.Request) -> bool:
    """Whether a request is for a view, and not for a static file or an unknown path."""
    if request.endpoint is None:
        return False
    part, _, name = request.endpoint.rpartition(".")
    owner = flask.current_app.blueprints.get(part) if part else flask.current_app
    return not (name == "static" and owner is not None and owner.has_static_folder)


@lru_cache(maxsize=4096)
def _limits_of(view: Any, method: str) -> ViewLimits:
    """Return the limits of a view for a method, which is one of its route."""
    owner = getattr(view, "view_class", None)
    if not isinstance(owner, type) or not issubclass(owner, ClassBasedView):
        return limits_of(view)
    handler, decorators = None, ()
    if issubclass(owner, MethodView):
        handler = getattr(owner, method.lower(), None)
        if handler is None and method == "HEAD":
            handler = getattr(owner, "get", None)
        # Extensions such as Flask-RESTX decorate the methods.
        given = getattr(owner, "method_decorators", ())
        decorators = tuple(given.get(method.lower(), ()) if isinstance(given, dict) else given)
    return limits_of(view, ClassView(owner.dispatch_request, handler, decorators))


def limit(
    limiter: Limiter, policy: Policies = None, *, override: bool = False, **options: Unpack[Options]
) -> Callable[[View], View]:
    """Limit one view; the options are those of :class:`RateLimit`.

    The view is a function, a class of views, or a method of one, such as ``get``. A policy that several limits of a
    request use is charged once for a key. With ``override`` the limits of the application and of its blueprints do not
    apply to the view's requests that this limit applies to.
    """
    guard = Guard(limiter, policy, limiter_types=(Limiter,), per_route=True, is_attached=True, **options)
    flask.request_tearing_down.connect(_tear_down)
    flask.request_started.connect(_place_limits)

    def handle(later: Sequence[Guard], method: str) -> Any:
        return _decide(_request(), guard, later, method)

    return _decorator(ViewLimit(guard, override), handle)


def exempt(view: View) -> View:
    """Exempt a view from the limits of the application and of its blueprints: a function, a class or a method."""
    flask.request_started.connect(_place_limits)
    return _EXEMPTION(view)


def _decorator(limit: ViewLimit, handle: Callable[[Sequence[Guard], str], Any]) -> Callable[[View], View]:
    """Return what lets a view call a function first, which returns the response to a request that is denied."""

    def decorate(view: Any) -> Any:
        if isinstance(view, type) and issubclass(view, ClassBasedView):
            # In place, as the class may be registered already.
            view.dispatch_request = decorate(view.dispatch_request)  # type: ignore[method-assign]
            return view
        if isinstance(view, (type, flask.Flask, flask.Blueprint)) or not callable(view):
            shown = view.__name__ if isinstance(view, type) else f"an object of type {type(view).__name__}"
            raise TypeError(
                f"the decorated view is {shown}: allowed is a function, a class of flask.views or a method of one; "
                "RateLimit limits applications and blueprints"
            )
        later = limits_of(view).guards

        @wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            denied = handle(later, _method_of_class(view, args))
            if denied is not None:
                return denied
            return flask.current_app.ensure_sync(view)(*args, **kwargs)

        limit.mark(limited)
        note_limited(view, limited)
        return limited

    limit.mark_decorator(decorate)
    return decorate


def _method_of_class(view: Any, args: tuple[Any, ...]) -> str:
    """Return the name of a limited function that handles a method in a class; of any other, an empty one."""
    owner = getattr(view, "__self__", args[0] if args else None)
    if not isinstance(owner, ClassBasedView) or view.__name__ == "dispatch_request":
        return ""
    return str(view.__name__)


_UNLIMITED = ViewLimit(None)
_EXEMPTION = _decorator(_UNLIMITED, lambda _later, _method: None)
# Classes name it in their `method_decorators`.
_UNLIMITED.mark_decorator(exempt)

#: The applications whose views have been looked through.
_PLACED: WeakSet[flask.Flask] = WeakSet()


def _place_limits(app: flask.Flask, **_details: Any) -> None:
    """Register limited views in place of views that were registered before they got their limits.

    ``app.route`` returns the function that it registers, so that a decorator above it makes another one, which the
    application would never call. A view that is registered both with and without a limit stays as it is.
    """
    if app in _PLACED:
        return
    _PLACED.add(app)
    called = set()
    for view in app.view_functions.values():
        within: Any = view
        while within is not None:
            called.add(id(within))
            within = getattr(within, "__wrapped__", None)
    for endpoint, view in list(app.view_functions.items()):
        limited = limited_version(view)
        if limited is not None and id(limited) not in called and not _is_known_by_its_name(view):
            app.view_functions[endpoint] = limited


def _is_known_by_its_name(view: Any) -> bool:
    """Whether the name of a function in its module still means the function, and not a decorated one."""
    return getattr(view, "__globals__", {}).get(view.__qualname__) is view


def request_limits(request: flask.Request | None = None) -> RequestLimits | None:
    """Return what the limits of the current request have decided so far; ``None`` for a request without limits."""
    limits: RequestLimits | None = (request or flask.request).environ.get(_LIMITS)
    return limits


#: Returns the request itself: the proxy looks it up at every use.
_request: Callable[[], flask.Request] = flask.request._get_current_object  # type: ignore[attr-defined] # noqa: SLF001
#: Returns the request context itself.
_context: Callable[[], object] = request_ctx._get_current_object  # type: ignore[attr-defined] # noqa: SLF001


def _decide(request: flask.Request, guard: Guard, later: Sequence[Guard], method: str = "") -> Any:
    """Decide about a request; return the response if it is denied."""
    limits: RequestLimits | None = request.environ.get(_LIMITS)
    check, is_admitted = None, False
    if limits is None:
        if guard.needs_only_peer and request.method != "OPTIONS":
            limits, check = guard.core.enter(request.environ.get("REMOTE_ADDR"))
            is_admitted = check is None
        else:
            limits = RequestLimits()
        _attach(request, limits)
    if guard.count is not None or later:
        # The context belongs to this request: a nested application and a copy for another thread have others.
        setattr(_context(), _UNFINISHED, limits)
    denied = None if is_admitted else drive(decide(guard, _Info(request, method), limits, later, check), _wait)
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
            if limits.reads_response and limits.read_head(list(response.headers.items())):
                _read(limits, response)
            # Servers close a response when it is sent, and when its client has gone.
            response.call_on_close(partial(_end, limits))
        limits.add_to(response.headers)
        return response

    flask.after_this_request(finish_response)


def _read(limits: RequestLimits, response: flask.Response) -> None:
    """Let the limits read the body: at once where it is there already, and otherwise as it passes."""
    if response.is_sequence:
        for part in response.response:
            limits.read_body(part)
    else:
        response.response = BodyReader(limits, response.response)


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
