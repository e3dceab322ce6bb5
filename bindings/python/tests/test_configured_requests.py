"""Middlewares that decide by the configuration of their limiter."""

import uuid

import flask
import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter, asgi, keys
from polylimit import fastapi as of_fastapi
from polylimit.django import limit as limit_of_django
from polylimit.flask import RateLimit, limit
from test_process import python

DOCUMENT = """
polylimit = 1
[policies.api]
quotas = "2/day fixed_window"
plans = { gold = "9/day fixed_window" }
[policies.key]
quotas = "1/day fixed_window"
[policies.slots]
quotas = "1 concurrent"
[[rules]]
match = { path = "/a b/{*rest}" }
apply = [{ policy = "key", key = "{path.rest}" }]
[[rules]]
match = { method = "POST", path = "/strict" }
apply = [{ policy = "key", key = "{header.x-api-key}", missing = "deny" }]
[[rules]]
match = { path = "/slow" }
apply = [{ policy = "slots", key = "all" }]
[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{user,client}" }]
[lists]
deny = ["country KP"]
"""


def attributes_of(request):
    """What the program knows of a request, from fields that are there in every framework."""
    headers = request["headers"] if isinstance(request, dict) else request.headers
    if isinstance(request, dict):
        headers = {name.decode(): value.decode() for name, value in headers}
    given = {name: headers.get(f"x-{name}") for name in ("plan", "country")}
    return {**given, "user": headers["x-user"]} if "x-user" in headers else given


def apart(url):
    """A part of the server that no other test uses, as the keys of requests are always the same."""
    return f"{url}&prefix={uuid.uuid4().hex}" if url.startswith("redis") else url


class OfFlask:
    def __init__(self, url, **options):
        self.limiter = Limiter(apart(url), document=DOCUMENT)
        app = flask.Flask(__name__)
        RateLimit(app, limiter=self.limiter, **options)
        app.add_url_rule("/<path:path>", view_func=lambda path: "well", methods=["GET", "POST"])
        self.client = app.test_client()

    def ask(self, method, path, headers=None):
        response = self.client.open(path, method=method, headers=headers or {})
        response.close()
        return response.status_code, response.headers


class OfAsgi:
    module = asgi

    def __init__(self, url, **options):
        self.limiter = AsyncLimiter(apart(url), document=DOCUMENT).blocking
        app = FastAPI()
        app.add_api_route("/{path:path}", lambda path: "well", methods=["GET", "POST"])
        app.add_middleware(self.module.RateLimitMiddleware, limiter=self.limiter.asynchronous, **options)
        self.client = TestClient(app)

    def ask(self, method, path, headers=None):
        response = self.client.request(method, path, headers=headers)
        return response.status_code, response.headers


class OfFastapi(OfAsgi):
    module = of_fastapi


class OfDependency(OfAsgi):
    def __init__(self, url, **options):
        self.limiter = AsyncLimiter(apart(url), document=DOCUMENT).blocking
        depends = Depends(of_fastapi.RateLimit(self.limiter.asynchronous, **options))
        app = FastAPI(dependencies=[depends])
        app.add_api_route("/{path:path}", lambda path: "well", methods=["GET", "POST"])
        app.add_middleware(of_fastapi.RateLimitMiddleware)
        self.client = TestClient(app)


FRAMEWORKS = [OfFlask, OfAsgi, OfFastapi, OfDependency]


@pytest.mark.parametrize("made", FRAMEWORKS)
def test_rules_decide_about_requests(made, store):
    site = made(store, attributes=attributes_of)
    assert [site.ask("GET", "/other")[0] for _ in range(5)] == [200] * 5
    status, headers = site.ask("GET", "/v1/orders")
    assert (status, headers["ratelimit-policy"]) == (200, '"api";q=2;w=86400')
    assert [site.ask("GET", f"/v1/{number}")[0] for number in range(2)] == [200, 429]
    assert site.ask("GET", "/v1/x", {"x-user": "ann", "x-plan": "gold"})[0] == 200
    assert site.limiter.peek("user=ann", "api", plan="gold").remaining in (7, 8)
    assert site.ask("GET", "/v1/x", {"x-country": "KP"})[0] == 403
    assert "ratelimit" not in site.ask("GET", "/v1/x", {"x-country": "KP"})[1]
    assert site.ask("POST", "/strict")[0] == 400
    asked = [site.ask("POST", "/strict", {"X-Api-Key": "k1"})[0] for _ in range(2)]
    assert asked == [200, 429]
    assert site.ask("GET", "/strict")[0] == 200, "the rule is for another method"


