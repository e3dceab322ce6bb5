import asyncio
import copy
import enum
import math
import pickle
import threading
from datetime import timedelta

import polylimit
import pytest
from polylimit import (
    AsyncLimiter,
    InvalidArgumentError,
    Limiter,
    ManualClock,
    Policy,
    PolylimitError,
    Quota,
    Request,
)


def test_every_operation_on_every_store(store, key):
    with Limiter(store, {"api": "10/day fixed_window"}) as limiter:
        decision = limiter.check(key)
        assert decision and decision.allowed
        assert (decision.remaining, decision.retry_after, decision.source, decision.degraded) == (9, 0.0, "store", None)
        assert limiter.peek(key, "api", cost=10).retry_after > 0
        assert limiter.take(key, cost=100).taken == 9
        assert limiter.charge(key, cost=5).remaining == 0
        assert limiter.refund(key, cost=7).remaining == 2
        denied = limiter.check(key, cost=3)
        assert not denied
        assert 0 < denied.retry_after == denied.retry_after_us / 1e6 <= denied.reset_after <= 86_400
        assert limiter.check(key, cost=11).retry_after is None
        assert limiter.reset(key).remaining == 10
        assert limiter.check(key.encode()).remaining == 9, "text and its bytes are one key"
        assert limiter.acquire(key, timeout=5).allowed
        assert not limiter.acquire(key, cost=9, timeout=timedelta(seconds=1))


def test_quotas_with_a_request_are_a_policy(store, key):
    with Limiter(store) as limiter:
        assert [limiter.check(key, "2/day").allowed for _ in range(3)] == [True, True, False]
        assert not limiter.check(key, Quota(2, timedelta(days=1))), "the same quota by numbers"
        assert limiter.check(key, "3/day")
        assert not limiter.check(key, "100/day; 1/hour", cost=2)
        assert limiter.peek(key, "100/day; 1/hour").quotas[0].remaining == 100, "nothing was taken from the other"


def test_several_requests_in_one_call(store, key):
    with Limiter(store, {"a": "1/day", "b": "5/day"}) as limiter:
        requests = [
            Request(key, "a"),
            Request(key, "a"),
            Request(key.encode(), "b", cost=4),
            Request(key, Quota("9/day")),
        ]
        assert [decision.remaining for decision in limiter.check_many(requests)] == [0, 0, 1, 8]
        answers = limiter.check_many([Request(key, "b"), key], return_exceptions=True)
        assert answers[0].allowed and isinstance(answers[1], InvalidArgumentError)
        with pytest.raises(InvalidArgumentError, match="several"):
            limiter.check_many([key])
        assert limiter.check_many([]) == []
        for mistaken in (key, key.encode()):
            with pytest.raises(TypeError, match="allowed is a list"):
                limiter.check_many(mistaken)
            with pytest.raises(TypeError, match="allowed is a list"):
                limiter.check_together(mistaken)


def test_the_clock_of_tests(store, key):
    clock = ManualClock(1_700_000_000.5)
    limiter = Limiter(store, {"login": "3/15m sliding_log"}, clock=clock)
    assert all(limiter.check(key) for _ in range(3))
    assert limiter.check(key).retry_after == 900.0
    clock.advance(timedelta(minutes=15))
    assert limiter.check(key)
    assert (clock.now, clock.now_us) == (1_700_000_900.5, 1_700_000_900_500_000)
    clock.set(timedelta(microseconds=2**53 - 1))
    assert clock.now_us == 2**53 - 1
    with pytest.raises(InvalidArgumentError, match="2255"):
        clock.advance(1)


