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
from polylimit.outcomes import (
    GuardRequest,
    Outcomes,
    decide,
    decide_async,
    refund_uncounted,
    refund_uncounted_async,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from django.urls import ResolverMatch
    from typing_extensions import Never

__all__ = ["Denial", "RateLimitMiddleware", "limit"]

View = TypeVar("View", bound=Callable[..., Any])

#: The attribute of a view that holds the guards of its decorators, the outermost first.
_GUARDS = "_polylimit_guards"
#: The attribute of a request that holds its decisions.
_OUTCOMES = "_polylimit_outcomes"
#: The statuses with which Django responds to exceptions of a view; to all others it responds with 500.
_STATUSES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((Http404,), 404),
    ((PermissionDenied,), 403),
    ((BadRequest, SuspiciousOperation, MultiPartParserError), 400),
)
_INTERNAL_SERVER_ERROR = 500
#: The attribute of a request that is set when the middleware finishes the response.
_HAS_MIDDLEWARE = "_polylimit_has_middleware"


class _Info:
    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    def peer(self) -> str | None:
        return self._request.META.get("REMOTE_ADDR") or None

    def header(self, name: str) -> list[bytes]:
        # WSGI joins the lines of a header with commas.
        value = self._request.headers.get(name)
        return [] if value is None else [value.encode("latin-1")]

    def user(self) -> str | None:
        user = getattr(self._request, "user", None)
        return str(user.pk) if user is not None and user.is_authenticated else None

    def route(self) -> str | None:
        # Django resolves the route after the middleware, so the middleware resolves it here.
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

    The limits of a view and of the middleware decide together. A policy that several of them use is charged once for a
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

    def decorate(view: View) -> View:
        guards = [guard, *getattr(view, _GUARDS, [])]

        if iscoroutinefunction(view):

            @wraps(view)
            async def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                response = await _decide_async(request, guards)
                if response is None:
                    try:
                        response = await view(request, *args, **kwargs)
                    except BaseException as error:
                        await _finish_async(request, _failure_response(error))
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
                        _finish(request, _failure_response(error))
                        raise
                return _finish(request, response)

        setattr(limited, _GUARDS, guards)
        return limited  # type: ignore[return-value]

    return decorate


