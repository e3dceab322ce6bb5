"""The cases of `guard.json` and its neighbours in `tests/conformance` through each framework."""

import asyncio
import contextlib
import json
import os
import threading
from collections import defaultdict
from datetime import timedelta
from functools import partial
from pathlib import Path

import flask
import pytest
from django.conf import settings
from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from fastapi.testclient import TestClient
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter, ManualClock, asgi
from polylimit import fastapi as of_fastapi
from polylimit import flask as of_flask
from redis_server import until

FOLDER = Path(__file__).parents[3] / "tests" / "conformance"
FILES = [FOLDER / f"guard{name}.json" for name in ("", "_reservations", "_meters", "_waiting")]
CASES = [case for file in FILES for case in json.loads(file.read_text(encoding="utf-8"))["cases"]]


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
        self.clock = ManualClock(now=1_789_948_800)
        self._made = {}

    def __getitem__(self, name):
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name):
        policies = self._case.get("policies", {})
        if name == "memory":
            return self._class(policies=policies, clock=self.clock)
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


def options_of(case, given, stores, service):
    """The options of a guard of a service."""
    options = {
        "limiter": stores[given.get("store", case.get("store", "memory"))],
        **policy_option(given, service.header),
        **timed_options(given, service.response_header),
    }

    def of_header(read, convert=str):
        header = service.header
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
                of.get("status_from", 0) <= service.status_of(response) < of.get("status_below", 600)
            )
        elif name == "on_denied":
            options[name] = lambda _request, _denial, of=value: service.teapot(of["status"], of["body"])
        elif name == "on_outage":
            verdict = {"admit": True, "deny": False, "leave": None}[value]
            options[name] = lambda _request, _outage, verdict=verdict: verdict
        elif name not in ("policy", "policies_of", "store", "costs", "spent", "ttl_ms", "wait_ms"):
            options[name] = value
    return options


def timed_options(given, response_header):
    options = {}
    if isinstance(given.get("spent"), str):
        options["spent"] = given["spent"]
    elif isinstance(given.get("spent"), list):
        options["spent"] = dict(zip(given["policy"], given["spent"], strict=True))
    elif "spent" in given:

        def spent(response):
            units = response_header(response, given["spent"]["header"])
            return None if units is None else int(units)

        options["spent"] = spent
    if "costs" in given:
        options["cost"] = dict(zip(given["policy"], given["costs"], strict=True))
    if "ttl_ms" in given:
        options["ttl"] = timedelta(milliseconds=given["ttl_ms"])
    if "wait_ms" in given:
        options["wait"] = given["wait_ms"] / 1000
    return options


class Service:
    """A service of one case; `limiter_class` is the class of its limiters."""

    limiter_class = Limiter

    def __init__(self, case):
        self.handled = False
        stores = Stores(case, self.limiter_class)
        self.memory, self.clock = stores["memory"], stores.clock
        guards = [options_of(case, given, stores, self) for given in case["guards"]]
        self.make(guards)

    def handle(self, headers):
        """Return the status of the handler, or raise."""
        self.handled = True
        if "x-fail" in headers:
            raise ValueError("the handler fails")
        return int(headers.get("x-respond", 200))

    def close(self):
        """End what the service has opened."""

    @staticmethod
    def response_header(response, name):
        return response.headers.get(name)

    @staticmethod
    def status_of(response):
        return response.status_code

    @staticmethod
    def fields(headers):
        """The fields that the handler adds."""
        names = {"x-spent": "x-spent", "x-content-type": "content-type"}
        return {name: headers[order] for order, name in names.items() if order in headers}

    @staticmethod
    def body(headers):
        """The body that the handler sends: text, or the pieces of a stream."""
        pieces = json.loads(headers.get("x-body", '["view"]'))
        return pieces[0] if len(pieces) == 1 else pieces

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
            headers = {name.lower(): value for name, value in flask.request.headers}
            body = ["view", "more"] if "x-open" in headers else self.body(headers)
            body = body if isinstance(body, str) else iter(body)
            return flask.Response(body, self.handle(headers), self.fields(headers))

        if self.is_application:
            of_flask.RateLimit(app, **guards.pop(0))
        for options in reversed(guards):
            view = of_flask.limit(**options)(view)
        app.add_url_rule("/", "view", view, methods=["GET", "POST", "DELETE"])
        self.client = app.test_client(use_cookies=False)

    def send(self, method, headers):
        with self.client.open("/", method=method, headers=headers) as response:
            return response.status_code, response.headers, response.text

    def open(self, method, headers):
        response = self.client.open("/", method=method, headers=headers)
        return response.status_code, response.headers, OpenResponse(response, response.get_data)


