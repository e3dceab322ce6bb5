"""What the options of a limit may be, the same for every framework."""

import flask
import pytest
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter, Quota
from polylimit.asgi import RateLimitMiddleware
from polylimit.django import limit as limit_of_django
from polylimit.fastapi import RateLimit as Dependency
from polylimit.flask import RateLimit, limit

POLICIES = {"a": "3/day", "b": "3/day"}
FACES = {
    "asgi": lambda policy: RateLimitMiddleware(None, limiter=AsyncLimiter(policies=POLICIES), policy=policy),
    "fastapi": lambda policy: Dependency(AsyncLimiter(policies=POLICIES), policy),
    "flask": lambda policy: RateLimit(flask.Flask("app"), limiter=Limiter(policies=POLICIES), policy=policy),
    "view of flask": lambda policy: limit(Limiter(policies=POLICIES), policy),
    "view of django": lambda policy: limit_of_django(Limiter(policies=POLICIES), policy),
}


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
