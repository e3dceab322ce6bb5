"""What asks Redis: limits of one request that are known together ask once; a lease and a cached denial do not ask."""

import asyncio
import contextlib
import re
import socket
import textwrap
import threading
from pathlib import Path

import flask
import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from polylimit import AsyncLimiter, Limiter
from polylimit import fastapi as of_fastapi
from polylimit import flask as of_flask
from redis_server import RedisServer, until
from test_process import python

POLICIES = {"api": "1000/day", "write": "5/day", "team": "1000/day"}
KEY = "127.0.0.1"


@pytest.fixture(scope="module")
def server():
    """A server that nothing else asks."""
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def url(server):
    server.command("FLUSHALL")
    return f"{server.url}?deadline=10s&doctor_after=0"


def scripts(server):
    """The number of script calls since the server started."""
    found = re.findall(rb"cmdstat_evalsha:calls=(\d+)", server.command("INFO", "commandstats"))
    return sum(map(int, found))


def scripts_during(server, action, times=10):
    """The script calls that an action causes each time; the first ones load the scripts."""
    action()
    before = scripts(server)
    for _ in range(times):
        action()
    return (scripts(server) - before) / times


class Gate:
    """A proxy that withholds the server's replies until it has seen some script calls.

    A client that waits for the first reply before it makes the next call never gets one.
    """

    def __init__(self, server):
        self._server = ("127.0.0.1", server.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self._changed = threading.Condition()
        self._missing = 0
        threading.Thread(target=self._accept, daemon=True).start()
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}?deadline=10s&doctor_after=0"

    def close_for(self, calls):
        with self._changed:
            self._missing = calls

    def is_open(self):
        with self._changed:
            return self._missing <= 0

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, server = self._listener.accept()[0], socket.create_connection(self._server)
                self._sockets += [client, server]
                threading.Thread(target=self._pump, args=(client, server, self._count), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, self._hold), daemon=True).start()

    def _pump(self, source, target, see):
        with contextlib.suppress(OSError):
            while read := source.recv(65536):
                see(read)
                target.sendall(read)

    def _count(self, read):
        # The proxy reads at once what fits into one packet, so the name of the command is never in two parts.
        with self._changed:
            self._missing -= read.count(b"EVALSHA")
            self._changed.notify_all()

    def _hold(self, _read):
        with self._changed:
            self._changed.wait_for(lambda: self._missing <= 0, timeout=60)

    def close(self):
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def gate(server):
    server.command("FLUSHALL")
    gate = Gate(server)
    yield gate
    gate.close()


def left(limiter):
    return [limiter.peek(KEY, name).remaining for name in POLICIES]


class Flask:
    """The limit `api` on the application, `write` and `team` on the view."""

    def __init__(self, url, **write):
        self.limiter = Limiter(url, POLICIES)
        app = flask.Flask(__name__)
        app.testing = True
        of_flask.RateLimit(app, limiter=self.limiter, policy="api")

        @app.before_request
        def login():
            return ("not authorized", 401) if "refuse" in flask.request.args else None

        @app.get("/")
        @of_flask.limit(self.limiter, "write", **write)
        @of_flask.limit(self.limiter, "team")
        def view():
            return "view"

        self.client = app.test_client()

    def status(self, path="/"):
        return self.client.get(path).status_code


class FastApi:
    """The same as dependencies."""

    def __init__(self, url, **write):
        asynchronous = AsyncLimiter(url, POLICIES)
        self.limiter = asynchronous.blocking

        async def login(request: of_fastapi.Request):
            if "refuse" in request.query_params:
                raise of_fastapi.HTTPException(401)

        app = FastAPI(dependencies=[Depends(of_fastapi.RateLimit(asynchronous, "api")), Depends(login)])
        app.add_middleware(of_fastapi.RateLimitMiddleware)
        limits = [of_fastapi.RateLimit(asynchronous, "write", **write), of_fastapi.RateLimit(asynchronous, "team")]
        app.get("/", dependencies=[Depends(limit) for limit in limits])(lambda: "view")
        self.client = TestClient(app, client=(KEY, 1))

    def status(self, path="/"):
        return self.client.get(path).status_code


