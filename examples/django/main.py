"""A Django site whose requests are limited by the middleware of polylimit; the file includes its settings."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from polylimit import Limiter

limiter = Limiter(
    os.environ.get("POLYLIMIT_URL", "local:demo"),
    {"demo": os.environ.get("POLYLIMIT_QUOTA", "100/minute")},
)


def user(request: HttpRequest) -> str:
    """Return the key: the query parameter "user", or "demo"."""
    return request.GET.get("user", "demo")


settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["127.0.0.1"],
    MIDDLEWARE=["polylimit.django.RateLimitMiddleware"],
    POLYLIMIT={"limiter": limiter, "key": user},
)


def hello(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"hello": "world"})


urlpatterns = [path("", hello)]
app = get_wsgi_application()
