"""What the options of a limit may be, the same for every framework."""

from functools import partial

import flask
import pytest
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter, Quota
from polylimit.asgi import RateLimitMiddleware
from polylimit.django import limit as limit_of_django
from polylimit.fastapi import RateLimit as Dependency
from polylimit.flask import RateLimit, limit

POLICIES = {"a": "3/day", "b": "3/day"}
FACES = {
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


@pytest.fixture(params=FACES)
def face(request):
    return FACES[request.param]


@pytest.mark.parametrize("none", [[], ()])
def test_no_policy_at_all_is_refused(face, none):
    with pytest.raises(InvalidArgumentError, match=r"^policy is (\[\]|\(\)): allowed are a policy's name, quotas"):
        face(none)


@pytest.mark.parametrize(
    ("policies", "again"),
    [
        (["a", "b", "a"], "'a'"),
        (("a", "a"), "'a'"),
        (["100/minute", "a", "100/60s"], "'100/60s'"),
        (["100/minute", Quota(100, 60)], r"Quota\('100/m"),
        (["10/s; 100/minute", "10/s;100/m"], "'10/s;100/m'"),
        ([None, None], "None"),
        # Neither is known yet.
        (["later", "later"], "'later'"),
    ],
)
def test_a_policy_that_is_there_twice_is_refused(face, policies, again):
    with pytest.raises(InvalidArgumentError, match=f"^policy is .*, where {again}.* is there before: allowed are"):
        face(policies)


@pytest.mark.parametrize(
    "policies",
    [
        "a",
        ["a"],
        ["a", "b"],
        # The same numbers by two names are two budgets.
        ["a", "3/day"],
        ["3/day", "3/day sliding_log"],
        ["a", "later"],
        [Quota(100, 60), Quota(100, 61)],
    ],
)
def test_different_policies_are_allowed(face, policies):
    face(policies)


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
def test_a_count_that_would_have_to_be_awaited_is_refused(face, count, called):
    refused = f"^count is {called}, which is asynchronous: allowed is a function that gives true or false at once$"
    with pytest.raises(InvalidArgumentError, match=refused):
        face("a", count=count)


@pytest.mark.parametrize("count", [None, bool, lambda _response: False, Blocking(), partial(Blocking())])
def test_a_count_that_is_called_is_allowed(face, count):
    face("a", count=count)
