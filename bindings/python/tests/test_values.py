"""Values: copies, pickles, dicts, weak references and texts of what a limiter takes and gives; doubles for tests."""

import asyncio
import copy
import json
import pickle
import unittest.mock
import weakref

import polylimit
import polylimit._guard
import pytest
from polylimit import (
    AsyncLimiter,
    Backoff,
    ClientAddressRules,
    Decision,
    InvalidArgumentError,
    Limiter,
    ManualClock,
    Policy,
    Quota,
    Request,
    RequestAttributes,
    Usage,
    keys,
)

DOCUMENT = """polylimit = 1
[policies.a]
quotas = "1/hour"
[[rules]]
apply = [{ policy = "a", key = "{user}" }]
"""
MODEL = "2 concurrent; 5/hour"


def decisions():
    """A decision of every kind."""
    quotas = {"a": "2/minute; 100/hour", "b": "2 concurrent", "c": "1/s leaky_bucket burst=5", "d": MODEL}
    limiter = Limiter(policies=quotas)
    yield limiter.check("k", "a")
    yield limiter.check("k", "a", cost=5)
    yield limiter.check("k", "a", cost=500)
    yield limiter.reserve("k", "b").decision
    yield limiter.reserve("k", "d", cost=2).decision
    yield limiter.peek("k", "d", cost=9)
    yield [limiter.check("k", "c") for _ in range(3)][-1]
    limiter.admin().block("k", "a", time=60)
    yield limiter.check("k", "a")
    yield Limiter(document=DOCUMENT.replace('hour"', 'hour"\nmode = "shadow"')).check("k", "a", cost=2)
    yield Limiter("redis://127.0.0.1:1?first_connect_max=0&doctor_after=0&outage=deny").check("k", "1/s")


DECISIONS = list(decisions())


@pytest.mark.parametrize("decision", DECISIONS, ids=range(len(DECISIONS)))
def test_decision_survives_json_and_pickle(decision):
    parts = decision.as_dict()
    assert Decision.from_dict(json.loads(json.dumps(parts))) == decision
    assert pickle.loads(pickle.dumps(decision)) == decision
    assert repr(pickle.loads(pickle.dumps(decision))) == repr(decision)
    assert parts["retry_after_us"] == decision.retry_after_us and parts["delay"] == decision.delay
    assert {name: getattr(decision, name) for name in parts if name != "quotas"} == {
        name: value for name, value in parts.items() if name != "quotas"
    }
    assert [quota["retry_after_us"] for quota in parts["quotas"]] == [quota.retry_after_us for quota in decision.quotas]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "parts have no quotas"),
        ({"quotas": []}, "no quotas"),
        ({"quotas": 5}, "quotas is of type int: allowed is a list of dicts"),
        ({"quotas": [5]}, "an item of quotas is of type int: allowed is a dict"),
        ({"quotas": [{"limit": "5"}]}, "limit is of type str"),
        ({"quotas": [{"limit": 5}], "source": "moon"}, "source is not known: allowed are store, "),
        ({"quotas": [{"limit": 5}], "allowed": 1}, "allowed is of type int: allowed is bool"),
        ({"quotas": [{"limit": 5}], "retry_after_us": 2**63}, "2\\^63"),
    ],
)
def test_parts_that_make_no_decision_are_refused(parts, message):
    with pytest.raises((TypeError, InvalidArgumentError), match=message):
        Decision.from_dict(parts)


def usages():
    """A usage of every kind."""
    limiter = Limiter(policies={"a": "2/minute; 100/hour", "b": MODEL, "c": "5/day excess=2"})
    yield from (limiter.take("k", "a") for _ in range(3))
    yield limiter.charge("k", "c", cost=7)
    yield limiter.refund("k", "c")
    yield limiter.admin().block("k", "a", time=60)
    yield limiter.commit("k", "nothing", policy="a")
    reservation = limiter.reserve("k", "b")
    yield limiter.renew("k", reservation.id, 5, policy="b")
    yield reservation.commit(3)
    yield limiter.cancel("k", "nothing", policy="b")
    yield Limiter("redis://127.0.0.1:1?first_connect_max=0&doctor_after=0&outage=deny").take("k", "1/s")


