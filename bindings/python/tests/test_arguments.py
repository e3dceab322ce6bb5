"""The arguments of limiters, quotas and operations: accepted forms, and errors for everything else."""

import asyncio
import copy
import enum
import math
import pickle
from datetime import timedelta

import polylimit
import pytest
from polylimit import AsyncLimiter, Backoff, InvalidArgumentError, Limiter, Policy, PolylimitError, Quota, Request


@pytest.mark.parametrize("cost", [-1, math.nan, 1e308, 2**64, 10**400, -0.5, 2.0, math.inf, 10**12 + 1])
def test_invalid_cost_is_refused(cost, record):
    limiter = Limiter()
    for operation in (limiter.check, limiter.peek, limiter.take, limiter.charge, limiter.refund):
        with pytest.raises(InvalidArgumentError, match="cost"):
            operation("key", "1/s", cost=cost)
    with pytest.raises(InvalidArgumentError):
        Limiter().check_many([Request("key", "1/s", cost=cost)])
    assert limiter.check("key", "1/s"), "nothing was spent"
    record("S4", f"Python, {str(cost)[:24]}", measured="invalid_argument")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda limiter: limiter.check(5.0), "key is of type float: allowed are str, bytes, int and UUID"),
        (lambda limiter: limiter.check(key=True), "key is of type bool: allowed are str, bytes, int and UUID"),
        (lambda limiter: limiter.check(None), "key is of type NoneType"),
        (lambda limiter: limiter.check("a", 5), "policy is of type int"),
        (lambda limiter: limiter.check("a", cost="1"), "cost is of type str"),
        (lambda limiter: limiter.acquire("a", timeout="1s"), "timeout is of type str"),
        (lambda limiter: Limiter(policies="1/s"), "dict"),
        (lambda limiter: Limiter(policies={"a": 5}), "quotas is of type int"),
        (lambda limiter: Limiter(deadline=b"1s"), "option deadline is of type bytes"),
        (lambda limiter: Limiter(clock=5), "clock"),
        (lambda limiter: Quota(5), "limit is of type int: without a period, allowed is a text"),
        (lambda limiter: Quota(limit=True, period=60), "^limit is of type bool: allowed is int$"),
        (lambda limiter: Quota("5", 60), "^limit is of type str: allowed is int$"),
        (lambda limiter: Quota(5, 60, algorithm="token_bucket", burst=True), "^burst is of type bool: allowed is int$"),
        (lambda limiter: Quota(5, 60, algorithm=5), "algorithm is of type int: allowed is str$"),
        (lambda limiter: Quota(5, 60, aligned=1), "aligned is of type int: allowed is bool$"),
        (lambda limiter: Limiter(url=None), 'url is of type NoneType: allowed is str, such as "memory:", "local:name"'),
        (lambda limiter: Limiter(5), "url is of type int: allowed is str"),
        (lambda limiter: AsyncLimiter(None), "url is of type NoneType: allowed is str"),
        (lambda limiter: Policy(5, "1/s"), "name is of type int: allowed is str$"),
        (lambda limiter: limiter.set_policy(None, "1/s"), "name is of type NoneType: allowed is str$"),
        (lambda limiter: limiter.admin().set_credentials(None), "password is of type NoneType: allowed is str$"),
        (lambda limiter: limiter.policy_for("1/s", 5), "scope is of type int: allowed is str$"),
    ],
)
def test_wrong_argument_type_raises_type_error(call, message):
    with pytest.raises(TypeError, match=message):
        call(Limiter())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda limiter: limiter.check("a", "unknown"), "unknown"),
        (lambda limiter: limiter.check("a", "100/fortnight"), "or month, quarter or year"),
        (lambda limiter: limiter.check("\ud800", "1/s"), "surrogate"),
        (lambda limiter: limiter.check("a" * (2**20 + 1), "1/s"), "1048576"),
        (lambda limiter: limiter.acquire("a", "1/s", timeout=-1), "timeout is -1"),
        (lambda limiter: limiter.acquire("a", "1/s", timeout=math.nan), "timeout is nan"),
        (lambda limiter: limiter.acquire("a", "1/s", timeout=timedelta(days=-1)), "timeout is"),
        (lambda limiter: Limiter("redis://user:hunter2@host:port"), "port"),
        (lambda limiter: Limiter("redis://h", dead_line=1), "dead_line"),
        (lambda limiter: Limiter("redis://h", deadline=0.0), "deadline"),
        (lambda limiter: Limiter("redis://h", deadline=50), None),
        (lambda limiter: Limiter("redis://h", outage={"login": "deny"}), "login"),
        (lambda limiter: Limiter("redis://h", {"login": "1/s"}, outage={"login": "open"}), "open"),
        (lambda limiter: Limiter(clock="sundial"), "clock"),
        (lambda limiter: Quota(5.0, 60), "limit is 5.0: allowed is a whole number, as an int"),
        (lambda limiter: Quota(5, math.inf), "period is inf: allowed is whole microseconds from 1 ms to 366 days"),
        (lambda limiter: Quota(5, 1e-9), "period is 1e-09: allowed is"),
        (
            lambda limiter: Backoff(cap=timedelta(days=2)),
            "cap is 172800s; allowed",
        ),
        (lambda limiter: Backoff(cap=1e9), r"cap is 1000000000\.0; allowed are the base to 24 hours"),
        (lambda limiter: Limiter(max_keys=1.5), 'max_keys is "1.5": allowed'),
        (lambda limiter: Quota(5, 0), "1 ms"),
        (lambda limiter: Quota(5, 60, burst=3), "burst"),
        (lambda limiter: Policy("a b", "1/s"), "a b"),
        (lambda limiter: limiter.admin().set_credentials("secret"), "memory"),
    ],
)
def test_invalid_argument_raises_with_its_name(call, message):
    if message is None:
        call(Limiter())
        return
    with pytest.raises(InvalidArgumentError, match=message) as raised:
        call(Limiter())
    assert "hunter2" not in str(raised.value)


