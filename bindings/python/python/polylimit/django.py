"""Limits for Django: a middleware for a site, and a decorator for single views, both blocking and asynchronous.

The middleware reads its options from the setting ``POLYLIMIT``::

    POLYLIMIT = {"limiter": Limiter("redis://localhost", {"api": "100/minute"}), "policy": "api"}
    MIDDLEWARE = ["polylimit.django.RateLimitMiddleware", ...]
"""
# ruff: noqa: E402 - an older Django is refused before anything is imported that it does not have

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

from polylimit import InvalidArgumentError, Limiter
from polylimit._core import RequestLimits
from polylimit._decide import BodyReader, decide, drive, drive_async, end, fail, finish, resolve
from polylimit._guard import Denial, Guard, Options, Outage
from polylimit._versions import require
from polylimit._views import NO_LIMITS, ClassView, ViewLimit, ViewLimits, limits_of, wsgi_target

# Before an import that an older version does not have.
require("Django", "4.2", "django")

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import BadRequest, ImproperlyConfigured, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.urls import URLResolver, get_resolver
from django.urls import resolve as resolve_path
from django.urls.converters import PathConverter, get_converters
from django.utils.cache import patch_vary_headers
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string
from django.views import View as ClassBasedView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from django.http.response import HttpResponseBase
    from django.urls import ResolverMatch, URLPattern
    from typing_extensions import Unpack

    from polylimit._charges import Policies
    from polylimit._decide import Steps

__all__ = ["Denial", "Options", "Outage", "RateLimitMiddleware", "exempt", "limit", "request_limits"]

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
#: The property of a router whose paths may have a format at the end.
_ACCEPTS_FORMAT = 4
#: A parameter of a route, as Django reads it. A group of a regular expression, which begins with `?P`, is none.
_PARAMETER = re.compile(r"(?<!\?P)<(?:([^>:]+):)?([^>]+)>")


class RequestInfo:
    """Reads a request of Django, or of the REST framework."""

    def __init__(self, request: Any, *, is_async: bool, method: str = "") -> None:
        #: The request as the limited function gets it: Django's own, or that of the REST framework around it.
        self.request = request
        self.is_async = is_async
        #: The method of a class whose limit this is.
        self._method = method

    def method(self) -> str:
        return str(self.request.method or "")

    def peer(self) -> str | None:
        peer: str = self.request.META.get("REMOTE_ADDR") or ""
        return peer or None

    def header(self, name: str) -> list[bytes]:
        # WSGI joins the lines of a header with commas.
        value = self.request.headers.get(name)
        return [] if value is None else [value.encode("latin-1")]

    def cookie(self, name: str) -> str | None:
        value: str | None = self.request.COOKIES.get(name)
        return value

    def path(self, name: str) -> str | None:
        match = _match(self.request)
        value = None if match is None else match.kwargs.get(name)
        return None if value is None else str(value)

    def user(self) -> Any:
        request = self.request
        match = _match(request) if isinstance(request, HttpRequest) else None
        if match is not None and _is_of_rest_framework(match.func):
            from polylimit._drf_users import user_of

            find = partial(user_of, request, match)
            return sync_to_async(lambda: _identity(find()))() if self.is_async else _identity(find())
        user = getattr(request, "user", None)
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
        is_asgi = getattr(self.request, "scope", None) is not None
        return quote(self.request.path) if is_asgi else wsgi_target(self.request.META)

    def router_paths(self) -> int:
        match = _match(self.request)
        # The patterns of the REST framework accept a format at the end, such as `.json`, as a parameter of this name.
        return _ACCEPTS_FORMAT if match is not None and "format" in match.kwargs else 0

    def lines(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.request.headers.items()]

    def route(self) -> str | None:
        match = _match(self.request)
        if match is None:
            return None
        name = _name_of_view(self.request, match)
        return f"{name}.{self._method}" if self._method else name

    def pattern(self) -> str | None:
        match = _match(self.request)
        if match is None:
            return None
        request = self.request
        # The prefix of the site, where a server has one. Django drops the `^` of regular expressions in an include.
        prefix = request.path[: -len(request.path_info)].rstrip("/") if request.path_info else request.path
        return f"{prefix}/{_PARAMETER.sub(_parameter, match.route.removeprefix('^'))}"

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> HttpResponse:
        response: HttpResponse = _with_fields(HttpResponse(body, status=status), fields)
        return response

    def with_cors(self, response: Any, fields: list[tuple[str, str]]) -> Any:
        return response if response.has_header("access-control-allow-origin") else _with_fields(response, fields)


