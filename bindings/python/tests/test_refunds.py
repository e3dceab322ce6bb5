"""The header fields after a refund show what is left then."""

import asyncio

import flask
import pytest
from polylimit import AsyncLimiter, Limiter
from polylimit.asgi import RateLimitMiddleware
from polylimit.flask import limit
from redis_server import until
from test_views import in_django

BY_ONE = {"key": lambda _request: "one"}
FIRST = {"a": "3/day", "more": "10/day; 5/day token_bucket"}


def told(fields):
    """The policies of a `ratelimit` field, each with what is left."""
    return [one.strip().rsplit(";t=", 1)[0] for one in fields.split(",")]


async def responds(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def asked(app):
    started = []

    async def send(message):
        if message["type"] == "http.response.start":
            started.append((message["status"], told(dict(message["headers"])[b"ratelimit"].decode())))

    await app({"type": "http", "headers": []}, None, send)
    return started[0]


@pytest.mark.parametrize("store", ["memory:", "redis"])
def test_asgi_fields_show_what_is_left_after_refund(store, request, key):
    store = store if store == "memory:" else request.getfixturevalue(store)

    async def main():
        async with AsyncLimiter(store, FIRST) as first, AsyncLimiter(policies={"b": "1/day"}) as second:
            await first.ready(10)
            app = RateLimitMiddleware(responds, limiter=second, policy="b", key=lambda _scope: key)
            app = RateLimitMiddleware(app, limiter=first, policy=["a", "more"], key=lambda _scope: key)
            assert await asked(app) == (200, ['"a";r=2', '"more:1";r=9', '"more:2";r=4', '"b";r=0'])
            for _ in range(3):
                assert await asked(app) == (429, ['"a";r=2', '"more:1";r=9', '"more:2";r=4', '"b";r=0'])

    asyncio.run(main())


def test_flask_fields_show_what_is_left_after_refund():
    first, second = Limiter(policies=FIRST), Limiter(policies={"b": "1/day"})
    app = flask.Flask(__name__)
    handled = []

    def answer(_request, denial):
        handled.extend(decision.remaining for _, decision in denial.outcomes)
        return "denied", 429

    @app.route("/")
    @limit(first, "a", **BY_ONE)
    @limit(second, "b", on_denied=answer, **BY_ONE)
    def view():
        return "view"

    client = app.test_client()
    for status in (200, 429, 429):
        response = client.get("/")
        assert (response.status_code, told(response.headers["ratelimit"])) == (status, ['"a";r=2', '"b";r=0'])
    assert handled == [2, 0, 2, 0]


def test_django_fields_show_what_is_left_after_refund():
    printed = in_django(
        """
        other = Limiter(policies={"b": "1/day"})
        @limit(limiter, "login", **by_path)
        @limit(other, "b", **by_path)
        def view(request):
            return HttpResponse()
        urlpatterns = [path("view", view)]
        print([client.get("/view").headers["ratelimit"].split(";t=")[0] for _ in range(3)])
        """
    )
    assert printed == str(['"login";r=2'] * 3) + "\n"


def test_fields_of_uncounted_request_show_what_is_left():
    limiter = Limiter(policies=FIRST)
    app = flask.Flask(__name__)

    @app.route("/<int:status>")
    @limit(limiter, ["a", "more"], count=lambda response: response.status_code == 401, **BY_ONE)
    def view(status):
        return "view", status

    client = app.test_client()
    remaining = [told(client.get(f"/{status}").headers["ratelimit"]) for status in (200, 401, 200)]
    assert remaining == [
        ['"a";r=3', '"more:1";r=10', '"more:2";r=5'],
        ['"a";r=2', '"more:1";r=9', '"more:2";r=4'],
        ['"a";r=2', '"more:1";r=9', '"more:2";r=4'],
    ]


def test_fields_keep_the_decision_when_the_refund_gets_no_answer(own_redis):
    first = Limiter(own_redis.url + "?deadline=1s", {"a": "3/day"}, outage={"a": "allow"})
    first.ready(10)
    app = flask.Flask(__name__)

    @app.route("/")
    @limit(first, "a", count=lambda _response: False, **BY_ONE)
    def view():
        own_redis.stop()
        until(lambda: first.peek("one").source == "allow", "the store is known to be gone")
        return "view"

    assert told(app.test_client().get("/").headers["ratelimit"]) == ['"a";r=2']
    first.close()