@pytest.mark.parametrize("made", FRAMEWORKS)
def test_path_is_that_of_the_router(made):
    site = made("memory:")
    assert site.ask("GET", "/a%20b/x%2Fy?z")[0] == 200
    # Servers hand the path over without escapes.
    assert site.limiter.peek("x/y", "key").remaining == 0


@pytest.mark.parametrize("made", FRAMEWORKS)
def test_slot_is_held_until_the_response_is_done(made, store):
    site = made(store)
    assert [site.ask("GET", "/slow")[0] for _ in range(3)] == [200] * 3
    assert site.limiter.peek("all", "slots").remaining == 1
    with site.limiter.reserve("all", "slots"):
        assert site.ask("GET", "/slow")[0] == 429


@pytest.mark.parametrize("made", FRAMEWORKS[:3])
def test_response_that_does_not_count_is_refunded(made, store):
    site = made(store, count=lambda response: response.status_code != 200, attributes=lambda _: {"user": "ann"})
    assert [site.ask("GET", "/v1/x")[0] for _ in range(5)] == [200] * 5
    assert site.limiter.peek("user=ann", "api").remaining == 2


def test_changed_document_decides_at_once():
    site = OfFlask("memory:")
    site.limiter.admin().set_document(
        'polylimit = 1\n[policies.all]\nquotas = "1/day"\n[[rules]]\napply = [{ policy = "all", key = "a" }]'
    )
    assert [site.ask("GET", "/other")[0] for _ in range(2)] == [200, 429]


def test_limit_with_a_policy_decides_by_that_policy():
    limiter = Limiter(document=DOCUMENT)
    app = flask.Flask(__name__)

    @app.get("/login")
    @limit(limiter, "key", key=lambda request: "all")
    def login():
        return "well"

    assert [app.test_client().get("/login").status_code for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"key": keys.user()}, InvalidArgumentError, "^key is given, and the limiter decides by its configuration"),
        ({"cost": 2}, InvalidArgumentError, "^cost is given"),
        ({"scope": "a"}, InvalidArgumentError, "^scope is given"),
        ({"missing_key": "share"}, InvalidArgumentError, "^missing_key is given"),
        ({"client_address": keys.client_address()}, InvalidArgumentError, "^client_address is given"),
        ({"attributes": {"user": "a"}}, TypeError, "^attributes is of type dict: allowed is a function"),
        (
            {"policy": "api", "attributes": attributes_of},
            InvalidArgumentError,
            "^attributes need a limiter with a configuration",
        ),
    ],
)
def test_options_that_the_document_says_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        RateLimit(limiter=Limiter(document=DOCUMENT), **options)
    with pytest.raises(error, match=message):
        limit_of_django(Limiter(document=DOCUMENT), **options)
    with pytest.raises(error, match=message):
        of_fastapi.RateLimit(AsyncLimiter(document=DOCUMENT), **options)


def test_attributes_need_a_configuration():
    with pytest.raises(InvalidArgumentError, match=r"^attributes need a limiter with a configuration"):
        RateLimit(limiter=Limiter(policies={"api": "1/s"}), attributes=attributes_of)


@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
def test_django_decides_by_the_configuration(kind):
    site = f"""
        import asyncio
        from django.conf import settings
        from polylimit import Limiter
        limiter = Limiter(document={DOCUMENT!r})
        def attributes(request):
            return {{name: request.headers.get("x-" + name) for name in ("plan", "country")}}
        settings.configure(
            ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="a",
            MIDDLEWARE=["polylimit.django.RateLimitMiddleware"],
            POLYLIMIT={{"limiter": limiter, "attributes": attributes}},
        )
        import django
        django.setup()
        from django.http import HttpResponse
        from django.test import AsyncClient, Client
        from django.urls import re_path
        if {kind == "blocking"}:
            urlpatterns = [re_path("", lambda request: HttpResponse("well"))]
            client, run = Client(), lambda response: response
        else:
            async def view(request):
                return HttpResponse("well")
            urlpatterns = [re_path("", view)]
            client, run = AsyncClient(), asyncio.run
        def ask(path, **headers):
            response = run(client.get(path, headers=headers))
            response.close()
            return response.status_code
        assert [ask("/v1/a") for _ in range(3)] == [200, 200, 429]
        assert [ask("/other") for _ in range(3)] == [200] * 3
        assert [ask("/slow") for _ in range(3)] == [200] * 3
        assert ask("/v1/a", **{{"x-country": "KP"}}) == 403
        assert ask("/v1/a", **{{"x-plan": "gold"}}) == 200
        assert ask("/a%20b/x") == 200 and limiter.peek("x", "key").remaining == 0
        print("well")
    """
    assert python(site) == "well\n"
