"""A wrong value for each parameter of each public callable: the error names the parameter, in words of Python."""

import asyncio
import inspect
import math
import re
import uuid

import polylimit
import polylimit.asgi
import polylimit.httpx
import polylimit.requests
import pytest
from polylimit import (
    AsyncLimiter,
    Backoff,
    ClientAddressRules,
    Decision,
    Limiter,
    ManualClock,
    Policy,
    Quota,
    Request,
    RequestAttributes,
    keys,
)
from polylimit._guard import Guard, Options

DOCUMENT = {"polylimit": 1, "policies": {"a": {"quotas": "100/s"}}}
#: What a caller must not see: words of the module's own language and tools, and texts that name no parameter.
FOREIGN = re.compile(
    r"PyO3|Rust|argument '|Can't extract|is not an instance of|cannot be converted|cannot be interpreted"
    r"|is not iterable|is not callable|object has no attribute|unexpected keyword|doesn't apply to"
    r"|Vec|usize|u32|u64"
)
#: Arguments that are right.
RIGHT = {
    "at_least_used": 1,
    "attributes": RequestAttributes(),
    "by": 1,
    "cost": 1,
    "document": DOCUMENT,
    "headers": {},
    "id": "0123456789",
    "item": "deny client 203.0.113.0/24",
    "key": "k",
    "limit": 1,
    "lines": (),
    "most": 1,
    "name": "a",
    "now": 1,
    "outcomes": [],
    "parts": {"allowed": True, "quotas": [{"limit": 5}]},
    "password": "secret",
    "peer": "192.0.2.1",
    "period": 1,
    "policy": "a",
    "quotas": "5/s",
    "requests": ["k"],
    "retry": 0,
    "time": 1,
    "timeout": 0,
    "ttl": 1,
    "url": "memory:",
    "version": 1,
}
#: Parameters whose error names another thing than themselves.
NAMED = {"requests": "requests|key", "quotas": "quota", "exception": ".*"}
#: Methods for event loops and scopes, and the close of a limiter.
NOT_CALLED = {"send", "throw", "close", "fromhex"}


def limiters(kind):
    return {"plain": kind(policies={"a": "100/s"}), "configured": kind(document=DOCUMENT)}


def objects():
    """An object of each class that callers make or get, by its name."""
    made = {
        "Backoff": Backoff(),
        "ClientAddressRules": ClientAddressRules(),
        "ManualClock": ManualClock(1),
        "Problem": polylimit.problem([(Policy("a", "1/s"), Limiter(policies={"a": "0/s"}).check("k"))]),
        "Decision": Limiter().check("k", "1/s"),
        "Usage": Limiter().take("k", "1/s"),
        "Reservation": Limiter().reserve("k", "1 concurrent"),
    }
    for kind in (Limiter, AsyncLimiter):
        made |= {f"{kind.__name__}, {name}": limiter for name, limiter in limiters(kind).items()}
        made |= {f"{kind.__name__}, {name}, admin": limiter.admin() for name, limiter in limiters(kind).items()}
    return made


def callables():
    for name in polylimit.__all__:
        value = getattr(polylimit, name)
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        if callable(value) and not is_error:
            yield name, value
    for name, value in objects().items():
        for method in dir(value):
            if not method.startswith("_") and method not in NOT_CALLED and callable(getattr(value, method)):
                yield f"{name}: {method}", getattr(value, method)
    yield "keys.client_address", keys.client_address
    for name in ("header", "cookie", "path"):
        yield f"keys.{name}", getattr(keys, name)


def parameters():
    for name, function in callables():
        try:
            signature = inspect.signature(function)
        except ValueError:
            # Only the module makes such objects.
            with pytest.raises(TypeError):
                function()
            continue
        if isinstance(function, type) and function not in {
            Limiter,
            AsyncLimiter,
            Backoff,
            ClientAddressRules,
            ManualClock,
            Policy,
            Quota,
            Request,
            RequestAttributes,
        }:
            continue
        for parameter in signature.parameters.values():
            yield pytest.param(function, signature, parameter, id=f"{name}({parameter.name})")