USAGES = list(usages())


@pytest.mark.parametrize("usage", USAGES, ids=range(len(USAGES)))
def test_usage_survives_json_and_pickle(usage):
    parts = usage.as_dict()
    for restored in (Usage.from_dict(json.loads(json.dumps(parts))), pickle.loads(pickle.dumps(usage))):
        assert restored == usage
        assert restored.as_dict() == parts
        assert repr(restored) == repr(usage)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "parts have no quotas: a usage has one or more"),
        ({"quotas": []}, "a usage has no quotas"),
        ({"quotas": [{"limit": "5"}]}, "limit is of type str"),
        ({"quotas": [{"limit": 5}], "found": 1}, "found is of type int: allowed is bool"),
        ({"quotas": [{"limit": 5}], "taken": -1}, "taken is -1"),
        ({"quotas": [{"limit": 5, "reset_after_us": 2**63}]}, "2\\^63"),
    ],
)
def test_parts_that_make_no_usage_are_refused(parts, message):
    with pytest.raises((TypeError, InvalidArgumentError), match=message):
        Usage.from_dict(parts)


def test_usage_of_a_test_is_made_of_a_dict():
    usage = Usage.from_dict({"remaining": 3, "quotas": [{"limit": 5, "remaining": 3}]})
    assert (bool(usage), usage.remaining, usage.found, usage.source) == (False, 3, True, "store")
    assert Usage.from_dict({"taken": 1, "quotas": [{}]})


def test_decision_of_a_test_is_made_of_a_dict():
    denied = Decision.from_dict({"allowed": False, "retry_after_us": 1_500_000, "quotas": [{"limit": 5}]})
    assert (bool(denied), denied.retry_after, denied.source, len(denied.quotas)) == (False, 1.5, "store", 1)
    assert Decision.from_dict({"allowed": False, "retry_after_us": None, "quotas": [{}]}).retry_after is None


def values():
    limiter = Limiter(policies={"a": "1/s; 5/minute"})
    configured = Limiter(document=DOCUMENT)
    request = RequestAttributes(method="GET", headers=[("x", b"1")], attributes={"user": "u", "n": 5}, router_paths=2)
    decided = configured.decide(request)
    return [
        limiter.check("k"),
        limiter.check("k").quotas[0],
        limiter.take("k", cost=2),
        limiter.policies()[0],
        limiter.policies()[0].quotas[0],
        Request("k", Policy("a", "1/s"), cost=3, headroom=5, plan="gold"),
        request,
        decided,
        decided.decisions[0],
        configured.admin().configuration(),
        configured.admin().matching(request)[0],
        Backoff(base=0.5, cap=60, max_wait=5, max_retries=2),
        ClientAddressRules(["10.0.0.0/8"], "forwarded"),
        ClientAddressRules().resolve("192.0.2.1"),
        polylimit.problem([(Policy("a", "1/s"), limiter.check("k", cost=2))]),
        *polylimit.options()[:1],
        *limiter.metrics()[:1],
        limiter.metrics()[0].samples[0],
        *limiter.admin().doctor()[:1],
    ]


@pytest.mark.parametrize("value", values(), ids=lambda value: type(value).__name__)
def test_value_can_be_copied_referenced_and_shown(value):
    assert copy.copy(value) is value and copy.deepcopy([value])[0] is value
    assert weakref.ref(value)() is value
    assert repr(value).startswith(type(value).__name__), repr(value)
    assert " object at 0x" not in repr(value)


PICKLED = (Policy, Quota, Request, Backoff, RequestAttributes, Decision, Usage)


@pytest.mark.parametrize(
    "value",
    [value for value in values() if isinstance(value, PICKLED)],
    ids=lambda value: type(value).__name__,
)
def test_value_that_callers_make_can_be_pickled(value):
    restored = pickle.loads(pickle.dumps(value))
    assert repr(restored) == repr(value)
    if not isinstance(value, RequestAttributes):
        assert restored == value
    limiter = Limiter(document=DOCUMENT)
    if isinstance(value, RequestAttributes):
        assert limiter.admin().matching(restored) == limiter.admin().matching(value)


