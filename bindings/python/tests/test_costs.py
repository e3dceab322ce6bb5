"""Policies of a limit with costs of their own: tokens under one policy, requests under another."""

import flask
import pytest
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from polylimit import InvalidArgumentError, Limiter, Policy, Quota
from polylimit.asgi import RateLimitMiddleware
from polylimit.fastapi import RateLimit as Dependency
from polylimit.fastapi import RateLimitMiddleware as FastApiMiddleware
from polylimit.flask import RateLimit, limit
from redis_server import until
from test_django import site

POLICIES = {"tokens": "1000/day fixed_window", "requests": "5/day fixed_window"}
BOTH = ["tokens", "requests"]


def left(limiter, key="k"):
    """What is left under each policy."""
    return [limiter.peek(key, policy).remaining for policy in BOTH]


def cost_of_tokens(request):
    return int(request.headers.get("x-tokens", 0))


async def cost_in_loop(request):
    return cost_of_tokens(request)


def asks(client):
    """Return a function that sends a request with headers and returns the status of its response."""

    def ask(**headers):
        response = client.get("/", headers={f"x-{name}": str(value) for name, value in headers.items()})
        response.close()
        return response.status_code

    return ask


def flask_client(limiter, **options):
    app = flask.Flask(__name__)
    options = {"limiter": limiter, "policy": BOTH, "key": lambda _request: "k", **options}

    @app.get("/")
    @limit(**options)
    def view():
        response = flask.Response("view")
        response.headers["x-used"] = flask.request.headers.get("x-used", "")
        return response

    return asks(app.test_client())


def flask_app_client(limiter, **options):
    app = flask.Flask(__name__)
    RateLimit(app, limiter=limiter, **{"policy": BOTH, "key": lambda _request: "k", **options})

    @app.get("/")
    def view():
        return "view", {"x-used": flask.request.headers.get("x-used", "")}

    return asks(app.test_client())


def fastapi_client(limiter, *, is_of_route=False, **options):
    app = FastAPI()
    options = {"limiter": limiter.asynchronous, "policy": BOTH, "key": lambda _request: "k", **options}
    dependencies = [Depends(Dependency(**options))] if is_of_route else []
    app.add_middleware(FastApiMiddleware, **({} if is_of_route else options))

    @app.get("/", dependencies=dependencies)
    async def view(request: Request, response: Response):
        request.state.used = request.headers.get("x-used", "")
        return "view"

    return asks(TestClient(app))


def fastapi_route_client(limiter, **options):
    return fastapi_client(limiter, is_of_route=True, **options)


CLIENTS = [flask_client, flask_app_client, fastapi_client, fastapi_route_client]


def used_of(response):
    """What a response says that it has used; ``None`` for what was reserved."""
    state = getattr(response, "state", None)
    used = response.headers["x-used"] if state is None else state.get("used")
    return int(used) if used else None


@pytest.fixture
def limiter():
    return Limiter(policies=POLICIES)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("cost", [300, cost_of_tokens, cost_in_loop])
def test_each_policy_is_charged_its_own_cost(client, cost, limiter):
    ask = client(limiter, cost={"tokens": cost})
    assert ask(tokens=300) == 200
    assert left(limiter) == [700, 4]


def test_fixed_costs_need_nothing_but_the_peer_of_a_request(limiter):
    client = TestClient(make_asgi(limiter, key=None, cost={"tokens": 400}))
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
    # The peer of a test client is no address.
    assert left(limiter, "unknown") == [200, 3]


@pytest.mark.parametrize("client", CLIENTS)
def test_denial_of_one_policy_spends_nothing_of_the_other(client, limiter):
    ask = client(limiter, cost={"tokens": cost_of_tokens, "requests": 2})
    assert [ask(tokens=tokens) for tokens in (400, 601, 600)] == [200, 429, 200]
    assert left(limiter) == [0, 1]
    # Now the requests deny, and a request without tokens spends none.
    assert ask() == 429
    limiter.reset("k", "tokens")
    assert ask(tokens=1) == 429
    assert left(limiter) == [1000, 1]


@pytest.mark.parametrize("client", CLIENTS)
def test_spent_of_one_policy_settles_what_was_reserved(client, limiter):
    ask = client(limiter, cost={"tokens": 400}, spent={"tokens": used_of})
    assert ask(used=70) == 200
    until(lambda: left(limiter) == [930, 4], "the tokens of the response are spent")
    # Without a number the cost is spent, and the reservation of a denied request is gone.
    assert [ask(), ask(used=5)] == [200, 200]
    until(lambda: left(limiter) == [525, 2], "the cost and five tokens are spent")
    limiter.charge("k", "requests", cost=2)
    assert ask(used=5) == 429
    assert left(limiter) == [525, 0]
    assert limiter.reserve("k", "tokens", cost=525)