def refused(call, named):
    with pytest.raises((TypeError, ValueError)) as caught:
        result = call()
        if inspect.isawaitable(result):
            asyncio.run(_awaited(result))
    text = str(caught.value)
    assert not FOREIGN.search(text), text
    assert re.search(named, text), f"{text!r} does not name {named}"


async def _awaited(operation):
    return await operation


@pytest.mark.parametrize(("function", "signature", "parameter"), list(parameters()))
@pytest.mark.parametrize("wrong", [object(), math], ids=["object", "module"])
def test_error_names_parameter_of_wrong_type(function, signature, parameter, wrong):
    keywords = {}
    for other in signature.parameters.values():
        if other.default is other.empty and other.kind in {other.POSITIONAL_OR_KEYWORD, other.KEYWORD_ONLY}:
            keywords[other.name] = RIGHT[other.name]
    if parameter.kind is parameter.VAR_KEYWORD:
        return refused(lambda: function(**keywords, max_keys=wrong), "max_keys")
    if parameter.kind is parameter.VAR_POSITIONAL:
        return None
    keywords[parameter.name] = wrong
    if function is Quota and parameter.name != "limit":
        keywords.setdefault("period", 1)
    return refused(lambda: function(**keywords), NAMED.get(parameter.name, parameter.name))


@pytest.mark.parametrize("option", ["policy", *Options.__annotations__])
def test_error_names_option_of_a_limit(option):
    refused(lambda: Guard(Limiter(policies={"a": "100/s"}), **{option: object()}), option)


@pytest.mark.parametrize("option", ["methods", "cors_origins", "key", "policy", "cost", "spent"])
@pytest.mark.parametrize("wrong", [[object()], {object(): object()}], ids=["list", "dict"])
def test_error_names_option_of_a_limit_with_wrong_items(option, wrong):
    refused(lambda: Guard(Limiter(policies={"a": "100/s"}), **{option: wrong}), option)


@pytest.mark.parametrize("wrong", [object(), "memory:", None])
def test_error_names_limiter(wrong):
    for make in (
        Guard,
        polylimit.asgi.Limit,
        polylimit.httpx.RateLimitTransport,
        polylimit.httpx.AsyncRateLimitTransport,
        polylimit.requests.RateLimitAdapter,
    ):
        refused(lambda make=make: make(wrong), "limiter")


NUMBERS = [
    lambda number: Limiter(policies={"a": "5/s"}).check("k", cost=number),
    lambda number: Limiter(policies={"a": "5/s"}).check(number),
    lambda number: Limiter(policies={"a": "5/s"}).check("k", headroom=number),
    lambda number: Limiter(policies={"a": "5/s"}).acquire("k", timeout=number),
    lambda number: Limiter(policies={"a": "5/s"}).admin().scan_top(number),
    lambda number: Limiter(policies={"a": "5/s"}).admin().list(entries=number),
    lambda number: Limiter(max_keys=number),
    lambda number: Quota(number, 60),
    lambda number: Quota(5, number),
    lambda number: Quota(5, 60, algorithm="token_bucket", burst=number),
    Quota.concurrent,
    lambda number: Backoff(max_retries=number),
    lambda number: Backoff(base=number, cap=60),
    ManualClock,
    lambda number: ClientAddressRules(ipv4_prefix=number),
    lambda number: Request("k", cost=number),
    lambda number: Guard(Limiter(), "5/s", cost=number),
    lambda number: Guard(Limiter(), "5/s", ttl=number),
    lambda number: Decision.from_dict({"allowed": True, "quotas": [{"limit": number}]}),
]


class Index:
    """A whole number of another library, as numpy has them."""

    def __index__(self):
        return 2


@pytest.mark.parametrize("use", NUMBERS, ids=range(len(NUMBERS)))
def test_whole_numbers_of_other_libraries_are_accepted_and_truth_values_refused(use):
    for number in (2, Index()):
        use(number)
    for wrong in (True, False):
        with pytest.raises(TypeError, match="bool"):
            use(wrong)


def test_key_may_be_uuid():
    limiter, user = Limiter(policies={"a": "5/s"}), uuid.uuid4()
    limiter.check(user, cost=2)
    assert limiter.peek(str(user)).remaining == 3
    assert Limiter().check_many([Request(user, "1/s"), Request(str(user), "1/s")])[1].cause == "quota"