SERVICES = pytest.mark.parametrize("service", [Flask, FastApi], ids=["flask", "fastapi"])


@SERVICES
def test_limits_of_application_and_view_ask_in_one_round_trip(gate, service):
    service = service(gate.url, methods=["GET"])
    # The first request loads the scripts.
    assert service.status() == 200
    gate.close_for(3)
    assert service.status() == 200
    assert gate.is_open()
    assert left(service.limiter) == [998, 3, 998]


@SERVICES
def test_function_of_a_later_limit_is_called_when_the_request_gets_there(gate, service):
    called = []
    service = service(gate.url, key=lambda _request: called.append(1) or KEY)
    assert service.status() == 200
    # The first limit asks for the third.
    gate.close_for(2)
    assert service.status() == 200
    assert len(called) == 2
    assert service.status("/?refuse=1") == 401
    assert len(called) == 2


@SERVICES
def test_denial_of_later_limit_gives_back_all(url, service):
    service = service(url)
    assert [service.status() for _ in range(7)] == [200] * 5 + [429] * 2
    assert left(service.limiter) == [995, 0, 995]


@SERVICES
def test_limits_that_the_request_never_meets_spend_nothing(url, service):
    service = service(url)
    assert [service.status("/?refuse=1") for _ in range(3)] == [401] * 3
    assert left(service.limiter) == [997, 5, 1000]


def test_request_that_fails_before_its_view_gives_back_what_was_asked_ahead(url):
    service = Flask(url)

    @service.client.application.before_request
    def fails():
        raise ValueError("no response")

    with pytest.raises(ValueError, match="no response"):
        service.status()
    assert left(service.limiter) == [999, 5, 1000]


def test_django_limits_of_site_and_view_ask_in_one_round_trip(url, server):
    printed = python(
        textwrap.dedent(
            f"""
            import asyncio, sys
            import logging
            from django.conf import settings
            from polylimit import Limiter
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from test_round_trips import POLICIES, Gate, left
            class Server:
                port = {server.port}
            logging.disable()
            gate = Gate(Server)
            limiter = Limiter(gate.url, POLICIES)
            settings.configure(
                ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="a", LOGGING_CONFIG=None,
                MIDDLEWARE=["polylimit.django.RateLimitMiddleware", "__main__.Login"],
                POLYLIMIT={{"limiter": limiter, "policy": "api"}},
            )
            import django
            django.setup()
            from django.http import HttpResponse
            from django.test import AsyncClient, Client
            from django.urls import path
            from polylimit.django import limit
            class Login:
                def __init__(self, respond):
                    self.respond = respond
                def __call__(self, request):
                    return HttpResponse(status=401) if "refuse" in request.GET else self.respond(request)
            def view(request):
                return HttpResponse()
            async def asynchronous(request):
                return HttpResponse()
            def limited(view):
                return limit(limiter, "write")(limit(limiter, "team")(view))
            urlpatterns = [path("view", limited(view)), path("asynchronous", limited(asynchronous))]
            def ask(path):
                return Client().get(path).status_code
            def ask_async(path):
                return asyncio.run(AsyncClient().get(path)).status_code
            print(ask("/view"), left(limiter))
            for one, path in ((ask, "/view"), (ask_async, "/asynchronous")):
                gate.close_for(3)
                print(one(path), gate.is_open(), left(limiter))
            print(ask("/view?refuse"), ask_async("/asynchronous?refuse"), left(limiter))
            print(ask("/view"), ask_async("/view"), ask("/view"), ask_async("/asynchronous"), left(limiter))
            gate.close()
            """
        )
    )
    assert printed.splitlines() == [
        "200 [999, 4, 999]",
        "200 True [998, 3, 998]",
        "200 True [997, 2, 997]",
        "401 401 [995, 2, 997]",
        "200 200 429 429 [993, 0, 995]",
    ]


class Asynchronous:
    """The operations of an `AsyncLimiter`, each in an event loop until it is done."""

    def __init__(self, loop, *arguments, **options):
        self._loop = loop
        self._limiter = AsyncLimiter(*arguments, **options)

    def __getattr__(self, name):
        async def call(*arguments, **options):
            return await getattr(self._limiter, name)(*arguments, **options)

        return lambda *arguments, **options: self._loop.run_until_complete(call(*arguments, **options))


