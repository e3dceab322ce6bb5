"""Limits for Django: a middleware for a site, and a decorator for single views, both blocking and asynchronous.

The middleware reads its options from the setting ``POLYLIMIT``::

    POLYLIMIT = {"limiter": Limiter("redis://localhost", {"api": "100/minute"}), "policy": "api"}
    MIDDLEWARE = ["polylimit.django.RateLimitMiddleware", ...]
"""

from __future__ import annotations

from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import BadRequest, ImproperlyConfigured, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.urls import resolve
from django.utils.module_loading import import_string

from polylimit import InvalidArgumentError, Limiter
from polylimit.guard import Cost, Denial, Guard, Key, Policies, cost_of, key_of, key_or_address
from polylimit.outcomes import Asked, Outcomes, decide, decide_async, give_back, give_back_async

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from django.urls import ResolverMatch
    from typing_extensions import Never

__all__ = ["Denial", "RateLimitMiddleware", "limit"]

View = TypeVar("View", bound=Callable[..., Any])

#: Where a view keeps the limits of its decorators, the outermost first.
_GUARDS = "_polylimit_guards"
#: Where a request keeps what was decided about it.
_OUTCOMES = "_polylimit_outcomes"
#: What Django answers to an exception of a view; to all others, that it failed.
_STATUSES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((Http404,), 404),
    ((PermissionDenied,), 403),
    ((BadRequest, SuspiciousOperation, MultiPartParserError), 400),
)
_INTERNAL_SERVER_ERROR = 500
#: Set where the middleware adds the fields.
_IS_FINISHED = "_polylimit_is_finished"


class _Facts:
    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    def peer(self) -> str | None:
        return self._request.META.get("REMOTE_ADDR") or None

    def header(self, name: str) -> list[bytes]:
        # WSGI joins the lines of a header by a comma.
        value = self._request.headers.get(name)
        return [] if value is None else [value.encode("latin-1")]

    def user(self) -> str | None:
        user = getattr(self._request, "user", None)
        return str(user.pk) if user is not None and user.is_authenticated else None

    def route(self) -> str | None:
        # Set before views are called, and here before that for the middleware.
        match = self._request.resolver_match or _match(self._request)
        return None if match is None else match.view_name


