"""The operations of `Limiter`."""

import asyncio
import copy
import math
import pickle
import threading
import weakref
from datetime import timedelta

import polylimit
import pytest
from polylimit import (
    Admin,
    AsyncAdmin,
    AsyncLimiter,
    ClosedError,
    InvalidArgumentError,
    Limiter,
    ManualClock,
    Policy,
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


def test_quotas_given_with_a_request_are_a_policy(store, key):
    with Limiter(store) as limiter:
        assert [limiter.check(key, "2/day").allowed for _ in range(3)] == [True, True, False]
        assert not limiter.check(key, Quota(2, timedelta(days=1))), "the same quota by numbers"
        assert limiter.check(key, "3/day")
        assert not limiter.check(key, "100/day; 1/hour", cost=2)
        assert limiter.peek(key, "100/day; 1/hour").quotas[0].remaining == 100, "nothing was taken from the other"


def test_each_quota_has_its_verdict(store, key):
    clock = ManualClock(1_700_000_000)
    with Limiter(store, {"login": "2/minute sliding_log; 5/day sliding_log"}, clock=clock) as limiter:
        admitted = limiter.check(key, cost=2)
        assert [(quota.allowed, quota.retry_after) for quota in admitted.quotas] == [(True, 0.0), (True, 0.0)]
        denied = limiter.check(key)
        assert [(quota.limit, quota.allowed, quota.retry_after) for quota in denied.quotas] == [
            (2, False, 60.0),
            (5, True, 0.0),
        ]
        assert denied.quotas[0].retry_after_us == denied.retry_after_us == 60_000_000
        assert repr(denied.quotas[0]).endswith(", allowed=False, retry_after=60.0)")
        assert "allowed" not in repr(denied.quotas[1])
        assert denied.quotas[0] != admitted.quotas[0]
        never = limiter.peek(key, cost=3)
        assert [(quota.allowed, quota.retry_after, quota.retry_after_us) for quota in never.quotas] == [
            (False, None, None),
            (True, 0.0, 0),
        ]
        assert repr(never.quotas[0]).endswith(", allowed=False, retry_after=None)")
        usage = limiter.charge(key, cost=5)
        assert [(quota.remaining, quota.allowed, quota.retry_after) for quota in usage.quotas] == [(0, True, 0.0)] * 2
        (only,) = limiter.check(key, "0/day").quotas
        assert (only.allowed, only.retry_after) == (False, None)


def test_check_many_decides_each_request(store, key):
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
            with pytest.raises(TypeError, match="allowed is a list"):
                limiter.peek_together(mistaken)
            with pytest.raises(TypeError, match="allowed is a list"):
                limiter.reserve_together(mistaken)


def test_manual_clock_controls_decisions(store, key):
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


def test_options_are_given_by_name(own_redis, key):
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
        assert limiter.admin().keys() is None
        assert {finding.severity for finding in limiter.admin().doctor()} <= {"fine", "advice", "problem"}
        own_redis.stop()
        denied = limiter.check(key, "login")
        assert (denied.allowed, denied.source) == (False, "deny")
        assert limiter.check(key, "api").source == "fallback"
        own_redis.start()
        limiter.ready(20)
        assert limiter.check(key, "login").source == "store"


def test_unreachable_store_falls_back():
    limiter = Limiter("redis://127.0.0.1:1", {"api": "2/day"})
    assert [limiter.check("a").source for _ in range(3)] == ["fallback"] * 3
    assert not limiter.check("a")
    with pytest.raises(polylimit.StoreUnavailableError):
        limiter.ready(0.05)
    assert any(finding.severity == "problem" for finding in limiter.admin().doctor())


def test_closed_limiter_raises(store):
    limiter = Limiter(store, {"api": "1/s"})
    limiter.close()
    limiter.close()
    with pytest.raises(polylimit.ClosedError):
        limiter.check("a")


@pytest.mark.parametrize("make_limiter", [polylimit.Limiter, polylimit.AsyncLimiter])
def test_limiter_cannot_be_copied_or_pickled(make_limiter):
    limiter = make_limiter()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        for value in (limiter, limiter.admin()):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                attempt(value)


@pytest.mark.parametrize(("kind", "of"), [(polylimit.Limiter, Admin), (polylimit.AsyncLimiter, AsyncAdmin)])
def test_admin_keeps_its_limiter(kind, of):
    admin = kind(policies={"a": "1/hour"}).admin()
    assert type(admin) is of and of.__module__ == "polylimit"
    assert repr(admin) == f"{of.__name__}(a: 1/hour)"
    assert weakref.ref(admin)() is admin
    assert admin.keys() == 0
    limiter = kind(policies={"a": "1/hour"})
    limiter.close()
    closed = limiter.admin()
    assert closed.top_keys(1)["denied"] == []
    with pytest.raises(ClosedError):
        asyncio.run(awaited(closed.doctor()))


def test_repr_shows_no_key_and_no_secret(key):
    limiter = Limiter("redis://user:hunter2@127.0.0.1:1", {"api": "1/s"})
    shown = [repr(limiter), repr(limiter.asynchronous), repr(Request(key, "api")), repr(limiter.check(key))]
    assert not any(key in text or "hunter2" in text for text in shown)
    assert repr(Limiter().check("a", "2/h fixed_window")).startswith(
        "Decision(allowed=True, remaining=1, retry_after=0.0"
    )
    with pytest.raises(AttributeError):
        limiter.check(key).allowed = True


def test_changed_policy_keeps_usage():
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


def test_waiting_acquire_releases_the_gil(key):
    clock = ManualClock(0)
    limiter = Limiter(policies={"api": "1/minute fixed_window"}, clock=clock)
    assert limiter.check(key)
    decisions = []
    waiting = threading.Thread(target=lambda: decisions.append(limiter.acquire(key, timeout=math.inf)))
    waiting.start()
    # This loop can only continue if the waiting thread has released the GIL.
    while waiting.is_alive():
        clock.advance(60)
        waiting.join(0.01)
    assert decisions[0].allowed


def test_header_fields_and_problem_document():
    limiter = Limiter(policies={"api": "1/minute fixed_window"})
    policy = limiter.policy("api")
    outcomes = [(policy, limiter.check("a"))]
    assert polylimit.problem(outcomes) is None
    outcomes = [(policy, limiter.check("a"))]
    fields = dict(polylimit.header_fields(outcomes, headers="both"))
    assert fields["ratelimit-policy"] == '"api";q=1;w=60'
    assert fields["x-ratelimit-remaining"] == "0"
    assert 1 <= int(fields["retry-after"]) <= 60
    assert set(dict(polylimit.header_fields(outcomes, headers="none"))) == {"retry-after"}
    problem = polylimit.problem(outcomes)
    assert (problem.status, problem.violated) == (429, ["api"])
    assert problem.body("text/plain") == ("text/plain; charset=utf-8", problem.text)
    assert problem.body() == ("application/problem+json", problem.json)
    with pytest.raises(InvalidArgumentError, match='header setting "new" is not known'):
        polylimit.header_fields([], headers="new")


def test_client_address_rules_resolve_proxies():
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


def test_zone_of_link_local_peer_is_ignored():
    # A socket reports such an address with its zone.
    assert polylimit.ClientAddressRules().resolve("fe80::1%eth0").address == "fe80::1"


def test_check_together_spends_all_or_nothing(store, key):
    with Limiter(store, {"wide": "90/day fixed_window"}) as limiter:
        both = [Request(key, "wide"), Request(key, "10/day fixed_window")]
        decided = [limiter.check_together(both) for _ in range(15)]
        assert sum(all(decisions) for decisions in decided) == 10
        assert [decision.remaining for decision in decided[-1]] == [80, 0]
        with pytest.raises(InvalidArgumentError):
            limiter.check_together([Request(key, "wide"), Request(key, "unknown")])
        assert limiter.check_together([]) == []
        assert limiter.peek(key, "wide").remaining == 80


def test_peek_together_spends_nothing(store, key):
    with Limiter(store, {"wide": "9/day fixed_window"}) as limiter:
        both = [Request(key, "wide", cost=4), Request(key, "1/day fixed_window")]
        assert [decision.remaining for decision in limiter.peek_together(both)] == [9, 1]
        assert all(limiter.check_together(both))
        decisions = limiter.peek_together(both)
        assert [(decision.allowed, decision.remaining) for decision in decisions] == [(True, 5), (False, 0)]
        with pytest.raises(InvalidArgumentError):
            limiter.peek_together([Request(key, "unknown")])
        assert limiter.peek_together([]) == []


def test_scope_has_a_separate_budget():
    limiter = Limiter(policies={"api": "9/day"})
    policy = limiter.policy_for("3/day", scope="/login")
    assert policy.name == "3|day^%2Flogin"
    assert limiter.policy_for(Quota(3, 86_400), "/login") == policy
    assert limiter.policy_for("api", "/login").name == "api"
    assert limiter.asynchronous.policy_for(None, scope="/login").name == "api"
    limiter.check("a", policy.name)
    assert (limiter.peek("a", policy.name).remaining, limiter.peek("a", "3/day").remaining) == (2, 3)


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_closed_limiter_still_describes_itself(kind):
    limiter = kind(policies={"a": "1/hour"}, observe_keys=8)
    limiter.close()
    assert [policy.name for policy in limiter.policies()] == ["a"]
    assert limiter.policy("a") == limiter.policies()[0]
    assert limiter.stats() and limiter.metrics() and "polylimit_" in limiter.metrics_text()
    assert limiter.admin().configuration() is None and limiter.admin().candidate_counts("a") is None
    assert limiter.admin().top_keys(1)["denied"] == []
    limiter.close()
    for ask in (
        lambda: limiter.check("k"),
        lambda: limiter.reset("k"),
        lambda: limiter.admin().explain("k"),
        limiter.admin().list,
        lambda: limiter.ready(1),
    ):
        with pytest.raises(ClosedError):
            answer = ask()
            asyncio.run(awaited(answer))
    for describe in (lambda: limiter.set_policy("b", "1/s"), lambda: limiter.policy_for("1/s")):
        with pytest.raises(ClosedError):
            describe()


async def awaited(operation):
    return await operation