class OpenResponse:
    """A response that a service on threads has begun to send."""

    def __init__(self, response, read):
        self._response = response
        self._read = read

    def close(self):
        self._read()
        self._response.close()

    def leave(self):
        self._response.close()


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

    @staticmethod
    def response_header(response, name):
        return {key.decode(): value.decode() for key, value in response.headers}.get(name)

    def make(self, guards):
        async def app(scope, receive, send):
            headers = {key.decode(): value.decode() for key, value in scope["headers"]}
            status = self.handle(headers)
            fields = [(name.encode(), value.encode()) for name, value in self.fields(headers).items()]
            await send({"type": "http.response.start", "status": status, "headers": fields})
            if "x-open" in headers:
                await send({"type": "http.response.body", "body": b"view", "more_body": True})
                await scope["test"].stay(receive)
            body = self.body(headers)
            *first, last = [body] if isinstance(body, str) else body
            for piece in first:
                await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": last.encode()})

        for options in reversed(guards):
            app = asgi.RateLimitMiddleware(app, **options)
        self.app = app
        self.client = TestClient(app, client=self.peer, raise_server_exceptions=False)

    def send(self, method, headers):
        response = self.client.request(method, "/", headers=headers)
        return response.status_code, response.headers, response.text

    def open(self, method, headers):
        connection = AsgiConnection(self.app, self.peer, method, headers)
        start = connection.start()
        return start["status"], {key.decode(): value.decode() for key, value in start["headers"]}, connection

    def peek(self, key, policy):
        return self.memory.blocking.peek(key, policy)