def test_every_error_kind_has_an_exception_class():
    classes = {}
    for name in dir(polylimit):
        value = getattr(polylimit, name)
        if isinstance(value, type) and issubclass(value, PolylimitError) and value is not PolylimitError:
            classes[value.code] = value
    assert sorted(classes) == ["closed", "internal", "invalid_argument", "store_failed", "store_unavailable"]
    for code, raised in classes.items():
        assert raised.__name__ == "".join(word.title() for word in code.split("_")) + "Error"
        assert raised.__module__ == "polylimit"
        assert raised.__doc__
        assert issubclass(raised, ValueError) == (code == "invalid_argument")
        assert pickle.loads(pickle.dumps(raised("why"))).args == ("why",)
    with pytest.raises(ValueError) as raised:
        Quota("nonsense")
    assert raised.value.code == "invalid_argument"


def test_listed_options_have_kind_and_description():
    options = {option.name: option for option in polylimit.options()}
    assert options["deadline"].kind == "duration"
    assert options["max_keys"].kind == "number"
    assert options["password"].secret
    assert all(option.about and option.allowed for option in options.values())


def test_quota_compares_hashes_and_pickles_by_value():
    quota = Quota(10, 1, algorithm="token_bucket", burst=20)
    assert str(quota) == "10/second token_bucket burst=20"
    assert quota == Quota(str(quota)) == copy.deepcopy(quota) == pickle.loads(pickle.dumps(quota))
    assert len({quota, Quota(str(quota))}) == 1
    assert (quota.limit, quota.period, quota.algorithm, quota.capacity) == (10, 1.0, "token_bucket", 20)
    stepped = Quota("50/day token_bucket burst=200 step=50")
    assert (stepped.step, stepped.buckets, stepped.aligned, stepped.count_denied) == (50, None, False, False)
    assert eval(repr(quota)) == quota


