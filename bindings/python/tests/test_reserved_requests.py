"""Requests that reserve until their response is done: under real servers, and where something goes wrong."""

import asyncio
import gc
import logging

import flask
import pytest
from fastapi import Depends, FastAPI, Response, WebSocket
from fastapi.testclient import TestClient
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter
from polylimit.asgi import RateLimitMiddleware
from polylimit.fastapi import RateLimit as Dependency
from polylimit.fastapi import RateLimitMiddleware as FastApiMiddleware
from polylimit.flask import RateLimit
from redis_server import until
from starlette.websockets import WebSocketDisconnect
from web_server import WebServer
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

MODEL = "1 concurrent; 100/day fixed_window"
SERVERS = {
    "gunicorn": ("gunicorn", "--threads", "4", "model_app:flask_app"),
    "uvicorn": ("uvicorn", "model_app:app"),
}


@pytest.fixture(params=["local", "redis"])
def shared(request):
    """A store that the test and the service share; each test has its own."""
    return request.getfixturevalue("local") if request.param == "local" else request.getfixturevalue("own_redis").url


@pytest.mark.parametrize("server", SERVERS)
def test_stream_holds_its_slot_until_its_client_leaves(server, shared):
    limiter = Limiter(shared, {"model": MODEL})
    with WebServer(*SERVERS[server], store=shared) as service:
        assert service.client.get("/short").status_code == 200
        until(lambda: limiter.peek("client").quotas[0].remaining == 1, "the first response is done")
        assert limiter.peek("client").remaining == 97
        with service.client.stream("GET", "/stream") as response:
            assert response.status_code == 200
            parts = response.iter_raw()
            assert next(parts)
            assert limiter.peek("client").quotas[0].remaining == 0
            assert limiter.peek("client").quotas[1].remaining == 57
            assert service.client.get("/short").status_code == 429
        until(lambda: limiter.peek("client").quotas[0].remaining == 1, "the client has left")
        # The tokens that were streamed are spent, and not the cost; use is at most all there is.
        assert limiter.peek("client").quotas[1].remaining < 97


def test_websocket_holds_its_slot_until_it_is_closed(shared):
    limiter = Limiter(shared, {"model": MODEL})
    with WebServer(*SERVERS["uvicorn"], store=shared) as service:
        url = str(service.client.base_url).replace("http", "ws") + "/socket"
        with connect(url) as socket:
            assert 'model:1";r=0' in socket.response.headers["ratelimit"]
            for _ in range(3):
                socket.send("text")
                assert socket.recv() == "ok"
            with pytest.raises(InvalidStatus) as refused:
                connect(url)
            assert refused.value.response.status_code == 429
            assert "ratelimit" in refused.value.response.headers
        until(lambda: limiter.peek("client").quotas[0].remaining == 1, "the socket is closed")
        assert limiter.peek("client").quotas[1].remaining == 85