def test_policies_are_written_as_in_the_list_or_as_their_text(limiter):
    quota, named = Quota("10/day fixed_window"), limiter.policy("requests")
    policy = ["tokens", quota, named]
    costs = [
        {"tokens": 100, quota: 3, named: 2},
        {"tokens": 100, str(quota): 3, "requests": 2},
        {limiter.policy("tokens"): 100, quota: lambda _request: 3, named: lambda _request: 2},
    ]
    for cost, scope in zip(costs, "abc", strict=True):
        limiter.reset("k", "tokens")
        limiter.reset("k", "requests")
        assert flask_client(limiter, policy=policy, scope=scope, cost=cost)() == 200
        assert [*left(limiter), limiter.peek("k", limiter.policy_for(quota, scope)).remaining] == [900, 3, 7]


def test_only_policy_of_a_limiter_is_named_by_a_mapping():
    limiter = Limiter(policies={"tokens": "1000/day"})
    spent = {"tokens": lambda _response: 7}
    ask = flask_client(limiter, policy=None, cost={"tokens": cost_of_tokens}, spent=spent)
    assert ask(tokens=100) == 200
    assert limiter.peek("k").remaining == 993
    assert flask_client(limiter, policy="tokens", cost={"tokens": 43})() == 200
    assert limiter.peek("k").remaining == 950
    # A policy that the mappings do not have is as without them.
    assert flask_client(limiter, cost={}, policy=None, spent={"tokens": None})() == 200
    assert limiter.peek("k").remaining == 949


def test_policy_that_cannot_be_reserved_stands_next_to_one_that_is(limiter):
    limiter = Limiter(policies={"tokens": "1000/day", "requests": "5/minute leaky_bucket"})
    assert flask_client(limiter, cost={"tokens": 100}, spent={"tokens": lambda _response: 1})() == 200
    assert left(limiter) == [999, 4]
    with pytest.raises(InvalidArgumentError, match="leaky_bucket"):
        flask_client(limiter, spent={"requests": lambda _response: 1})


def test_stream_spends_what_it_has_sent_under_one_policy(limiter):
    app = FastAPI()
    app.add_middleware(
        FastApiMiddleware,
        limiter=limiter.asynchronous,
        policy=BOTH,
        key=lambda _request: "k",
        cost={"tokens": 600},
        spent={"tokens": lambda response: response.state["tokens"]},
    )

    @app.get("/")
    async def view(request: Request):
        async def parts():
            request.state.tokens = 0
            for word in ("forty", "two"):
                request.state.tokens += 1
                # The tokens are reserved, and the request is spent.
                assert (await limiter.asynchronous.peek("k", "tokens")).remaining == 400
                assert (await limiter.asynchronous.peek("k", "requests")).remaining == 4
                yield word

        return StreamingResponse(parts())

    assert TestClient(app).get("/").text == "fortytwo"
    until(lambda: left(limiter) == [998, 4], "the stream is done")


def fails(_response):
    raise ValueError("work")


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        (fails, ValueError, "work"),
        (lambda _response: -1, InvalidArgumentError, r'^spent\["tokens"\] is -1: allowed is a whole number from 0'),
        (lambda _response: "5", TypeError, r'^spent\["tokens"\] is of type str'),
    ],
)
def test_spent_that_fails_under_one_policy_keeps_that_of_the_other(tokens, error, message, limiter):
    app = flask.Flask(__name__)
    spent = {"tokens": tokens, "requests": lambda _response: 3}
    RateLimit(app, limiter=limiter, policy=BOTH, key=lambda _request: "k", cost={"tokens": 100}, spent=spent)
    app.get("/")(lambda: "view")
    response = app.test_client().get("/")
    with pytest.raises(error, match=message):
        response.close()
    assert left(limiter) == [900, 2]


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        ("5", TypeError, r'cost\["tokens"\] is of type str: allowed is int'),
        (-1, InvalidArgumentError, r'cost\["tokens"\] is -1: allowed is a whole number from 0 to 1000000000000'),
        (True, TypeError, r'cost\["tokens"\] is of type bool'),
    ],
)
def test_cost_that_a_function_returns_is_checked(returned, error, message, limiter):
    client = TestClient(make_asgi(limiter, cost={"tokens": lambda _scope: returned}))
    with pytest.raises(error, match=message):
        client.get("/")
    assert left(limiter) == [1000, 5]
    # As without a mapping, nothing is the default.
    assert TestClient(make_asgi(limiter, cost={"tokens": lambda _scope: None})).get("/").status_code == 200
    assert left(limiter) == [999, 4]


def make_asgi(limiter, **options):
    app = FastAPI()
    app.get("/")(lambda: "view")
    options = {"policy": BOTH, "key": lambda _scope: "k", **options}
    return RateLimitMiddleware(app, limiter=limiter.asynchronous, **options)