@pytest.fixture(params=[Limiter, AsyncLimiter])
def made(request):
    """Makes limiters of one class."""
    loop = asyncio.new_event_loop()
    limiters = []

    def make(*arguments, **options):
        is_async = request.param is AsyncLimiter
        limiters.append(Asynchronous(loop, *arguments, **options) if is_async else Limiter(*arguments, **options))
        return limiters[-1]

    yield make
    for limiter in limiters:
        limiter.close()
    loop.close()


def test_leased_policy_decides_in_this_process_and_never_above_the_limit(server, url, made):
    limiter = made(url, {"busy": "2000/day token_bucket"}, lease={"busy": "100/10s"})
    other = made(url + "&client_name=other", {"busy": "2000/day token_bucket"}, lease={"busy": "100/10s"})
    until(lambda: limiter.check("a").source == "lease", "units are leased")
    before = scripts(server)
    decisions = [limiter.check("a") for _ in range(1000)]
    assert all(decisions)
    assert scripts(server) - before < 200
    assert sum(decision.source == "lease" for decision in decisions) > 800
    # Both processes together admit what the quota admits, however the units are leased.
    admitted = sum(bool(one.check("b")) for _ in range(2000) for one in (limiter, other))
    assert 2000 - 2 * 200 <= admitted <= 2000


def test_policy_without_lease_asks_for_each_check(server, url, made):
    limiter = made(url, {"busy": "2000/day token_bucket", "other": "2000/day"}, lease={"busy": "auto"})
    assert scripts_during(server, lambda: limiter.check("a", "other")) == 1


@pytest.mark.parametrize(
    ("lease", "policies", "message"),
    [
        ({"a": "much"}, {"a": "10/day"}, "much"),
        ({"b": "auto"}, {"a": "10/day"}, '"b"'),
        ({"a": "auto"}, {"a": "10/day sliding_log"}, "sliding_log"),
        ({"a": "100/1ms"}, {"a": "10/day"}, "1ms"),
    ],
)
def test_lease_that_is_not_allowed_is_refused(url, lease, policies, message):
    with pytest.raises(ValueError, match=message):
        Limiter(url, policies, lease=lease)


@pytest.mark.parametrize("kept", ["1h", 3600])
def test_known_denial_is_answered_without_asking_until_units_come_back(server, url, made, kept):
    limiter = made(url, {"one": "1/day"}, denial_cache_max=kept)
    other = made(url + "&client_name=other", {"one": "1/day"}, denial_cache_max=0)
    assert limiter.check("a")
    # Denials are kept from the time when the limiter receives refunds by other processes.
    until(lambda: limiter.check("a").source == "denial_cache", "the denial is kept")
    # When it begins to receive them, it forgets once what it has kept.
    until(lambda: scripts_during(server, lambda: limiter.check("a")) == 0, "no check asks")
    denied = limiter.check("a")
    assert not denied
    assert 80_000 < denied.retry_after <= 95_040
    # A refund of this process ends it at once, and one of another process when the server's message arrives.
    limiter.refund("a")
    assert limiter.check("a")
    until(lambda: limiter.check("a").source == "denial_cache", "the denial is kept")
    other.refund("a")
    until(lambda: limiter.check("a"), "the denial has ended")


@pytest.mark.parametrize("kept", ["0", 0])
def test_denial_that_is_not_kept_is_asked_for_each_time(server, url, made, kept):
    limiter = made(url, {"one": "1/day"}, denial_cache_max=kept)
    assert limiter.check("a")
    assert scripts_during(server, lambda: limiter.check("a")) == 1
    assert limiter.check("a").source == "store"


@pytest.mark.parametrize("kept", ["2d", "-1s", "soon"])
def test_denial_cache_max_that_is_not_allowed_is_refused(url, made, kept):
    with pytest.raises(ValueError, match="denial_cache_max"):
        made(url, {"one": "1/day"}, denial_cache_max=kept)