def _with_fields(response: Any, fields: list[tuple[str, str]]) -> Any:
    for name, value in fields:
        if name == "vary":
            # It may be there several times.
            patch_vary_headers(response, [value])
        else:
            response.headers[name] = value
    return response


def _identity(user: Any) -> str | None:
    return str(user.pk) if user is not None and user.is_authenticated else None


def _parameter(match: re.Match[str]) -> str:
    is_catch_all = isinstance(get_converters().get(match[1] or "str"), PathConverter)
    return f"{{*{match[2]}}}" if is_catch_all else f"{{{match[2]}}}"


#: The names of the views of each root of URLs, by their namespaces and the identity of the view.
_NAMES: WeakKeyDictionary[URLResolver, dict[tuple[tuple[str, ...], int], str]] = WeakKeyDictionary()


def _name_of_view(request: Any, match: ResolverMatch) -> str:
    """Return the name of a view: one for all its patterns in a namespace, and for no other view."""
    urlconf = getattr(request, "urlconf", None)
    resolver = get_resolver(urlconf)
    names = _NAMES.get(resolver)
    if names is None:
        names = _NAMES[resolver] = _names_of_views(resolver)
    name = names.get((tuple(match.namespaces), id(match.func)), match.view_name)
    # A middleware may choose the URLs, such as by the host.
    return f"{urlconf} {name}" if isinstance(urlconf, str) else name


def _names_of_views(resolver: URLResolver) -> dict[tuple[tuple[str, ...], int], str]:
    names: dict[tuple[tuple[str, ...], int], str] = {}
    taken: set[str] = set()
    for namespaces, pattern in _patterns(resolver, ()):
        key = (namespaces, id(pattern.callback))
        if key in names:
            continue
        first = name = ":".join([*namespaces, pattern.name or pattern.lookup_str])
        number = 1
        while name in taken:
            number += 1
            name = f"{first}~{number}"
        taken.add(name)
        names[key] = name
    return names


def _patterns(resolver: URLResolver, namespaces: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], URLPattern]]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            yield from _patterns(pattern, (*namespaces, pattern.namespace) if pattern.namespace else namespaces)
        else:
            yield namespaces, pattern


def _class_of(view: Any) -> Any:
    """Return the class of a view; ``None`` for a function."""
    # The REST framework has its own attribute, as its views are not always made by Django's `as_view`.
    owner = getattr(view, "cls", None) or getattr(view, "view_class", None)
    return owner if isinstance(owner, type) and issubclass(owner, ClassBasedView) else None


def _is_of_rest_framework(view: Any) -> bool:
    return hasattr(_class_of(view), "initialize_request")


def _limits_of(view: Any, method: str) -> ViewLimits:
    """Return the limits of a view for a method."""
    try:
        return _limits_of_method(view, method if method.lower() in ClassBasedView.http_method_names else "")
    except TypeError:
        # A view may be any object that can be called, also one without a hash.
        return limits_of(view)


@lru_cache(maxsize=4096)
def _limits_of_method(view: Any, method: str) -> ViewLimits:
    owner = _class_of(view)
    if owner is None:
        return limits_of(view)
    # A set of views names for each method which function handles it.
    actions = getattr(view, "actions", None) or {name: name for name in owner.http_method_names}
    handler = getattr(owner, actions.get(method.lower(), ""), None)
    if handler is None and method == "HEAD":
        handler = getattr(owner, actions.get("get", ""), None)
    return limits_of(view, ClassView(owner.dispatch, _function_of(handler)))


def _function_of(handler: Any) -> Any:
    """Return the function that a handler calls where the REST framework has made the class around it."""
    if getattr(handler, "__module__", None) != "rest_framework.decorators":
        return handler
    cells = dict(zip(handler.__code__.co_freevars, handler.__closure__ or (), strict=False))
    return cells["func"].cell_contents if "func" in cells else handler


def limit(
    limiter: Limiter, policy: Policies = None, *, override: bool = False, **options: Unpack[Options]
) -> Callable[[View], View]:
    """Limit one view; the options are those of :class:`RateLimitMiddleware`.

    The view is a function, a class-based view, or a method of one, such as ``get`` or an action of the REST framework;
    it may be asynchronous. Functions of the request get it as the view does. A policy that several limits of a request
    use is charged once for a key. With ``override`` the middleware's limit does not apply to the view's requests that
    this limit applies to.
    """
    guard = Guard(limiter, policy, limiter_types=(Limiter,), per_route=True, is_attached=True, **options)
    view_limit = ViewLimit(guard, override)

    def decorate(view: View) -> View:
        wrapped: View = _wrapped(view, view_limit, partial(_handle, guard, limits_of(view).guards))
        return wrapped

    return decorate


