"""A Django site that the tests run under a real server."""

import os

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import include, path
from polylimit import Limiter, keys
from polylimit.django import limit

limiter = Limiter(
    os.environ["STORE"],
    {
        "api": "20/day fixed_window",
        "login": "3/day fixed_window",
        "small": "5/day",
        "strict": "1000/day",
        "upload": "100/day",
    },
    outage={} if os.environ["STORE"].startswith("local") else {"strict": "deny"},
)
by_client = keys.header("x-client")


def skip(request):
    return not request.path.startswith(("/api", "/missing"))


settings.configure(
    SECRET_KEY="tests",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["polylimit.django.RateLimitMiddleware"],
    POLYLIMIT={"limiter": limiter, "policy": "api", "key": by_client, "skip": "django_app.skip"},
)
django.setup()


def api(request):
    return HttpResponse("api")


@limit(limiter, ["small", "upload"], key=by_client)
async def small(request):
    return HttpResponse("small")


@limit(limiter, "login", key=by_client, count=lambda response: response.status_code == 401, headers="both")
def login(request, password):
    return HttpResponse("welcome") if password == "right" else HttpResponse("wrong", status=401)


@limit(limiter, "upload", key=by_client, cost=lambda request: int(request.path.rsplit("/", 1)[1]))
def upload(request, size):
    return HttpResponse(str(size))


@limit(
    limiter,
    "1/day",
    key=lambda request: request.headers["x-client"],
    on_denied=lambda request, denial: HttpResponse(f"{request.path}: {denial.problem.violated}", status=418),
    headers="none",
)
def own(request):
    return HttpResponse("own")


@limit(limiter, "strict", key=by_client)
def strict(request):
    return HttpResponse("strict")


@limit(limiter, "upload", key=by_client)
def stream(request):
    return StreamingHttpResponse((f"{number}\n" for number in range(1000)), content_type="text/plain")


@limit(limiter, "small", key=by_client)
def shop(request):
    return HttpResponse("shop")


urlpatterns = [
    path("api", api),
    path("api/small", small),
    path("login/<str:password>", login),
    path("upload/<int:size>", upload),
    path("own", own),
    path("strict", strict),
    path("stream", stream),
    path("shop/", include([path("", shop)])),
]

wsgi = get_wsgi_application()
asgi = get_asgi_application()