def test_usage_is_true_when_units_were_taken():
    limiter = Limiter(policies={"a": "5/hour"})
    assert limiter.take("k", cost=3)
    assert limiter.take("k", cost=3).taken == 2
    assert not limiter.take("k", cost=3)
    assert not limiter.charge("k", cost=3), "it takes nothing"
    parts = limiter.take("k").as_dict()
    assert json.loads(json.dumps(parts)) == parts and parts["taken"] == 0 and len(parts["quotas"]) == 1


def test_policy_stands_for_its_name_and_quotas():
    policy = Policy("a", "2/hour")
    for limiter in (Limiter("memory:", [policy]), Limiter(policies=(policy,)), Limiter(policies={"a": policy})):
        assert limiter.check("k", policy).remaining == 1
        assert limiter.check_many([Request("k", policy)])[0].remaining == 0
        assert limiter.policy_for(policy) == limiter.policy(policy) == policy
        assert limiter.peek("k", limiter.policy_for("5/minute", scope="s")).remaining == 5
        limiter.set_policy("a", Policy("a", "7/hour"))
        assert limiter.policy("a").quotas == (Quota("7/hour"),)
    outage = Limiter("redis://127.0.0.1:1", [policy], outage={policy: "deny"}, first_connect_max=0, doctor_after=0)
    assert outage.check("k").source == "deny"
    with pytest.raises(InvalidArgumentError, match="quotas are the policy a, under the name b: allowed is its own"):
        Limiter(policies={"b": policy})
    with pytest.raises(InvalidArgumentError, match='policy "a" is not known'):
        Limiter().check("k", policy)
    with pytest.raises(TypeError, match="an item of policies is of type str: allowed are a dict"):
        Limiter(policies=["1/s"])


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_limiter_can_be_replaced_in_tests(kind, monkeypatch):
    limiter = kind(policies={"a": "1/hour"})
    denied = Decision.from_dict({"allowed": False, "quotas": [{"limit": 1}]})
    monkeypatch.setattr(limiter, "check", lambda key: denied)
    assert limiter.check("k") is denied
    monkeypatch.undo()
    with unittest.mock.patch.object(kind, "check", return_value=denied):
        checked = limiter.check("k")
        assert (asyncio.run(awaited(checked)) if kind is AsyncLimiter else checked) is denied
    double = unittest.mock.create_autospec(kind, instance=True)
    double.check.return_value = denied
    checked = double.check("k")
    assert (asyncio.run(awaited(checked)) if kind is AsyncLimiter else checked) is denied
    with pytest.raises(TypeError, match=r"limiter is of type .*Mock: .* for a test"):
        polylimit._guard.Guard(double, "a")
    assert weakref.ref(limiter)() is limiter


async def awaited(operation):
    return await operation


def test_parts_of_integrations_show_what_they_are():
    from polylimit.asgi import Limit, RateLimitMiddleware
    from polylimit.functions import admitted, limited
    from polylimit.requests import RateLimitAdapter

    limiter = Limiter(policies={"a": "1/s"})
    shown = repr(limiter)
    for value in (
        Limit(limiter, "a"),
        RateLimitMiddleware(None, limiter=limiter, policy="a"),
        RateLimitAdapter(limiter, "a"),
        limited(limiter, "a"),
    ):
        assert repr(value) == f"{type(value).__name__}({shown}, 'a')"
    assert repr(admitted(limiter, "secret", "a")) == f"admitted({shown}, ..., 'a')"
    assert repr(keys.user()) == "KeyPart('user')"
    assert "KeyPart('address', ClientAddressRules" in repr(keys.client_address())
    assert repr(ManualClock(5)) == "ManualClock(5.0)"


def test_package_names_its_modules_and_hides_the_others():
    import pkgutil

    public = {module.name for module in pkgutil.iter_modules(polylimit.__path__) if not module.name.startswith("_")}
    for name in public - {"limits"}:
        assert f"``polylimit.{name}``" in polylimit.__doc__, name
    assert "``polylimit.limits``" in polylimit.__doc__
    assert [name for name in keys.__all__ if not hasattr(keys, name)] == []
