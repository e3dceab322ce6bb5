"""Validation of the options of a limit, which is the same in every framework."""

import asyncio
import math
from functools import partial

import flask
import pytest
from fastapi import FastAPI
from polylimit import AsyncLimiter, ClosedError, InvalidArgumentError, Limiter, Quota
from polylimit.asgi import RateLimitMiddleware
from polylimit.django import limit as limit_of_django
from polylimit.fastapi import RateLimit as Dependency
from polylimit.fastapi import RateLimitMiddleware as MiddlewareOfStarlette
from polylimit.flask import RateLimit, limit
from test_process import python

POLICIES = {"a": "3/day", "b": "3/day"}
WRONG = [
    ({"policy": "unknown"}, InvalidArgumentError, r"policy \"unknown\" is not known: this limiter has a, b"),
    ({"policy": None}, InvalidArgumentError, "several"),
    ({"policy": "100/minut"}, InvalidArgumentError, "minut"),
    ({"policy": ["a", "100/minut"]}, InvalidArgumentError, "minut"),
    ({"policy": 5}, TypeError, "policy is of type int: allowed are str, Quota, Policy"),
    ({"cost": -1}, InvalidArgumentError, "cost is -1: allowed is a whole number from 0 to 1000000000000"),
    ({"cost": math.nan}, InvalidArgumentError, "cost is nan: allowed is a whole number"),
    ({"cost": 10**12 + 1}, InvalidArgumentError, "cost is 1000000000001: allowed is a whole number"),
    ({"cost": "1"}, TypeError, "cost is of type str"),
    ({"key": "ip"}, InvalidArgumentError, 'key part "ip" cannot be read: allowed are address, user'),
    (
        {"key": 5},
        TypeError,
        "key is of type int: allowed is a function of the request, or one or several of polylimit.keys",
    ),
    ({"key": []}, TypeError, "key is of type list: allowed is"),
    ({"missing_key": "ignore"}, InvalidArgumentError, 'missing key "ignore" is not known: use one of address, share'),
    ({"status": 200}, InvalidArgumentError, "status is 200: allowed is 400 to 599"),
    ({"headers": "legacy ms"}, InvalidArgumentError, "ms"),
    ({"headers": "ratelimit=retry-after"}, InvalidArgumentError, "retry-after"),
    ({"skip": True}, TypeError, "skip is of type bool: allowed is a function"),
    ({"count": 401}, TypeError, "count is of type int: allowed is a function"),
    ({"on_denied": "denied"}, TypeError, "on_denied is of type str: allowed is a function"),
    ({"on_outage": 503}, TypeError, "on_outage is of type int: allowed is a function"),
    ({"headers": "all"}, InvalidArgumentError, "all"),
    ({"policy": "1/s", "scope": ""}, InvalidArgumentError, "scope .* allowed is a text of 1 to 256 bytes"),
    ({"policy": "1/s", "scope": 5}, TypeError, "scope is of type int: allowed is str"),
    ({"limiter": "redis://localhost"}, TypeError, "limiter is of type str: allowed is a .*Limiter of polylimit"),
    ({"limiter": "closed"}, ClosedError, "closed"),
    ({"key_func": str}, TypeError, '^unknown option "key_func": use key$'),
    ({"exempt_when": bool}, TypeError, '^unknown option "exempt_when": use skip$'),
    ({"deduct_when": bool}, TypeError, '^unknown option "deduct_when": use count$'),
    ({"storage_uri": "memory://"}, TypeError, '^unknown option "storage_uri": use limiter, with its URL$'),
    ({"colour": "red"}, TypeError, '^unknown option "colour": allowed are limiter, policy, attributes, .*, scope$'),
]


def with_limiter(options, limiter_class):
    """Adds a limiter to the options, unless they have one."""
    limiter = options.get("limiter")
    if limiter in (None, "closed"):
        limiter = Limiter(policies=POLICIES)
        if "limiter" in options:
            limiter.close()
        limiter = limiter if limiter_class is Limiter else limiter.asynchronous
    return {"policy": "a", **options, "limiter": limiter}


MAKERS = {
    "asgi": lambda options: RateLimitMiddleware(None, **with_limiter(options, AsyncLimiter)),
    "starlette": lambda options: MiddlewareOfStarlette(None, **with_limiter(options, AsyncLimiter)),
    "fastapi": lambda options: Dependency(**with_limiter(options, AsyncLimiter)),
    "flask": lambda options: RateLimit(flask.Flask("app"), **with_limiter(options, Limiter)),
    "blueprint of flask": lambda options: RateLimit(flask.Blueprint("b", "app"), **with_limiter(options, Limiter)),
    "view of flask": lambda options: limit(**with_limiter(options, Limiter)),
    "view of django": lambda options: limit_of_django(**with_limiter(options, Limiter)),
}

GUARDS = {
    "asgi": lambda policy, **others: RateLimitMiddleware(
        None, limiter=AsyncLimiter(policies=POLICIES), policy=policy, **others
    ),
    "fastapi": lambda policy, **others: Dependency(AsyncLimiter(policies=POLICIES), policy, **others),
    "flask": lambda policy, **others: RateLimit(
        flask.Flask("app"), limiter=Limiter(policies=POLICIES), policy=policy, **others
    ),
    "view of flask": lambda policy, **others: limit(Limiter(policies=POLICIES), policy, **others),
    "view of django": lambda policy, **others: limit_of_django(Limiter(policies=POLICIES), policy, **others),
}