_EXEMPTION = ViewLimit(None)


def exempt(view: View) -> View:
    """Exempt a view from the middleware's limit: a function, a class-based view or a method of one."""
    wrapped: View = _wrapped(view, _EXEMPTION, lambda _info, respond: respond())
    return wrapped


def _wrapped(view: Any, limit: ViewLimit, handle: Callable[[RequestInfo, Callable[[], Any]], Any]) -> Any:
    """Let a function handle the requests of a view."""
    if isinstance(view, type) and issubclass(view, ClassBasedView):
        view.dispatch = _wrapped(view.dispatch, limit, handle)  # type: ignore[method-assign]
        return view
    if isinstance(view, type) or not callable(view):
        shown = view.__name__ if isinstance(view, type) else f"an object of type {type(view).__name__}"
        raise TypeError(f"the decorated view is {shown}: allowed is a function, a class-based view or a method of one")
    is_async = iscoroutinefunction(view)
    # `method_decorator` makes a function around a bound method, for each request.
    bound_to = getattr(getattr(view, "func", view), "__self__", None)

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        owner: Any = bound_to
        request = args[0] if args else None
        if not _is_request(request):
            owner, request = args[:2] if len(args) > 1 else (None, None)
        if not _is_request(request):
            raise TypeError(
                f"{getattr(view, '__qualname__', view)} is limited and was called without a request: limits decorate "
                "functions whose first argument is the request, class-based views and methods of them"
            )
        is_of_class = isinstance(owner, ClassBasedView)
        is_dispatch = is_of_class and getattr(view, "__name__", "") == "dispatch"
        # The method of an asynchronous view is a plain function that returns what an asynchronous one has returned.
        awaits = is_async or (is_dispatch and owner.view_is_async)
        method = view.__name__ if is_of_class and not is_dispatch else ""
        return handle(RequestInfo(request, is_async=awaits, method=method), lambda: view(*args, **kwargs))

    if is_async:
        markcoroutinefunction(wrapper)
    limit.mark(wrapper)
    return wrapper


def django_request(request: Any) -> Any:
    """Return Django's own request of a request, around which the REST framework has another one."""
    return request if isinstance(request, HttpRequest) else getattr(request, "_request", None)


def _is_request(value: Any) -> bool:
    return isinstance(django_request(value), HttpRequest)


def request_limits(request: Any) -> RequestLimits | None:
    """Return what the limits of a request have decided so far; ``None`` for a request without limits."""
    return getattr(django_request(request), _LIMITS, None)


