"""The document of docs/migrate/from-flask-limiter.md decides as Flask-Limiter does with the options next to it.

Bursts are compared with Flask-Limiter itself. What takes hours is compared with its documentation, on a manual clock:
https://flask-limiter.readthedocs.io/en/stable/ and, for the strategies, https://limits.readthedocs.io/en/stable/strategies.html
"""

import re
from itertools import groupby
from pathlib import Path

import flask
import flask_limiter
import pytest
from flask_limiter.util import get_remote_address
from polylimit import Limiter, ManualClock, RequestAttributes
from polylimit.flask import RateLimit
from werkzeug.middleware.proxy_fix import ProxyFix

PAGE = Path(__file__).parents[3] / "docs" / "migrate" / "from-flask-limiter.md"
(DOCUMENT,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)

START = 1_789_948_800
MINUTE, HOUR = 60, 3600


def views():
    """An application with the endpoints of the page."""
    app = flask.Flask(__name__)
    reports = {f"/reports/{name}": name for name in ("first", "second")}
    for path, endpoint in {"/health": "health", "/one": "one", "/two": "two", "/login": "login", **reports}.items():

        def view():
            return "well"

        # Flask-Limiter knows views by their names.
        view.__name__ = view.__qualname__ = endpoint
        app.add_url_rule(path, view_func=view, methods=["GET", "POST"])
    return app


def ours(clock=None):
    app = views()

    def attributes(request):
        return {"endpoint": request.endpoint, "pages": request.args.get("pages"), "plan": request.args.get("plan")}

    limiter = Limiter(document=DOCUMENT, **({"clock": clock} if clock else {}))
    RateLimit(app, limiter=limiter, attributes=attributes)
    return app.test_client()


def theirs(strategy):
    """The options that the comments of the document name, in one strategy, as Flask-Limiter has one for all limits."""
    app = views()
    app.wsgi_app = ProxyFix(app.wsgi_app)
    limiter = flask_limiter.Limiter(
        get_remote_address, app=app, strategy=strategy, storage_uri="memory://", default_limits=["50/hour", "200/day"]
    )
    limiter.request_filter(lambda: get_remote_address().startswith("192.0.2."))
    shared = limiter.shared_limit(
        lambda: "1000/hour" if flask.request.args.get("plan") == "gold" else "100/hour",
        scope="reports",
        key_func=lambda: flask.request.headers["x-api-key"],
        cost=lambda: int(flask.request.args["pages"]),
        exempt_when=lambda: "x-internal" in flask.request.headers,
    )
    functions = app.view_functions
    functions["login"] = limiter.limit("5 per 15 minutes", methods=["POST"])(functions["login"])
    functions["health"] = limiter.exempt(functions["health"])
    for report in ("first", "second"):
        functions[report] = shared(functions[report])
    return app.test_client()


ANN, BOB, MONITORING, PROXY = "203.0.113.1", "203.0.113.2", "192.0.2.9", "10.0.0.1"

#: How many requests of which kind follow each other, and the statuses: those before and those after the limit.
BURSTS = {
    "50 per hour for each client": [(52, "/one", ANN, {}, {200: 50, 429: 2}), (1, "/one", BOB, {}, {200: 1})],
    "a budget for each endpoint": [(51, "/one", ANN, {}, {200: 50, 429: 1}), (51, "/two", ANN, {}, {200: 50, 429: 1})],
    "exempt": [(60, "/health", ANN, {}, {200: 60})],
    "request_filter": [(60, "/one", MONITORING, {}, {200: 60})],
    "methods": [(7, "POST /login", ANN, {}, {200: 5, 429: 2}), (52, "/login", ANN, {}, {200: 50, 429: 2})],
    "ProxyFix": [
        (51, "/one", PROXY, {"x-forwarded-for": BOB}, {200: 50, 429: 1}),
        (1, "/one", PROXY, {"x-forwarded-for": ANN}, {200: 1}),
        (1, "/one", BOB, {}, {429: 1}),
    ],
    "shared_limit with key_func": [
        (60, "/reports/first?pages=1", ANN, {"x-api-key": "a"}, {200: 60}),
        (45, "/reports/second?pages=1", BOB, {"x-api-key": "a"}, {200: 40, 429: 5}),
        (1, "/reports/first?pages=1", BOB, {"x-api-key": "b"}, {200: 1}),
    ],
    "cost": [(4, "/reports/first?pages=30", ANN, {"x-api-key": "a"}, {200: 3, 429: 1})],
    "exempt_when": [(120, "/reports/first?pages=9", ANN, {"x-api-key": "a", "x-internal": "1"}, {200: 120})],
    "callable limits": [
        (11, "/reports/first?pages=100&plan=gold", ANN, {"x-api-key": "a"}, {200: 10, 429: 1}),
        (2, "/reports/first?pages=100", ANN, {"x-api-key": "b"}, {200: 1, 429: 1}),
    ],
}