async def asynchronous(_response):
    return 5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"cost": {"token": 5}},
            InvalidArgumentError,
            '^cost has the policy "token", which is not one of the limit: allowed are "tokens", "requests"$',
        ),
        (
            {"spent": {"1/s": lambda _response: 5}},
            InvalidArgumentError,
            '^spent has the policy "1/s", which is not one of the limit: allowed are "tokens", "requests"$',
        ),
        ({"policy": "tokens", "cost": {"requests": 5}}, InvalidArgumentError, 'allowed are "tokens"$'),
        ({"policy": None, "cost": {"requests": 5}}, InvalidArgumentError, "several"),
        ({"policy": [], "cost": {"requests": 5}}, InvalidArgumentError, "^policy is an empty list"),
        ({"cost": {5: 5}}, TypeError, "^cost has a key of type int: allowed are str, Quota and Policy$"),
        (
            {"cost": {"tokens": 5, Policy("tokens", "1/s"): 6}},
            InvalidArgumentError,
            '^cost has the policy "tokens" as two keys: leave out one of the two$',
        ),
        (
            {"cost": {"tokens": 1001}},
            InvalidArgumentError,
            '^cost is 1001 for policy "tokens", which never admits more than 1000',
        ),
        ({"cost": {"tokens": -1}}, InvalidArgumentError, r'^cost\["tokens"\] is -1: allowed is a whole number'),
        ({"cost": {"tokens": "5"}}, TypeError, r'^cost\["tokens"\] is of type str'),
        (
            {"spent": {"tokens": 5}},
            TypeError,
            r'^spent\["tokens"\] is of type int: allowed is a function, or text such as "usage:total"$',
        ),
        ({"spent": {"tokens": asynchronous}}, InvalidArgumentError, r'^spent\["tokens"\] is asynchronous, which is'),
        (
            {"policy": lambda _request: BOTH, "cost": {"tokens": 5}},
            InvalidArgumentError,
            "^cost is a mapping, and policy is a function of the request: allowed is a number or a function of the",
        ),
        (
            {"policy": lambda _request: BOTH, "spent": {"tokens": len}},
            InvalidArgumentError,
            "^spent is a mapping, and policy is a function of the request: allowed is text or a function",
        ),
    ],
)
def test_mapping_that_cannot_be_used_is_refused_when_the_limit_is_made(options, error, message, limiter):
    for make in (flask_app_client, flask_client, fastapi_route_client, make_asgi):
        with pytest.raises(error, match=message):
            make(limiter, **options)


def test_configuration_has_no_mapping_next_to_it():
    document = """polylimit = 1
    [policies.tokens]
    quotas = "1000/day"
    [[rules]]
    apply = [{ policy = "tokens", key = "{client}" }]
    """
    limiter = Limiter(document=document)
    with pytest.raises(InvalidArgumentError, match=r"^cost is given, and the limiter decides by its configuration"):
        RateLimit(limiter=limiter, cost={"tokens": 5})
    with pytest.raises(InvalidArgumentError, match=r"^spent is a mapping, and the rules of the limiter"):
        RateLimit(limiter=limiter, spent={"tokens": len})
    # A policy that is named has no rules.
    RateLimit(limiter=limiter, policy="tokens", cost={"tokens": 5}, spent={"tokens": len})


def test_stacked_limits_ask_together_with_their_own_costs(own_redis):
    limiter = Limiter(own_redis.url, POLICIES)
    app = flask.Flask(__name__)
    app.get("/")(limit(limiter, "requests")(limit(limiter, BOTH, cost={"tokens": 250})(lambda: "view")))
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(5)] == [200] * 4 + [429]
    assert left(limiter, "127.0.0.1") == [0, 1]


def test_django_site_and_view_have_costs_by_policy():
    printed = site(
        """
        import sys, types
        def used(response): return int(response.headers["x-used"])
        def cost(request): return int(request.headers["x-tokens"])
        async def cost_in_loop(request): return cost(request)
        sys.modules["shop"] = types.SimpleNamespace(cost=cost, used=used)
        limiter = Limiter(policies={"tokens": "1000/day", "requests": "5/day"})
        options |= {"limiter": limiter, "policy": ["tokens", "requests"], "key": lambda _request: "k"}
        def left(): return [limiter.peek("k", name).remaining for name in ("tokens", "requests")]
        def view(request): return HttpResponse(headers={"x-used": request.headers["x-used"]})
        def limited(**given):
            return limit(limiter, ["tokens", "requests"], key=lambda _request: "k", override=True, **given)(view)
        urlpatterns = [
            path("site", view), path("view", limited(cost={"tokens": cost_in_loop}, spent={"tokens": used}))
        ]
        def ask(path, tokens, used=0):
            response = client.get(path, headers={"x-tokens": tokens, "x-used": used})
            response.close()
            return response.status_code
        options |= {"cost": {"tokens": "shop.cost"}}
        print(ask("/site", 400), ask("/site", 601), left())
        options |= {"spent": {"tokens": "shop.used"}}
        print(ask("/site", 400, 50), left())
        print(ask("/view", 551), left(), ask("/view", 500, 40), left())
        options["cost"] = {"token": 5}
        try:
            ask("/site", 1)
        except Exception as error:
            print(type(error).__name__, error)
        """
    )
    refused = (
        'ImproperlyConfigured the setting POLYLIMIT: cost has the policy "token", which is not one of the limit: '
        'allowed are "tokens", "requests"'
    )
    assert printed == ["200 429 [600, 4]", "200 [550, 3]", "429 [550, 3] 200 [510, 2]", refused]