class RateLimitMiddleware:
    """Limits every request of a site, besides the limits of its views (:func:`limit`).

    The setting ``POLYLIMIT`` is a dict of the options. A function may also be given as its dotted path.

    ``limiter``
        The :class:`polylimit.Limiter`.
    ``policy``
        A policy's name, quotas such as ``"100/minute"``, or a list of different policies: all admit a request, or it
        spends nothing under any. It may be left out where the limiter has one policy. A function of the request returns
        the same, or ``None`` for a request that is not limited.

    The others are those of :class:`Options`. For a view that raises, ``count`` gets a response with the
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
        limits = NO_LIMITS if match is None else _limits_of(match.func, request.method or "")
        guard = None if limits.override(request.method or "") else self._guard
        info = RequestInfo(request, is_async=self._is_async)
        return _handle(guard, limits.guards, info, lambda: self._get_response(request))


#: The options of the setting that may be given as dotted paths.
_FUNCTIONS = ("limiter", "attributes", "cost", "count", "spent", "skip", "on_denied", "on_outage")

#: Those of them that policies of the list may have for themselves.
_OF_POLICIES = ("cost", "spent")


def _resolve_option(name: str, value: Any) -> Any:
    is_path = isinstance(value, str) and name in _FUNCTIONS
    # The text of a part of a key has a colon, or is one word; that of what a response reports has a colon.
    is_path |= name == "key" and isinstance(value, str) and "." in value
    is_path &= name not in ("key", "spent") or ":" not in str(value)
    if name in _OF_POLICIES and isinstance(value, Mapping):
        return {policy: _resolve_option(name, one) for policy, one in value.items()}
    return import_string(value) if is_path else value


def _match(request: Any) -> ResolverMatch | None:
    # Django resolves the route after the middleware, so the middleware resolves it here.
    known: ResolverMatch | None = request.resolver_match
    if known is not None:
        return known
    try:
        return resolve_path(request.path_info, getattr(request, "urlconf", None))
    except Http404:
        return None


def _handle(guard: Guard | None, later: Sequence[Guard], info: RequestInfo, respond: Callable[[], Any]) -> Any:
    """Decide about a request, and let a function respond to it; return the response, or an awaitable of it."""
    request = django_request(info.request)
    limits = request_limits(request)
    is_outermost = limits is None
    limits = limits or RequestLimits()
    steps = _response(guard, later, info, respond, limits)
    if is_outermost:
        view = None if info.is_async or info.request is request else _rest_view(info.request)
        if view is None:
            steps = finished(steps, request, limits)
        else:
            finish_in(view, request, limits)
    return drive_async(steps) if info.is_async else drive(steps, wait)


def _rest_view(request: Any) -> Any:
    """Return the view of the REST framework that handles its request."""
    view = (request.parser_context or {}).get("view")
    return view if hasattr(view, "finalize_response") else None


def finish_in(view: Any, request: HttpRequest, limits: RequestLimits) -> None:
    """Let a view of the REST framework finish its request's limits: it makes responses of exceptions."""
    setattr(request, _LIMITS, limits)
    finalize, handle = view.finalize_response, view.handle_exception

    def response_of(*args: Any, **kwargs: Any) -> Steps[Any]:
        return finalize(*args, **kwargs)
        yield

    def finalize_response(*args: Any, **kwargs: Any) -> Any:
        return drive(finished(response_of(*args, **kwargs), request, limits), wait)

    def handle_exception(error: Exception) -> Any:
        try:
            return handle(error)
        except BaseException:
            drive(fail(limits, HttpResponse(status=500)), wait)
            raise

    view.finalize_response, view.handle_exception = finalize_response, handle_exception


def wait(value: Any) -> Any:
    return async_to_sync(resolve)(value)


def finished(steps: Steps[HttpResponseBase], request: HttpRequest, limits: RequestLimits) -> Steps[HttpResponseBase]:
    """Return the response with its fields: the outermost limit finishes it."""
    setattr(request, _LIMITS, limits)
    try:
        response = yield from steps
    except BaseException as error:
        # Django cancels the request when the client disconnects.
        # Exceptions of the REST framework have a status.
        status = getattr(error, "status_code", None)
        if not isinstance(status, int):
            status = next(status for kinds, status in _STATUSES if isinstance(error, kinds))
        yield from fail(limits, HttpResponse(status=status))
        raise
    try:
        yield from finish(limits, response)
    except BaseException:
        yield from end(limits)
        raise
    if limits.holds:
        if limits.reads_response:
            _read(limits, response)
        # Django closes a response when it is sent, and when its client has gone.
        response._resource_closers.append(partial(_end, limits))  # type: ignore[attr-defined] # noqa: SLF001
    for name, value in limits.fields():
        response.headers[name] = value
    # Another attempt at the same request is limited anew.
    delattr(request, _LIMITS)
    return response


def _read(limits: RequestLimits, response: Any) -> None:
    """Let the limits read the body: at once where it is there already, and otherwise as it passes."""
    if not getattr(response, "is_rendered", True):
        response.add_post_render_callback(partial(_read, limits))
    elif not limits.read_head(list(response.headers.items())):
        return
    elif not response.streaming:
        limits.read_body(response.content)
    elif response.is_async:
        response.streaming_content = _read_async(limits, response.streaming_content)
    else:
        response.streaming_content = BodyReader(limits, response.streaming_content)


async def _read_async(limits: RequestLimits, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for part in parts:
        limits.read_body(part)
        yield part


def _end(limits: RequestLimits) -> None:
    """End the reservations of a request. Django drops what a closer raises."""
    try:
        drive(end(limits), wait)
    except Exception:
        _LOGGER.exception("polylimit: the end of a response failed")


def _response(
    guard: Guard | None, later: Sequence[Guard], info: RequestInfo, respond: Callable[[], Any], limits: RequestLimits
) -> Steps[HttpResponseBase]:
    denied = None if guard is None else (yield from decide(guard, info, limits, later))
    response: HttpResponseBase = (yield respond()) if denied is None else denied[1]
    return response
