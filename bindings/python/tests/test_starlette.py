"""Starlette without FastAPI, with the oldest and the newest version, and what the scope of ASGI says of a request."""

import pytest
from polylimit import AsyncLimiter
from polylimit._routes import full_path, path_pattern
from polylimit._versions import is_older, require
from polylimit.asgi import Limit
from polylimit.fastapi import RateLimit, RateLimitMiddleware
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route, Router
from starlette.testclient import TestClient

ONCE = "1/hour fixed_window"


async def ran(_request):
    return PlainTextResponse("ran")


async def ran_app(scope, receive, send):
    await PlainTextResponse("ran")(scope, receive, send)


def limited(app, limiter, policy=ONCE, **options):
    return RateLimitMiddleware(app, limit=RateLimit(limiter, policy, **options))


def statuses(app, *urls, times=2, **options):
    web = TestClient(app)
    return [web.get(url, **options).status_code for url in urls for _ in range(times)]


def test_middlewares_at_different_mounts_have_budgets_of_their_own():
    limiter = AsyncLimiter()
    twice = limited(Router([Route("/x", ran), Route("/y/{id}", ran)]), limiter)
    sub = Starlette(routes=[Route("/x", ran)])
    sub.add_middleware(RateLimitMiddleware, limit=RateLimit(limiter, ONCE))
    app = Starlette(
        routes=[
            Mount("/a", app=twice),
            Mount("/b", app=twice),
            Mount("/c", routes=[Mount("/d", app=twice), Mount("/{e}", app=twice)]),
            Mount("/sub", app=sub),
        ]
    )
    urls = ["/a/x", "/b/x", "/c/d/x", "/c/1/x", "/sub/x"]
    assert statuses(app, *urls) == [200, 429] * len(urls)
    assert statuses(app, "/a/y/1", "/c/2/x") == [429] * 4, "all requests of a mount share its budget"


def test_middleware_of_an_application_has_one_budget():
    app = Starlette(routes=[Route("/x", ran), Mount("/a", routes=[Route("/x", ran)])])
    app.add_middleware(RateLimitMiddleware, limit=RateLimit(AsyncLimiter(), ONCE))
    assert statuses(app, "/x", "/a/x") == [200, 429, 429, 429]


def test_routes_and_hosts_have_budgets_of_their_own():
    limiter = AsyncLimiter()
    one = limited(ran_app, limiter)
    app = Starlette(
        routes=[
            Route("/x", one),
            Host("api.example", app=Router([Route("/h/{id}", one)])),
            Host("{any}.example", app=Router([Route("/h/{id}", one)])),
            Route("/y/{id:int}", one),
        ]
    )
    assert statuses(app, "/x", "/y/1") == [200, 429] * 2
    hosts = ["http://api.example/h/1", "http://www.example/h/1"]
    assert statuses(app, *hosts) == [200, 429] * 2
    assert statuses(app, "http://web.example/h/2", "http://API.example/h/2") == [429] * 4
    assert statuses(app, "http://api.example/x", "/y/2") == [429] * 4, "a route of all hosts has one budget"


@pytest.mark.parametrize(("attribute", "rest"), [("route", "*"), ("path", "{*name}")])
def test_rules_have_the_pattern_of_mounts(attribute, rest):
    rules = f"""polylimit = 1
[policies.p]
quotas = "{ONCE}"
[[rules]]
match = {{ {attribute} = "/tenants/{{tenant}}/files/{rest}" }}
apply = [{{ policy = "p", key = "{{client}}" }}]
"""
    one = RateLimitMiddleware(ran_app, limit=RateLimit(AsyncLimiter(document=rules)))
    app = Starlette(routes=[Mount("/tenants/{tenant}", routes=[Route("/files/{name:path}", one)])])
    assert statuses(app, "/tenants/1/files/a/b", "/tenants/1/files/c") == [200, 429, 429, 429]


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ({"path": "/x"}, "/x"),
        ({"path": "/m/x", "root_path": "/m", "app_root_path": ""}, "/m/x"),
        ({"path": "/x", "root_path": "/m", "app_root_path": ""}, "/m/x"),
        ({"path": "/m/x", "root_path": "/m", "app_root_path": "", "raw_path": b"/m/m/x"}, "/m/m/x"),
        ({"path": "/m/m/x", "root_path": "/m", "app_root_path": "", "raw_path": b"/m/m/x"}, "/m/m/x"),
        ({"path": "/proxy/x", "root_path": "/proxy"}, "/x"),
        ({"path": "/proxy", "root_path": "/proxy"}, "/"),
        ({"path": "/proxyx", "root_path": "/proxy"}, "/proxyx"),
        ({"path": "/x", "root_path": "/proxy"}, "/x"),
        ({"path": "/proxy/m/x", "root_path": "/proxy/m", "app_root_path": "/proxy"}, "/m/x"),
        ({"path": "/x", "root_path": "/proxy/m", "app_root_path": "/proxy"}, "/m/x"),
    ],
)
def test_path_has_the_prefixes_of_mounts_and_not_that_of_a_proxy(scope, path):
    assert full_path(scope, strips_root=True) == path


def test_proxy_prefix_stays_where_the_router_sees_it():
    assert full_path({"path": "/proxy/x", "root_path": "/proxy"}, strips_root=False) == "/proxy/x"


def test_pattern_of_a_path():
    assert path_pattern("/a/{b}/{c:int}/{d:path}") == "/a/{b}/{c}/{*d}"


def test_old_version_is_refused_with_a_sentence(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "0.99.1")
    with pytest.raises(
        ImportError, match=r"fastapi 0\.99\.1 is installed, allowed is 0\.100 or newer.*polylimit\[fastapi"
    ):
        require("fastapi", "0.100", "fastapi")
    assert require("fastapi", "0.99.1.0", "fastapi") is None
    assert not is_older("1.0.0rc1", "1.0")


def test_limit_of_asgi_is_validated_where_it_is_made():
    with pytest.raises(TypeError, match='unknown option "keys"'):
        Limit(AsyncLimiter(), ONCE, keys="x")
