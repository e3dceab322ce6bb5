"""Limits for Django: a middleware for a site, and a decorator for single views, both blocking and asynchronous.

The middleware reads its options from the setting ``POLYLIMIT``::

    POLYLIMIT = {"limiter": Limiter("redis://localhost", {"api": "100/minute"}), "policy": "api"}
    MIDDLEWARE = ["polylimit.django.RateLimitMiddleware", ...]
"""

from __future__ import annotations

import logging
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Callable, TypeVar
from urllib.parse import quote

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import BadRequest, ImproperlyConfigured, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.urls import resolve as resolve_path
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string

from polylimit import InvalidArgumentError, Limiter
from polylimit._core import RequestLimits
from polylimit.decide import decide, drive, drive_async, end, fail, finish, resolve
from polylimit.guard import Denial, Guard, Options, Outage, Policies
from polylimit.views import ViewLimit, limits_of, set_limits, wsgi_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from django.urls import ResolverMatch
    from typing_extensions import Unpack

    from polylimit.decide import Steps

__all__ = ["Denial", "Outage", "RateLimitMiddleware", "exempt", "limit", "request_limits"]

_LOGGER = logging.getLogger("django.request")

View = TypeVar("View", bound=Callable[..., Any])

#: The attribute of a request that holds its limits.
_LIMITS = "polylimit_limits"
#: The statuses with which Django responds to exceptions of a view.
_STATUSES: tuple[tuple[Any, int], ...] = (
    (Http404, 404),
    (PermissionDenied, 403),
    ((BadRequest, SuspiciousOperation, MultiPartParserError), 400),
    (BaseException, 500),
)


class _Info:
    def __init__(self, request: HttpRequest, *, is_async: bool) -> None:
        self.request = request
        self.is_async = is_async

    def method(self) -> str:
        return self.request.method or ""

    def peer(self) -> str | None:
        return self.request.META.get("REMOTE_ADDR") or None

    def header(self, name: str) -> list[bytes]:
        # WSGI joins the lines of a header with commas.
        value = self.request.headers.get(name)
        return [] if value is None else [value.encode("latin-1")]

    def cookie(self, name: str) -> str | None:
        return self.request.COOKIES.get(name)

    def path(self, name: str) -> str | None:
        match = _match(self.request)
        value = None if match is None else match.kwargs.get(name)
        return None if value is None else str(value)

    def user(self) -> Any:
        user = getattr(self.request, "user", None)
        if not self.is_async or type(user) is not SimpleLazyObject:
            return _identity(user)
        # The session and the user are in a database, which an event loop must not wait for.
        return self._user_async()

    async def _user_async(self) -> str | None:
        find = getattr(self.request, "auser", None)
        if find is not None:
            return _identity(await find())
        found: str | None = await sync_to_async(_identity)(self.request.user)
        return found

    def target(self) -> str | bytes:
        scope = getattr(self.request, "scope", None)
        if scope is None:
            return wsgi_target(self.request.META)
        path: bytes | None = scope.get("raw_path")
        return quote(self.request.path) if path is None else path

    def lines(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.request.headers.items()]

    def route(self) -> str | None:
        match = _match(self.request)
        return None if match is None else match.view_name

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> HttpResponse:
        return HttpResponse(body, status=status, headers=dict(fields))


def _identity(user: Any) -> str | None:
    return str(user.pk) if user is not None and user.is_authenticated else None


def limit(
    limiter: Limiter, policy: Policies = None, *, override: bool = False, **options: Unpack[Options]
) -> Callable[[View], View]:
    """Limit one view; the options are those of :class:`RateLimitMiddleware`.

    A policy that several limits of a request use is charged once for a key. With ``override`` the middleware's limit
    does not apply to the view's requests that this limit applies to.
    """
    guard = Guard(limiter, policy, limiter_types=(Limiter,), per_route=True, **options)

    def decorate(view: View) -> View:
        later = limits_of(view).guards
        return _wrapped(view, ViewLimit(guard, override), partial(_handle, guard, later))

    return decorate


def exempt(view: View) -> View:
    """Exempt a view from the middleware's limit."""
    return _wrapped(view, ViewLimit(None), lambda _info, respond: respond())


