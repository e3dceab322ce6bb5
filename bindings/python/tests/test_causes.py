"""Why requests are denied: headroom, blocks, and what decisions contain about them."""

import math
from datetime import timedelta

import pytest
from polylimit import AsyncLimiter, ClosedError, InvalidArgumentError, Limiter, ManualClock, Request

POLICIES = {"api": "10/day fixed_window excess=2", "model": "10 concurrent; 100/day fixed_window"}


def test_headroom_is_left_for_others(store, key):
    with Limiter(store, POLICIES) as limiter:
        assert limiter.check(key, "api", cost=6).remaining == 6
        left = limiter.peek(key, "api", headroom=50)
        assert (left.allowed, left.remaining) == (False, 0)
        assert limiter.check(key, "api", headroom=30).remaining == 1
        denied = limiter.check(key, "api", cost=2, headroom=30)
        assert not denied
        assert (denied.cause, denied.crossed) == ("quota", False)
        assert limiter.check(key, "api", cost=2).cause is None
        assert not limiter.acquire(key, "api", cost=2, timeout=0, headroom=30)
        requests = [Request(key, "api", headroom=99), Request(key, "api", cost=2, headroom=0)]
        assert [decision.allowed for decision in limiter.check_many(requests)] == [False, True]


def test_reserve_leaves_slots_for_others(store, key):
    with Limiter(store, POLICIES) as limiter:
        held = [limiter.reserve(key, "model", headroom=80) for _ in range(3)]
        assert [reservation.allowed for reservation in held] == [True, True, False]
        assert held[2].decision.cause == "concurrency"
        assert limiter.reserve(key, "model").allowed
        assert limiter.reserve(key, "model", cost=99).decision.cause == "quota"


def test_decision_says_that_its_units_were_the_first_beyond_the_limit(store, key):
    with Limiter(store, POLICIES) as limiter:
        shown = [limiter.check(key, "api", cost=cost).crossed for cost in (10, 1, 1, 1)]
        assert shown == [False, True, False, False]
        decision = limiter.peek(key, "api")
        assert (decision.over, decision.elastic, decision.shadowed) == (2, False, False)


def test_blocked_key_is_denied(store, key):
    with Limiter(store, POLICIES) as limiter:
        usage = limiter.admin().block(key, "api", time=timedelta(hours=1))
        assert usage.remaining == 0
        assert 3590 < usage.reset_after <= 3600
        denied = limiter.check(key, "api")
        assert (denied.allowed, denied.cause, denied.remaining) == (False, "blocked", 0)
        assert 3590 < denied.retry_after <= 3600
        assert limiter.take(key, "api").taken == 0
        assert limiter.reserve(key, "model").allowed, "other policies go on"
        assert limiter.admin().block(key, "api", time=60).reset_after > 3590, "a longer block stays"
        assert limiter.charge(key, "api", cost=4).remaining == 0
        assert limiter.admin().unblock(key, "api").remaining == 8
        assert limiter.check(key, "api").allowed
        limiter.admin().block(key, "api", time=60)
        assert limiter.admin().block(key, "api", time=0).remaining == 7
        limiter.admin().block(key, "api", time=60)
        assert limiter.reset(key, "api").remaining == 12


def test_block_ends_at_its_time(key):
    clock = ManualClock(1_000_000_000)
    limiter = Limiter(policies=POLICIES, clock=clock)
    limiter.admin().block(key, "api", time=0.001)
    assert limiter.check(key, "api").retry_after_us == 1000
    clock.advance(0.001)
    assert limiter.check(key, "api").allowed


def test_asynchronous_limiter_has_the_same(run, store, key):
    async def main():
        async with AsyncLimiter(store, POLICIES) as limiter:
            assert (await limiter.check(key, "api", cost=6, headroom=50)).remaining == 0
            denied = await limiter.check(key, "api", headroom=50)
            assert (denied.allowed, denied.cause) == (False, "quota")
            assert not await limiter.peek(key, "api", headroom=50)
            assert not await limiter.acquire(key, "api", timeout=0, headroom=50)
            reservation = await limiter.reserve(key, "model", headroom=99)
            assert reservation.decision.cause == "concurrency"
            assert (await limiter.admin().block(key, "api", time=timedelta(minutes=1))).remaining == 0
            assert (await limiter.check(key, "api")).cause == "blocked"
            assert (await limiter.admin().unblock(key, "api")).remaining == 6

    run(main())


