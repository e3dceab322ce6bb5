"""The same service in each framework, under real web servers with several processes."""

import json
import re
import uuid

import pytest
from redis_server import until
from web_server import APPS, WebServer

SERVERS = {
    "flask": ("gunicorn", "--workers", "4", "flask_app:app"),
    "flask preloaded": ("gunicorn", "--workers", "4", "--threads", "4", "--preload", "flask_app:app"),
    # uWSGI forks the loaded application, or loads it in each process.
    "flask under uWSGI": ("uwsgi", "--processes", "4", "--module", "flask_app:app"),
    "flask under uWSGI, lazy": ("uwsgi", "--processes", "4", "--lazy-apps", "--module", "flask_app:app"),
    "fastapi": ("uvicorn", "--workers", "2", "fastapi_app:app"),
    "fastapi on asyncio": ("uvicorn", "--workers", "2", "--loop", "asyncio", "fastapi_app:app"),
    "django": ("gunicorn", "--workers", "4", "--preload", "django_app:wsgi"),
    "django asynchronous": ("uvicorn", "--workers", "2", "--lifespan", "off", "django_app:asgi"),
}


@pytest.fixture(params=SERVERS)
def server(request):
    return SERVERS[request.param]


@pytest.fixture(params=["local", "redis"])
def shared(request):
    """The URL of a store that processes share."""
    return request.getfixturevalue(request.param)


def client():
    return {"x-client": uuid.uuid4().hex}


def test_service_under_a_real_server(server, shared, record):
    with WebServer(*server, store=shared) as web:
        exactly_the_limit(web)
        the_fields(web)
        several_policies(web)
        what_counts(web)
        costs(web)
        own_answers(web)
        streams(web)
        parts_of_an_application(web)
        unlimited_paths(web)
    if "--preload" in server:
        record("F60", f"Python, {' '.join(server)}", admitted_of_key=20, bound=20)


def exactly_the_limit(web):
    for path in ("/api", "/missing"):
        statuses = web.statuses(path, 100, headers=client())
        assert (statuses[429], sum(statuses.values())) == (80, 100), statuses


def the_fields(web):
    headers = client()
    response = web.client.get("/api", headers=headers)
    assert response.headers["ratelimit-policy"] == '"api";q=20;w=86400'
    assert response.headers["ratelimit"].startswith('"api";r=19;t=')
    assert "retry-after" not in response.headers
    web.statuses("/api", 19, headers=headers)
    denied = web.client.get("/api", headers=headers)
    assert denied.status_code == 429
    assert 0 < int(denied.headers["retry-after"]) <= 86_400
    assert denied.headers["ratelimit"].startswith('"api";r=0;t=')
    assert denied.headers["content-type"] == "application/problem+json"
    problem = json.loads(denied.content)
    assert (problem["status"], problem["violated-policies"]) == (429, ["api"])
    text = web.client.get("/api", headers={**headers, "accept": "text/plain"})
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text.startswith("Not enough of the quota is left")


def several_policies(web):
    headers = client()
    response = web.client.get("/api/small", headers=headers)
    assert response.status_code == 200
    assert response.headers["ratelimit-policy"] == '"api";q=20;w=86400, "small";q=5;w=86400, "upload";q=100;w=86400'
    assert web.statuses("/api/small", 9, headers=headers) == {200: 4, 429: 5}
    denied = web.client.get("/api/small", headers=headers)
    assert json.loads(denied.content)["violated-policies"] == ["small"]
    # A request that one policy denies spends nothing under the others.
    assert '"upload";r=94;' in web.client.get("/stream", headers=headers).headers["ratelimit"]
    assert web.client.get("/api", headers=headers).headers["ratelimit"].startswith('"api";r=14;')


