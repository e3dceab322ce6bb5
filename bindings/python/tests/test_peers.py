"""The client address when the server or a middleware reports a peer that is no IP address."""

import textwrap

import anyio
import flask
import pytest
from polylimit import AsyncLimiter, Limiter, keys
from polylimit.asgi import RateLimitMiddleware
from polylimit.flask import RateLimit, limit
from test_process import python
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

#: Texts that are no addresses, as a client may send them in a header.
MADE_UP = ["one", "two", "unix:", "127.0.0.1x", "\xff"]
BEHIND_PROXIES = keys.client_address(["loopback"], "forwarded")
LIMITED = [200] * 3 + [429] * 2


class Asgi:
    def __init__(self, **options):
        self.limiter = AsyncLimiter(policies={"three": "3/day"})
        middleware = RateLimitMiddleware(self.respond, limiter=self.limiter, **options)
        self.app = ProxyHeadersMiddleware(middleware, "*")

    @staticmethod
    async def respond(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    def status(self, forwarded_for, peer=("192.0.2.1", 1)):
        statuses = []

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        lines = [] if forwarded_for is None else [(b"x-forwarded-for", forwarded_for.encode("latin-1"))]
        headers = [*lines, (b"forwarded", b"for=203.0.113.7")]
        anyio.run(self.app, {"type": "http", "headers": headers, "client": peer}, None, send)
        (status,) = statuses
        return status


class Flask:
    def __init__(self, *, is_decorator, **options):
        self.limiter = Limiter(policies={"three": "3/day"})
        app = flask.Flask(__name__)
        app.testing = True

        def view():
            return "view"

        if is_decorator:
            view = limit(self.limiter, **options)(view)
        else:
            RateLimit(app, limiter=self.limiter, **options)
        app.get("/")(view)
        app.wsgi_app = ProxyFix(app.wsgi_app)
        self.client = app.test_client()

    def status(self, forwarded_for, peer="192.0.2.1"):
        lines = {} if forwarded_for is None else {"x-forwarded-for": forwarded_for}
        headers = {**lines, "forwarded": "for=203.0.113.7"}
        return self.client.get("/", headers=headers, environ_base={"REMOTE_ADDR": peer}).status_code


@pytest.fixture(params=["asgi", "flask", "decorator of flask"])
def service(request):
    def make(**options):
        if request.param == "asgi":
            return Asgi(**options)
        return Flask(is_decorator=request.param != "flask", **options)

    return make


@pytest.mark.parametrize("options", [{}, {"key": BEHIND_PROXIES}, {"skip": lambda _request: False}])
def test_made_up_peer_addresses_share_one_budget(service, options):
    service = service(**options)
    assert [service.status(text) for text in MADE_UP] == LIMITED
    remaining = Limiter.peek if isinstance(service, Flask) else lambda limiter, key: limiter.blocking.peek(key)
    assert remaining(service.limiter, "unknown").remaining == 0
    # Other clients are not affected, and neither are requests by a Unix socket.
    assert service.status("198.51.100.1") == 200
    assert remaining(service.limiter, "127.0.0.1").remaining == 3


def test_port_of_a_peer_address_is_ignored(service):
    service = service()
    assert [service.status(f"198.51.100.1:{port}") for port in range(1, 6)] == LIMITED


def test_unix_socket_counts_as_local_host(service):
    service = service()
    peer = "" if isinstance(service, Flask) else None
    assert [service.status(None, peer) for _ in range(5)] == LIMITED
    assert service.status("127.0.0.1", peer) == 429


def test_django_peer_addresses():
    printed = python(
        textwrap.dedent(
            f"""
            import asyncio, django, logging
            from django.conf import settings
            from polylimit import Limiter, keys
            logging.disable()
            limiter = Limiter(policies={{"three": "3/day", "own": "3/day sliding_log"}})
            settings.configure(
                ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="a",
                POLYLIMIT={{"limiter": limiter, "policy": "three"}},
            )
            django.setup()
            from django.core.handlers.asgi import ASGIHandler
            from django.http import HttpResponse
            from django.test import Client, override_settings
            from django.urls import path
            from polylimit.django import limit
            @limit(limiter, "own", key=keys.client_address(["loopback"], "forwarded"))
            def own(request):
                return HttpResponse()
            def plain(request):
                return HttpResponse()
            urlpatterns = [path("own", own), path("plain", plain)]
            def get(path, peer):
                return Client(REMOTE_ADDR=peer).get(path, HTTP_FORWARDED="for=203.0.113.7").status_code
            async def get_async(peer):
                scope = {{
                    "type": "http", "method": "GET", "path": "/plain", "query_string": b"", "headers": [],
                    "client": (peer, 1), "server": ("a", 80),
                }}
                messages = [{{"type": "http.request"}}]
                statuses = []
                async def receive():
                    return messages.pop() if messages else await asyncio.sleep(60)
                async def send(message):
                    statuses.append(message.get("status"))
                await ASGIHandler()(scope, receive, send)
                return statuses[0]
            peers = {MADE_UP!r}
            print([get("/own", peer) for peer in peers], limiter.peek("203.0.113.7", "own").remaining)
            with override_settings(MIDDLEWARE=["polylimit.django.RateLimitMiddleware"]):
                print([get("/plain", peer) for peer in peers], limiter.peek("unknown", "three").remaining)
                limiter.reset("unknown", "three")
                print([asyncio.run(get_async(peer)) for peer in peers], limiter.peek("unknown", "three").remaining)
                print([get("/plain", "") for _ in peers], limiter.peek("127.0.0.1", "three").remaining)
            """
        )
    )
    assert printed.splitlines() == [f"{LIMITED} 3", *[f"{LIMITED} 0"] * 3]