@pytest.mark.parametrize("cost", [-1, math.nan, 1e308, 2**64, 10**400, -0.5, 2.0, math.inf, 10**12 + 1])
def test_a_cost_that_is_none(cost):
    limiter = Limiter()
    for operation in (limiter.check, limiter.peek, limiter.take, limiter.charge, limiter.refund):
        with pytest.raises(InvalidArgumentError, match="cost"):
            operation("key", "1/s", cost=cost)
    with pytest.raises(InvalidArgumentError):
        Limiter().check_many([Request("key", "1/s", cost=cost)])
    assert limiter.check("key", "1/s"), "nothing was spent"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda limiter: limiter.check(5.0), "key is of type float: allowed are str, bytes and int"),
        (lambda limiter: limiter.check(key=True), "key is of type bool: allowed are str, bytes and int"),
        (lambda limiter: limiter.check(None), "key is of type NoneType"),
        (lambda limiter: limiter.check("a", 5), "policy is of type int"),
        (lambda limiter: limiter.check("a", cost="1"), "cost is of type str"),
        (lambda limiter: limiter.acquire("a", timeout="1s"), "timeout is of type str"),
        (lambda limiter: Limiter(policies="1/s"), "dict"),
        (lambda limiter: Limiter(policies={"a": 5}), "quotas are of type int"),
        (lambda limiter: Limiter(deadline=b"1s"), "option deadline is of type bytes"),
        (lambda limiter: Limiter(clock=5), "clock"),
        (lambda limiter: Quota(5), "needs a period"),
        (lambda limiter: Quota(5.0, 60), "^limit is of type float: allowed is int$"),
        (lambda limiter: Quota("5", 60), "^limit is of type str: allowed is int$"),
        (lambda limiter: Quota(5, 60, algorithm="token_bucket", burst=5.0), "^burst is of type float: allowed is int$"),
        (lambda limiter: Quota(5, 60, algorithm=5), "algorithm is of type int: allowed is str$"),
        (lambda limiter: Quota(5, 60, aligned=1), "aligned is of type int: allowed is bool$"),
        (lambda limiter: Limiter(url=None), 'url is of type NoneType: allowed is str, such as "memory:", "local:name"'),
        (lambda limiter: Limiter(5), "url is of type int: allowed is str"),
        (lambda limiter: AsyncLimiter(None), "url is of type NoneType: allowed is str"),
        (lambda limiter: Policy(5, "1/s"), "name is of type int: allowed is str$"),
        (lambda limiter: limiter.set_policy(None, "1/s"), "name is of type NoneType: allowed is str$"),
        (lambda limiter: limiter.set_credentials(None), "password is of type NoneType: allowed is str$"),
        (lambda limiter: limiter.policy_for("1/s", 5), "scope is of type int: allowed is str$"),
    ],
)
def test_what_has_another_type(call, said):
    with pytest.raises(TypeError, match=said):
        call(Limiter())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda limiter: limiter.check("a", "nobody"), "nobody"),
        (lambda limiter: limiter.check("a", "100/month"), "days"),
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
        (lambda limiter: Limiter(deadline=1), "deadline"),
        (lambda limiter: Quota(5, 0), "1 ms"),
        (lambda limiter: Quota(5, 60, burst=3), "burst"),
        (lambda limiter: Policy("a b", "1/s"), "a b"),
        (lambda limiter: limiter.set_credentials("secret"), "memory"),
    ],
)
def test_what_is_not_allowed(call, said):
    if said is None:
        call(Limiter())
        return
    with pytest.raises(InvalidArgumentError, match=said) as raised:
        call(Limiter())
    assert "hunter2" not in str(raised.value)


def test_the_whole_table_of_errors():
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


def test_options_by_name(own_redis, key):
    limiter = Limiter(
        own_redis.url,
        {"api": "1/s", "login": ["1/m", Quota(5, 3600)]},
        deadline=timedelta(seconds=10),
        keepalive=30,
        reconnect_min=0.01,
        fallback_share=1 / 3,
        max_in_flight=100,
        max_outstanding_bytes="1MiB",
        max_keys=1000,
        outage={"login": "deny"},
        client_name="tests",
        password=None,
    )
    with limiter:
        limiter.ready(10)
        assert limiter.check(key, "login")
        assert b"name=tests" in own_redis.command("CLIENT", "LIST")
        assert limiter.stats()["applied"] >= 1
        assert limiter.keys() is None
        assert {finding.severity for finding in limiter.doctor()} <= {"fine", "advice", "problem"}
        own_redis.stop()
        denied = limiter.check(key, "login")
        assert (denied.allowed, denied.source) == (False, "deny")
        assert limiter.check(key, "api").source == "fallback"
        own_redis.start()
        limiter.ready(20)
        assert limiter.check(key, "login").source == "store"


def test_the_list_of_options_says_what_there_is():
    options = {option.name: option for option in polylimit.options()}
    assert options["deadline"].kind == "duration"
    assert options["max_keys"].kind == "number"
    assert options["password"].secret
    assert all(option.about and option.allowed for option in options.values())