def test_websocket_is_refused_where_the_server_sends_no_response():
    limiter = AsyncLimiter(policies={"model": "0/day"})
    handled = []

    async def app(scope, receive, send):
        handled.append(scope)

    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/", "headers": [], "client": ("127.0.0.1", 1)}
    asyncio.run(RateLimitMiddleware(app, limiter=limiter, websockets=True)(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert not handled


def test_websocket_of_a_handler_that_fails_gives_its_slot_back():
    limiter = AsyncLimiter(policies={"model": MODEL})
    app = FastAPI()
    app.add_middleware(FastApiMiddleware, limiter=limiter, key=lambda _request: "client", websockets=True)

    @app.websocket("/refuses")
    async def refuses(websocket: WebSocket):
        await websocket.close()

    @app.websocket("/fails")
    async def fails(websocket: WebSocket):
        await websocket.accept()
        raise ValueError("work")

    client = TestClient(app)
    for path, error in (("/refuses", WebSocketDisconnect), ("/fails", ValueError)):
        with pytest.raises(error), client.websocket_connect(path) as socket:
            socket.receive_text()
        assert limiter.blocking.peek("client").quotas[0].remaining == 1
    assert limiter.blocking.peek("client").remaining == 98


def test_dependency_needs_the_middleware_to_reserve():
    limiter = AsyncLimiter(policies={"model": MODEL, "api": "100/day"})
    app = FastAPI()
    for path, options in (("/slots", {"policy": "model"}), ("/spent", {"policy": "api", "spent": lambda _response: 1})):
        limit = Dependency(limiter, key=lambda _request: "client", **options)
        app.get(path, dependencies=[Depends(limit)])(lambda: "view")
    client = TestClient(app)
    for path in ("/slots", "/spent"):
        with pytest.raises(RuntimeError, match=r"needs polylimit\.fastapi\.RateLimitMiddleware"):
            client.get(path)
    assert limiter.blocking.peek("client", "model").quotas[0].remaining == 1
    app = FastAPI()
    app.add_middleware(FastApiMiddleware)
    limit = Dependency(
        limiter, "model", key=lambda _request: "client", cost=9, spent=lambda response: response.state["n"]
    )

    @app.get("/", dependencies=[Depends(limit)])
    async def view(response: Response):
        return "view"

    @app.middleware("http")
    async def set_state(request, call_next):
        request.state.n = 5
        return await call_next(request)

    before = limiter.blocking.peek("client", "model").remaining
    assert TestClient(app).get("/").status_code == 200
    until(lambda: limiter.blocking.peek("client", "model").remaining == before - 5, "the request has ended")


@pytest.mark.parametrize("returned", [-1, 10**12 + 1, 1.5, "5", ValueError("work")])
def test_spent_that_fails_charges_what_was_reserved(returned, caplog):
    def spent(_response):
        if isinstance(returned, Exception):
            raise returned
        return returned

    limiter = Limiter(policies={"model": MODEL})
    app = flask.Flask(__name__)
    RateLimit(app, limiter=limiter, policy="model", cost=40, key=lambda _request: "client", spent=spent)
    app.get("/")(lambda: "view")
    response = app.test_client().get("/")
    assert response.status_code == 200
    with pytest.raises((ValueError, TypeError)):
        response.close()
    assert limiter.peek("client").remaining == 60
    assert limiter.peek("client").quotas[0].remaining == 1
    from django.http import HttpResponse
    from polylimit import django as of_django

    if not of_django.settings.configured:
        of_django.settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="a", LOGGING_CONFIG=None)
    from django.test import RequestFactory

    view = of_django.limit(limiter, "model", cost=40, key=lambda _request: "client", spent=spent)(
        lambda _r: HttpResponse()
    )
    response = view(RequestFactory().get("/"))
    with caplog.at_level(logging.ERROR):
        response.close()
    assert "the end of a response failed" in caplog.text
    assert limiter.peek("client").remaining == 20


def test_options_are_validated():
    limiter = Limiter(policies={"model": MODEL, "queue": "5/minute leaky_bucket"})

    async def asynchronous(_response):
        return 5

    def make(**options):
        RateLimit(limiter=limiter, **{"policy": "model", **options})

    for options, error in (
        ({"spent": 5}, TypeError),
        ({"spent": asynchronous}, InvalidArgumentError),
        ({"ttl": 0}, InvalidArgumentError),
        ({"ttl": "30s"}, TypeError),
        ({"max_age": -1}, InvalidArgumentError),
        ({"policy": "queue", "spent": lambda _response: 5}, InvalidArgumentError),
    ):
        with pytest.raises(error):
            make(**options)
    make(ttl=0.001, max_age=0, spent=lambda _response: 5)


def test_response_that_is_never_closed_ends_when_it_is_freed():
    limiter = Limiter(policies={"model": MODEL})
    app = flask.Flask(__name__)
    RateLimit(app, limiter=limiter, policy="model", key=lambda _request: "client")
    app.get("/")(lambda: "view")
    with app.test_request_context("/"):
        app.preprocess_request()
        response = app.process_response(app.make_response("view"))
        assert limiter.peek("client").quotas[0].remaining == 0
    del response
    gc.collect()
    until(lambda: limiter.peek("client").quotas[0].remaining == 1, "the response is freed")
    assert limiter.peek("client").remaining == 99


@pytest.mark.parametrize("is_started", [False, True])
def test_cancelled_request_gives_its_slot_back(run, redis, key, is_started):
    async def main():
        limiter = AsyncLimiter(redis, {"model": MODEL})
        is_handled = asyncio.Event()

        async def app(_scope, _receive, send):
            if is_started:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            is_handled.set()
            await asyncio.Event().wait()

        async def send(_message):
            await asyncio.sleep(0)

        limited = RateLimitMiddleware(app, limiter=limiter, cost=40, key=lambda _scope: key)
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("127.0.0.1", 1)}
        task = asyncio.ensure_future(limited(scope, None, send))
        await is_handled.wait()
        assert (await limiter.peek(key)).quotas[0].remaining == 0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = await limiter.peek(key)
        assert [quota.remaining for quota in left.quotas] == [1, 60]

    run(main())
