"""Limits for Flask: an extension for an application or a blueprint, and a decorator for single views.

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
from polylimit._core import GuardResult
from polylimit.guard import Cost, Denial, Guard, Key, Policies, cost_of, key_of, key_or_address
from polylimit.outcomes import GuardRequest, Outcomes, decide, refund_uncounted

if TYPE_CHECKING:
    from typing_extensions import Never

    from polylimit._core import SinglePolicyGuard

__all__ = ["Denial", "RateLimit", "limit"]

View = TypeVar("View", bound=Callable[..., Any])

#: The attribute of a view that holds the guards of its decorators, the outermost first.
_GUARDS = "_polylimit_guards"
#: The key in the WSGI environment under which a request keeps its decisions.
_OUTCOMES = "polylimit.outcomes"
#: The attribute of the request context that holds the same until ``count`` has been called.
_UNCOUNTED = "_polylimit_uncounted"

_INTERNAL_SERVER_ERROR = 500


class _Info:
    def __init__(self, request: flask.Request) -> None:
        self._request = request

    def peer(self) -> str | None:
        return self._request.environ.get("REMOTE_ADDR") or None

    def header(self, name: str) -> list[bytes]:
        return [line.encode("latin-1") for line in self._request.headers.getlist(name)]

    def user(self) -> str | None:
        from flask_login import current_user

        return str(current_user.get_id()) if current_user.is_authenticated else None

    def route(self) -> str | None:
        return self._request.endpoint


class RateLimit:
    """Limits every request of an application or a blueprint, together with the limits of its views (:func:`limit`).

    Parameters
    ----------
    app
        The application or blueprint; or call :meth:`init_app` later.
    limiter
        The :class:`polylimit.Limiter`.
    policy
        A policy's name, quotas such as ``"100/minute"``, or a list of different policies: all admit a request, or it
        spends nothing under any. It may be left out where the limiter has one policy.
    key
        By which key a request counts: a function of the request, or one of :mod:`polylimit.keys`; the default is the
        client's address.
    cost
        Units that a request spends: a number, or a function of the request.
    count
        A function of the response, not asynchronous: a request counts only if it returns true. The cost is reserved
        before the request and refunded after it. For an exception without a handler, the function gets a response with
        the status 500.
    skip
        A function of the request: requests for which it is true are not limited.
    on_denied, on_outage
        A function of the request and the :class:`Denial` that returns the response: for a request over its limit (429),
        and for one that is denied because the store cannot be asked (503).
    headers
        Which header fields tell clients their limits: ``"ietf"``, ``"legacy"``, ``"both"`` or ``"none"``.
    scope
        1 to 256 bytes of text. Quotas without a name have a separate budget in each scope. By default a view uses its
        endpoint as the scope, a blueprint its name, and an application shares one budget among all requests. A policy
        with a name is shared by all limits that use it.

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
        key: Key | None = None,
        cost: Cost = 1,
        count: Callable[[flask.Response], bool] | None = None,
        skip: Callable[[flask.Request], bool] | None = None,
        on_denied: Callable[[flask.Request, Denial], Any] | None = None,
        on_outage: Callable[[flask.Request, Denial], Any] | None = None,
        headers: str = "ietf",
        scope: str | None = None,
        **unknown: Never,
    ) -> None:
        self._make_guard = partial(
            Guard,
            limiter,
            policy,
            key=key,
            cost=cost,
            count=count,
            skip=skip,
            on_denied=on_denied,
            on_outage=on_outage,
            headers=headers,
            limiter_types=(Limiter,),
            **unknown,
        )
        self._scope = scope
        # Raises for invalid options now and not at the first request.
        self._guard = self._make_guard(scope=scope)
        _connect_teardown(count)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask | flask.Blueprint) -> None:
        """Limit the requests of an application or a blueprint."""
        known_app = app if isinstance(app, flask.Flask) else None
        guard = self._guard
        if known_app is None and self._scope is None:
            guard = self._make_guard(scope=app.name)
        fast = guard.fast

        # Flask recognizes a plain function as synchronous faster than any other callable.
        def before() -> Any:
            request = _request()
            rule = request.url_rule
            guards = None
            if rule is not None:
                view = (known_app or flask.current_app).view_functions.get(rule.endpoint)
                guards = getattr(view, _GUARDS, None)
            if guards is not None:
                return _decide(request, [guard, *guards])
            if fast is None or _OUTCOMES in request.environ:
                return _decide(request, [guard])
            return _decide_fast(request, guard, fast)

        app.before_request(before)


