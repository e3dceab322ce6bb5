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
from django.urls import resolve as resolve_path
from django.utils.module_loading import import_string

from polylimit import InvalidArgumentError, Limiter
from polylimit._core import RequestLimits
from polylimit.decide import decide, drive, drive_async, finish, resolve
from polylimit.guard import Denial, Guard, Options, Outage, Policies

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from django.urls import ResolverMatch
    from typing_extensions import Unpack

__all__ = ["Denial", "Outage", "RateLimitMiddleware", "exempt", "limit", "request_limits"]

View = TypeVar("View", bound=Callable[..., Any])

#: The attribute of a view with the guards that are used in place of the site's; ``None`` among them is for none.
_OVERRIDES = "_polylimit_overrides"
#: The attribute of a request that holds its limits.
_LIMITS = "polylimit_limits"
#: The statuses with which Django responds to exceptions of a view; to all others it responds with 500.
_STATUSES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((Http404,), 404),
    ((PermissionDenied,), 403),
    ((BadRequest, SuspiciousOperation, MultiPartParserError), 400),
)
_INTERNAL_SERVER_ERROR = 500


class _Info:
    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    def method(self) -> str:
        return self._request.method or ""

    def peer(self) -> str | None:
        return self._request.META.get("REMOTE_ADDR") or None

    def header(self, name: str) -> list[bytes]:
        # WSGI joins the lines of a header with commas.
        value = self._request.headers.get(name)
        return [] if value is None else [value.encode("latin-1")]

    def cookie(self, name: str) -> str | None:
        return self._request.COOKIES.get(name)

    def path(self, name: str) -> str | None:
        match = _match(self._request)
        value = None if match is None else match.kwargs.get(name)
        return None if value is None else str(value)

    def user(self) -> str | None:
        user = getattr(self._request, "user", None)
        return str(user.pk) if user is not None and user.is_authenticated else None

    def route(self) -> str | None:
        match = _match(self._request)
        return None if match is None else match.view_name


def limit(
    limiter: Limiter, policy: Policies = None, *, override: bool = False, **options: Unpack[Options]
) -> Callable[[View], View]:
    """Limit one view; the options are those of :class:`RateLimitMiddleware`.

    A policy that several limits of a request use is charged once for a key. With ``override`` the middleware's limit
    does not apply to the view's requests that this limit applies to.
    """
    guard = Guard(limiter, policy, limiter_types=(Limiter,), per_route=True, **options)

    def decorate(view: View) -> View:
        if iscoroutinefunction(view):

            @wraps(view)
            async def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                return await _limit_async(guard, request, lambda: view(request, *args, **kwargs))

        else:

            @wraps(view)
            def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                return _limit(guard, request, lambda: view(request, *args, **kwargs))

        if override:
            setattr(limited, _OVERRIDES, [guard, *getattr(view, _OVERRIDES, [])])
        return limited  # type: ignore[return-value]

    return decorate


