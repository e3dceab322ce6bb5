"""Budgets: one for each route, scope or named policy, charged once in a request."""

import asyncio
import textwrap

import flask
import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.testclient import TestClient
from polylimit import AsyncLimiter, Limiter, keys
from polylimit.fastapi import RateLimit as Dependency
from polylimit.fastapi import RateLimitMiddleware
from polylimit.flask import RateLimit, limit
from test_process import python

POLICIES = {"api": "10/day", "other": "5/day"}


class Flask:
    """An application with the routes `/one`, `/two` and `/part/three` and limits on each."""

    def __init__(self, application=None, one=(), two=(), part=None):
        self.limiter = Limiter(policies=POLICIES)
        app = flask.Flask(__name__)
        app.testing = True
        if application is not None:
            RateLimit(app, limiter=self.limiter, **application)
        for path, limits in (("one", one), ("two", two)):

            def view():
                return "view"

            for options in reversed(limits):
                view = limit(self.limiter, **options)(view)
            app.add_url_rule(f"/{path}", path, view)
        blueprint = flask.Blueprint("part", __name__, url_prefix="/part")
        blueprint.add_url_rule("/three", "three", lambda: "three")
        if part is not None:
            RateLimit(blueprint, limiter=self.limiter, **part)
        app.register_blueprint(blueprint)
        self.client = app.test_client()

    def get(self, path):
        return self.client.get(path)


class FastApi:
    """The same routes, with dependencies as limits; `/part` is a router."""

    def __init__(self, application=None, one=(), two=(), part=None):
        self.asynchronous = AsyncLimiter(policies=POLICIES)
        self.limiter = self.asynchronous.blocking
        app = FastAPI()
        if application is not None:
            app.add_middleware(RateLimitMiddleware, limiter=self.asynchronous, **application)

        async def view():
            return "view"

        for path, limits in (("one", one), ("two", two)):
            app.get(f"/{path}", dependencies=[self.depends(options) for options in limits])(view)
        router = APIRouter(prefix="/part", dependencies=[] if part is None else [self.depends(part)])
        router.get("/three")(view)
        app.include_router(router)
        self.client = TestClient(app, client=("127.0.0.1", 1))

    def depends(self, options):
        return Depends(Dependency(self.asynchronous, **options))

    def get(self, path):
        return self.client.get(path)


@pytest.fixture(params=[Flask, FastApi], ids=["flask", "fastapi"])
def service(request):
    return request.param


def remaining(service, policy):
    return service.limiter.peek("127.0.0.1", policy).remaining


def statuses(service, path, times):
    return [service.get(path).status_code for _ in range(times)]


def test_routes_with_the_same_quotas_have_separate_budgets(service):
    service = service(one=[{"policy": "3/day"}], two=[{"policy": "3/day"}])
    assert statuses(service, "/one", 4) == [200] * 3 + [429]
    assert statuses(service, "/two", 4) == [200] * 3 + [429]
    # The quotas without a scope have another budget.
    assert remaining(service, "3/day") == 3


def test_routes_in_one_scope_share_a_budget(service):
    options = {"policy": "3/day", "scope": "both"}
    service = service(one=[options], two=[options])
    assert statuses(service, "/one", 2) == [200] * 2
    assert statuses(service, "/two", 2) == [200, 429]
    assert remaining(service, service.limiter.policy_for("3/day", "both").name) == 0


def test_named_policy_is_shared_by_routes(service):
    service = service(one=[{"policy": "other"}], two=[{"policy": "other", "scope": "alone"}])
    assert statuses(service, "/one", 3) == [200] * 3
    assert statuses(service, "/two", 3) == [200, 200, 429]


def test_policy_of_application_and_view_is_charged_once(service):
    service = service(
        application={"policy": "api"}, one=[{"policy": "api"}], two=[{"policy": "api"}, {"policy": "api"}]
    )
    response = service.get("/one")
    assert (response.status_code, remaining(service, "api")) == (200, 9)
    assert response.headers["ratelimit"].count('"api"') == 1
    assert "r=9" in response.headers["ratelimit"]
    service.get("/two")
    assert remaining(service, "api") == 8