class AsgiConnection:
    """A connection whose response is sent in parts, in an event loop that runs as far as the test lets it."""

    def __init__(self, app, peer, method, headers):
        self._loop = asyncio.new_event_loop()
        self._sent = []
        self._is_released = asyncio.Event()
        self._has_left = asyncio.Event()
        self._has_body = asyncio.Event()
        self._has_request = False
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": "/",
            "raw_path": b"/",
            "root_path": "",
            "query_string": b"",
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": peer,
            "server": ("test", 80),
            "test": self,
        }
        self._task = self._loop.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        if not self._has_request:
            self._has_request = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self._sent.append(message)
        if message["type"] == "http.response.body":
            if message.get("body"):
                self._has_body.set()
            if not message.get("more_body"):
                # Servers report this when a response is done, and some frameworks wait for it.
                self._has_left.set()

    async def stay(self, receive=None):
        """Wait until the test closes the response, or its client has left."""
        waits = [asyncio.ensure_future(self._is_released.wait())]
        if receive is not None:
            waits.append(asyncio.ensure_future(self._until_disconnect(receive)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _until_disconnect(self, receive):
        while (await receive())["type"] != "http.disconnect":
            pass

    def start(self):
        body = self._loop.create_task(self._has_body.wait())
        self._loop.run_until_complete(asyncio.wait([self._task, body], return_when=asyncio.FIRST_COMPLETED))
        body.cancel()
        return self._sent[0]

    def close(self):
        self._end(self._is_released)

    def leave(self):
        self._end(self._has_left)

    def _end(self, event):
        event.set()
        self._loop.run_until_complete(self._task)
        self._loop.close()


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
        self.app = app
        self.client = TestClient(app, client=self.peer, raise_server_exceptions=False)

    def add_guards(self, app, guards):
        app.api_route("/", methods=["GET", "HEAD", "POST", "DELETE"])(self.view)
        return guards

    async def view(self, request: of_fastapi.Request):
        status, fields = self.handle(request.headers), self.fields(request.headers)
        if "x-open" in request.headers:
            return StreamingResponse(self.parts(request.scope["test"]), status, fields)
        body = self.body(request.headers) if "x-body" in request.headers else ""
        if isinstance(body, str):
            return Response(body, status_code=status, headers=fields)
        return StreamingResponse(iter(body), status, fields)

    async def parts(self, connection):
        yield b"view"
        await connection.stay()
        yield b"more"


class FastApiRoute(FastApi):
    """Dependencies of a route, with a middleware that has no limit."""

    def add_guards(self, app, guards):
        limits = [Depends(of_fastapi.RateLimit(**options)) for options in guards]
        app.api_route("/", methods=["GET", "HEAD", "POST", "DELETE"], dependencies=limits)(self.view)
        return [{}]


class Litestar(Asgi):
    """Middlewares of an application, around one handler."""

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        from litestar.response.base import ASGIResponse

        return ASGIResponse(body=body, status_code=status)

    def make(self, guards):
        import litestar
        from litestar.handlers import HTTPRouteHandler
        from litestar.middleware import DefineMiddleware
        from polylimit.litestar import RateLimitMiddleware

        async def view(request: litestar.Request) -> litestar.Response:
            status, fields = self.handle(request.headers), self.fields(request.headers)
            kind = fields.pop("content-type", "text/plain")
            if "x-open" in request.headers:
                parts = self.parts(request.scope["test"])
                return litestar.response.Stream(parts, status_code=status, headers=fields, media_type=kind)
            body = self.body(request.headers) if "x-body" in request.headers else ""
            if isinstance(body, str):
                return litestar.Response(body.encode(), status_code=status, headers=fields, media_type=kind)
            return litestar.response.Stream(iter(body), status_code=status, headers=fields, media_type=kind)

        # The annotations of a function within a method are no names of the module.
        view.__annotations__ = {"request": litestar.Request, "return": litestar.Response}
        methods = ["GET", "HEAD", "POST", "DELETE"]
        handler = HTTPRouteHandler("/", http_method=methods, status_code=200)(view)
        middleware = [DefineMiddleware(RateLimitMiddleware, **options) for options in guards]
        self.app = litestar.Litestar([handler], middleware=middleware)
        self.client = TestClient(self.app, client=self.peer, raise_server_exceptions=False)

    async def parts(self, connection):
        yield b"view"
        await connection.stay()
        yield b"more"


class Quart(Asgi):
    """An application and its view: the outermost guard is the application's."""

    is_application = True

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return body, status

    def make(self, guards):
        import quart
        from polylimit import quart as of_quart

        app = quart.Quart(__name__)
        app.logger.disabled = True

        async def view():
            headers = quart.request.headers
            status, fields = self.handle(headers), self.fields(headers)
            if "x-open" in headers:
                return self.parts(quart.request.scope["test"]), status, fields
            body = self.body(headers)
            return quart.Response(body if isinstance(body, str) else iter_async(body), status, fields)

        of_quart.RateLimit(app, **(guards.pop(0) if self.is_application else {}))
        for options in reversed(guards):
            view = of_quart.limit(**options)(view)
        app.add_url_rule("/", "view", view, methods=["GET", "POST", "DELETE"])
        self.app = app
        self.client = TestClient(app, client=self.peer, raise_server_exceptions=False)

    parts = Litestar.parts


async def iter_async(pieces):
    for piece in pieces:
        yield piece.encode()


class QuartViews(Quart):
    """All guards are the view's."""

    is_application = False


class Aiohttp(Service):
    """An application and its handler on a socket: the outermost guard is the application's."""

    limiter_class = AsyncLimiter
    is_application = True

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        from aiohttp import web

        return web.Response(status=status, text=body)

    @staticmethod
    def status_of(response):
        return response.status

    def make(self, guards):
        from aiohttp import web
        from aiohttp.test_utils import TestServer
        from polylimit import aiohttp_server

        self._released, self._sessions = defaultdict(asyncio.Event), []

        async def view(request):
            status, fields = self.handle(request.headers), self.fields(request.headers)
            body = self.body(request.headers)
            if "x-open" not in request.headers and isinstance(body, str):
                return web.Response(status=status, headers=fields, body=body.encode())
            response = web.StreamResponse(status=status, headers=fields)
            await response.prepare(request)
            if "x-open" in request.headers:
                await response.write(b"view")
                await self._released[request.headers["x-open"]].wait()
                body = ["more"]
            for piece in body:
                await response.write(piece.encode())
            return response

        app = web.Application()
        aiohttp_server.setup(app, **(guards.pop(0) if self.is_application else {}))
        for options in reversed(guards):
            view = aiohttp_server.limit(**options)(view)
        app.router.add_route("*", "/", view)
        self._loop = asyncio.new_event_loop()
        # An application that others stop waits for its handlers.
        self._server = TestServer(app, handler_cancellation=True)
        self._loop.run_until_complete(self._server.start_server())
        self._url = str(self._server.make_url("/"))

    def close(self):
        for released in self._released.values():
            released.set()
        for session in self._sessions:
            self._loop.run_until_complete(session.close())
        self._loop.run_until_complete(self._server.close())
        self._loop.close()

    def send(self, method, headers):
        return self._loop.run_until_complete(self._request(method, headers))

    async def _request(self, method, headers):
        import aiohttp

        async with (
            aiohttp.ClientSession(skip_auto_headers=["accept", "user-agent"]) as session,
            session.request(method, self._url, headers=headers) as response,
        ):
            return response.status, response.headers, await response.text()

    def open(self, method, headers):
        session, response = self._loop.run_until_complete(self._open(method, headers))
        return response.status, response.headers, AiohttpResponse(self, headers["x-open"], session, response)

    async def _open(self, method, headers):
        import aiohttp

        session = aiohttp.ClientSession()
        self._sessions.append(session)
        response = await session.request(method, self._url, headers=headers)
        assert await response.content.readexactly(4) == b"view"
        return session, response

    def peek(self, key, policy):
        # The server ends a request while its loop runs.
        self._loop.run_until_complete(asyncio.sleep(0.001))
        return self.memory.blocking.peek(key, policy)


class AiohttpResponse:
    """A response that a service on a socket has begun to send."""

    def __init__(self, service, name, session, response):
        self._service, self._name, self._session, self._response = service, name, session, response

    def close(self):
        self._service._released[self._name].set()
        self._end(read=True)

    def leave(self):
        self._end(read=False)

    def _end(self, *, read):
        async def end():
            if read:
                await self._response.read()
            self._response.close()
            await self._session.close()

        self._service._loop.run_until_complete(end())


class AiohttpHandlers(Aiohttp):
    """All guards are the handler's."""

    is_application = False


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
        from django.http import HttpResponse, StreamingHttpResponse
        from django.test import AsyncClient, Client
        from django.urls import path
        from polylimit import django as of_django

        if not settings.configured:
            settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="a", LOGGING_CONFIG=None)
            django.setup()

        def respond(request):
            headers = {name.lower(): value for name, value in request.headers.items()}
            status, fields = self.handle(headers), self.fields(headers)
            body = ["view", "more"] if "x-open" in headers else self.body(headers)
            if isinstance(body, str):
                return HttpResponse(body, status=status, headers=fields)
            parts = self.parts_async(body) if self.is_async else iter(body)
            return StreamingHttpResponse(parts, status=status, headers=fields)

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
        self.loop = asyncio.new_event_loop() if self.is_async else None

    def is_middleware(self, _guards):
        return True

    def close(self):
        if self.loop is not None:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    async def parts_async(self, parts):
        for part in parts:
            yield part

    def send(self, method, headers):
        response = self.respond(method, headers)
        body = self.read(response)
        response.close()
        return response.status_code, response.headers, body.decode()

    def open(self, method, headers):
        response = self.respond(method, headers)
        return response.status_code, response.headers, OpenResponse(response, partial(self.read, response))

    def read(self, response):
        if not response.streaming or not self.is_async:
            return response.getvalue()

        async def read_async():
            return b"".join([part async for part in response])

        return self.loop.run_until_complete(read_async())

    def respond(self, method, headers):
        from django.test import override_settings

        middleware = [] if self.site is None else ["polylimit.django.RateLimitMiddleware"]
        with override_settings(ROOT_URLCONF=self.urls, MIDDLEWARE=middleware, POLYLIMIT=self.site):
            # A client loads the middleware at its first request, and sends no cookies but its own.
            self.client.cookies.load(headers.pop("cookie", ""))
            response = self.client.generic(method, "/", headers=headers)
            if self.is_async:
                response = self.loop.run_until_complete(response)
        return response


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
    Litestar,
    Quart,
    QuartViews,
    Aiohttp,
    AiohttpHandlers,
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
    try:
        run_requests(case, service)
    finally:
        service.close()


def run_requests(case, service):
    opened = {}
    for request in case["requests"]:
        if "close" in request:
            opened.pop(request["close"]).close()
        elif "leave" in request:
            opened.pop(request["leave"]).leave()
        else:
            run_request(request, service, opened)
        for left in request.get("then", []):
            peek = partial(service.peek, left["key"], left["policy"])
            until(lambda peek=peek, left=left: peek().remaining == left["remaining"], f"{request} leaves {left}")
    for left in case.get("left", []):
        assert service.peek(left["key"], left["policy"]).remaining == left["remaining"], left


@contextlib.contextmanager
def elapsing(clock, elapse_ms):
    """Lets time pass every 100 ms until a request is done, so that a guard that holds the request does so first."""
    done = threading.Event()

    def run():
        while not done.wait(0.1):
            clock.advance(elapse_ms / 1000)

    thread = threading.Thread(target=run) if elapse_ms else None
    if thread is not None:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread is not None:
            thread.join()


def run_request(request, service, opened):
    headers = dict(request.get("headers", {}))
    headers |= {f"x-{name}": str(request[name]) for name in ("respond", "fail", "spent", "open") if name in request}
    if "body" in request:
        headers["x-body"] = json.dumps(request["body"])
    if "content_type" in request:
        headers["x-content-type"] = request["content_type"]
    service.handled = False
    method = request.get("method", "GET")
    if "open" in request:
        status, fields, opened[request["open"]] = service.open(method, headers)
        body = ""
    else:
        with elapsing(service.clock, request.get("elapse_ms")):
            status, fields, body = service.send(method, headers)
    check(request["expect"], status, {name.lower(): value for name, value in fields.items()}, body, service)


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