class RateLimitMiddleware:
    """Limits every request of a site, together with the limits of its views (:func:`limit`).

    The setting ``POLYLIMIT`` is a dict of the options. A value may also be given as its dotted path.

    ``limiter``
        The :class:`polylimit.Limiter`.
    ``policy``
        A policy's name, quotas such as ``"100/minute"``, or a list of different policies: all admit a request, or it
        spends nothing under any. It may be left out where the limiter has one policy.
    ``key``
        By which key a request counts: a function of the request, or one of :mod:`polylimit.keys`; the default is the
        client's address.
    ``cost``
        Units that a request spends: a number, or a function of the request.
    ``count``
        A function of the response, not asynchronous: a request counts only if it returns true. The cost is reserved
        before the request and refunded after it. For a view that raises, the function gets a response with the status
        of Django's own.
    ``skip``
        A function of the request: requests for which it is true are not limited.
    ``on_denied``, ``on_outage``
        A function of the request and the :class:`Denial` that returns the response: for a request over its limit (429),
        and for one that is denied because the store cannot be asked (503).
    ``headers``
        Which header fields tell clients their limits: ``"ietf"``, ``"legacy"``, ``"both"`` or ``"none"``.
    ``scope``
        1 to 256 bytes of text. Quotas without a name have a separate budget in each scope. By default a view uses its
        ``view_name`` as the scope, and the middleware shares one budget among all requests. A policy with a name is
        shared by all limits that use it.

    Invalid options raise ``ImproperlyConfigured`` when the site starts; in :func:`limit` they raise
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
        setattr(request, _HAS_MIDDLEWARE, True)
        if self._is_async:
            return self._handle_async(request)
        response = _decide(request, self._guards(request))
        if response is None:
            try:
                response = self._get_response(request)
            except BaseException as error:
                _refund(request, _failure_response(error))
                raise
        return _add_fields(request, _refund(request, response))

    async def _handle_async(self, request: HttpRequest) -> Any:
        response = await _decide_async(request, self._guards(request))
        if response is None:
            try:
                response = await self._get_response(request)
            except BaseException as error:
                # Django cancels the request when the client disconnects.
                await _refund_async(request, _failure_response(error))
                raise
        return _add_fields(request, await _refund_async(request, response))

    def _guards(self, request: HttpRequest) -> list[Guard]:
        match = _match(request)
        return [self._guard] if match is None else [self._guard, *getattr(match.func, _GUARDS, [])]


def _guard_of_settings() -> Guard:
    given = getattr(settings, "POLYLIMIT", None)
    if not isinstance(given, dict) or "limiter" not in given:
        raise ImproperlyConfigured("the setting POLYLIMIT needs to be a dict with a limiter")
    options = {name: _resolve_option(name, value) for name, value in given.items()}
    try:
        return Guard(**options, limiter_types=(Limiter,))
    except (InvalidArgumentError, TypeError) as error:
        raise ImproperlyConfigured(f"the setting POLYLIMIT: {error}") from error


def _match(request: HttpRequest) -> ResolverMatch | None:
    try:
        return resolve(request.path_info, getattr(request, "urlconf", None))
    except Http404:
        return None


def _resolve_option(name: str, value: Any) -> Any:
    is_path = isinstance(value, str) and name not in ("policy", "headers", "scope")
    return import_string(value) if is_path else value


def _outcomes_of(request: HttpRequest) -> Outcomes:
    outcomes: Outcomes | None = getattr(request, _OUTCOMES, None)
    if outcomes is None:
        outcomes = Outcomes()
        setattr(request, _OUTCOMES, outcomes)
    return outcomes


def _take_unseen(outcomes: Outcomes, guards: list[Guard]) -> list[Guard]:
    unseen = [one for one in guards if one not in outcomes.seen]
    outcomes.seen.extend(unseen)
    return unseen


def _decide(request: HttpRequest, guards: list[Guard]) -> HttpResponseBase | None:
    """Decide by the guards that have not decided yet; return the response if the request is denied."""
    outcomes = _outcomes_of(request)
    info = _Info(request)
    requests = []
    for one in _take_unseen(outcomes, guards):
        if one.skip is not None and _resolve_now(one.skip(request)):
            continue
        key = key_or_address(_resolve_now(key_of(one, request, info)), info)
        requests.append(GuardRequest(one, key, _resolve_now(cost_of(one, request)), one.policy_names(info)))
    if not requests:
        return None
    decide(requests, outcomes)
    denial = outcomes.denial()
    if denial is None:
        return None
    handler = outcomes.denial_handler(denial)
    return (
        _denial_response(request, denial)
        if handler is None
        else _check_response(_resolve_now(handler(request, denial)))
    )


async def _decide_async(request: HttpRequest, guards: list[Guard]) -> HttpResponseBase | None:
    outcomes = _outcomes_of(request)
    info = _Info(request)
    requests = []
    for one in _take_unseen(outcomes, guards):
        if one.skip is not None and await _resolve(one.skip(request)):
            continue
        key = key_or_address(await _resolve(key_of(one, request, info)), info)
        requests.append(GuardRequest(one, key, await _resolve(cost_of(one, request)), one.policy_names(info)))
    if not requests:
        return None
    await decide_async(requests, outcomes)
    denial = outcomes.denial()
    if denial is None:
        return None
    handler = outcomes.denial_handler(denial)
    return (
        _denial_response(request, denial)
        if handler is None
        else _check_response(await _resolve(handler(request, denial)))
    )


async def _resolve(value: Any | Awaitable[Any]) -> Any:
    return await value if isawaitable(value) else value


def _resolve_now(value: Any | Awaitable[Any]) -> Any:
    """Wait for the result of an asynchronous function, whose coroutine would be true for every request."""
    return async_to_sync(_resolve)(value) if isawaitable(value) else value


def _check_response(response: HttpResponseBase | None) -> HttpResponseBase:
    """Raise for a missing response, with which the view would be called in spite of the denial."""
    if response is None:
        raise TypeError("on_denied and on_outage make the response to a denial: None is no response")
    return response


def _denial_response(request: HttpRequest, denial: Denial) -> HttpResponse:
    content_type, body = denial.problem.body(request.headers.get("Accept"))
    return HttpResponse(body, content_type=content_type, status=denial.problem.status)


def _failure_response(error: BaseException) -> HttpResponse:
    """Return the response that ``count`` gets for a view that raised, with the status of Django's own."""
    for kinds, status in _STATUSES:
        if isinstance(error, kinds):
            return HttpResponse(status=status)
    return HttpResponse(status=_INTERNAL_SERVER_ERROR)


def _finish(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Refund what does not count and add the header fields, unless the middleware does."""
    if getattr(request, _HAS_MIDDLEWARE, False):
        return response
    return _add_fields(request, _refund(request, response))


async def _finish_async(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if getattr(request, _HAS_MIDDLEWARE, False):
        return response
    return _add_fields(request, await _refund_async(request, response))


def _refund(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    refund_uncounted(_outcomes_of(request), response)
    return response


async def _refund_async(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    await refund_uncounted_async(_outcomes_of(request), response)
    return response


def _add_fields(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    for name, value in _outcomes_of(request).fields():
        response.headers[name] = value
    return response
