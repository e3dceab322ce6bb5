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
from polylimit._core import Passed
from polylimit.guard import Cost, Denial, Guard, Key, Policies, cost_of, key_of, key_or_address
from polylimit.outcomes import Asked, Outcomes, decide, give_back

if TYPE_CHECKING:
    from typing_extensions import Never

    from polylimit._core import PlainGuard

__all__ = ["Denial", "RateLimit", "limit"]

View = TypeVar("View", bound=Callable[..., Any])

#: Where a view keeps the limits of its decorators, the outermost first.
_GUARDS = "_polylimit_guards"
#: Where a request keeps what was decided about it.
_OUTCOMES = "polylimit.outcomes"
#: Where it keeps the same until there is a response to ask about.
_UNANSWERED = "_polylimit_unanswered"

_INTERNAL_SERVER_ERROR = 500


class _Facts:
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
    """Limits every request of an application or a blueprint, and with it those that views ask for by :func:`limit`.

    Parameters
    ----------
    app
        The application or blueprint; or call :meth:`init_app` later.
    limiter
        The :class:`polylimit.Limiter`.
    policy
        A policy's name, quotas such as ``"100/minute"``, or a list of several different ones: all admit a
        request, or it spends nothing under any.
        It may be left out where the limiter has one policy.
    key
        Whom a request counts for: a function of the request, or one of :mod:`polylimit.keys`; the client's address
        unless told otherwise.
    cost
        Units that a request spends: a number, or a function of the request.
    count
        A function of the response, not asynchronous: only those for which it is true count. The cost is reserved
        before and given back after. For an exception that nobody handles, it gets a response with the status 500.
    skip
        A function of the request: those for which it is true are not limited.
    on_denied, on_outage
        A function of the request and the :class:`Denial` that makes the response: for a request over its limit (429),
        and for one that is denied because the store cannot be asked (503).
    headers
        Which fields tell clients their limits: ``"ietf"``, ``"legacy"``, ``"both"`` or ``"none"``.
    scope
        Quotas without a name have a budget of their own in each scope: 1 to 256 bytes of text. Unless told otherwise,
        a view's (:func:`limit`) are those of its endpoint, a blueprint's those of the blueprint, and an application's
        are shared by all requests for the same quotas. A policy with a name is shared by all limits that name it.

    Raises
    ------
    InvalidArgumentError
        When a policy is not known, quotas cannot be read, or another option is not valid.
    TypeError
        When the limiter is no :class:`polylimit.Limiter`, or an option is unknown or of another type.

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
        self._guard_in = partial(
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
            faces=(Limiter,),
            **unknown,
        )
        self._scope = scope
        # Refuses what is wrong now.
        self._guard = self._guard_in(scope=scope)
        _watch(count)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask | flask.Blueprint) -> None:
        """Limit the requests of an application or a blueprint."""
        known_app = app if isinstance(app, flask.Flask) else None
        own = self._guard
        if known_app is None and self._scope is None:
            own = self._guard_in(scope=app.name)
        plain = own.plain

        # A function is told apart from a coroutine's sooner than any other object is.
        def before() -> Any:
            request = _request()
            rule = request.url_rule
            guards = None
            if rule is not None:
                view = (known_app or flask.current_app).view_functions.get(rule.endpoint)
                guards = getattr(view, _GUARDS, None)
            if guards is not None:
                return _decide(request, [own, *guards])
            if plain is None or _OUTCOMES in request.environ:
                return _decide(request, [own])
            return _pass(request, own, plain)

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
    """Limit one view; the options are those of :class:`RateLimit`. It stands below ``@app.route``.

    Several on one view, and that of the application, are decided together; the same policy is charged once for a key.
    """
    own = Guard(
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
        faces=(Limiter,),
        is_of_routes=True,
        **unknown,
    )
    _watch(count)

    def decorate(view: View) -> View:
        guards = [own, *getattr(view, _GUARDS, [])]

        @wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            denied = _decide(_request(), guards)
            if denied is not None:
                return denied
            return flask.current_app.ensure_sync(view)(*args, **kwargs)

        setattr(limited, _GUARDS, guards)
        return limited  # type: ignore[return-value]

    return decorate


#: Gives the request itself: what stands for it looks it up each time that it is used.
_request: Callable[[], flask.Request] = flask.request._get_current_object  # type: ignore[attr-defined] # noqa: SLF001
#: Gives the context of the request itself.
_context: Callable[[], object] = request_ctx._get_current_object  # type: ignore[attr-defined] # noqa: SLF001


def _pass(request: flask.Request, one: Guard, plain: PlainGuard) -> Any:
    """Decide by a guard that asks the same for every request; give the response if it is denied."""
    environ = request.environ
    if one.is_by_peer:
        passed = plain.of_peer(environ.get("REMOTE_ADDR"))
    else:
        facts = _Facts(request)
        passed = plain.of_key(key_or_address(key_of(one, request, facts), facts))
    if passed.is_waiting:
        passed.wait()
    # Not in `flask.g`, which several requests of a test may share.
    environ[_OUTCOMES] = passed
    context = _context()
    setattr(context, _UNANSWERED, passed)

    def finish(response: flask.Response) -> flask.Response:
        if passed.outcomes is not None:
            return _finish(context, Outcomes.of(passed), response)
        passed.add_to(response.headers)
        return response

    flask.after_this_request(finish)
    if passed.allowed:
        return None
    outcomes = Outcomes.of(passed)
    denial = outcomes.denial()
    return None if denial is None else _denied(outcomes, denial)


def _decide(request: flask.Request, guards: list[Guard]) -> Any:
    """Decide what was not decided for this request yet; give the response if it is denied."""
    found: Outcomes | Passed | None = request.environ.get(_OUTCOMES)
    if found is None:
        outcomes = request.environ[_OUTCOMES] = Outcomes()
        # Not in what requests of applications within one another share, or copies of a context for other threads.
        context = _context()
        setattr(context, _UNANSWERED, outcomes)

        def finish(response: flask.Response) -> flask.Response:
            return _finish(context, outcomes, response)

        flask.after_this_request(finish)
    else:
        outcomes = Outcomes.of(found) if isinstance(found, Passed) else found
    known = outcomes.seen
    facts = _Facts(request)
    asked = []
    for one in guards:
        if one in known:
            continue
        known.append(one)
        # What an asynchronous function gives would be true as it is, and skip every request.
        if one.skip is None or not flask.current_app.ensure_sync(one.skip)(request):
            key = key_or_address(key_of(one, request, facts), facts)
            asked.append(Asked(one, key, cost_of(one, request), one.policies_of(facts)))
    if not asked:
        return None
    decide(asked, outcomes)
    denial = outcomes.denial()
    return None if denial is None else _denied(outcomes, denial)


def _denied(outcomes: Outcomes, denial: Denial) -> Any:
    answer = outcomes.answer_of(denial)
    if answer is not None:
        return flask.current_app.make_response(flask.current_app.ensure_sync(answer)(flask.request, denial))
    content_type, body = denial.problem.body(flask.request.headers.get("Accept"))
    return flask.Response(body, denial.problem.status, content_type=content_type)


def _finish(context: object, outcomes: Outcomes, response: flask.Response) -> flask.Response:
    setattr(context, _UNANSWERED, None)
    give_back(outcomes, response)
    for name, value in outcomes.fields():
        response.headers[name] = value
    return response


def _watch(count: Callable[[flask.Response], bool] | None) -> None:
    """See to it that requests without a response are known, where anybody asks."""
    if count is not None:
        flask.request_tearing_down.connect(_tear_down)


def _tear_down(app: flask.Flask, **_details: Any) -> None:
    """Give back what does not count, as a request whose exception nobody handles has no response that could.

    Flask asks about no response when it hands an exception on, as for ``TESTING`` and ``PROPAGATE_EXCEPTIONS``.
    """
    context = _context()
    found: Outcomes | Passed | None = getattr(context, _UNANSWERED, None)
    setattr(context, _UNANSWERED, None)
    outcomes = found.outcomes if isinstance(found, Passed) else found
    if outcomes is not None:
        give_back(outcomes, app.response_class(status=_INTERNAL_SERVER_ERROR))