def what_counts(web):
    headers = client()
    # In sequence, because units reserved by a running request count for others.
    assert {web.client.get("/login/right", headers=headers).status_code for _ in range(10)} == {200}
    assert [web.client.get("/login/wrong", headers=headers).status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    denied = web.client.get("/login/right", headers=headers)
    assert denied.status_code == 429
    assert denied.headers["x-ratelimit-limit"] == "3"
    assert "ratelimit" in denied.headers


def costs(web):
    headers = client()
    assert web.client.get("/upload/60", headers=headers).status_code == 200
    assert web.client.get("/upload/60", headers=headers).status_code == 429
    assert web.client.get("/upload/40", headers=headers).status_code == 200
    never = web.client.get("/upload/101", headers=headers)
    assert (never.status_code, "retry-after" in never.headers) == (429, False)


def own_answers(web):
    headers = client()
    allowed = web.client.get("/own", headers=headers)
    assert (allowed.status_code, "ratelimit" in allowed.headers) == (200, False)
    denied = web.client.get("/own", headers=headers)
    assert denied.status_code == 418
    # Quotas without a name belong to the route, whose name clients do not see.
    assert re.fullmatch(r"/own: \['1\|day~[0-9a-f]{4}'\]", denied.text), denied.text
    assert "retry-after" in denied.headers


def streams(web):
    with web.client.stream("GET", "/stream", headers=client()) as response:
        assert "content-length" not in response.headers
        assert '"upload";r=99' in response.headers["ratelimit"]
        assert list(response.iter_lines()) == [str(number) for number in range(1000)]


def parts_of_an_application(web):
    assert web.statuses("/shop/", 10, headers=client()) == {200: 5, 429: 5}


def unlimited_paths(web):
    response = web.client.get("/nowhere", headers=client())
    assert (response.status_code, "ratelimit" in response.headers) == (404, False)


@pytest.mark.parametrize("name", ["flask preloaded", "fastapi", "django"])
def test_service_recovers_after_redis_restarts(own_redis, name):
    headers = client()
    with WebServer(*SERVERS[name], store=own_redis.url + "?deadline=1s") as web:
        assert web.statuses("/strict", 10, headers=headers) == {200: 10}
        own_redis.stop()
        denied = web.client.get("/strict", headers=headers)
        assert denied.status_code == 503
        assert json.loads(denied.content)["type"].endswith("temporary-reduced-capacity")
        assert int(denied.headers["retry-after"]) >= 1
        # The other policies have the outage policy `fallback`.
        assert web.client.get("/api", headers=headers).status_code == 200
        own_redis.start()
        until(lambda: web.statuses("/strict", 16, headers=headers) == {200: 16}, "decisions come from Redis again")


def test_flask_users_have_separate_budgets(local):
    with WebServer(*SERVERS["flask"], store=local) as web:
        for name in ("ann", "bob"):
            assert web.statuses("/user", 5, headers={"x-user": name}) == {200: 2, 429: 3}
        assert web.statuses("/user", 5) == {200: 2, 429: 3}, "those without a user count by address"


def test_asgi_application_without_framework(local):
    with WebServer("uvicorn", "--workers", "2", "fastapi_app:bare_alone", store=local) as web:
        assert web.statuses("/", 10, headers=client()) == {200: 5, 429: 5}
    with WebServer(*SERVERS["fastapi"], store=local) as web:
        for path in ("/bare/", "/plain/"):
            headers = client()
            assert web.statuses(path, 10, headers=headers) == {200: 5, 429: 5}
            denied = web.client.get(path, headers=headers)
            assert denied.headers["content-type"] == "application/problem+json"
            assert denied.headers["ratelimit"].startswith('"small";r=0')


def test_dependency_works_without_middleware(local, monkeypatch):
    monkeypatch.setenv("STORE", local)
    from fastapi import Depends, FastAPI
    from fastapi.testclient import TestClient
    from polylimit import AsyncLimiter
    from polylimit.fastapi import DeniedError, RateLimit
    from starlette.responses import PlainTextResponse

    limiter = AsyncLimiter(policies={"a": "1/day", "b": "5/day"})
    app = FastAPI()
    key = {"key": lambda _request: "one"}

    @app.get("/", dependencies=[Depends(RateLimit(limiter, name, **key)) for name in ("a", "b")])
    def both():
        return "both"

    @app.get("/counted", dependencies=[Depends(RateLimit(limiter, "b", count=bool, **key))])
    def counted():
        return "counted"

    web = TestClient(app)
    allowed = web.get("/")
    assert allowed.headers["ratelimit-policy"] == '"a";q=1;w=86400, "b";q=5;w=86400'
    denied = web.get("/")
    assert (denied.status_code, denied.headers["content-type"]) == (429, "application/problem+json")
    assert denied.headers["ratelimit"].startswith('"a";r=0')
    with pytest.raises(RuntimeError, match="RateLimitMiddleware"):
        web.get("/counted")

    app = FastAPI()

    @app.exception_handler(DeniedError)
    async def answer(_request, error):
        return PlainTextResponse(str(error.denial.problem.violated), 429)

    @app.get("/", dependencies=[Depends(RateLimit(limiter, "a", **key))])
    def root():
        return "root"

    assert TestClient(app).get("/").text == "['a']"


def test_web_sockets_pass_through_the_middleware_and_are_limited_by_their_dependency(local, monkeypatch):
    monkeypatch.setenv("STORE", local)
    monkeypatch.syspath_prepend(str(APPS))
    from fastapi.testclient import TestClient
    from fastapi_app import app
    from starlette.testclient import WebSocketDenialResponse

    web = TestClient(app, headers=client())
    for _ in range(5):
        with web.websocket_connect("/api/echo") as socket:
            socket.send_text("hello")
            assert socket.receive_text() == "hello"
    with pytest.raises(WebSocketDenialResponse) as denied, web.websocket_connect("/api/echo"):
        pass
    assert denied.value.status_code == 429
    assert web.get("/api").headers["ratelimit"].startswith('"api";r=19')