def test_nested_quota_list_is_refused():
    endless = ["1/s"]
    endless.append(endless)
    for quotas in (endless, [["1/s"]], ("1/s", ("2/m",))):
        with pytest.raises(TypeError, match=r"an item of quotas is of type .*: allowed are str and Quota"):
            Limiter(policies={"api": quotas})


@pytest.mark.parametrize("number", [-1, 2**64, -(2**70), 10**400])
def test_number_out_of_bounds_is_refused_whatever_its_size(number):
    for make in (
        lambda: polylimit.Quota(number, 60),
        lambda: polylimit.Quota(1, 60, algorithm="token_bucket", burst=number),
        lambda: polylimit.Quota(1, 60, algorithm="token_bucket", step=number),
        lambda: polylimit.Quota(1, 60, buckets=number),
        lambda: polylimit.ClientAddressRules(ipv4_prefix=number),
        lambda: polylimit.ClientAddressRules(ipv6_prefix=number),
    ):
        with pytest.raises(InvalidArgumentError):
            make()


@pytest.mark.parametrize("make", [Limiter, AsyncLimiter])
def test_every_form_of_arguments_is_accepted(make):
    limiter = make(policies={"api": "100/day"})
    check = limiter.check

    def settled(value):
        if make is Limiter:
            return value
        with pytest.raises(StopIteration) as stopped:
            value.send(None)
        return stopped.value.value

    calls = [
        lambda: check("a"),
        lambda: check(b"a"),
        lambda: check(key="a"),
        lambda: check("a", None),
        lambda: check("a", "api"),
        lambda: check("a", policy="api"),
        lambda: check(policy="api", key="a"),
        lambda: check("a", cost=1),
        lambda: check("a", "api", cost=1),
        lambda: check("a", policy="api", cost=1),
        lambda: check("a", cost=None),
        lambda: make.check(limiter, "a"),
    ]
    remaining = [settled(call()).remaining for call in calls]
    assert remaining == list(range(99, 99 - len(calls), -1))
    other = Quota("5/minute")
    assert settled(check("a", other)).remaining == settled(check("a", str(other))).remaining + 1
    for wrong in (
        check,
        lambda: check("a", "api", 1),
        lambda: check("a", price=1),
        lambda: check("a", "api", policy="api"),
        lambda: check(7.0),
        lambda: check("a", 7),
        lambda: check("a", cost="1"),
        lambda: make.check(object(), "a"),
    ):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (
        lambda: check("\ud800"),
        lambda: check("a", "\ud800"),
        lambda: check("a", cost=-1),
        lambda: check("a", cost=2**64),
        lambda: check("a", cost=10**12 + 1),
        lambda: check("a", cost=1.5),
        lambda: check("a", "unknown"),
    ):
        with pytest.raises(InvalidArgumentError):
            settled(wrong())
    assert settled(limiter.peek("a")).remaining == 100 - len(calls)


class Number(enum.IntEnum):
    SEVEN = 7


@pytest.mark.parametrize(
    ("key", "text"), [(42, "42"), (-1, "-1"), (0, "0"), (2**200, str(2**200)), (Number.SEVEN, "7")], ids=str
)
def test_integer_key_equals_its_decimal_text(key, text):
    limiter = Limiter(policies={"api": "9/day"})
    limiter.check(key)
    limiter.check_many([key, Request(key)])
    assert limiter.peek(text).remaining == 6
    assert asyncio.run(awaited(limiter.asynchronous.check(key))).remaining == 5
    assert limiter.reset(key).remaining == 9


def test_integer_key_with_too_many_digits_is_refused():
    with pytest.raises(InvalidArgumentError, match="key is a number of more digits"):
        Limiter().check(10**5000, "1/s")


def test_option_of_another_library_is_refused_with_a_suggestion():
    for name, ours in [("key_func", "use key"), ("default_limits", "use policy"), ("strategy", "use policy")]:
        with pytest.raises(InvalidArgumentError, match=f"option .?{name}.? is not known: {ours}"):
            Limiter(**{name: lambda: None})


async def awaited(operation):
    return await operation
