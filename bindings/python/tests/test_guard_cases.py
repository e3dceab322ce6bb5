"""The cases of `tests/conformance/guard.json` through each framework."""

import asyncio
import json
import os
from pathlib import Path

import flask
import pytest
from django.conf import settings
from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse, Response
from fastapi.testclient import TestClient
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter, ManualClock, asgi
from polylimit import fastapi as of_fastapi
from polylimit import flask as of_flask

FILE = Path(__file__).parents[3] / "tests" / "conformance" / "guard.json"
CASES = json.loads(FILE.read_text(encoding="utf-8"))["cases"]


#: The name of a local store that cannot be opened.
BROKEN = f"guard-{os.getpid()}"


@pytest.fixture(scope="module", autouse=True)
def broken_file():
    """The file of a local store, which other users may read."""
    path = Path(f"/dev/shm/polylimit-{os.getuid()}-{BROKEN}")
    path.touch()
    path.chmod(0o640)
    yield
    path.unlink()


class Stores:
    """The limiters of a case, by the name of their store."""

    def __init__(self, case, limiter_class):
        self._case = case
        self._class = limiter_class
        self._made = {}

    def __getitem__(self, name):
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name):
        policies = self._case.get("policies", {})
        if name == "memory":
            return self._class(policies=policies, clock=ManualClock(now=1_789_948_800))
        if name == "down":
            # Nothing listens on port 1.
            outage = dict.fromkeys(policies, self._case["outage"])
            return self._class("redis://127.0.0.1:1?doctor_after=0", policies, outage=outage)
        return self._class(f"local:{BROKEN}", policies)


def policy_option(given, header):
    of = given.get("policies_of")
    if of is None:
        return {"policy": given["policy"]} if "policy" in given else {}

    def policy_of(request):
        plan = header(request, of["header"])
        return given.get("policy") if plan is None else of["plans"][plan]

    return {"policy": policy_of}


def options_of(case, given, stores, header, teapot):
    """The options of a guard. `header` reads a header of the framework's request, `teapot` makes its response."""
    options = {"limiter": stores[given.get("store", case.get("store", "memory"))], **policy_option(given, header)}

    def of_header(read, convert=str):
        return lambda request: None if header(request, read) is None else convert(header(request, read))

    for name, value in given.items():
        if name == "key_parts":
            options["key"] = value
        elif name in ("key", "skip"):
            options[name] = of_header(value["header"])
        elif name == "cost" and isinstance(value, dict):
            options[name] = of_header(value["header"], int)
        elif name == "count":
            options[name] = lambda response, of=value: (
                of.get("status_from", 0) <= response.status_code < of.get("status_below", 600)
            )
        elif name == "on_denied":
            options[name] = lambda _request, _denial, of=value: teapot(of["status"], of["body"])
        elif name == "on_outage":
            verdict = {"admit": True, "deny": False, "leave": None}[value]
            options[name] = lambda _request, _outage, verdict=verdict: verdict
        elif name not in ("policy", "policies_of", "store"):
            options[name] = value
    return options


class Service:
    """A service of one case; `limiter_class` is the class of its limiters."""

    limiter_class = Limiter

    def __init__(self, case):
        self.handled = False
        stores = Stores(case, self.limiter_class)
        self.memory = stores["memory"]
        guards = [options_of(case, given, stores, self.header, self.teapot) for given in case["guards"]]
        self.make(guards)

    def handle(self, headers):
        """Return the status of the handler, or raise."""
        self.handled = True
        if "x-fail" in headers:
            raise ValueError("the handler fails")
        return int(headers.get("x-respond", 200))

    def peek(self, key, policy):
        return self.memory.peek(key, policy)


class Flask(Service):
    """An application and its view: the outermost guard is the application's."""

    is_application = True

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return body, status

    def make(self, guards):
        app = flask.Flask(__name__)
        app.logger.disabled = True

        def view():
            return "view", self.handle({name.lower(): value for name, value in flask.request.headers})

        if self.is_application:
            of_flask.RateLimit(app, **guards.pop(0))
        for options in reversed(guards):
            view = of_flask.limit(**options)(view)
        app.add_url_rule("/", "view", view, methods=["GET", "POST", "DELETE"])
        self.client = app.test_client(use_cookies=False)

    def send(self, method, headers):
        response = self.client.open("/", method=method, headers=headers)
        return response.status_code, response.headers, response.text


class FlaskViews(Flask):
    """All guards are the view's."""

    is_application = False


