"""Django and its REST framework: the middleware, and limits of views, methods and throttle classes."""

# ruff: noqa: E402 - Django reads the settings when its modules are imported

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "wsgi"))

import django
from django.conf import settings
from polylimit import Limiter, keys
from sites import CLIENT, QUOTAS, Runs, document, serve

#: The key in the WSGI environment of a site's URLs.
URLS = "spellings.urls"

# The application is one program for all sites: each has its own URLs, and its own settings while its handler is made.
sys.modules["app"] = sys.modules[__name__]
settings.configure(
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="spellings",
    ROOT_URLCONF="app",
    MIDDLEWARE=["app.own_urls"],
    REST_FRAMEWORK={
        "UNAUTHENTICATED_USER": None,
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    },
)
django.setup()

from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from polylimit.django import limit
from polylimit.drf import RateThrottle
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView

if TYPE_CHECKING:
    from collections.abc import Callable

urlpatterns: list[Any] = []

HANDLERS = "login,report,user"
BY_CLIENT = keys.header(CLIENT)
LIMITER = "polylimit.django.RateLimitMiddleware"


def own_urls(respond: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Let each site have URLs of its own."""

    def middleware(request: HttpRequest) -> Any:
        request.urlconf = request.META[URLS]  # type: ignore[attr-defined]
        return respond(request)

    return middleware


def site(name: str, patterns: list[Any], options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """Return a WSGI application with these URLs, and with the middleware if there are options."""
    module = ModuleType(f"urls_of_{name}")
    module.urlpatterns = patterns  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    middleware = ["app.own_urls", LIMITER] if options else ["app.own_urls"]
    with override_settings(MIDDLEWARE=middleware, POLYLIMIT=options):
        handler = WSGIHandler()
    return lambda environ, start_response: handler({**environ, URLS: module.__name__}, start_response)


def urls(login: Any, report: Any, user: Any) -> list[Any]:
    """Return the URLs of the handlers."""
    included = [path("users/<int:id>", user)]
    return [path("login", login), path("report", report), path("v1/", include(included))]


def plain(view: Any) -> Any:
    """Return a view or a method as it is."""
    return view


def limited(view: Any) -> Any:
    """Return a view or a method with a limit of its own."""
    return limit(Limiter(), QUOTAS, key=BY_CLIENT)(view)


def functions(decorate: Callable[[Any], Any] = plain) -> list[Any]:
    """Return the URLs of views that are functions."""
    runs = Runs()

    def handler(name: str, method: str) -> Any:
        def view(request: HttpRequest, **_arguments: Any) -> HttpResponse:
            allowed = {"GET": ("GET", "HEAD")}.get(method, (method,))
            if request.method not in allowed:
                return HttpResponse(status=405)
            return HttpResponse("ran", headers=runs.of(name, request.headers.get(CLIENT, "")))

        return decorate(view)

    return urls(handler("login", "POST"), handler("report", "GET"), handler("user", "GET"))


def classes(base: Any, respond: Any, of_class: Any, of_method: Any, **attributes: Any) -> list[Any]:
    """Return the URLs of views that are classes, with decorators of them and of their methods."""
    runs = Runs()

    def handler(name: str, method: str) -> Any:
        def handle(_self: Any, request: Any, **_arguments: Any) -> Any:
            return respond("ran", headers=runs.of(name, request.headers.get(CLIENT, "")))

        handle.__name__ = method
        return of_class(type(name, (base,), {method: of_method(handle), **attributes})).as_view()

    return urls(handler("login", "post"), handler("report", "get"), handler("user", "get"))


def api_views(decorate_outside: Any, decorate_inside: Any) -> list[Any]:
    """Return the URLs of functions of the REST framework, with decorators above and below its own."""
    runs = Runs()

    def handler(name: str, method: str) -> Any:
        def view(request: Any, **_arguments: Any) -> Response:
            return Response("ran", headers=runs.of(name, request.headers.get(CLIENT, "")))

        return decorate_outside(api_view([method])(decorate_inside(view)))

    return urls(handler("login", "POST"), handler("report", "GET"), handler("user", "GET"))


def throttled() -> list[Any]:
    """Return the URLs of views of the REST framework with a throttle class each."""

    class Throttle(RateThrottle):
        options = {"key": BY_CLIENT}  # noqa: RUF012 - as users write it

        def get_rate(self) -> str:
            return QUOTAS

    limiter = Limiter()

    def with_throttle(owner: Any) -> Any:
        owner.throttle_classes = [type("Own", (Throttle,), {"scope": owner.__name__, "limiter": limiter})]
        return owner

    return classes(APIView, Response, with_throttle, plain)


SEPARATE = "GET:/a/1,GET:/b/1,GET:/twice/1/x,GET:/twice/2/x,GET:/methods,POST:/methods,GET:/template/1,GET:/template/2"


def separate() -> list[Any]:
    """Return URLs of views with the same quotas."""
    limiter, quotas = Limiter(), "1/hour fixed_window"

    def ran(_request: HttpRequest, **_arguments: Any) -> HttpResponse:
        return HttpResponse("ran")

    def own(view: Any = ran) -> Any:
        return limit(limiter, quotas, key=BY_CLIENT)(view)

    class Methods(View):
        @limit(limiter, quotas, key=BY_CLIENT)
        def get(self, _request: HttpRequest) -> HttpResponse:
            return HttpResponse("ran")

        @limit(limiter, quotas, key=BY_CLIENT)
        def post(self, _request: HttpRequest) -> HttpResponse:
            return HttpResponse("ran")

    class Page(View):
        def get(self, _request: HttpRequest) -> HttpResponse:
            return HttpResponse("ran")

    twice = ([path("x", own(), name="x")], "twice")
    return [
        path("a/", include([path("<int:id>", own(), name="detail")])),
        path("b/", include([path("<int:id>", own(), name="detail")])),
        path("twice/1/", include(twice, namespace="first")),
        path("twice/2/", include(twice, namespace="second")),
        path("methods", Methods.as_view()),
        path("template/1", own(Page.as_view())),
        path("template/2", own(Page.as_view())),
    ]


def whole(**options: Any) -> dict[str, Any]:
    """Return the options of a middleware for all requests."""
    return {"limiter": Limiter(), "policy": QUOTAS, "key": BY_CLIENT, **options}


def by_document(attribute: str) -> dict[str, Any]:
    """Return the options of a middleware that decides by a document."""
    return {"limiter": Limiter(document=document(attribute))}


def on_dispatch(owner: Any) -> Any:
    """Return a class whose method for all methods is limited."""
    return method_decorator(limit(Limiter(), QUOTAS, key=BY_CLIENT), name="dispatch")(owner)


def on_method(method: Any) -> Any:
    """Return a method that is limited by Django's own way."""
    return method_decorator(limit(Limiter(), QUOTAS, key=BY_CLIENT))(method)


MADE: dict[str, tuple[Callable[[], list[Any]], Callable[[], dict[str, Any] | None]]] = {
    "global": (functions, whole),
    "methods": (functions, lambda: whole(methods=["get", "post"])),
    "path_rules": (functions, lambda: by_document("path")),
    "route_rules": (functions, lambda: by_document("route")),
    "decorator": (lambda: functions(limited), lambda: None),
    "class_based": (lambda: classes(View, HttpResponse, plain, limited), lambda: None),
    "class_decorator": (lambda: classes(View, HttpResponse, limited, plain), lambda: None),
    "method_decorator": (lambda: classes(View, HttpResponse, plain, on_method), lambda: None),
    "dispatch": (lambda: classes(View, HttpResponse, on_dispatch, plain), lambda: None),
    "rest_class_based": (lambda: classes(APIView, Response, plain, limited), lambda: None),
    "rest_dispatch": (lambda: classes(APIView, Response, on_dispatch, plain), lambda: None),
    "rest_above_api_view": (lambda: api_views(limited, plain), lambda: None),
    "rest_below_api_view": (lambda: api_views(plain, limited), lambda: None),
    "rest_throttle_class": (throttled, lambda: None),
    "separate": (separate, lambda: None),
}

if __name__ == "__main__":
    serve(
        lambda: {name: site(name, patterns(), options()) for name, (patterns, options) in MADE.items()},
        {name: SEPARATE if name == "separate" else HANDLERS for name in MADE},
        {"Django": version("Django"), "djangorestframework": version("djangorestframework")},
    )