def _wrapped(view: View, limit: ViewLimit, handle: Callable[[_Info, Callable[[], Any]], Any]) -> View:
    """Let a function handle the requests of a view."""
    is_async = iscoroutinefunction(view)

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return handle(_Info(request, is_async=is_async), lambda: view(request, *args, **kwargs))

    if is_async:
        markcoroutinefunction(wrapper)
    set_limits(wrapper, view, limit)
    return wrapper  # type: ignore[return-value]


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
        given = getattr(settings, "POLYLIMIT", None)
        if not isinstance(given, dict) or "limiter" not in given:
            raise ImproperlyConfigured("the setting POLYLIMIT needs to be a dict with a limiter")
        options = {name: _resolve_option(name, value) for name, value in given.items()}
        try:
            self._guard = Guard(**options, limiter_types=(Limiter,))
        except (InvalidArgumentError, TypeError) as error:
            raise ImproperlyConfigured(f"the setting POLYLIMIT: {error}") from error
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Handle a request."""
        match = _match(request)
        limits = limits_of(None if match is None else match.func)
        guard = None if limits.override(request.method or "") else self._guard
        info = _Info(request, is_async=self._is_async)
        return _handle(guard, limits.guards, info, lambda: self._get_response(request))


#: The options of the setting that may be given as dotted paths.
_FUNCTIONS = ("limiter", "attributes", "cost", "count", "spent", "skip", "on_denied", "on_outage")


def _resolve_option(name: str, value: Any) -> Any:
    is_path = isinstance(value, str) and name in _FUNCTIONS
    # The text of a part of a key has a colon, or is one word.
    is_path |= name == "key" and isinstance(value, str) and "." in value and ":" not in value
    return import_string(value) if is_path else value


def _match(request: HttpRequest) -> ResolverMatch | None:
    # Django resolves the route after the middleware, so the middleware resolves it here.
    if request.resolver_match is not None:
        return request.resolver_match
    try:
        return resolve_path(request.path_info, getattr(request, "urlconf", None))
    except Http404:
        return None


def _handle(guard: Guard | None, later: Sequence[Guard], info: _Info, respond: Callable[[], Any]) -> Any:
    """Decide about a request, and let a function respond to it; return the response, or an awaitable of it."""
    limits = request_limits(info.request)
    is_outermost = limits is None
    limits = limits or RequestLimits()
    steps = _response(guard, later, info, respond, limits)
    steps = _finished(steps, info.request, limits) if is_outermost else steps
    return drive_async(steps) if info.is_async else drive(steps, _wait)


def _wait(value: Any) -> Any:
    return async_to_sync(resolve)(value)


def _finished(steps: Steps[HttpResponseBase], request: HttpRequest, limits: RequestLimits) -> Steps[HttpResponseBase]:
    """Return the response with its fields: the outermost limit finishes it."""
    setattr(request, _LIMITS, limits)
    try:
        response = yield from steps
    except BaseException as error:
        # Django cancels the request when the client disconnects.
        status = next(status for kinds, status in _STATUSES if isinstance(error, kinds))
        yield from fail(limits, HttpResponse(status=status))
        raise
    try:
        yield from finish(limits, response)
    except BaseException:
        yield from end(limits)
        raise
    if limits.holds:
        # Django closes a response when it is sent, and when its client has gone.
        response._resource_closers.append(partial(_end, limits))  # type: ignore[attr-defined] # noqa: SLF001
    for name, value in limits.fields():
        response.headers[name] = value
    # Another attempt at the same request is limited anew.
    delattr(request, _LIMITS)
    return response


def _end(limits: RequestLimits) -> None:
    """End the reservations of a request. Django drops what a closer raises."""
    try:
        drive(end(limits), _wait)
    except Exception:
        _LOGGER.exception("polylimit: the end of a response failed")


def _response(
    guard: Guard | None, later: Sequence[Guard], info: _Info, respond: Callable[[], Any], limits: RequestLimits
) -> Steps[HttpResponseBase]:
    denied = None if guard is None else (yield from decide(guard, info, limits, later))
    response: HttpResponseBase = (yield respond()) if denied is None else denied[1]
    return response