def test_highest_cost_is_charged(service):
    service = service(
        application={"policy": "api"},
        one=[{"policy": "api", "cost": 4}],
        two=[{"policy": "api", "cost": 0}, {"policy": ["api", "other"], "cost": 3}, {"policy": "api", "cost": 2}],
    )
    response = service.get("/one")
    assert (response.status_code, remaining(service, "api")) == (200, 6)
    assert "r=6" in response.headers["ratelimit"]
    service.get("/two")
    assert (remaining(service, "api"), remaining(service, "other")) == (3, 2)
    # A denied request spends nothing under any policy.
    assert service.get("/one").status_code == 429
    assert remaining(service, "api") == 3


def test_quotas_of_application_and_view_in_one_scope_are_charged_once(service):
    options = {"policy": "10/day", "scope": "all"}
    service = service(application=options, one=[options])
    service.get("/one")
    assert remaining(service, service.limiter.policy_for("10/day", "all").name) == 9


def test_different_keys_have_separate_budgets(service):
    service = service(application={"policy": "api"}, one=[{"policy": "api", "key": lambda _request: "another"}])
    service.get("/one")
    assert (remaining(service, "api"), service.limiter.peek("another", "api").remaining) == (9, 9)


def test_shared_policy_counts_if_one_count_is_true(service):
    never, always = {"count": lambda _response: False}, {"count": lambda _response: True}
    service = service(
        application={"policy": "api", **never},
        one=[{"policy": "api", "cost": 3, **never}],
        two=[{"policy": "api", "cost": 2, **always}, {"policy": "api", "cost": 5, **never}],
    )
    service.get("/one")
    assert remaining(service, "api") == 10
    response = service.get("/two")
    assert remaining(service, "api") == 8
    assert "r=8" in response.headers["ratelimit"]


def test_blueprint_has_its_own_budget_and_router_those_of_its_routes(service):
    service = service(application={"policy": "10/day"}, part={"policy": "10/day"})
    service.get("/part/three")
    assert remaining(service, "10/day") == 9
    scope = "part" if isinstance(service, Flask) else "GET /part/three"
    assert remaining(service, service.limiter.policy_for("10/day", scope).name) == 9


def test_flask_route_is_its_endpoint():
    limiter = Limiter()
    app = flask.Flask(__name__)
    app.get("/users/<int:user>", endpoint="user")(limit(limiter, "3/day")(lambda user: f"user {user}"))
    client = app.test_client()
    assert [client.get(f"/users/{user}").status_code for user in range(4)] == [200] * 3 + [429]
    assert remaining_of(limiter, "user") == 0


@pytest.mark.parametrize("root", ["", "/behind/a/proxy"])
@pytest.mark.parametrize("mount", ["", "/v1"])
def test_fastapi_route_is_its_declared_path(root, mount):
    asynchronous = AsyncLimiter()
    within = app = FastAPI()

    @within.api_route("/users/{user}", methods=["POST", "GET"])
    async def show(user: int, _: None = Depends(Dependency(asynchronous, "3/day"))):
        return user

    if mount:
        app = FastAPI()
        app.mount(mount, within)
    client = TestClient(app, client=("127.0.0.1", 1), root_path=root)
    paths = [f"{root}{mount}/users/{user}" for user in range(4)]
    assert [client.get(path).status_code for path in paths] == [200] * 3 + [429]
    assert remaining_of(asynchronous.blocking, f"GET,POST {mount}/users/{{user}}") == 0


def remaining_of(limiter, scope):
    return limiter.peek("127.0.0.1", limiter.policy_for("3/day", scope).name).remaining


@pytest.mark.parametrize("key", [lambda _request: None, keys.user()], ids=["function", "ready"])
def test_anonymous_user_counts_by_address(service, key, monkeypatch):
    options = {"policy": "3/day", "scope": "x", "key": key}
    if service is Flask:
        monkeypatch.setattr("polylimit.flask._Info.user", lambda _info: None)
    for made in (service(one=[options]), service(application=options), service(one=[{**options, "cost": lambda _: 1}])):
        assert statuses(made, "/one", 4) == [200] * 3 + [429]
        assert remaining(made, made.limiter.policy_for("3/day", "x").name) == 0