def exempt(view: View) -> View:
    """Exempt a view from the middleware's limit."""

    @wraps(view)
    def exempted(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return view(request, *args, **kwargs)

    if iscoroutinefunction(view):
        markcoroutinefunction(exempted)
    setattr(exempted, _OVERRIDES, [None])
    return exempted  # type: ignore[return-value]


def request_limits(request: HttpRequest) -> RequestLimits | None:
    """Return what the limits of a request have decided so far; ``None`` for a request without limits."""
    return getattr(request, _LIMITS, None)


class RateLimitMiddleware:
    """Limits every request of a site, besides the limits of its views (:func:`limit`).

    The setting ``POLYLIMIT`` is a dict of the options. A function may also be given as its dotted path.

    ``limiter``
        The :class:`polylimit.Limiter`.
    ``policy``
        A policy's name, quotas such as ``"100/minute"``, or a list of different policies: all admit a request, or it
        spends nothing under any. It may be left out where the limiter has one policy. A function of the request returns
        the same, or ``None`` for a request that is not limited.

    The others are those of :class:`polylimit.guard.Options`. For a view that raises, ``count`` gets a response with the
    status of Django's own. By default a view uses its ``view_name`` as the ``scope``, and the middleware shares one
    budget among all requests.

    Invalid options raise ``ImproperlyConfigured`` when the site starts; in :func:`limit` they raise
    :class:`polylimit.InvalidArgumentError` or ``TypeError``.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        self._guard: Guard | None = _guard_of_settings()
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Handle a request."""
        match = _match(request)
        overrides = () if match is None else getattr(match.func, _OVERRIDES, ())
        method = request.method or ""
        guard = self._guard
        if any(one is None or one.core.applies_to(method) for one in overrides):
            guard = None
        run = _limit_async if self._is_async else _limit
        return run(guard, request, lambda: self._get_response(request))


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
    # Django resolves the route after the middleware, so the middleware resolves it here.
    if request.resolver_match is not None:
        return request.resolver_match
    try:
        return resolve_path(request.path_info, getattr(request, "urlconf", None))
    except Http404:
        return None


def _resolve_option(name: str, value: Any) -> Any:
    is_path = isinstance(value, str) and name in ("limiter", "cost", "count", "skip", "on_denied", "on_outage")
    # The text of a part of a key has a colon, or is one word.
    is_path |= name == "key" and isinstance(value, str) and "." in value and ":" not in value
    return import_string(value) if is_path else value


def _take(request: HttpRequest) -> tuple[RequestLimits, bool]:
    """Return the limits of a request, and whether this is its outermost limit, which finishes its response."""
    limits: RequestLimits | None = getattr(request, _LIMITS, None)
    if limits is not None:
        return limits, False
    limits = RequestLimits()
    setattr(request, _LIMITS, limits)
    return limits, True


def _limit(guard: Guard | None, request: HttpRequest, respond: Callable[[], Any]) -> HttpResponseBase:
    """Decide about a request, and let a function respond to it."""
    limits, is_outermost = _take(request)
    try:
        denial = None if guard is None else drive(decide(guard, request, _Info(request), limits, is_async=False), _wait)
        if guard is None or denial is None:
            response: HttpResponseBase = respond()
        elif guard.on_denied is None:
            response = _denial_response(request, denial)
        else:
            response = _check_response(_wait(guard.on_denied(request, denial)))
    except BaseException as error:
        if is_outermost:
            drive(finish(limits, _failure_response(error), is_async=False), _wait)
        raise
    if is_outermost:
        drive(finish(limits, response, is_async=False), _wait)
        _add_fields(limits, request, response)
    return response


async def _limit_async(guard: Guard | None, request: HttpRequest, respond: Callable[[], Any]) -> HttpResponseBase:
    limits, is_outermost = _take(request)
    try:
        denial = None
        if guard is not None:
            denial = await drive_async(decide(guard, request, _Info(request), limits, is_async=True))
        if guard is None or denial is None:
            response: HttpResponseBase = await respond()
        elif guard.on_denied is None:
            response = _denial_response(request, denial)
        else:
            response = _check_response(await resolve(guard.on_denied(request, denial)))
    except BaseException as error:
        # Django cancels the request when the client disconnects.
        if is_outermost:
            await drive_async(finish(limits, _failure_response(error), is_async=True))
        raise
    if is_outermost:
        await drive_async(finish(limits, response, is_async=True))
        _add_fields(limits, request, response)
    return response


def _wait(value: Any) -> Any:
    """Wait for the result of an asynchronous function, whose coroutine would be true for every request."""
    return async_to_sync(resolve)(value) if isawaitable(value) else value


def _check_response(response: HttpResponseBase | None) -> HttpResponseBase:
    """Raise for a missing response, with which the view would be called in spite of the denial."""
    if response is None:
        raise TypeError("on_denied makes the response to a denial: None is no response")
    return response


def _denial_response(request: HttpRequest, denial: Denial) -> HttpResponse:
    status, fields, body = denial.problem.response(request.headers.get("Accept"))
    return HttpResponse(body, status=status, headers=dict(fields))


def _failure_response(error: BaseException) -> HttpResponse:
    """Return the response that ``count`` gets for a view that raised, with the status of Django's own."""
    for kinds, status in _STATUSES:
        if isinstance(error, kinds):
            return HttpResponse(status=status)
    return HttpResponse(status=_INTERNAL_SERVER_ERROR)


def _add_fields(limits: RequestLimits, request: HttpRequest, response: HttpResponseBase) -> None:
    for name, value in limits.fields():
        response.headers[name] = value
    # Another attempt at the same request is limited anew.
    delattr(request, _LIMITS)