def limit(
    limiter: Limiter,
    policy: Policies = None,
    *,
    key: Key | None = None,
    cost: Cost = 1,
    count: Callable[[flask.Response], bool] | None = None,
    skip: Callable[[flask.Request], bool] | None = None,
    on_denied: Callable[[flask.Request, Denial], Any] | None = None,
    on_outage: Callable[[flask.Request, Denial], Any] | None = None,
    headers: str = "ietf",
    scope: str | None = None,
    **unknown: Never,
) -> Callable[[View], View]:
    """Limit one view; the options are those of :class:`RateLimit`. Place it below ``@app.route``.

    The limits of a view and of the application decide together. A policy that several of them use is charged once for a
    key.
    """
    guard = Guard(
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
        limiter_types=(Limiter,),
        per_route=True,
        **unknown,
    )
    _connect_teardown(count)

    def decorate(view: View) -> View:
        guards = [guard, *getattr(view, _GUARDS, [])]

        @wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            denied = _decide(_request(), guards)
            if denied is not None:
                return denied
            return flask.current_app.ensure_sync(view)(*args, **kwargs)

        setattr(limited, _GUARDS, guards)
        return limited  # type: ignore[return-value]

    return decorate


#: Returns the request itself: the proxy looks it up at every use.
_request: Callable[[], flask.Request] = flask.request._get_current_object  # type: ignore[attr-defined] # noqa: SLF001
#: Returns the request context itself.
_context: Callable[[], object] = request_ctx._get_current_object  # type: ignore[attr-defined] # noqa: SLF001


def _decide_fast(request: flask.Request, guard: Guard, fast: SinglePolicyGuard) -> Any:
    """Decide on the fast path; return the response if the request is denied."""
    environ = request.environ
    if guard.is_keyed_by_peer:
        result = fast.check_peer(environ.get("REMOTE_ADDR"))
    else:
        info = _Info(request)
        result = fast.check_key(key_or_address(key_of(guard, request, info), info))
    if result.is_pending:
        result.check()
    # `flask.g` may be shared by several requests of a test.
    environ[_OUTCOMES] = result
    context = _context()
    setattr(context, _UNCOUNTED, result)

    def finish(response: flask.Response) -> flask.Response:
        if result.outcomes is not None:
            return _finish_response(context, Outcomes.from_result(result), response)
        result.add_to(response.headers)
        return response

    flask.after_this_request(finish)
    if result.allowed:
        return None
    outcomes = Outcomes.from_result(result)
    denial = outcomes.denial()
    return None if denial is None else _denial_response(outcomes, denial)


def _decide(request: flask.Request, guards: list[Guard]) -> Any:
    """Decide by the guards that have not decided yet; return the response if the request is denied."""
    found: Outcomes | GuardResult | None = request.environ.get(_OUTCOMES)
    if found is None:
        outcomes = request.environ[_OUTCOMES] = Outcomes()
        # The context belongs to this request: a nested application and a copy for another thread have others.
        context = _context()
        setattr(context, _UNCOUNTED, outcomes)

        def finish(response: flask.Response) -> flask.Response:
            return _finish_response(context, outcomes, response)

        flask.after_this_request(finish)
    else:
        outcomes = Outcomes.from_result(found) if isinstance(found, GuardResult) else found
    seen = outcomes.seen
    info = _Info(request)
    requests = []
    for one in guards:
        if one in seen:
            continue
        seen.append(one)
        # The coroutine of an asynchronous function would be true for every request.
        if one.skip is None or not flask.current_app.ensure_sync(one.skip)(request):
            key = key_or_address(key_of(one, request, info), info)
            requests.append(GuardRequest(one, key, cost_of(one, request), one.policy_names(info)))
    if not requests:
        return None
    decide(requests, outcomes)
    denial = outcomes.denial()
    return None if denial is None else _denial_response(outcomes, denial)


def _denial_response(outcomes: Outcomes, denial: Denial) -> Any:
    handler = outcomes.denial_handler(denial)
    if handler is not None:
        return flask.current_app.make_response(flask.current_app.ensure_sync(handler)(flask.request, denial))
    content_type, body = denial.problem.body(flask.request.headers.get("Accept"))
    return flask.Response(body, denial.problem.status, content_type=content_type)


def _finish_response(context: object, outcomes: Outcomes, response: flask.Response) -> flask.Response:
    setattr(context, _UNCOUNTED, None)
    refund_uncounted(outcomes, response)
    for name, value in outcomes.fields():
        response.headers[name] = value
    return response


def _connect_teardown(count: Callable[[flask.Response], bool] | None) -> None:
    """Call :func:`_tear_down` at the end of requests, which ``count`` needs for those without a response."""
    if count is not None:
        flask.request_tearing_down.connect(_tear_down)


def _tear_down(app: flask.Flask, **_details: Any) -> None:
    """Refund what does not count for a request that ended in an exception without a handler.

    Flask creates no response for an exception that it propagates, as with ``TESTING`` and ``PROPAGATE_EXCEPTIONS``.
    """
    context = _context()
    found: Outcomes | GuardResult | None = getattr(context, _UNCOUNTED, None)
    setattr(context, _UNCOUNTED, None)
    outcomes = found.outcomes if isinstance(found, GuardResult) else found
    if outcomes is not None:
        refund_uncounted(outcomes, app.response_class(status=_INTERNAL_SERVER_ERROR))