def test_a_store_that_is_not_there():
    limiter = Limiter("redis://127.0.0.1:1", {"api": "2/day"})
    assert [limiter.check("a").source for _ in range(3)] == ["fallback"] * 3
    assert not limiter.check("a")
    with pytest.raises(polylimit.StoreUnavailableError):
        limiter.ready(0.05)
    assert any(finding.severity == "problem" for finding in limiter.doctor())


def test_a_closed_limiter(store):
    limiter = Limiter(store, {"api": "1/s"})
    limiter.close()
    limiter.close()
    with pytest.raises(polylimit.ClosedError):
        limiter.check("a")


@pytest.mark.parametrize("face", [polylimit.Limiter, polylimit.AsyncLimiter])
def test_limiters_are_not_copied(face):
    limiter = face()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            attempt(limiter)


def test_quotas_are_values():
    quota = Quota(10, 1, algorithm="token_bucket", burst=20)
    assert str(quota) == "10/second token_bucket burst=20"
    assert quota == Quota(str(quota)) == copy.deepcopy(quota) == pickle.loads(pickle.dumps(quota))
    assert len({quota, Quota(str(quota))}) == 1
    assert (quota.limit, quota.period, quota.algorithm, quota.capacity) == (10, 1.0, "token_bucket", 20)
    stepped = Quota("50/day token_bucket burst=200 step=50")
    assert (stepped.step, stepped.buckets, stepped.aligned, stepped.count_denied) == (50, None, False, False)
    assert eval(repr(quota)) == quota


def test_what_is_shown_has_no_key_and_no_secret(key):
    limiter = Limiter("redis://user:hunter2@127.0.0.1:1", {"api": "1/s"})
    shown = [repr(limiter), repr(limiter.asynchronous), repr(Request(key, "api")), repr(limiter.check(key))]
    assert not any(key in text or "hunter2" in text for text in shown)
    assert repr(Limiter().check("a", "2/h fixed_window")).startswith(
        "Decision(allowed=True, remaining=1, retry_after=0.0"
    )
    with pytest.raises(AttributeError):
        limiter.check(key).allowed = True


def test_policies_change_and_keep_what_was_used():
    limiter = Limiter(policies={"api": "5/minute"})
    limiter.check("a", cost=5)
    limiter.set_policy("api", "7/minute")
    assert limiter.check("a").remaining == 1
    assert limiter.policy("api") == Policy("api", Quota(7, 60))
    assert limiter.policy("other") is None
    assert [str(policy) for policy in limiter.policies()] == ["api: 7/minute"]