def test_plan_without_a_configuration_changes_nothing(store, key):
    with Limiter(store, POLICIES) as limiter:
        assert limiter.check(key, "api", plan="gold").remaining == 11
        assert limiter.peek(key, "api", plan="gold").remaining == 11
        assert limiter.take(key, "api", plan="gold").taken == 1
        assert limiter.charge(key, "api", plan="gold").remaining == 9
        assert limiter.refund(key, "api", plan="gold").remaining == 10
        assert limiter.acquire(key, "api", plan="gold", timeout=0).remaining == 9
        assert limiter.check_many([Request(key, "api", plan="gold")])[0].remaining == 8
        reservation = limiter.reserve(key, "model", plan="gold", ttl=30)
        assert limiter.renew(key, reservation.id, 60, policy="model", plan="gold").found
        assert limiter.commit(key, reservation.id, policy="model", plan="gold").found
        assert not limiter.cancel(key, reservation.id, policy="model", plan="gold").found
        limiter.admin().block(key, "api", plan="gold", time=60)
        assert limiter.admin().unblock(key, "api", plan="gold").remaining == 8
        assert limiter.reset(key, "api", plan="gold").remaining == 12


@pytest.mark.parametrize("headroom", [-1, 100, 2**64, 10**400, 0.5, 50.0, math.nan])
def test_invalid_headroom_is_refused(key, headroom):
    limiter = Limiter(policies=POLICIES)
    for call in (
        limiter.check,
        limiter.peek,
        limiter.reserve,
        lambda *a, **k: limiter.acquire(*a, timeout=0, **k),
        Request,
    ):
        with pytest.raises(InvalidArgumentError, match=r"headroom is .*: allowed is a whole number from 0 to 99"):
            call(key, "api", headroom=headroom)
    assert limiter.admin().keys() == 0


@pytest.mark.parametrize("time", [-1, 0.0001, timedelta(days=366, microseconds=1), math.inf, math.nan])
def test_invalid_time_of_a_block_is_refused(key, time):
    limiter = Limiter(policies=POLICIES)
    with pytest.raises(InvalidArgumentError, match=r"^time is|^a key is blocked for"):
        limiter.admin().block(key, "api", time=time)
    assert limiter.admin().keys() == 0


def test_types_of_arguments_are_checked(key):
    limiter = Limiter(policies=POLICIES)
    calls = [
        (lambda: limiter.check(key, "api", headroom="5"), "headroom is of type str: allowed is int"),
        (lambda: limiter.check(key, "api", plan=5), "plan is of type int: allowed is str"),
        (lambda: limiter.take(key, "api", headroom=5), "headroom"),
        (lambda: limiter.admin().block(key, "api", time="1h"), "time is of type str: allowed are seconds"),
        (lambda: limiter.admin().block(key, "api"), "time"),
        (lambda: Request(key, "api", plan=b"gold"), "plan is of type bytes: allowed is str"),
    ]
    for call, message in calls:
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(InvalidArgumentError, match="plan has half of a surrogate pair"):
        limiter.check(key, "api", plan="\ud800")


def test_request_shows_headroom_and_plan_and_no_key(key):
    request = Request(key, "api", cost=2, headroom=30, plan="gold")
    assert (request.key, request.policy, request.cost, request.headroom, request.plan) == (key, "api", 2, 30, "gold")
    assert repr(request) == "Request(key=..., policy='api', cost=2, headroom=30, plan='gold')"
    plain = Request(key)
    assert (plain.headroom, plain.plan) == (0, None)
    assert repr(plain) == "Request(key=..., policy=None, cost=1)"


def test_decision_shows_its_cause(key):
    clock = ManualClock(1_000_000_000)
    limiter = Limiter(policies=POLICIES, clock=clock)
    limiter.check(key, "api", cost=10)
    crossed = limiter.check(key, "api")
    assert repr(crossed).endswith(", over=1, crossed=True)")
    limiter.admin().block(key, "api", time=60)
    denied = limiter.check(key, "api")
    assert repr(denied).endswith(", over=1, cause='blocked')")
    assert denied == limiter.check(key, "api")
    assert denied != crossed


def test_closed_limiter_blocks_nothing(key):
    limiter = Limiter(policies=POLICIES)
    limiter.close()
    for call in (lambda: limiter.admin().block(key, "api", time=60), lambda: limiter.admin().unblock(key, "api")):
        with pytest.raises(ClosedError):
            call()