def statuses(client, count, target, peer, headers):
    method, path = target.split() if " " in target else ("GET", target)
    environment = {"REMOTE_ADDR": peer}
    made = [client.open(path, method=method, headers=headers, environ_base=environment) for _ in range(count)]
    return {status: len([*group]) for status, group in groupby(response.status_code for response in made)}


@pytest.mark.parametrize("burst", BURSTS)
@pytest.mark.parametrize("made", ["polylimit", "fixed-window", "moving-window"])
def test_bursts_are_decided_alike(made, burst):
    client = ours() if made == "polylimit" else theirs(made)
    for count, target, peer, headers, expected in BURSTS[burst]:
        assert statuses(client, count, target, peer, headers) == expected, target


@pytest.fixture
def passed():
    """Counts how many of several requests pass at a time since the start."""
    clock = ManualClock(START)
    client = ours(clock)

    def passed(seconds, count, target, query=""):
        clock.set(START + seconds)
        return statuses(client, count, target + query, ANN, {"x-api-key": "a"}).get(200, 0)

    return passed


def test_fixed_windows_have_their_limits_again_when_they_end(passed):
    # "default_limits=["200 per day", "50 per hour"]": each hour 50, until 200 of the day are used.
    assert [passed(hour * HOUR, 60, "/one") for hour in range(6)] == [50, 50, 50, 50, 0, 0]
    assert passed(24 * HOUR - 1, 1, "/one") == 0
    assert [passed(24 * HOUR, 60, "/one"), passed(25 * HOUR, 60, "/one")] == [50, 50]
    reports = [
        passed(hour * HOUR, 120, f"/reports/{name}", "?pages=1") for hour, name in [(25, "first"), (26, "second")]
    ]
    assert reports == [100, 100]


def test_moving_window_admits_as_many_in_any_window(passed):
    # "Each request is stored with its timestamp": no 15 minutes have more than 5, wherever they begin.
    assert passed(0, 1, "POST /login") == 1
    assert passed(10 * MINUTE, 4, "POST /login") == 4
    assert [passed(15 * MINUTE - 1, 1, "POST /login"), passed(15 * MINUTE, 2, "POST /login")] == [0, 1]
    # The other four leave together.
    assert [passed(25 * MINUTE, 4, "POST /login"), passed(30 * MINUTE, 1, "POST /login")] == [4, 1]


def test_meta_limits_block_after_several_denials():
    # "meta_limits: limits that are checked before any other, and count how often a client has reached one".
    clock = ManualClock(START)
    with Limiter(document=DOCUMENT, clock=clock) as limiter:

        def causes(seconds, count):
            clock.set(START + seconds)
            login = RequestAttributes(method="POST", path="/login", peer=ANN)
            return [limiter.decide(login).cause for _ in range(count)]

        # The third denial within an hour blocks.
        assert causes(0, 9) == [None] * 5 + ["quota"] * 2 + ["blocked"] * 2
        assert causes(10 * MINUTE - 1, 1) == ["blocked"]
        assert causes(10 * MINUTE, 1) == ["quota"]
        assert causes(15 * MINUTE, 1) == [None]


def test_denied_requests_cost_nothing_as_the_page_says():
    for client, expected in [(ours(), [200, 429, 200]), (theirs("fixed-window"), [200, 429, 429])]:
        targets = [f"/reports/first?pages={pages}" for pages in (30, 80, 70)]
        made = [statuses(client, 1, target, ANN, {"x-api-key": "a"}) for target in targets]
        assert [next(iter(one)) for one in made] == expected