async def asynchronous(_status, _response):
    return False


class Asynchronous:
    async def __call__(self, _response):
        return False

    async def method(self, _response):
        return False


class Blocking:
    def __call__(self, _response):
        return False

    async def close(self):
        pass


@pytest.fixture(params=GUARDS)
def make_guard(request):
    return GUARDS[request.param]


@pytest.mark.parametrize("none", [[], ()])
def test_empty_policy_list_is_refused(make_guard, none):
    with pytest.raises(InvalidArgumentError, match=r"^policy is an empty list: allowed is a policy's name or quotas"):
        make_guard(none)


@pytest.mark.parametrize(
    ("policies", "again"),
    [
        (["a", "b", "a"], "a"),
        (("a", "a"), "a"),
        (["100/minute", "a", "100/60s"], "100/60s"),
        (["100/minute", Quota(100, 60)], "100/m"),
        (["10/s; 100/minute", "10/s;100/m"], "10/s;100/m"),
        # Both texts are the same policy, which requests name by its text.
        (["3/day", "3/day", "a"], "3/day"),
    ],
)
def test_duplicate_policy_is_refused(make_guard, policies, again):
    with pytest.raises(InvalidArgumentError, match=f'^policy "{again}.*" is a duplicate: leave out one of the two$'):
        make_guard(policies)


@pytest.mark.parametrize(
    "policies",
    [
        "a",
        ["a"],
        ["a", "b"],
        # Two policies with the same quotas have separate budgets.
        ["a", "3/day"],
        ["3/day", "3/day sliding_log"],
        [Quota(100, 60), Quota(100, 61)],
    ],
)
def test_different_policies_are_accepted(make_guard, policies):
    make_guard(policies)


@pytest.mark.parametrize(
    ("count", "called"),
    [
        (asynchronous, "asynchronous"),
        (partial(asynchronous, 401), "asynchronous"),
        (Asynchronous(), "Asynchronous"),
        (Asynchronous().method, "Asynchronous.method"),
        (partial(Asynchronous()), "Asynchronous"),
    ],
    ids=["function", "partial", "object", "method", "partial of an object"],
)
def test_asynchronous_count_is_refused(make_guard, count, called):
    refused = f"^count is {called}, which is asynchronous: allowed is a function that returns its result at once$"
    with pytest.raises(InvalidArgumentError, match=refused):
        make_guard("a", count=count)


@pytest.mark.parametrize("count", [None, bool, lambda _response: False, Blocking(), partial(Blocking())])
def test_synchronous_count_is_accepted(make_guard, count):
    make_guard("a", count=count)


@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize(("options", "kind", "message"), WRONG, ids=lambda value: str(value)[:30])
def test_invalid_option_is_refused_at_construction(made, options, kind, message):
    with pytest.raises(kind, match=message):
        MAKERS[made](options)


@pytest.mark.parametrize("made", ["flask", "blueprint of flask", "view of flask", "view of django"])
def test_async_limiter_is_refused_by_blocking_framework(made):
    with pytest.raises(TypeError, match=r"^limiter is an AsyncLimiter: allowed is a Limiter, such as its \.blocking$"):
        MAKERS[made]({"limiter": AsyncLimiter(policies=POLICIES)})


def test_policy_without_limiter_is_refused():
    with pytest.raises(TypeError, match=r"^policy needs a limiter"):
        RateLimitMiddleware(None, policy="1/s")


def test_invalid_django_setting_is_refused_at_startup():
    printed = python(
        """
        from django.conf import settings
        from polylimit import AsyncLimiter, Limiter
        settings.configure()
        from django.core.exceptions import ImproperlyConfigured
        from django.test import override_settings
        from polylimit.django import RateLimitMiddleware
        limiter = Limiter(policies={"a": "3/day"})
        for options in (
            {"policy": "unknown"}, {"policy": "1/minut"}, {"cost": -1}, {"limiter": AsyncLimiter()}, {"key_func": str},
            {"limiter": 5},
        ):
            with override_settings(POLYLIMIT={"limiter": limiter, **options}):
                try:
                    RateLimitMiddleware(None)
                    print("made")
                except ImproperlyConfigured as error:
                    print(error)
        """
    )
    message = ["not known", "minut", "cost is -1", "is an AsyncLimiter", '"key_func": use key', "is of type int"]
    for line, words in zip(printed.splitlines(), message, strict=True):
        assert line.startswith("the setting POLYLIMIT: ")
        assert words in line


def test_starlette_application_with_invalid_option_does_not_start():
    app = FastAPI()
    app.add_middleware(MiddlewareOfStarlette, limiter=AsyncLimiter(), policy="1/minut")

    async def receive():
        return {"type": "lifespan.startup"}

    async def send(message):
        raise AssertionError(message)

    with pytest.raises(InvalidArgumentError, match="minut"):
        asyncio.run(app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send))