class Asgi(Service):
    """Middlewares around an application without a framework."""

    limiter_class = AsyncLimiter
    peer = ("127.0.0.1", 1)

    @staticmethod
    def header(scope, name):
        return {key.decode(): value.decode() for key, value in scope["headers"]}.get(name)

    @staticmethod
    def teapot(status, body):
        async def respond(_scope, _receive, send):
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": body.encode()})

        return respond

    def make(self, guards):
        async def app(scope, _receive, send):
            status = self.handle({key.decode(): value.decode() for key, value in scope["headers"]})
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"view"})

        for options in reversed(guards):
            app = asgi.RateLimitMiddleware(app, **options)
        self.client = TestClient(app, client=self.peer, raise_server_exceptions=False)

    def send(self, method, headers):
        response = self.client.request(method, "/", headers=headers)
        return response.status_code, response.headers, response.text

    def peek(self, key, policy):
        return self.memory.blocking.peek(key, policy)


class FastApi(Asgi):
    """Middlewares of an application."""

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return PlainTextResponse(body, status)

    def make(self, guards):
        app = FastAPI()
        for options in reversed(self.add_guards(app, guards)):
            app.add_middleware(of_fastapi.RateLimitMiddleware, **options)
            # An invalid option raises when the application starts.
            of_fastapi.RateLimitMiddleware(app, **options)
        self.client = TestClient(app, client=self.peer, raise_server_exceptions=False)

    def add_guards(self, app, guards):
        app.api_route("/", methods=["GET", "POST", "DELETE"])(self.view)
        return guards

    async def view(self, request: of_fastapi.Request):
        return Response(status_code=self.handle(request.headers))


class FastApiRoute(FastApi):
    """Dependencies of a route, with a middleware that has no limit."""

    def add_guards(self, app, guards):
        limits = [Depends(of_fastapi.RateLimit(**options)) for options in guards]
        app.api_route("/", methods=["GET", "POST", "DELETE"], dependencies=limits)(self.view)
        return [{}]


class Django(Service):
    """A site and its view: the outermost guard is the middleware's."""

    is_async = False

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        from django.http import HttpResponse

        return HttpResponse(body, status=status)

    def make(self, guards):
        import django
        from django.http import HttpResponse
        from django.test import AsyncClient, Client
        from django.urls import path
        from polylimit import django as of_django

        if not settings.configured:
            settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="a", LOGGING_CONFIG=None)
            django.setup()

        def respond(request):
            headers = {name.lower(): value for name, value in request.headers.items()}
            return HttpResponse("view", status=self.handle(headers))

        async def respond_async(request):
            return respond(request)

        view = respond_async if self.is_async else respond
        self.site = guards[0] if self.is_middleware(guards) else None
        for options in reversed(guards if self.site is None else guards[1:]):
            view = of_django.limit(**options)(view)
        if self.site is not None:
            of_django.Guard(**self.site)
        self.urls = type("Urls", (), {"urlpatterns": [path("", view)]})
        self.client = (AsyncClient if self.is_async else Client)(raise_request_exception=False)

    def is_middleware(self, _guards):
        return True

    def send(self, method, headers):
        from django.test import override_settings

        middleware = [] if self.site is None else ["polylimit.django.RateLimitMiddleware"]
        with override_settings(ROOT_URLCONF=self.urls, MIDDLEWARE=middleware, POLYLIMIT=self.site):
            # A client loads the middleware at its first request, and sends no cookies but its own.
            self.client.cookies.load(headers.pop("cookie", ""))
            response = self.client.generic(method, "/", headers=headers)
            if self.is_async:
                response = asyncio.run(response)
        return response.status_code, response.headers, response.content.decode()


class DjangoViews(Django):
    """All guards are the view's."""

    def is_middleware(self, _guards):
        return False


class DjangoAsync(Django):
    """The same site with an asynchronous view."""

    is_async = True


class DjangoAsyncViews(DjangoViews):
    is_async = True


SERVICES = [
    Flask,
    FlaskViews,
    Asgi,
    FastApi,
    FastApiRoute,
    Django,
    DjangoViews,
    DjangoAsync,
    DjangoAsyncViews,
]


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case, service):
    if "error" in case:
        assert case["error"] == "invalid_argument"
        with pytest.raises(InvalidArgumentError):
            service(case)
        return
    service = service(case)
    for request in case["requests"]:
        headers = dict(request.get("headers", {}))
        headers |= {f"x-{name}": str(request[name]) for name in ("respond", "fail") if name in request}
        service.handled = False
        status, fields, body = service.send(request.get("method", "GET"), headers)
        check(request["expect"], status, {name.lower(): value for name, value in fields.items()}, body, service)
    for left in case.get("left", []):
        assert service.peek(left["key"], left["policy"]).remaining == left["remaining"], left


def check(expect, status, fields, body, service):
    assert (status, service.handled) == (expect["status"], expect["handled"]), body
    for name, value in expect.get("fields", {}).items():
        assert fields.get(name) == value, name
    if "text" in expect:
        assert body == expect["text"]
    problem = expect.get("problem", {})
    if problem:
        found = json.loads(body)
        for name, value in problem.items():
            assert found["violated-policies" if name == "violated" else name] == value, name
    known = {"status", "handled", "fields", "text", "problem"}
    assert set(expect) <= known