def test_integer_key_is_accepted(service):
    made = service(
        one=[{"policy": "other", "key": lambda _request: 42}], application={"policy": "api", "key": lambda _: 7}
    )
    assert made.get("/one").status_code == 200
    assert made.limiter.peek("42", "other").remaining == 4
    assert made.limiter.peek(7, "api").remaining == 9


def test_exception_of_key_function_is_raised(service):
    def key(_request):
        raise LookupError("no user")

    with pytest.raises(LookupError, match="no user"):
        service(one=[{"policy": "api", "key": key}]).get("/one")


def test_django_views_have_scopes():
    printed = python(
        textwrap.dedent(
            """
            import asyncio, logging
            from django.conf import settings
            from polylimit import Limiter
            logging.disable()
            limiter = Limiter(policies={"api": "10/day"})
            settings.configure(
                ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="a",
                POLYLIMIT={"limiter": limiter, "policy": "api", "key": lambda request: None},
            )
            import django
            django.setup()
            from django.http import HttpResponse
            from django.test import AsyncClient, Client, override_settings
            from django.urls import path
            from polylimit.django import limit
            def view(request, **_details):
                return HttpResponse()
            async def asynchronous(request):
                return HttpResponse()
            unnamed = limit(limiter, "3/day")(view)
            urlpatterns = [
                path("one/<int:number>", limit(limiter, "3/day")(view), name="one"),
                path("two", limit(limiter, "3/day")(view), name="two"),
                path("three", unnamed),
                path("shared", limit(limiter, "3/day", scope="shared")(view), name="shared"),
                path("twice", limit(limiter, "api")(limit(limiter, "api", cost=2)(view)), name="twice"),
                path("async", limit(limiter, "3/day", key=lambda request: 42)(asynchronous), name="async"),
            ]
            def left(quotas, scope=None, key="127.0.0.1"):
                return limiter.peek(key, limiter.policy_for(quotas, scope).name).remaining
            for middleware in ([], ["polylimit.django.RateLimitMiddleware"]):
                with override_settings(MIDDLEWARE=middleware):
                    limiter.reset("127.0.0.1", "api")
                    for scope in ("one", "two", "shared", "__main__.view"):
                        limiter.reset("127.0.0.1", limiter.policy_for("3/day", scope).name)
                    print([Client().get(f"/one/{number}").status_code for number in range(4)])
                    print([Client().get(f"/{name}").status_code for name in ("two", "three", "shared")])
                    print(*[left("3/day", scope) for scope in ("one", "two", "shared", "__main__.view")], left("3/day"))
                    before = left("api")
                    print(Client().get("/twice").status_code, before - left("api"))
                    print(asyncio.run(AsyncClient().get("/async")).status_code)
            print(left("3/day", "async", "42"))
            """
        )
    )
    each = ["[200, 200, 200, 429]", "[200, 200, 200]", "0 2 2 2 3", "200 2", "200"]
    assert printed.splitlines() == [*each, *each, "1"]


def test_concurrent_requests_are_charged_once_each():
    # The middleware and both dependencies share one policy while 50 requests run concurrently.
    asynchronous = AsyncLimiter(policies={"api": "1000/day"})
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=asynchronous, policy="api")
    once = Depends(Dependency(asynchronous, "api"))

    @app.get("/", dependencies=[once, Depends(Dependency(asynchronous, "api", cost=2))])
    async def view():
        return "view"

    async def request():
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": b"",
            "headers": [],
            "client": ("192.0.2.1", 1),
        }
        sent = []

        async def receive():
            return {"type": "http.request"}

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)
        return sent[0]["status"]

    async def main():
        return await asyncio.gather(*(request() for _ in range(50)))

    assert set(asyncio.run(main())) == {200}
    assert asynchronous.blocking.peek("192.0.2.1").remaining == 900