def limit(
    limiter: Limiter,
    policy: Policies = None,
    *,
    key: Key | None = None,
    cost: Cost = 1,
    count: Callable[[HttpResponseBase], bool] | None = None,
    skip: Callable[[HttpRequest], Any] | None = None,
    on_denied: Callable[[HttpRequest, Denial], Any] | None = None,
    on_outage: Callable[[HttpRequest, Denial], Any] | None = None,
    headers: str = "ietf",
    scope: str | None = None,
    **unknown: Never,
) -> Callable[[View], View]:
    """Limit one view; the options are those of :class:`RateLimitMiddleware`.

    Several on one view, and that of the middleware, are decided together; the same policy is charged once for a key.
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

    def decorate(view: View) -> View:
        guards = [own, *getattr(view, _GUARDS, [])]

        if iscoroutinefunction(view):

            @wraps(view)
            async def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                response = await _decide_async(request, guards)
                if response is None:
                    try:
                        response = await view(request, *args, **kwargs)
                    except BaseException as error:
                        await _finish_async(request, _failure(error))
                        raise
                return await _finish_async(request, response)

        else:

            @wraps(view)
            def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                response = _decide(request, guards)
                if response is None:
                    try:
                        response = view(request, *args, **kwargs)
                    except BaseException as error:
                        _finish(request, _failure(error))
                        raise
                return _finish(request, response)

        setattr(limited, _GUARDS, guards)
        return limited  # type: ignore[return-value]

    return decorate


class RateLimitMiddleware:
    """Limits every request of a site, and with it those that views ask for by :func:`limit`.

    The setting ``POLYLIMIT`` is a dict of its options; each value may also be the dotted path of what is meant.

    ``limiter``
        The :class:`polylimit.Limiter`.
    ``policy``
        A policy's name, quotas such as ``"100/minute"``, or a list of several different ones: all admit a
        request, or it spends nothing under any.
        It may be left out where the limiter has one policy.
    ``key``
        Whom a request counts for: a function of the request, or one of :mod:`polylimit.keys`; the client's address
        unless told otherwise.
    ``cost``
        Units that a request spends: a number, or a function of the request.
    ``count``
        A function of the response, not asynchronous: only those for which it is true count. The cost is reserved
        before and given back after. For a view that raises, it gets a response with the status that Django answers.
    ``skip``
        A function of the request: those for which it is true are not limited.
    ``on_denied``, ``on_outage``
        A function of the request and the :class:`Denial` that makes the response: for a request over its limit (429),
        and for one that is denied because the store cannot be asked (503).
    ``headers``
        Which fields tell clients their limits: ``"ietf"``, ``"legacy"``, ``"both"`` or ``"none"``.
    ``scope``
        Quotas without a name have a budget of their own in each scope: 1 to 256 bytes of text. Unless told otherwise,
        a view's (:func:`limit`) are those of its ``view_name``, and the middleware's are shared by all requests for
        the same quotas. A policy with a name is shared by all limits that name it.

    What is wrong in them raises ``ImproperlyConfigured`` when the site starts, and in :func:`limit`
    :class:`polylimit.InvalidArgumentError` or ``TypeError``.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        self._guard = _guard_of_settings()
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Handle a request."""
        setattr(request, _IS_FINISHED, True)
        if self._is_async:
            return self._handle_async(request)
        response = _decide(request, self._guards(request))
        if response is None:
            try:
                response = self._get_response(request)
            except BaseException as error:
                _give_back(request, _failure(error))
                raise
        return _add_fields(request, _give_back(request, response))

    async def _handle_async(self, request: HttpRequest) -> Any:
        response = await _decide_async(request, self._guards(request))
        if response is None:
            try:
                response = await self._get_response(request)
            except BaseException as error:
                # A client that goes ends the request by cancelling it.
                await _give_back_async(request, _failure(error))
                raise
        return _add_fields(request, await _give_back_async(request, response))

    def _guards(self, request: HttpRequest) -> list[Guard]:
        match = _match(request)
        return [self._guard] if match is None else [self._guard, *getattr(match.func, _GUARDS, [])]


def _guard_of_settings() -> Guard:
    given = getattr(settings, "POLYLIMIT", None)
    if not isinstance(given, dict) or "limiter" not in given:
        raise ImproperlyConfigured("the setting POLYLIMIT needs to be a dict with a limiter")
    options = {name: _meant(name, value) for name, value in given.items()}
    try:
        return Guard(**options, faces=(Limiter,))
    except (InvalidArgumentError, TypeError) as error:
        raise ImproperlyConfigured(f"the setting POLYLIMIT: {error}") from error


def _match(request: HttpRequest) -> ResolverMatch | None:
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None))
    except Http404:
        return None


def _meant(name: str, value: Any) -> Any:
    is_path = isinstance(value, str) and name not in ("policy", "headers", "scope")
    return import_string(value) if is_path else value


def _outcomes_of(request: HttpRequest) -> Outcomes:
    outcomes: Outcomes | None = getattr(request, _OUTCOMES, None)
    if outcomes is None:
        outcomes = Outcomes()
        setattr(request, _OUTCOMES, outcomes)
    return outcomes


def _unseen(outcomes: Outcomes, guards: list[Guard]) -> list[Guard]:
    unseen = [one for one in guards if one not in outcomes.seen]
    outcomes.seen.extend(unseen)
    return unseen


def _decide(request: HttpRequest, guards: list[Guard]) -> HttpResponseBase | None:
    """Decide what was not decided for this request yet; give the response if it is denied."""
    outcomes = _outcomes_of(request)
    facts = _Facts(request)
    asked = []
    for one in _unseen(outcomes, guards):
        if one.skip is not None and _settled_now(one.skip(request)):
            continue
        key = key_or_address(_settled_now(key_of(one, request, facts)), facts)
        asked.append(Asked(one, key, _settled_now(cost_of(one, request)), one.policies_of(facts)))
    if not asked:
        return None
    decide(asked, outcomes)
    denial = outcomes.denial()
    if denial is None:
        return None
    own = outcomes.answer_of(denial)
    return _answer(request, denial) if own is None else _made(_settled_now(own(request, denial)))


async def _decide_async(request: HttpRequest, guards: list[Guard]) -> HttpResponseBase | None:
    outcomes = _outcomes_of(request)
    facts = _Facts(request)
    asked = []
    for one in _unseen(outcomes, guards):
        if one.skip is not None and await _settled(one.skip(request)):
            continue
        key = key_or_address(await _settled(key_of(one, request, facts)), facts)
        asked.append(Asked(one, key, await _settled(cost_of(one, request)), one.policies_of(facts)))
    if not asked:
        return None
    await decide_async(asked, outcomes)
    denial = outcomes.denial()
    if denial is None:
        return None
    own = outcomes.answer_of(denial)
    return _answer(request, denial) if own is None else _made(await _settled(own(request, denial)))


async def _settled(value: Any | Awaitable[Any]) -> Any:
    return await value if isawaitable(value) else value


def _settled_now(value: Any | Awaitable[Any]) -> Any:
    """Wait for what an asynchronous function gives: taken as it is, it would be true, and skip every request."""
    return async_to_sync(_settled)(value) if isawaitable(value) else value


def _made(response: HttpResponseBase | None) -> HttpResponseBase:
    """Refuse to go on without a response: the view would be called as if nobody had denied it."""
    if response is None:
        raise TypeError("on_denied and on_outage make the response to a denial: None is no response")
    return response


def _answer(request: HttpRequest, denial: Denial) -> HttpResponse:
    content_type, body = denial.problem.body(request.headers.get("Accept"))
    return HttpResponse(body, content_type=content_type, status=denial.problem.status)


def _failure(error: BaseException) -> HttpResponse:
    """Give the response by which ``count`` sees a view that raised: with the status that Django answers."""
    for kinds, status in _STATUSES:
        if isinstance(error, kinds):
            return HttpResponse(status=status)
    return HttpResponse(status=_INTERNAL_SERVER_ERROR)


def _finish(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Add the fields, where no middleware does."""
    if getattr(request, _IS_FINISHED, False):
        return response
    return _add_fields(request, _give_back(request, response))


async def _finish_async(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if getattr(request, _IS_FINISHED, False):
        return response
    return _add_fields(request, await _give_back_async(request, response))


def _give_back(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    give_back(_outcomes_of(request), response)
    return response


async def _give_back_async(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    await give_back_async(_outcomes_of(request), response)
    return response


def _add_fields(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    for name, value in _outcomes_of(request).fields():
        response.headers[name] = value
    return response