def test_threads_share_one_budget(store, key):
    limiter = Limiter(store, {"api": "1000/day"})
    allowed = []

    def work():
        allowed.append(sum(limiter.check(key).allowed for _ in range(200)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(allowed) == 1000


def test_waiting_lets_other_threads_run(key):
    clock = ManualClock(0)
    limiter = Limiter(policies={"api": "1/minute fixed_window"}, clock=clock)
    assert limiter.check(key)
    decisions = []
    waiting = threading.Thread(target=lambda: decisions.append(limiter.acquire(key, timeout=math.inf)))
    waiting.start()
    # It can only go on if the waiting thread holds nothing.
    while waiting.is_alive():
        clock.advance(60)
        waiting.join(0.01)
    assert decisions[0].allowed


def test_fields_and_problems():
    limiter = Limiter(policies={"api": "1/minute fixed_window"})
    policy = limiter.policy("api")
    outcomes = [(policy, limiter.check("a"))]
    assert polylimit.problem(outcomes) is None
    outcomes = [(policy, limiter.check("a"))]
    fields = dict(polylimit.header_fields(outcomes, style="both"))
    assert fields["ratelimit-policy"] == '"api";q=1;w=60'
    assert fields["x-ratelimit-remaining"] == "0"
    assert 1 <= int(fields["retry-after"]) <= 60
    assert set(dict(polylimit.header_fields(outcomes, style="none"))) == {"retry-after"}
    problem = polylimit.problem(outcomes)
    assert (problem.status, problem.violated) == (429, ["api"])
    assert problem.body("text/plain") == ("text/plain; charset=utf-8", problem.text)
    assert problem.body() == ("application/problem+json", problem.json)
    with pytest.raises(InvalidArgumentError, match="header style"):
        polylimit.header_fields([], style="new")


def test_client_addresses():
    rules = polylimit.ClientAddressRules(["10.0.0.0/8"], "x-forwarded-for")
    assert rules.header == "x-forwarded-for"
    assert rules.resolve("10.0.0.1", [b"198.51.100.1, 203.0.113.7", b"10.0.0.2"]).key == "203.0.113.7"
    assert rules.resolve("192.0.2.9", [b"203.0.113.7"]).address == "192.0.2.9"
    assert polylimit.ClientAddressRules().resolve("2001:db8:1:2:3::4").key == "2001:db8:1:2::/64"
    assert polylimit.ClientAddressRules().header is None
    assert rules.key("10.0.0.1:80", [b"203.0.113.7"]) == "203.0.113.7"
    assert {rules.key(peer, [b"203.0.113.7"]) for peer in ("host", "unix:", "127.0.0.1 ", "")} == {"unknown"}
    for wrong in (lambda: rules.resolve("host"), lambda: polylimit.ClientAddressRules(["10.0.0.0/8"])):
        with pytest.raises(InvalidArgumentError):
            wrong()


def test_the_zone_of_a_link_local_peer_is_no_part_of_its_address():
    # As a socket gives it.
    assert polylimit.ClientAddressRules().resolve("fe80::1%eth0").address == "fe80::1"


def test_a_list_within_a_list_is_refused():
    endless = ["1/s"]
    endless.append(endless)
    for quotas in (endless, [["1/s"]], ("1/s", ("2/m",))):
        with pytest.raises(TypeError, match="within a list"):
            Limiter(policies={"api": quotas})


@pytest.mark.parametrize("number", [-1, 2**64, -(2**70), 10**400])
def test_numbers_of_any_size_are_invalid_where_they_are_out_of_bounds(number):
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


def test_what_belongs_together_is_spent_together(store, key):
    with Limiter(store, {"wide": "90/day fixed_window"}) as limiter:
        both = [Request(key, "wide"), Request(key, "10/day fixed_window")]
        decided = [limiter.check_together(both) for _ in range(15)]
        assert sum(all(decisions) for decisions in decided) == 10
        assert [decision.remaining for decision in decided[-1]] == [80, 0]
        with pytest.raises(InvalidArgumentError):
            limiter.check_together([Request(key, "wide"), Request(key, "nobody")])
        assert limiter.check_together([]) == []
        assert limiter.peek(key, "wide").remaining == 80


@pytest.mark.parametrize("make", [Limiter, AsyncLimiter])
def test_every_form_of_arguments(make):
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
        lambda: check("a", cost=True),
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
        lambda: check("a", "nobody"),
    ):
        with pytest.raises(InvalidArgumentError):
            settled(wrong())
    assert settled(limiter.peek("a")).remaining == 100 - len(calls)


class Number(enum.IntEnum):
    SEVEN = 7


@pytest.mark.parametrize(
    ("key", "text"), [(42, "42"), (-1, "-1"), (0, "0"), (2**200, str(2**200)), (Number.SEVEN, "7")], ids=str
)
def test_a_whole_number_is_the_key_of_its_text(key, text):
    limiter = Limiter(policies={"api": "9/day"})
    limiter.check(key)
    limiter.check_many([key, Request(key)])
    assert limiter.peek(text).remaining == 6
    assert asyncio.run(awaited(limiter.asynchronous.check(key))).remaining == 5
    assert limiter.reset(key).remaining == 9


def test_a_key_of_too_many_digits():
    with pytest.raises(InvalidArgumentError, match="key is a number of more digits"):
        Limiter().check(10**5000, "1/s")


def test_an_option_of_another_library_is_answered_with_ours():
    for name, ours in [("key_func", "use key"), ("default_limits", "use policy"), ("strategy", "use policy")]:
        with pytest.raises(InvalidArgumentError, match=f"option .?{name}.? is not known: {ours}"):
            Limiter(**{name: lambda: None})


def test_a_scope_is_a_budget_of_its_own():
    limiter = Limiter(policies={"api": "9/day"})
    policy = limiter.policy_for("3/day", scope="/login")
    assert policy.name == "3|day^%2Flogin"
    assert limiter.policy_for(Quota(3, 86_400), "/login") == policy
    assert limiter.policy_for("api", "/login").name == "api"
    assert limiter.asynchronous.policy_for(None, scope="/login").name == "api"
    limiter.check("a", policy.name)
    assert (limiter.peek("a", policy.name).remaining, limiter.peek("a", "3/day").remaining) == (2, 3)


async def awaited(operation):
    return await operation
